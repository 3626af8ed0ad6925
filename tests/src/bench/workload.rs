//! What is asked, and what the answer must be.

use super::keys::{DIGITS, KEY_BYTES, Keys};

/// The command under load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// GET of a key that is there.
    Get,
    /// SET of a key that is there.
    Set,
}

/// One row of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Workload {
    /// The command.
    pub verb: Verb,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// Requests that a connection sends before it waits for their replies.
    pub pipeline: usize,
}

impl Workload {
    /// All rows, in the order of the table.
    pub fn all() -> Vec<Self> {
        let mut rows = Vec::new();
        for value_bytes in [64, 1024] {
            for verb in [Verb::Get, Verb::Set] {
                for pipeline in [1, 16, 64] {
                    rows.push(Self { verb, value_bytes, pipeline });
                }
            }
        }
        rows
    }

    /// Reads `get:64:16`: verb, bytes of a value, pipeline.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let [verb, value_bytes, pipeline] = parts[..] else {
            return Err(format!("{text:?} is not VERB:BYTES:PIPELINE, as in get:64:16"));
        };
        let verb = match verb {
            "get" => Verb::Get,
            "set" => Verb::Set,
            _ => return Err(format!("{verb:?} is not a workload; there are get and set")),
        };
        let number = |text: &str, range: std::ops::RangeInclusive<usize>| {
            text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
                format!("{text:?} is not a number from {} to {}", range.start(), range.end())
            })
        };
        let value_bytes = number(value_bytes, DIGITS..=1 << 20)?;
        Ok(Self { verb, value_bytes, pipeline: number(pipeline, 1..=1024)? })
    }

    /// The form that [`Self::parse`] reads.
    pub fn label(&self) -> String {
        let verb = match self.verb {
            Verb::Get => "get",
            Verb::Set => "set",
        };
        format!("{verb}:{}:{}", self.value_bytes, self.pipeline)
    }

    /// The least ratio to redis-server that the project accepts, if this row
    /// has one.
    pub fn gate(&self) -> Option<f64> {
        match (self.verb, self.value_bytes, self.pipeline) {
            (Verb::Get, 64, 1) => Some(1.1),
            (Verb::Get, 64, 16) => Some(2.0),
            (Verb::Get, 64, 64) => Some(3.0),
            (Verb::Set, 64, 16) => Some(1.5),
            _ => None,
        }
    }
}

/// Bytes of one request and one reply of a workload, built once; only a key's
/// digits change from one request to the next.
pub(super) struct Frames {
    request: Vec<u8>,
    /// Where the digits go in a request: the key's and, in a SET, the value's.
    request_digits: Vec<usize>,
    reply: Vec<u8>,
    /// Where a reply repeats the digits.
    reply_digits: Option<usize>,
    pipeline: usize,
}

/// What a value holds after its key's digits.
const FILLER: u8 = b'.';

impl Frames {
    pub(super) fn new(workload: &Workload) -> Self {
        let bytes = workload.value_bytes;
        let mut value = vec![b'0'; DIGITS];
        value.resize(bytes, FILLER);
        let digits_of_key = |request: &[u8]| request.len() - 2 - DIGITS;
        let key = "0".repeat(DIGITS);

        let (request, request_digits, reply, reply_digits) = match workload.verb {
            Verb::Get => {
                let request =
                    format!("*2\r\n$3\r\nGET\r\n${KEY_BYTES}\r\nkey:{key}\r\n").into_bytes();
                let at = vec![digits_of_key(&request)];
                let mut reply = format!("${bytes}\r\n").into_bytes();
                let head = reply.len();
                reply.extend_from_slice(&value);
                reply.extend_from_slice(b"\r\n");
                (request, at, reply, Some(head))
            }
            Verb::Set => {
                let mut request =
                    format!("*3\r\n$3\r\nSET\r\n${KEY_BYTES}\r\nkey:{key}\r\n").into_bytes();
                let mut at = vec![digits_of_key(&request)];
                request.extend_from_slice(format!("${bytes}\r\n").as_bytes());
                at.push(request.len());
                request.extend_from_slice(&value);
                request.extend_from_slice(b"\r\n");
                (request, at, b"+OK\r\n".to_vec(), None)
            }
        };
        Self { request, request_digits, reply, reply_digits, pipeline: workload.pipeline }
    }

    /// Requests of one batch.
    pub(super) fn pipeline(&self) -> usize {
        self.pipeline
    }

    /// Bytes of all replies to one batch.
    pub(super) fn replies_bytes(&self) -> usize {
        self.reply.len() * self.pipeline
    }

