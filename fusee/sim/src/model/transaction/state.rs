//! One state of the model: the slots, the objects, where each client stands,
//! and the history that must be explained.

use std::hash::{Hash, Hasher};

use crate::model::history::{History, Value};

/// Keys, each with a slot of its own.
pub const KEYS: usize = 2;
/// Clients at most.
pub const CLIENTS: usize = 4;
/// Objects that a client can write.
pub const OBJECTS_PER_CLIENT: usize = 14;
/// All objects: the initial values of the keys, then each client's.
pub const OBJECTS: usize = KEYS + CLIENTS * OBJECTS_PER_CLIENT;

/// Number of an object; its memory is never another's.
pub type Object = u8;

/// What a slot holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Word {
    /// Nothing was ever there, or (with a client) nothing is known.
    Empty,
    /// A value that readers follow.
    Live(Object),
    /// What is left of a value.
    Tombstone(Object),
    /// An intent: whoever finds it asks its transaction.
    Prepared(Object),
}

impl Word {
    /// The object that it names.
    pub fn object(self) -> Option<Object> {
        match self {
            Self::Empty => None,
            Self::Live(object) | Self::Tombstone(object) | Self::Prepared(object) => Some(object),
        }
    }

    /// The value that it leads readers to.
    pub fn live(self) -> Option<Object> {
        if let Self::Live(object) = self { Some(object) } else { None }
    }

    /// The intent that it names.
    pub fn prepared(self) -> Option<Object> {
        if let Self::Prepared(object) = self { Some(object) } else { None }
    }
}

/// A decision word, or what a client wants it to be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Decision {
    /// Not yet.
    Undecided,
    /// The intents are the values.
    Committed,
    /// The intents are void.
    Aborted,
}

/// What becomes of a committed intent's key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Action {
    /// The key holds the intent's value: a new one, or the one it had.
    Write,
    /// The key is absent.
    Absent,
}

/// What an object is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// A value, or a delete's record.
    Plain {
        /// Its key.
        key: u8,
        /// What readers see.
        value: Value,
        /// Written by a SET or DEL, which do not depend on what they replace.
        blind: bool,
    },
    /// An intent.
    Intent {
        /// Its key.
        key: u8,
        /// What readers see once it is committed.
        value: Value,
        /// What becomes of the key.
        action: Action,
        /// What the prepared word replaced, as the log record says.
        old: Word,
        /// The transaction record.
        of: Object,
    },
    /// A transaction record.
    Transaction {
        /// Copies of the decision, the primary first.
        copies: [Decision; 2],
    },
}

/// An object and its memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Memory {
    /// Never written, or used for something else by now.
    Gone,
    /// Written.
    InUse(Kind),
    /// Freed while these clients, a mask, might still read it.
    Grace(Kind, u8),
}

/// Where a client stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Pc {
    /// Nothing invoked, or the next operation not yet.
    Idle,
    /// Reads the slots of its keys.
    Read,
    /// Reads the decision behind a prepared word that it has read.
    Look,
    /// Takes a commitment that it has seen to the backup.
    Spread,
    /// A transaction that writes nothing: reads the slots again.
    Recheck,
    /// Reads the decision behind a prepared word again.
    LookAgain,
    /// CAS of the slot: a plain write.
    Write,
    /// CAS of the slots to prepared words.
    Prepare,
    /// Reads again the slots that have no intent (a mutation).
    Validate,
    /// CAS of the decision's first copy.
    Decide,
    /// CAS of its backup.
    DecideBackup,
    /// Puts final words in place of prepared ones.
    Finish,
    /// Recovery: the dead client's open rounds are ended.
    Resolve,
    /// Recovery: looks for objects to which nothing leads.
    Suspect,
    /// Recovery: looks at them again after a grace period.
    Sweep,
    /// Has returned from everything.
    Done,
    /// Used up its attempts; never returns.
    Spent,
}

impl Pc {
    /// Will never move again.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Spent)
    }
}

