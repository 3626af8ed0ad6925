//! Memory handed from one process to another over a Unix socket.

use crate::Memory;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

/// A message must have a byte for descriptors to go with.
const BYTE: [u8; 1] = [b'M'];

/// Hands a memory over. One short message: it never waits.
///
/// # Errors
///
/// If the memory has no file, or the other side has gone.
pub fn send_memory(socket: impl AsFd, memory: &Memory) -> io::Result<()> {
    let file = memory.file().ok_or_else(|| io::Error::other("private memory has no file"))?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let files = [file];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)), "there is space for one");
    sendmsg(socket, &[IoSlice::new(&BYTE)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Takes over a memory; waits for it if the socket does.
///
/// # Errors
///
/// If the other side has gone, or sends something else.
pub fn receive_memory(socket: impl AsFd) -> io::Result<Memory> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags)?;
    let file = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    match file {
        Some(file) => Memory::attach(file),
        None if received.bytes == 0 => Err(io::ErrorKind::UnexpectedEof.into()),
        None => Err(io::Error::other("the message brings no memory")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn memory_goes_over_a_socket() {
        let (here, there) = UnixStream::pair().unwrap();
        let memory = Memory::shared(1 << 20, "test").unwrap();
        send_memory(&here, &memory).unwrap();
        let same = receive_memory(&there).unwrap();
        memory.words()[5].store(9, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(same.words()[5].load(std::sync::atomic::Ordering::SeqCst), 9);
    }

    #[test]
    fn nothing_and_something_else_are_errors() {
        let (here, there) = UnixStream::pair().unwrap();
        assert!(send_memory(&here, &Memory::private(4096).unwrap()).is_err());
        io::Write::write_all(&mut &here, b"x").unwrap();
        assert!(receive_memory(&there).unwrap_err().to_string().contains("no memory"));
        drop(here);
        let gone = receive_memory(&there).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::UnexpectedEof);
    }
}
