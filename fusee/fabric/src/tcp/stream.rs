//! Buffers between a socket's bytes and the words of frames. Frames are whole
//! words, so words of a frame lie aligned in them and are used where they are.

use super::frame::{Malformed, frame_words};
use crate::batch::{as_bytes, as_bytes_mut};

/// What one read takes: some pipelines of small verbs, or a part of a large one.
const INBOX_WORDS: usize = (64 << 10) / 8;
/// A buffer that has grown for a large frame keeps no more than this.
const KEPT_WORDS: usize = (1 << 20) / 8;

/// What has been received and not used yet.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    words: Vec<u64>,
    /// The first word that has not been used.
    start: usize,
    /// Bytes that have arrived, used ones included.
    end: usize,
}

impl Inbox {
    /// Where to receive to; never empty.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        let have = self.end.div_ceil(8) - self.start;
        if have == 0 {
            (self.start, self.end) = (0, 0);
            if self.words.len() > KEPT_WORDS {
                self.words = Vec::new();
            }
        }
        // What is announced gets room as it arrives, twice what is there already.
        let wanted = self.announced().clamp(INBOX_WORDS, (2 * have).max(INBOX_WORDS));
        // One word more, for the beginning of what follows.
        if self.start + wanted >= self.words.len() {
            self.words.copy_within(self.start..self.start + have, 0);
            self.end -= self.start * 8;
            self.start = 0;
            self.words.resize(self.words.len().max(wanted + 1), 0);
        }
        &mut as_bytes_mut(&mut self.words)[self.end..]
    }

    /// So many bytes were received.
    pub(crate) fn filled(&mut self, bytes: usize) {
        self.end += bytes;
        assert!(self.end <= self.words.len() * 8, "no more is received than there is room for");
    }

    /// The next frame, once it is whole.
    pub(crate) fn next_frame(&mut self) -> Result<Option<&[u64]>, Malformed> {
        let have = self.end / 8 - self.start;
        if have == 0 {
            return Ok(None);
        }
        let words = frame_words(self.words[self.start])?;
        Ok(self.next_words(words))
    }

    /// So many words, once they are there.
    pub(crate) fn next_words(&mut self, count: usize) -> Option<&[u64]> {
        let start = self.start;
        if self.end / 8 - start < count {
            return None;
        }
        self.start += count;
        Some(&self.words[start..start + count])
    }

    /// The words of the frame that has begun to arrive.
    fn announced(&self) -> usize {
        if self.end / 8 == self.start {
            return 0;
        }
        frame_words(self.words[self.start]).unwrap_or(0)
    }
}

/// What is to be sent.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    words: Vec<u64>,
    sent: usize,
}

impl Outbox {
    /// Where frames are appended.
    pub(crate) fn words(&mut self) -> &mut Vec<u64> {
        &mut self.words
    }

    /// The bytes that have not been sent.
    pub(crate) fn unsent(&self) -> &[u8] {
        &as_bytes(&self.words)[self.sent..]
    }

    /// So many more have been sent.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent == self.words.len() * 8 {
            self.sent = 0;
            self.words.clear();
            self.words.shrink_to(KEPT_WORDS);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_arrive_whole_however_their_bytes_do(
            lengths in prop::collection::vec(1..40_000usize, 1..12),
            cuts in prop::collection::vec(1..100_000usize, 1..64),
        ) {
            let mut out = Outbox::default();
            for (number, &length) in lengths.iter().enumerate() {
                let head = length as u64 | (number as u64) << 32;
                out.words().push(head);
                out.words().extend((1..length as u64).map(|word| word * 7 + number as u64));
            }
            let mut inbox = Inbox::default();
            let (mut seen, mut cuts) = (0, cuts.iter().cycle());
            while !out.is_empty() {
                let room = inbox.room();
                let count = room.len().min(*cuts.next().unwrap()).min(out.unsent().len());
                prop_assert!(count > 0);
                room[..count].copy_from_slice(&out.unsent()[..count]);
                inbox.filled(count);
                out.sent(count);
                while let Some(frame) = inbox.next_frame().unwrap() {
                    prop_assert_eq!(frame.len(), lengths[seen]);
                    for (at, &word) in frame.iter().enumerate().skip(1) {
                        prop_assert_eq!(word, at as u64 * 7 + seen as u64);
                    }
                    seen += 1;
                }
            }
            prop_assert_eq!(seen, lengths.len());
        }
    }

    #[test]
    fn a_frame_that_is_announced_takes_no_memory_before_it_arrives() {
        let mut inbox = Inbox::default();
        let head = (4u64 << 20).to_le_bytes();
        inbox.room()[..8].copy_from_slice(&head);
        inbox.filled(8);
        assert_eq!(inbox.next_frame(), Ok(None));
        assert!(inbox.room().len() <= 2 * INBOX_WORDS * 8);
    }

    #[test]
    fn a_frame_of_a_length_that_cannot_be_is_an_error() {
        for head in [0u64, 7 << 32, u64::MAX, u64::from(u32::MAX)] {
            let mut inbox = Inbox::default();
            inbox.room()[..8].copy_from_slice(&head.to_le_bytes());
            inbox.filled(8);
            assert!(inbox.next_frame().is_err());
        }
    }
}
