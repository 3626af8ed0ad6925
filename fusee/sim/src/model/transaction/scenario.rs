//! Who does what, starting from what.

use super::state::{CLIENTS, KEYS};
use crate::model::history::{Sequential, Value};

/// An operation of a client. Keys are masks where there are several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// GET of a key.
    Get(u8),
    /// SET of a key: blind.
    Set(u8),
    /// DEL of a key: blind, answers how many it deleted.
    Del(u8),
    /// Read, modify, write of a key: answers what it read.
    Modify(u8),
    /// EXEC: answers what it read, and leaves the keys that it writes and deletes so.
    Exec {
        /// Keys read.
        reads: u8,
        /// Keys written.
        writes: u8,
        /// Keys deleted.
        deletes: u8,
    },
    /// No operation on keys: ends what this client has left when it stopped.
    Recover(usize),
}

impl Op {
    /// Keys that it reads or changes.
    pub fn footprint(self) -> u8 {
        match self {
            Self::Get(key) | Self::Set(key) | Self::Del(key) | Self::Modify(key) => 1 << key,
            Self::Exec { reads, writes, deletes } => reads | writes | deletes,
            Self::Recover(_) => 0,
        }
    }

    /// Keys that it changes.
    pub fn changes(self) -> u8 {
        match self {
            Self::Get(_) | Self::Recover(_) => 0,
            Self::Set(key) | Self::Del(key) | Self::Modify(key) => 1 << key,
            Self::Exec { writes, deletes, .. } => writes | deletes,
        }
    }
}

/// One run of the checker.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// What each client does, one thing after another.
    pub programs: &'static [&'static [Op]],
    /// Copies of a decision.
    pub copies: usize,
    /// The keys hold something.
    pub live: [bool; KEYS],
    /// How often a client may begin an operation.
    pub attempts: u8,
    /// Clients that may stop.
    pub stops: u8,
    /// The primary copies of decisions may be lost.
    pub loses_copy: bool,
}

