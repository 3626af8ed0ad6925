//! Keys, values and decisions: what callers and the store hand each other.

/// A key of one of the logical databases (Redis's SELECT).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key<'a> {
    /// 0 to [`DATABASES`] - 1.
    pub database: u8,
    /// The key as the client sent it, any bytes, also none.
    pub name: &'a [u8],
}

/// How many logical databases there are, Redis's default.
pub const DATABASES: u8 = 16;

/// What a value is, as Redis's TYPE tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Kind {
    /// A byte string.
    #[default]
    String = 0,
}

impl Kind {
    /// From the bits of an object. Whatever a checked object of this pool's
    /// version says is one of ours.
    pub(crate) fn from_bits(bits: u8) -> Self {
        debug_assert!(bits == Self::String as u8);
        Self::String
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
