//! The client's surroundings in virtual time.

use crate::{Rng, Sim};
use fusee::Env;
use std::cell::RefCell;

/// The wall clock of a history: it runs as much faster than virtual time as
/// the history wants keys to expire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WallClock {
    /// What it shows at virtual time 0.
    pub start_ms: u64,
    /// How much virtual time passes in one of its milliseconds.
    pub ns_per_ms: u64,
}

impl WallClock {
    /// What it shows at a virtual time.
    pub fn at(&self, now_ns: u64) -> u64 {
        self.start_ms.saturating_add(now_ns / self.ns_per_ms)
    }
}

/// [`Env`] for one client.
#[derive(Debug)]
pub struct SimEnv {
    sim: Sim,
    clock: WallClock,
    rng: RefCell<Rng>,
}

impl SimEnv {
    /// With its own stream of chance.
    pub fn new(sim: Sim, clock: WallClock, rng: Rng) -> Self {
        Self { sim, clock, rng: RefCell::new(rng) }
    }
}

impl Env for SimEnv {
    fn now_ms(&self) -> u64 {
        self.clock.at(self.sim.now_ns())
    }

    async fn sleep_us(&self, us: u64) {
        let ns = us * 1000;
        // Timers are late, never early.
        let late = self.rng.borrow_mut().below(ns / 4 + 500);
        self.sim.sleep(ns + late).await;
    }

    fn random(&self) -> u64 {
        self.rng.borrow_mut().word()
    }
}
