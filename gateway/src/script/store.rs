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

/// What kind of program it is: each has a command of its own that ends it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum ProgramKind {
    #[default]
    Script,
    Function,
}

impl Program {
    pub(crate) fn kind(&self) -> ProgramKind {
        match self {
            Self::Script(_) => ProgramKind::Script,
            Self::Function { .. } => ProgramKind::Function,
        }
    }

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
    pub(crate) kind: ProgramKind,
    pub(crate) since: quanta::Instant,
}

/// All scripts, and whether one shall end.
#[derive(Debug, Default)]
pub(crate) struct Scripts {
    known: RwLock<HashMap<Sha, Arc<[u8]>>>,
    slow: Mutex<Vec<Arc<Running>>>,
    /// By [`ProgramKind`].
    running: [AtomicUsize; 2],
    /// Relaxed, as the others: a script that sees it late ends late.
    killed: [AtomicBool; 2],
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

    /// Changes what runs for long. Whoever has to do more before that changes again does it
    /// in `change`.
    pub(crate) fn change_slow(&self, change: impl FnOnce(&mut Vec<Arc<Running>>)) {
        change(&mut self.slow.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The program that has been running for longest, if one runs for long.
    pub(crate) fn slow(&self) -> Option<Arc<Running>> {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner).first().cloned()
    }

    /// A program has begun.
    pub(crate) fn begin(&self, kind: ProgramKind) {
        self.running[kind as usize].fetch_add(1, Relaxed);
    }

    /// A program has ended.
    pub(crate) fn end(&self, kind: ProgramKind) {
        if self.running[kind as usize].fetch_sub(1, Relaxed) == 1 {
            self.killed[kind as usize].store(false, Relaxed);
        }
    }

    /// Ends the programs of a kind that run; false if there are none.
    pub(crate) fn kill(&self, kind: ProgramKind) -> bool {
        let slow = self.slow.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is noted is about to begin on its thread.
        let some = self.running[kind as usize].load(Relaxed) > 0
            || slow.iter().any(|running| running.kind == kind);
        if some {
            self.killed[kind as usize].store(true, Relaxed);
        }
        some
    }

    pub(crate) fn is_killed(&self, kind: ProgramKind) -> bool {
        self.killed[kind as usize].load(Relaxed)
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