    /// Puts the batch whose first key is at `place` into `out`.
    pub(super) fn build(&self, keys: &Keys, place: usize, out: &mut Vec<u8>) {
        out.clear();
        for offset in 0..self.pipeline {
            let digits = keys.at(place + offset);
            let start = out.len();
            out.extend_from_slice(&self.request);
            for &at in &self.request_digits {
                out[start + at..start + at + DIGITS].copy_from_slice(digits);
            }
        }
    }

    /// Checks each reply's head and digits, and one whole reply of the batch.
    pub(super) fn check(&self, keys: &Keys, place: usize, replies: &[u8]) -> Result<(), String> {
        for (offset, reply) in replies.chunks_exact(self.reply.len()).enumerate() {
            let head = self.reply_digits.unwrap_or(self.reply.len());
            let Some(at) = self.reply_digits else {
                if reply != self.reply {
                    return Err(wrong(reply));
                }
                continue;
            };
            let rest = at + DIGITS;
            if reply[..head] != self.reply[..head]
                || reply[at..rest] != keys.at(place + offset)[..]
                || (offset == 0 && reply[rest..] != self.reply[rest..])
            {
                return Err(wrong(reply));
            }
        }
        Ok(())
    }

    /// Why the bytes that have come cannot be the begin of the replies, if
    /// they cannot.
    pub(super) fn check_begin(&self, replies: &[u8]) -> Result<(), String> {
        if replies.first().is_some_and(|first| *first != self.reply[0]) {
            return Err(wrong(replies));
        }
        Ok(())
    }
}

fn wrong(reply: &[u8]) -> String {
    let shown = &reply[..reply.len().min(120)];
    format!("a wrong reply: {}", String::from_utf8_lossy(shown).trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get_64() -> Workload {
        Workload { verb: Verb::Get, value_bytes: 64, pipeline: 2 }
    }

    #[test]
    fn labels_read_back() {
        for workload in Workload::all() {
            assert_eq!(Workload::parse(&workload.label()), Ok(workload));
        }
        for bad in ["get:64", "del:64:1", "get:1:1", "get:64:0", "get:64:1:1", "get:x:1"] {
            assert!(Workload::parse(bad).is_err(), "{bad} was taken");
        }
    }

    #[test]
    fn a_batch_holds_one_request_per_key() {
        let keys = Keys::new(10);
        let frames = Frames::new(&Workload { verb: Verb::Set, value_bytes: 14, pipeline: 2 });
        let mut out = Vec::new();
        frames.build(&keys, 9, &mut out);
        let expected: Vec<u8> = [9, 0]
            .iter()
            .flat_map(|&place| {
                let digits = std::str::from_utf8(keys.at(place)).unwrap();
                format!("*3\r\n$3\r\nSET\r\n$16\r\nkey:{digits}\r\n$14\r\n{digits}..\r\n")
                    .into_bytes()
            })
            .collect();
        assert_eq!(out, expected);
    }

    #[test]
    fn a_value_of_another_key_is_a_wrong_reply() {
        let keys = Keys::new(10);
        let frames = Frames::new(&get_64());
        let mut replies = Vec::new();
        for place in 3..5 {
            let digits = std::str::from_utf8(keys.at(place)).unwrap();
            replies.extend(format!("$64\r\n{digits}{}\r\n", ".".repeat(52)).into_bytes());
        }
        assert_eq!(replies.len(), frames.replies_bytes());
        assert_eq!(frames.check(&keys, 3, &replies), Ok(()));
        assert!(frames.check(&keys, 4, &replies).is_err());
        replies[80] ^= 1;
        assert!(frames.check(&keys, 3, &replies).is_err(), "the second key's digits are wrong");
    }

    #[test]
    fn a_damaged_value_is_a_wrong_reply() {
        let keys = Keys::new(10);
        let frames = Frames::new(&Workload { pipeline: 1, ..get_64() });
        let digits = std::str::from_utf8(keys.at(0)).unwrap();
        let mut reply = format!("$64\r\n{digits}{}\r\n", ".".repeat(52)).into_bytes();
        assert_eq!(frames.check(&keys, 0, &reply), Ok(()));
        reply[60] = b'!';
        assert!(frames.check(&keys, 0, &reply).is_err());
    }

    #[test]
    fn an_error_reply_is_told_at_its_first_byte() {
        let frames = Frames::new(&get_64());
        assert_eq!(frames.check_begin(b""), Ok(()));
        assert_eq!(frames.check_begin(b"$6"), Ok(()));
        assert_eq!(
            frames.check_begin(b"-OOM full\r\n"),
            Err(String::from("a wrong reply: -OOM full"))
        );
    }
}
