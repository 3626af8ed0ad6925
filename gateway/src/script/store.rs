//! Scripts by the SHA-1 of their text, as all workers of a gateway know them.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use sha1::{Digest, Sha1};

/// 40 hexadecimal digits.
pub(crate) type Sha = [u8; 40];

/// A script that compiles.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) sha: Sha,
    pub(crate) text: Arc<[u8]>,
}

/// All scripts, and whether one shall end.
#[derive(Debug, Default)]
pub(crate) struct Scripts {
    known: RwLock<HashMap<Sha, Arc<[u8]>>>,
    running: AtomicUsize,
    /// Relaxed, as the others: a script that sees it late ends late.
    killed: AtomicBool,
}

impl Scripts {
    pub(crate) fn get(&self, sha: &Sha) -> Option<Script> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(sha).map(|text| Script { sha: *sha, text: text.clone() })
    }

    pub(crate) fn put(&self, script: &Script) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(script.sha, script.text.clone());
    }

    pub(crate) fn clear(&self) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// How many there are, and how many bytes they take.
    pub(crate) fn size(&self) -> (usize, usize) {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        (known.len(), known.values().map(|text| text.len()).sum())
    }

    /// A script has begun.
    pub(crate) fn begin(&self) {
        self.running.fetch_add(1, Relaxed);
    }

    /// A script has ended.
    pub(crate) fn end(&self) {
        if self.running.fetch_sub(1, Relaxed) == 1 {
            self.killed.store(false, Relaxed);
        }
    }

    /// Ends the scripts that run; false if there are none.
    pub(crate) fn kill(&self) -> bool {
        let some = self.running.load(Relaxed) > 0;
        if some {
            self.killed.store(true, Relaxed);
        }
        some
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Relaxed)
    }
}

/// The name of a text.
pub(crate) fn sha_of(text: &[u8]) -> Sha {
    let mut digits = String::with_capacity(40);
    for byte in Sha1::digest(text) {
        let _ = write!(digits, "{byte:02x}");
    }
    digits.into_bytes().try_into().unwrap_or([b'0'; 40])
}

/// A name as a client has sent it, in whatever case.
pub(crate) fn parse_sha(text: &[u8]) -> Option<Sha> {
    text.to_ascii_lowercase().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_the_name_that_redis_gives_it() {
        assert_eq!(&sha_of(b""), b"da39a3ee5e6b4b0d3255bfef95601890afd80709");
        let sha = sha_of(b"return redis.call('get',KEYS[1])");
        assert_eq!(&sha, b"fd758d1589d044dd850a6f05d52f2eefd27f033f");
        assert_eq!(parse_sha(&sha.to_ascii_uppercase()), Some(sha));
        assert_eq!(parse_sha(b"short"), None);
    }
}