/// A client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Client {
    /// Where it stands.
    pub pc: Pc,
    /// It has stopped there for good.
    pub stopped: bool,
    /// Which of its operations this is.
    pub turn: u8,
    /// Attempts at it begun before this one.
    pub attempt: u8,
    /// Objects written.
    pub written: u8,
    /// The slots' words as it read them.
    pub held: [Word; KEYS],
    /// The values that it makes of them.
    pub values: [Value; KEYS],
    /// What decided about them, where the words were prepared.
    pub outcomes: [Decision; KEYS],
    /// Keys that the phase has still to do, a mask.
    pub todo: u8,
    /// Keys whose intents it has placed.
    pub placed: u8,
    /// Its transaction record.
    pub own: Option<Object>,
    /// Its intents.
    pub intents: [Option<Object>; KEYS],
    /// The key whose prepared word it is concerned with.
    pub key: u8,
    /// That word's object, if it is another's.
    pub met: Option<Object>,
    /// The decision that it wants, then the one that there is.
    pub decision: Decision,
    /// What it has read of the copies.
    pub seen: [Option<Decision>; 2],
    /// The word that replaced the one it wanted to replace.
    pub winner: Word,
    /// Recovery: the phase that a prepared word has interrupted; its keys that are
    /// still to do are in `placed`.
    pub interrupted: Pc,
    /// It has stopped, and been recovered.
    pub recovered: bool,
    /// Recovery: objects to which nothing led, a mask.
    pub suspects: u64,
    /// Recovery: clients that may still have led to them, a mask.
    pub waits: u8,
}

impl Client {
    /// Before its first operation.
    pub const BLANK: Self = Self {
        pc: Pc::Idle,
        stopped: false,
        turn: 0,
        attempt: 0,
        written: 0,
        held: [Word::Empty; KEYS],
        values: [0; KEYS],
        outcomes: [Decision::Undecided; KEYS],
        todo: 0,
        placed: 0,
        own: None,
        intents: [None; KEYS],
        key: 0,
        met: None,
        decision: Decision::Undecided,
        seen: [None; 2],
        winner: Word::Empty,
        interrupted: Pc::Idle,
        recovered: false,
        suspects: 0,
        waits: 0,
    };
}

/// What went wrong on the way here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fault {
    /// Nothing.
    None,
    /// No order of the operations explains the results and what was visible.
    NotSerializable,
    /// An object was freed a second time.
    FreedTwice,
    /// Somebody relied on an object of which the memory may be another's.
    ReadAfterFree,
    /// A word came back to a slot that had left it.
    WordCameBack,
}

/// A state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    /// The slots of the keys.
    pub slots: [Word; KEYS],
    /// Objects that words of others have replaced in a slot, a mask.
    pub replaced: u64,
    /// All objects.
    pub objects: [Memory; OBJECTS],
    /// The clients.
    pub clients: [Client; CLIENTS],
    /// What happened so far.
    pub history: History,
    /// Clients that may still stop.
    pub stops_left: u8,
    /// The primary copies of decisions may still be lost, or are.
    pub loss: Loss,
    /// The first thing that went wrong.
    pub fault: Fault,
}

/// The memory of the decisions' primary copies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Loss {
    /// It stays.
    Never,
    /// It may be lost at any moment.
    Possible,
    /// It has been lost; the backups are all there is.
    Happened,
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.slots.hash(hasher);
        self.replaced.hash(hasher);
        for (number, object) in self.objects.iter().enumerate() {
            if *object != Memory::Gone {
                (number as u8).hash(hasher);
                object.hash(hasher);
            }
        }
        for client in &self.clients {
            client.pc.hash(hasher);
            if client.pc != Pc::Idle && !client.pc.is_over() {
                client.hash(hasher);
            } else {
                (client.turn, client.written, client.stopped).hash(hasher);
            }
        }
        self.history.hash(hasher);
        (self.stops_left, self.loss, self.fault).hash(hasher);
    }
}