impl Scenario {
    /// Both keys live, one copy.
    pub const fn new(name: &'static str, programs: &'static [&'static [Op]]) -> Self {
        assert!(programs.len() <= CLIENTS, "there is room for so many clients");
        Self {
            name,
            programs,
            copies: 1,
            live: [true; KEYS],
            attempts: 2,
            stops: 0,
            loses_copy: false,
        }
    }

    /// With these keys live at first.
    pub const fn live(self, live: [bool; KEYS]) -> Self {
        Self { live, ..self }
    }

    /// With two copies of a decision, the first of which may be lost.
    pub const fn copies(self) -> Self {
        Self { copies: 2, loses_copy: true, ..self }
    }

    /// With so many clients that may stop.
    pub const fn stops(self, stops: u8) -> Self {
        Self { stops, ..self }
    }

    /// With so many attempts.
    pub const fn attempts(self, attempts: u8) -> Self {
        Self { attempts, ..self }
    }
}

/// The operations of all clients, numbered through, as the history knows them.
#[derive(Debug)]
pub struct Operations(pub Vec<Op>);

impl Sequential for Operations {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn apply(&self, number: usize, held: [Value; KEYS]) -> ([Value; KEYS], u8) {
        let own = 2 + number as Value;
        let op = self.0[number];
        let (mut left, answer) = (held, answer(op, held));
        let deletes = match op {
            Op::Del(key) => 1 << key,
            Op::Exec { deletes, .. } => deletes,
            _ => 0,
        };
        for (key, value) in left.iter_mut().enumerate() {
            if deletes >> key & 1 == 1 {
                *value = 0;
            } else if op.changes() >> key & 1 == 1 {
                *value = own;
            }
        }
        (left, answer)
    }
}

/// What an operation answers that found these values.
pub fn answer(op: Op, held: [Value; KEYS]) -> u8 {
    match op {
        Op::Get(key) | Op::Modify(key) => held[usize::from(key)],
        Op::Set(_) | Op::Recover(_) => 1,
        Op::Del(key) => u8::from(held[usize::from(key)] != 0),
        Op::Exec { reads, .. } => {
            let value = |key: usize| if reads >> key & 1 == 1 { held[key] } else { 0 };
            value(0) | value(1) << 4
        }
    }
}

/// Reads the first key, writes the second.
pub const A_TO_B: Op = Op::Exec { reads: 0b01, writes: 0b10, deletes: 0 };
/// Reads the second key, writes the first.
pub const B_TO_A: Op = Op::Exec { reads: 0b10, writes: 0b01, deletes: 0 };
/// Reads and writes both keys.
pub const BOTH: Op = Op::Exec { reads: 0b11, writes: 0b11, deletes: 0 };
/// Writes both keys, whatever they are.
pub const MSET: Op = Op::Exec { reads: 0, writes: 0b11, deletes: 0 };
/// Moves the first key's value to the second key.
pub const MOVE: Op = Op::Exec { reads: 0b01, writes: 0b10, deletes: 0b01 };
/// Reads both keys at once.
pub const SNAPSHOT: Op = Op::Exec { reads: 0b11, writes: 0, deletes: 0 };
/// Reads the first key alone.
pub const GET_A: Op = Op::Get(0);
/// Reads the second key alone.
pub const GET_B: Op = Op::Get(1);
/// SET of the first key.
pub const SET_A: Op = Op::Set(0);
/// DEL of the first key.
pub const DEL_A: Op = Op::Del(0);
/// Read, modify, write of the first key.
pub const MODIFY_A: Op = Op::Modify(0);

/// Checked in a minute altogether.
pub const QUICK: &[Scenario] = &[
    Scenario::new("t a>b b>a", &[&[A_TO_B], &[B_TO_A]]),
    Scenario::new("t a>b b>a get", &[&[A_TO_B], &[B_TO_A], &[GET_A, GET_B]]),
    Scenario::new("t a>b set get", &[&[A_TO_B], &[SET_A], &[GET_A, GET_B]]),
    Scenario::new("t both both get", &[&[BOTH], &[BOTH], &[GET_A, GET_B]]),
    Scenario::new("t both snapshot", &[&[BOTH], &[SNAPSHOT]]),
    Scenario::new("t move snapshot set", &[&[MOVE], &[SNAPSHOT], &[SET_A]]).live([true, false]),
    Scenario::new("t move del get", &[&[MOVE], &[DEL_A], &[GET_A, GET_B]]),
    Scenario::new("t mset modify get", &[&[MSET], &[MODIFY_A], &[GET_A, GET_B]]),
    Scenario::new("t both both absent", &[&[BOTH], &[BOTH], &[DEL_A]]).live([false, false]),
    Scenario::new("t both both copies", &[&[BOTH], &[BOTH]]).copies(),
    Scenario::new("t both get copies", &[&[BOTH], &[GET_A, GET_B]]).copies(),
    Scenario::new("t both stops", &[&[BOTH], &[Op::Recover(0)], &[SET_A]]).stops(1),
    Scenario::new("t set stops both", &[&[SET_A], &[Op::Recover(0)], &[BOTH]]).stops(1),
];

/// What only a patient machine checks.
pub const LONG: &[Scenario] = &[
    Scenario::new("t a>b b>a set", &[&[A_TO_B], &[B_TO_A], &[SET_A]]),
    Scenario::new("t both a>b del", &[&[BOTH], &[A_TO_B], &[DEL_A]]),
    Scenario::new("t move mset snapshot", &[&[MOVE], &[MSET], &[SNAPSHOT]]).live([true, false]),
    Scenario::new("t both both get copies", &[&[BOTH], &[BOTH], &[GET_A, GET_B]]).copies(),
    Scenario::new("t both set snapshot copies", &[&[BOTH], &[SET_A], &[SNAPSHOT]]).copies(),
    Scenario::new("t both stops both", &[&[BOTH], &[Op::Recover(0)], &[BOTH]]).stops(1),
    Scenario::new("t set stops both get", &[&[SET_A], &[Op::Recover(0)], &[BOTH], &[GET_A]])
        .stops(1),
    Scenario::new("t set both stop get", &[&[SET_A], &[BOTH], &[Op::Recover(0), Op::Recover(1)]])
        .stops(2),
    Scenario::new("t move stops del", &[&[MOVE], &[Op::Recover(0)], &[SET_A], &[DEL_A]])
        .live([false, false])
        .stops(1),
    Scenario::new("t both stops copies", &[&[BOTH], &[Op::Recover(0)], &[SET_A]]).stops(1).copies(),
    Scenario::new("t a>b b>a set get", &[&[A_TO_B], &[B_TO_A], &[SET_A], &[GET_A, GET_B]]),
];
