//! What others send to a connection: messages of channels, lines of MONITOR, and
//! the wish that it end. A sender may be on any worker; the connection's own
//! worker takes the messages out and writes them in its client's protocol.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::reply::Reply;

/// What a message costs beyond its bytes.
const MESSAGE_OVERHEAD: usize = 64;

/// There are messages.
const MAIL: u8 = 1;
/// The connection shall end.
const KILLED: u8 = 2;

/// A message on its way.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// What was published.
    Published {
        /// `message`, `pmessage` or `smessage`.
        kind: &'static str,
        pattern: Option<Arc<[u8]>>,
        channel: Arc<[u8]>,
        payload: Arc<[u8]>,
    },
    /// A line for MONITOR.
    Line(Arc<[u8]>),
}

impl Message {
    fn bytes(&self) -> usize {
        MESSAGE_OVERHEAD
            + match self {
                Self::Published { pattern, channel, payload, .. } => {
                    pattern.as_ref().map_or(0, |pattern| pattern.len())
                        + channel.len()
                        + payload.len()
                }
                Self::Line(line) => line.len(),
            }
    }

    /// Appends it as the client's protocol has it.
    pub(crate) fn write(&self, reply: &mut Reply) {
        match self {
            Self::Published { kind, pattern, channel, payload } => {
                reply.push(if pattern.is_some() { 4 } else { 3 });
                reply.bulk(kind.as_bytes());
                if let Some(pattern) = pattern {
                    reply.bulk(pattern);
                }
                reply.bulk(channel);
                reply.bulk(payload);
            }
            Self::Line(line) => reply.simple_bytes(line),
        }
    }
}

/// Messages that wait, and how to wake who takes them.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// Whether there is anything to see here: all that a connection looks at
    /// before it waits. Written with Release after what it announces, read with
    /// Acquire.
    flags: AtomicU8,
    mail: Mutex<Mail>,
}

#[derive(Debug, Default)]
struct Mail {
    messages: VecDeque<Message>,
    bytes: usize,
    waker: Option<Waker>,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whom to wake: the task of the connection, for as long as it lives.
    pub(crate) fn belongs_to(&self, waker: &Waker) {
        self.lock().waker = Some(waker.clone());
    }

    /// Puts a message in, unless more than `bytes_max` would wait: then the
    /// connection shall end, and the answer is false.
    pub(crate) fn put(&self, message: Message, bytes_max: usize) -> bool {
        let mut mail = self.lock();
        mail.bytes += message.bytes();
        let fits = bytes_max == 0 || mail.bytes <= bytes_max;
        if fits {
            mail.messages.push_back(message);
        } else {
            *mail = Mail { waker: mail.waker.take(), ..Mail::default() };
        }
        self.announce(if fits { MAIL } else { KILLED }, mail);
        fits
    }

    /// Asks the connection to end.
    pub(crate) fn kill(&self) {
        self.announce(KILLED, self.lock());
    }

    fn announce(&self, flag: u8, mail: MutexGuard<'_, Mail>) {
        let before = self.flags.fetch_or(flag, Ordering::AcqRel);
        let waker = if before & flag == 0 { mail.waker.clone() } else { None };
        drop(mail);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether the connection shall end.
    #[inline]
    pub(crate) fn is_killed(&self) -> bool {
        self.flags.load(Ordering::Acquire) & KILLED != 0
    }

    /// Whether messages wait.
    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        self.flags.load(Ordering::Acquire) & MAIL != 0
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Takes messages out, some `bytes_max` of them at most.
    pub(crate) fn take(&self, bytes_max: usize, mut each: impl FnMut(Message)) {
        let mut taken = 0;
        let mut mail = self.lock();
        while taken < bytes_max {
            let Some(message) = mail.messages.pop_front() else {
                self.flags.fetch_and(!MAIL, Ordering::AcqRel);
                return;
            };
            let bytes = message.bytes();
            taken += bytes;
            mail.bytes -= bytes;
            each(message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Message {
        Message::Line(text.as_bytes().into())
    }

    fn texts(inbox: &Inbox, bytes_max: usize) -> Vec<String> {
        let mut texts = Vec::new();
        inbox.take(bytes_max, |message| {
            let mut reply = Reply::default();
            message.write(&mut reply);
            texts.push(String::from_utf8(reply.into_bytes()).unwrap());
        });
        texts
    }

    #[test]
    fn messages_come_out_in_order_and_in_parts() {
        let inbox = Inbox::default();
        for text in ["a", "b", "c"] {
            assert!(inbox.put(line(text), 1000));
        }
        assert!(inbox.has_mail());
        assert_eq!(texts(&inbox, 100), ["+a\r\n", "+b\r\n"]);
        assert!(inbox.has_mail());
        assert_eq!(texts(&inbox, 100), ["+c\r\n"]);
        assert!(!inbox.has_mail() && inbox.bytes() == 0);
    }

    #[test]
    fn who_does_not_take_them_out_is_ended() {
        let inbox = Inbox::default();
        assert!(inbox.put(line("a"), 100));
        assert!(!inbox.is_killed());
        assert!(!inbox.put(line("b"), 100));
        assert!(inbox.is_killed());
        assert_eq!(inbox.bytes(), 0, "what nobody will read takes no memory");
    }
}
