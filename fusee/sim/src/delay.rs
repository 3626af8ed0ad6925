//! How long things take: mostly about a microsecond, sometimes long enough
//! that others get many rounds done meanwhile.

use crate::Rng;

/// A mixture of three spans of time, one mixture per history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delays {
    /// Most of the usual delay in nanoseconds.
    pub usual_ns: u64,
    /// How many verbs in a hundred take up to ten times the usual.
    pub slow_percent: u64,
    /// How many in a hundred take up to three hundred times the usual.
    pub stuck_percent: u64,
    /// How many times in a hundred a client, with a batch's results in hand,
    /// pauses for up to three hundred times the usual.
    pub pause_percent: u64,
}

const SLOW: u64 = 10;
const STUCK: u64 = 300;

impl Delays {
    /// Every verb takes its usual time.
    pub const EVEN: Self =
        Self { usual_ns: 2000, slow_percent: 0, stuck_percent: 0, pause_percent: 0 };

    /// Those of one history.
    pub fn drawn(rng: &mut Rng) -> Self {
        Self {
            usual_ns: 2000,
            slow_percent: rng.pick(&[0, 5, 20, 40]),
            stuck_percent: rng.pick(&[0, 0, 1, 3, 8]),
            pause_percent: rng.pick(&[0, 0, 2, 5, 15]),
        }
    }

    /// How long one verb, or one part of a torn one, takes.
    pub(crate) fn verb_ns(&self, rng: &mut Rng) -> u64 {
        let at = rng.below(100);
        if at < self.stuck_percent {
            rng.between(1, self.usual_ns * STUCK)
        } else if at < self.stuck_percent + self.slow_percent {
            rng.between(1, self.usual_ns * SLOW)
        } else {
            rng.between(1, self.usual_ns)
        }
    }

    /// How long a client takes to go on once its batch has completed.
    pub(crate) fn completion_ns(&self, rng: &mut Rng) -> u64 {
        if rng.percent(self.pause_percent) {
            rng.between(1, self.usual_ns * STUCK)
        } else {
            rng.between(1, self.usual_ns / 4)
        }
    }
}
