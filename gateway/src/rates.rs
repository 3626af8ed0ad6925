//! How much a worker has done lately, as INFO tells it.

use std::collections::VecDeque;

/// Looks that a rate is taken over: with four of them in a second, as long a time as the
/// sixteen tenths of a second that Redis takes.
const LOOKS: usize = 7;

/// What a worker has done: requests, bytes read and bytes written.
pub(crate) type Done = [u64; 3];

/// What a worker had done at its last looks.
#[derive(Debug, Default)]
pub(crate) struct Rates(VecDeque<(u64, Done)>);

impl Rates {
    /// What has been done in a second since the oldest look; `now_ms` only ever grows, but
    /// for a clock that was put back.
    pub(crate) fn look(&mut self, now_ms: u64, done: Done) -> Done {
        if self.0.back().is_some_and(|&(last_ms, _)| last_ms >= now_ms) {
            self.0.clear();
        }
        let since = self.0.front().map_or(done, |&(_, then)| then);
        let elapsed_ms = self.0.front().map_or(1, |&(then_ms, _)| now_ms - then_ms);
        self.0.push_back((now_ms, done));
        if self.0.len() > LOOKS {
            self.0.pop_front();
        }
        let mut rates = done;
        for (rate, since) in rates.iter_mut().zip(since) {
            *rate = rate.saturating_sub(since).saturating_mul(1000) / elapsed_ms;
        }
        rates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_last_moments() {
        let mut rates = Rates::default();
        assert_eq!(rates.look(1_000, [5, 5, 5]), [0; 3]);
        assert_eq!(rates.look(1_250, [105, 5, 1_005]), [400, 0, 4_000]);
        for look in 2..20 {
            rates.look(1_000 + 250 * look, [105, 5, 1_005]);
        }
        assert_eq!(rates.look(6_000, [205, 5, 1_005])[1..], [0; 2]);
        assert!(rates.0.len() <= LOOKS);
    }

    #[test]
    fn a_clock_that_was_put_back_does_no_harm() {
        let mut rates = Rates::default();
        rates.look(5_000, [1; 3]);
        assert_eq!(rates.look(4_000, [9; 3]), [0; 3]);
        assert_eq!(rates.look(4_500, [10; 3]), [2; 3]);
    }
}
