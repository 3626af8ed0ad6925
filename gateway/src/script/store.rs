//! Scripts by the SHA-1 of their text, as all workers of a gateway know them.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use sha1::{Digest, Sha1};

/// 40 hexadecimal digits.
pub(crate) type Sha = [u8; 40];

/// A script that compiles.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) sha: Sha,
    pub(crate) text: Arc<[u8]>,
}

/// What is run.
#[derive(Clone, Debug)]
pub(crate) enum Program {
    Script(Script),
    /// A function of a library.
    Function {
        library: Script,
        name: Arc<[u8]>,
    },
}

impl Program {
    /// What errors and FUNCTION STATS call it.
    pub(crate) fn name(&self) -> &[u8] {
        match self {
            Self::Script(script) => &script.sha,
            Self::Function { name, .. } => name,
        }
    }
}

/// A program that runs for long.
#[derive(Debug)]
pub(crate) struct Running {
    /// The command that has begun it.
    pub(crate) command: Vec<Vec<u8>>,
    pub(crate) name: Vec<u8>,
    pub(crate) since: quanta::Instant,
}

/// All scripts, and whether one shall end.
#[derive(Debug, Default)]
pub(crate) struct Scripts {
    known: RwLock<HashMap<Sha, Arc<[u8]>>>,
    slow: Mutex<Vec<Arc<Running>>>,
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

    /// Notes a program that runs for long, until the result is dropped.
    pub(crate) fn note_slow(&self, running: Running) -> NotedSlow<'_> {
        let running = Arc::new(running);
        self.slow.lock().unwrap_or_else(PoisonError::into_inner).push(running.clone());
        NotedSlow { scripts: self, running }
    }

    /// The program that has been running for longest, if one runs for long.
    pub(crate) fn slow(&self) -> Option<Arc<Running>> {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner).first().cloned()
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
        // One that is noted is about to begin on its thread.
        let some = self.running.load(Relaxed) > 0 || self.slow().is_some();
        if some {
            self.killed.store(true, Relaxed);
        }
        some
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Relaxed)
    }
}

/// That a program runs for long.
pub(crate) struct NotedSlow<'a> {
    scripts: &'a Scripts,
    running: Arc<Running>,
}

impl Drop for NotedSlow<'_> {
    fn drop(&mut self) {
        let mut slow = self.scripts.slow.lock().unwrap_or_else(PoisonError::into_inner);
        slow.retain(|other| !Arc::ptr_eq(other, &self.running));
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
