//! Who does what, on which replicas, starting from what.

use super::history::Op;

/// One run of the checker.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// The clients: what each does, and to which of the two keys.
    pub ops: &'static [(Op, u8)],
    /// Copies of the index, the primary included.
    pub replicas: usize,
    /// What the first slot holds.
    pub start: Start,
    /// How often a client may begin.
    pub attempts: u8,
    /// Clients that may crash (only progress needs it, see the module).
    pub crashes: u8,
    /// Later clients have smaller words: rule 3 goes by the order of words.
    pub descending: bool,
    /// The two keys have the same fingerprint.
    pub one_fingerprint: bool,
    /// Memory is reused.
    pub pool: Option<Pool>,
}

/// What the first slot holds when nobody has done anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// Nothing, as ever.
    Fresh,
    /// The first key.
    Live,
    /// The tombstone of the first key.
    Deleted,
}

/// Memory that is reused.
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    /// Addresses.
    pub addresses: usize,
    /// Generations before a slot word recurs; 1 is a slot without a version.
    pub generations: u8,
}

impl Scenario {
    /// Two replicas or more of a fresh index.
    pub const fn new(name: &'static str, ops: &'static [(Op, u8)], replicas: usize) -> Self {
        Self {
            name,
            ops,
            replicas,
            start: Start::Fresh,
            attempts: 2,
            crashes: 0,
            descending: false,
            one_fingerprint: false,
            pool: None,
        }
    }

    /// From another start.
    pub const fn start(self, start: Start) -> Self {
        Self { start, ..self }
    }

    /// With so many attempts.
    pub const fn attempts(self, attempts: u8) -> Self {
        Self { attempts, ..self }
    }

    /// With so many crashes.
    pub const fn crashes(self, crashes: u8) -> Self {
        Self { crashes, ..self }
    }

    /// With the words in the other order.
    pub const fn descending(self) -> Self {
        Self { descending: true, ..self }
    }

    /// With equal fingerprints.
    pub const fn one_fingerprint(self) -> Self {
        Self { one_fingerprint: true, ..self }
    }

    /// With memory that is reused.
    pub const fn pool(self, addresses: usize, generations: u8) -> Self {
        Self { pool: Some(Pool { addresses, generations }), ..self }
    }

    /// Whether anybody can come to insert: a live key that nobody deletes
    /// stays where it is.
    pub fn may_insert(&self) -> bool {
        let deletes = |op: Op| matches!(op, Op::Del | Op::GetDel);
        self.start != Start::Live || self.ops.iter().any(|&(op, key)| key != 0 || deletes(op))
    }
}

const SET: (Op, u8) = (Op::Set, 0);
const DEL: (Op, u8) = (Op::Del, 0);
const MODIFY: (Op, u8) = (Op::Modify, 0);
const SETNX: (Op, u8) = (Op::SetNx, 0);
const GETDEL: (Op, u8) = (Op::GetDel, 0);
const GET: (Op, u8) = (Op::Get, 0);
const OTHER: (Op, u8) = (Op::Set, 1);

/// Checked in a few seconds altogether.
pub const QUICK: &[Scenario] = &[
    Scenario::new("r1 set set get", &[SET, SET, GET], 1),
    Scenario::new("r1 set del set get", &[SET, DEL, SET, GET], 1),
    Scenario::new("r1 modify setnx getdel", &[MODIFY, SETNX, GETDEL], 1),
    Scenario::new("r2 set set get", &[SET, SET, GET], 2),
    Scenario::new("r2 modify del get", &[MODIFY, DEL, GET], 2).start(Start::Live),
    Scenario::new("r3 set set", &[SET, SET], 3),
    Scenario::new("r3 live set modify del", &[SET, MODIFY, DEL], 3).start(Start::Live),
    Scenario::new("r4 live set modify", &[SET, MODIFY], 4).start(Start::Live),
    Scenario::new("r4 set set", &[SET, SET], 4),
    Scenario::new("r3 set set crash", &[SET, SET], 3).attempts(6).crashes(1),
    Scenario::new("r3 set other", &[SET, OTHER], 3).attempts(3),
];

/// The rest.
pub const LONG: &[Scenario] = &[
    Scenario::new("r2 set set set", &[SET, SET, SET], 2),
    Scenario::new("r3 set set set", &[SET, SET, SET], 3),
    Scenario::new("r3 set del set", &[SET, DEL, SET], 3),
    Scenario::new("r3 modify setnx getdel", &[MODIFY, SETNX, GETDEL], 3),
    Scenario::new("r4 set set set", &[SET, SET, SET], 4),
];
