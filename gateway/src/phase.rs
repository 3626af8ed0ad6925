//! Where the time of a command went, so that whoever finds it slow knows where to look.

use std::cell::Cell;

/// A part of a command's time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Phase {
    /// Behind other requests of its pipeline.
    Queue = 0,
    /// On the processor; on shared memory its verbs are done there too.
    Run = 1,
    /// Waiting for memory nodes.
    Fabric = 2,
    /// Waiting because another client was in the way.
    Conflict = 3,
    /// Waiting for the client to read its replies.
    Reply = 4,
}

impl Phase {
    /// How many there are.
    pub const COUNT: usize = 5;
    /// All of them.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Queue, Self::Run, Self::Fabric, Self::Conflict, Self::Reply];

    /// Its name in INFO, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Run => "run",
            Self::Fabric => "fabric",
            Self::Conflict => "conflict",
            Self::Reply => "reply",
        }
    }
}

/// Microseconds of a command by phase.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Phases(pub [u64; Phase::COUNT]);

impl Phases {
    /// Those of a command that took so long behind what it waited for in its pipeline.
    pub(crate) fn of(queue_ns: u64, elapsed_ns: u64, spent: &Spent) -> Self {
        let elapsed_us = elapsed_ns / 1000;
        let waited_us = (spent.waited_ns.get() / 1000).min(elapsed_us);
        let conflict_us = spent.conflict_us.get().min(waited_us);
        let run_us = elapsed_us - waited_us;
        Self([queue_ns / 1000, run_us, waited_us - conflict_us, conflict_us, 0])
    }

    /// The phase that took longest.
    pub fn slowest(&self) -> Phase {
        Phase::ALL.into_iter().max_by_key(|&phase| self.us(phase)).unwrap_or(Phase::Run)
    }

    /// Microseconds of a phase.
    pub fn us(&self, phase: Phase) -> u64 {
        self.0[phase as usize]
    }
}

/// What operations of a connection have waited for since it was last looked.
#[derive(Debug, Default)]
pub(crate) struct Spent {
    waited_ns: Cell<u64>,
    conflict_us: Cell<u64>,
}

impl Spent {
    pub(crate) fn wait(&self, ns: u64) {
        self.waited_ns.set(self.waited_ns.get() + ns);
    }

    pub(crate) fn conflict(&self, us: u64) {
        self.conflict_us.set(self.conflict_us.get() + us);
    }

    pub(crate) fn clear(&self) {
        self.waited_ns.set(0);
        self.conflict_us.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_phases_of_a_command_add_up_and_the_longest_is_named() {
        let spent = Spent::default();
        spent.wait(700_000);
        spent.conflict(500);
        let phases = Phases::of(20_000, 1_000_000, &spent);
        assert_eq!(Phase::ALL.map(|phase| phases.us(phase)), [20, 300, 200, 500, 0]);
        assert_eq!(phases.slowest(), Phase::Conflict);
        spent.clear();
        assert_eq!(Phases::of(5_000_000, 1_000_000, &spent).slowest(), Phase::Queue);
        // A back-off may end early, when the connection does.
        spent.conflict(9_000);
        assert_eq!(Phases::of(0, 1_000_000, &spent).us(Phase::Conflict), 0);
    }
}
