//! Keys, values and decisions: what callers and the store hand each other.

/// A key of one of the logical databases (Redis's SELECT).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key<'a> {
    /// 0 to [`DATABASES`] - 1, or [`SYSTEM_DATABASE`].
    pub database: u8,
    /// The key as the client sent it, any bytes, also none.
    pub name: &'a [u8],
}

impl Key<'_> {
    /// Whether it is in this database, or in any that clients can select.
    pub fn is_in(&self, database: Option<u8>) -> bool {
        database.map_or(self.database < DATABASES, |database| database == self.database)
    }
}

/// How many logical databases there are, Redis's default.
pub const DATABASES: u8 = 16;

/// What gateways keep for themselves in the pool: nobody counts its keys, and those
/// who remove all keys leave them.
pub const SYSTEM_DATABASE: u8 = DATABASES;

/// What a value is, as Redis's TYPE tells it. The numbers stand in memory: one
/// that was given is never given to another kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Kind {
    /// A byte string.
    #[default]
    String = 0,
    /// Fields and their values.
    Hash = 1,
    /// Elements in the order in which they were put.
    List = 2,
    /// Members, each once.
    Set = 3,
    /// Something that a later version has written: it can be kept, given
    /// another end and removed, but not understood.
    Later = 15,
}

impl Kind {
    /// From the four bits of an object.
    pub(crate) fn from_bits(bits: u8) -> Self {
        match bits {
            0 => Self::String,
            1 => Self::Hash,
            2 => Self::List,
            3 => Self::Set,
            _ => Self::Later,
        }
    }
}

/// A value as it was at one moment within the operation that read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// The bytes.
    pub value: &'a [u8],
    /// What they are.
    pub kind: Kind,
    /// When the key ends, in milliseconds since the Unix epoch. An entry that
    /// has ended is never shown.
    pub expires_at_ms: Option<u64>,
}

/// What a conditional write does after seeing the current value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Change nothing.
    Keep,
    /// Remove the key.
    Delete,
    /// Put what was written into the value buffer in its place.
    Replace {
        /// What the new value is.
        kind: Kind,
        /// When it ends, in milliseconds since the Unix epoch.
        expires_at_ms: Option<u64>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_come_back_from_their_bits() {
        for kind in [Kind::String, Kind::Hash, Kind::List, Kind::Set, Kind::Later] {
            assert_eq!(Kind::from_bits(kind as u8), kind);
        }
        assert_eq!(Kind::from_bits(9), Kind::Later);
    }
}
