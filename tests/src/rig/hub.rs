//! The network between machines: takes Ethernet frames from each QEMU and hands
//! them to the others.
//!
//! ```text
//! on the socket:  | length 4, big-endian | frame |
//! frame:          | destination 6 | source 6 | ...
//! ```

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::net::{SendFlags, send};

/// Longest frame that QEMU sends.
const FRAME_BYTES_MAX: usize = 68 << 10;
const HEAD_BYTES: usize = 4;
/// Machine `number`'s address ends in its number, so nothing needs to be learnt.
const MAC_BYTES: usize = 6;

/// Threads that carry frames until all machines are gone.
#[derive(Debug)]
pub(super) struct Hub {
    own: Arc<[Mutex<Port>]>,
    threads: Vec<JoinHandle<()>>,
}

/// Our end of a machine's socket.
#[derive(Debug)]
struct Port {
    stream: UnixStream,
    /// The rest of a frame of which the machine has taken a part.
    begun: Vec<u8>,
}

impl Hub {
    /// A hub and, for each machine, the socket to give to its QEMU.
    pub(super) fn with_ports(count: usize) -> (Self, Vec<UnixStream>) {
        let pair = || UnixStream::pair().expect("a process may have a few sockets more");
        let (own, ports): (Vec<UnixStream>, Vec<UnixStream>) = (0..count).map(|_| pair()).unzip();
        let readers: Vec<UnixStream> = own
            .iter()
            .map(|stream| stream.try_clone().expect("a process may have a few sockets more"))
            .collect();
        let own: Arc<[Mutex<Port>]> =
            own.into_iter().map(|stream| Mutex::new(Port { stream, begun: Vec::new() })).collect();
        let threads = readers
            .into_iter()
            .enumerate()
            .map(|(index, reader)| {
                let own = Arc::clone(&own);
                std::thread::spawn(move || carry(reader, index, &own))
            })
            .collect();
        (Self { own, threads }, ports)
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        for port in self.own.iter() {
            let port = port.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = port.stream.shutdown(std::net::Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The MAC address of a machine, from 1 on.
pub(super) fn mac(number: usize) -> String {
    format!("52:54:00:00:00:{number:02x}")
}

/// Hands on what machine `index` sends, until it is gone.
fn carry(mut from: UnixStream, index: usize, ports: &[Mutex<Port>]) {
    let mut frame = vec![0; HEAD_BYTES + FRAME_BYTES_MAX];
    while let Ok(length) = next_frame(&mut from, &mut frame) {
        let frame = &frame[..HEAD_BYTES + length];
        let Some(destination) = frame[HEAD_BYTES..].first_chunk::<MAC_BYTES>() else { continue };
        let to_all = destination[0] & 1 == 1;
        let number = usize::from(destination[MAC_BYTES - 1]);
        for (other, port) in ports.iter().enumerate() {
            if other != index && (to_all || other + 1 == number) {
                port.lock().unwrap_or_else(PoisonError::into_inner).deliver(frame);
            }
        }
    }
}

/// Length of the next frame, which then lies behind its head.
fn next_frame(from: &mut UnixStream, frame: &mut [u8]) -> std::io::Result<usize> {
    let (head, body) = frame.split_at_mut(HEAD_BYTES);
    from.read_exact(head)?;
    let length = u32::from_be_bytes(head.try_into().expect("a head has 4 bytes")) as usize;
    let body = body.get_mut(..length).ok_or(ErrorKind::InvalidData)?;
    from.read_exact(body)?;
    Ok(length)
}

impl Port {
    /// A frame for which the receiver has no room is lost, as on a real switch; nobody
    /// waits for a machine that has stopped. A dead one takes nothing.
    fn deliver(&mut self, frame: &[u8]) {
        if !self.begun.is_empty() {
            let sent = self.send(&self.begun);
            self.begun.drain(..sent);
        }
        if self.begun.is_empty() {
            let sent = self.send(frame);
            if sent > 0 {
                self.begun.extend_from_slice(&frame[sent..]);
            }
        }
    }

    /// How many of the bytes there was room for.
    fn send(&self, bytes: &[u8]) -> usize {
        send(&self.stream, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn frame(to: usize, text: &str) -> Vec<u8> {
        let mut bytes = vec![0x52, 0x54, 0, 0, 0, u8::try_from(to).unwrap()];
        bytes.extend_from_slice(text.as_bytes());
        let mut whole = u32::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
        whole.extend_from_slice(&bytes);
        whole
    }

    fn received(port: &mut UnixStream) -> String {
        let mut space = vec![0; HEAD_BYTES + FRAME_BYTES_MAX];
        let length = next_frame(port, &mut space).unwrap();
        String::from_utf8(space[HEAD_BYTES + MAC_BYTES..HEAD_BYTES + length].to_vec()).unwrap()
    }

    #[test]
    fn a_frame_reaches_whom_it_is_for_and_a_broadcast_all_others() {
        let (_hub, mut ports) = Hub::with_ports(3);
        ports[0].write_all(&frame(3, "for three")).unwrap();
        let mut broadcast = frame(0xff, "for all");
        broadcast[HEAD_BYTES..HEAD_BYTES + MAC_BYTES].fill(0xff);
        ports[0].write_all(&broadcast).unwrap();
        assert_eq!(received(&mut ports[1]), "for all");
        assert_eq!(received(&mut ports[2]), "for three");
        assert_eq!(received(&mut ports[2]), "for all");
    }

    #[test]
    fn a_machine_that_takes_nothing_holds_up_nobody() {
        let (_hub, mut ports) = Hub::with_ports(3);
        let text = "x".repeat(60_000);
        for _ in 0..100 {
            ports[0].write_all(&frame(2, &text)).unwrap();
        }
        ports[0].write_all(&frame(3, "still here")).unwrap();
        assert_eq!(received(&mut ports[2]), "still here");
    }

    #[test]
    fn a_dead_machine_holds_up_nobody() {
        let (_hub, mut ports) = Hub::with_ports(3);
        drop(ports.remove(1));
        ports[0].write_all(&frame(2, "lost")).unwrap();
        ports[0].write_all(&frame(3, "still here")).unwrap();
        assert_eq!(received(&mut ports[1]), "still here");
    }
}
