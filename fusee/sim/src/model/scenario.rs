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

    /// With the first key in the first slot.
    pub const fn live(self) -> Self {
        Self { start: Start::Live, ..self }
    }

    /// With the first key's tombstone there.
    pub const fn deleted(self) -> Self {
        Self { start: Start::Deleted, ..self }
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

/// SET of the first key.
pub const SET: (Op, u8) = (Op::Set, 0);
/// DEL of the first key.
pub const DEL: (Op, u8) = (Op::Del, 0);
/// Read, modify, write of the first key.
pub const MODIFY: (Op, u8) = (Op::Modify, 0);
/// SETNX of the first key.
pub const SETNX: (Op, u8) = (Op::SetNx, 0);
/// GETDEL of the first key.
pub const GETDEL: (Op, u8) = (Op::GetDel, 0);
/// GET of the first key.
pub const GET: (Op, u8) = (Op::Get, 0);
/// SET of the second key.
pub const OTHER: (Op, u8) = (Op::Set, 1);

/// Checked in a minute altogether.
pub const QUICK: &[Scenario] = &[
    Scenario::new("r1 set set get", &[SET, SET, GET], 1),
    Scenario::new("r1 set del set get", &[SET, DEL, SET, GET], 1).attempts(3),
    Scenario::new("r1 modify setnx getdel", &[MODIFY, SETNX, GETDEL], 1).attempts(3),
    Scenario::new("r1 set other set", &[SET, OTHER, SET], 1).attempts(3),
    Scenario::new("r1 set set crash", &[SET, SET], 1).attempts(6).crashes(1),
    Scenario::new("r2 set set get", &[SET, SET, GET], 2),
    Scenario::new("r2 set set set", &[SET, SET, SET], 2),
    Scenario::new("r2 set del set", &[SET, DEL, SET], 2),
    Scenario::new("r2 live set modify del get", &[SET, MODIFY, DEL, GET], 2).live(),
    Scenario::new("r2 set other setnx", &[SET, OTHER, SETNX], 2),
    Scenario::new("r2 set set crash", &[SET, SET], 2).attempts(6).crashes(1),
    Scenario::new("r2 live reuse", &[DEL, SET, SET, DEL], 2).live().pool(6, 2),
    Scenario::new("r2 deleted reuse", &[MODIFY, SET, DEL], 2).deleted().pool(6, 2).attempts(3),
    Scenario::new("r3 set set get", &[SET, SET, GET], 3),
    Scenario::new("r3 set del set", &[SET, DEL, SET], 3),
    Scenario::new("r3 live set modify del", &[SET, MODIFY, DEL], 3).live(),
    Scenario::new("r3 live set modify del down", &[SET, MODIFY, DEL], 3).live().descending(),
    Scenario::new("r3 live getdel set del", &[GETDEL, SET, DEL], 3).live(),
    Scenario::new("r3 modify setnx getdel", &[MODIFY, SETNX, GETDEL], 3),
    Scenario::new("r3 set other set", &[SET, OTHER, SET], 3),
    Scenario::new("r3 set set crash", &[SET, SET], 3).attempts(6).crashes(1),
    Scenario::new("r4 set set", &[SET, SET], 4),
    Scenario::new("r4 live set modify set", &[SET, MODIFY, SET], 4).live(),
];

/// What only a patient machine checks.
pub const LONG: &[Scenario] = &[
    Scenario::new("r1 set modify set", &[SET, MODIFY, SET], 1).attempts(3),
    Scenario::new("r2 set set set, 3 attempts", &[SET, SET, SET], 2).attempts(3),
    Scenario::new("r2 live set del set modify", &[SET, DEL, SET, MODIFY], 2).live(),
    Scenario::new("r2 set set modify crash", &[SET, SET, MODIFY], 2).crashes(1),
    Scenario::new("r3 set set set", &[SET, SET, SET], 3),
    Scenario::new("r3 set set set get", &[SET, SET, SET, GET], 3),
    Scenario::new("r3 set set set crash", &[SET, SET, SET], 3).crashes(1),
    Scenario::new("r3 set modify setnx", &[SET, MODIFY, SETNX], 3),
    Scenario::new("r3 set modify setnx down", &[SET, MODIFY, SETNX], 3).descending(),
    Scenario::new("r3 deleted modify setnx set", &[MODIFY, SETNX, SET], 3).deleted(),
    Scenario::new("r3 one fingerprint", &[SET, OTHER, SET], 3).one_fingerprint(),
    Scenario::new("r3 live del other set", &[DEL, OTHER, SET], 3).live().attempts(3),
    Scenario::new("r3 live set del modify get", &[SET, DEL, MODIFY, GET], 3).live(),
    Scenario::new("r3 live set del setnx, 3", &[SET, DEL, SETNX], 3).live().attempts(3),
    Scenario::new("r3 live del set getdel, 3", &[DEL, SET, GETDEL], 3).live().attempts(3),
    Scenario::new("r3 set del set get", &[SET, DEL, SET, GET], 3),
    Scenario::new("r3 set del set del", &[SET, DEL, SET, DEL], 3),
    Scenario::new("r3 live del set crash", &[DEL, SET, SET], 3).live().attempts(4).crashes(1),
    Scenario::new("r3 deleted reuse", &[MODIFY, SET, DEL], 3).deleted().pool(6, 2),
    Scenario::new("r4 live set del modify get", &[SET, DEL, MODIFY, GET], 4).live(),
    Scenario::new("r4 live set del modify down", &[SET, DEL, MODIFY], 4).live().descending(),
    Scenario::new("r4 set del set get", &[SET, DEL, SET, GET], 4),
    Scenario::new("r4 set modify getdel", &[SET, MODIFY, GETDEL], 4),
    Scenario::new("r4 set other set", &[SET, OTHER, SET], 4),
    Scenario::new("r4 set set crash", &[SET, SET], 4).attempts(4).crashes(1),
    Scenario::new("r4 set set set", &[SET, SET, SET], 4),
    Scenario::new("r4 set modify setnx", &[SET, MODIFY, SETNX], 4),
];
