//! The frames between a test and the agent in its machine.
//!
//! ```text
//! | kind 1 | ticket 4 | length 4 | body |        little-endian
//! ```
//!
//! A ticket is a number that the test chooses; all that the agent says about a
//! request carries its ticket.

use std::io::{self, Read, Write};

/// A file is one frame, and none of ours is larger.
const BODY_BYTES_MAX: u32 = 1 << 30;
const HEAD_BYTES: usize = 9;

/// What a frame means, and what its body holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// To the agent: run this in a shell.
    Run = 1,
    /// To the agent: end what runs under this ticket.
    Kill = 2,
    /// To the agent: a path, a zero byte, and what that file shall hold.
    Put = 3,
    /// To the agent: give the file of this path.
    Get = 4,
    /// From the agent: it listens.
    Ready = 16,
    /// From the agent: more of a command's standard output.
    Output = 17,
    /// From the agent: more of a command's standard error.
    Errors = 18,
    /// From the agent: a command's end; its status as 4 bytes, 128 and more for a signal.
    Ended = 19,
    /// From the agent: the file is there; or its bytes, if it was asked for.
    Done = 20,
    /// From the agent: why a request cannot be served.
    Refused = 21,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        let all = [
            Self::Run,
            Self::Kill,
            Self::Put,
            Self::Get,
            Self::Ready,
            Self::Output,
            Self::Errors,
            Self::Ended,
            Self::Done,
            Self::Refused,
        ];
        all.into_iter().find(|&kind| kind as u8 == byte)
    }
}

/// One message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// What it means.
    pub kind: Kind,
    /// What it is about.
    pub ticket: u32,
    /// What it carries.
    pub body: Vec<u8>,
}

impl Frame {
    /// Takes the next frame; an error also where the channel ends.
    pub fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut head = [0; HEAD_BYTES];
        from.read_exact(&mut head)?;
        let [kind, t0, t1, t2, t3, l0, l1, l2, l3] = head;
        let kind = Kind::of(kind).ok_or_else(|| bad(format!("{kind} is no kind of frame")))?;
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        if length > BODY_BYTES_MAX {
            return Err(bad(format!("a frame of {length} bytes")));
        }
        let mut body = vec![0; length as usize];
        from.read_exact(&mut body)?;
        Ok(Self { kind, ticket: u32::from_le_bytes([t0, t1, t2, t3]), body })
    }

    /// Sends a frame.
    pub fn write(to: &mut impl Write, kind: Kind, ticket: u32, body: &[u8]) -> io::Result<()> {
        let length = u32::try_from(body.len())
            .ok()
            .filter(|&length| length <= BODY_BYTES_MAX)
            .ok_or_else(|| bad(format!("{} bytes do not fit a frame", body.len())))?;
        let mut head = [0; HEAD_BYTES];
        head[0] = kind as u8;
        head[1..5].copy_from_slice(&ticket.to_le_bytes());
        head[5..].copy_from_slice(&length.to_le_bytes());
        to.write_all(&head)?;
        to.write_all(body)?;
        to.flush()
    }

    /// The parts of a [`Kind::Put`].
    pub fn file(&self) -> io::Result<(&str, &[u8])> {
        let end = self.body.iter().position(|&byte| byte == 0);
        let end = end.ok_or_else(|| bad("a file without the end of its path".to_owned()))?;
        let path =
            std::str::from_utf8(&self.body[..end]).map_err(|error| bad(error.to_string()))?;
        Ok((path, &self.body[end + 1..]))
    }
}

fn bad(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in() {
        let mut channel = Vec::new();
        Frame::write(&mut channel, Kind::Put, 7, b"/etc/x\0a\0b").unwrap();
        Frame::write(&mut channel, Kind::Ended, u32::MAX, &137u32.to_le_bytes()).unwrap();
        let mut rest = &channel[..];
        let first = Frame::read(&mut rest).unwrap();
        assert_eq!((first.kind, first.ticket), (Kind::Put, 7));
        assert_eq!(first.file().unwrap(), ("/etc/x", &b"a\0b"[..]));
        let second = Frame::read(&mut rest).unwrap();
        assert_eq!((second.kind, second.ticket), (Kind::Ended, u32::MAX));
        assert_eq!(Frame::read(&mut rest).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn strange_bytes_are_errors() {
        assert!(Frame::read(&mut &[99, 0, 0, 0, 0, 0, 0, 0, 0][..]).is_err());
        assert!(Frame::read(&mut &[1, 0, 0, 0, 0, 255, 255, 255, 255][..]).is_err());
        let unnamed = Frame { kind: Kind::Put, ticket: 0, body: b"no end".to_vec() };
        assert!(unnamed.file().is_err());
    }
}
