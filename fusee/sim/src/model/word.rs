//! Slot words and objects of the model, one byte each.

/// Names an object version: an address and a generation.
pub type Object = u8;

/// More objects than any scenario allocates; object sets are `u16` masks.
pub const OBJECTS: usize = 16;

/// A slot word: 0 is fresh, else 1 + 3 * object + what it says of the object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Word(pub u8);

const LIVE: u8 = 0;
const TOMBSTONE: u8 = 1;
const TENTATIVE: u8 = 2;

impl Word {
    /// A slot that nobody has written.
    pub const FRESH: Self = Self(0);
    /// No word: not read, not known.
    pub const NONE: Self = Self(u8::MAX);
    /// A fenced READ that is on its way.
    pub const DUE: Self = Self(u8::MAX - 1);

    /// The word that readers follow to `object`.
    pub fn live(object: Object) -> Self {
        Self(1 + 3 * object + LIVE)
    }

    /// The word of an insert that readers do not see yet (one replica only).
    pub fn tentative(object: Object) -> Self {
        Self(1 + 3 * object + TENTATIVE)
    }

    /// The object that it names.
    pub fn object(self) -> Option<Object> {
        (self != Self::FRESH && self.0 < Self::DUE.0).then(|| (self.0 - 1) / 3)
    }

    fn says(self, what: u8) -> bool {
        self.object().is_some() && (self.0 - 1) % 3 == what
    }

    /// Readers take it for empty; anybody may abort it.
    pub fn is_tentative(self) -> bool {
        self.says(TENTATIVE)
    }

    /// Stays behind a deleted or abandoned object.
    pub fn is_tombstone(self) -> bool {
        self.says(TOMBSTONE)
    }
}

impl fusee::rules::Word for Word {
    fn is_live(self) -> bool {
        self.says(LIVE)
    }

    fn tombstone(self) -> Self {
        self.object().map_or(self, |object| Self(1 + 3 * object + TOMBSTONE))
    }
}

impl std::fmt::Debug for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use fusee::rules::Word as _;
        match self.object() {
            None if *self == Self::FRESH => write!(f, "0"),
            None => write!(f, "-"),
            Some(object) if self.is_live() => write!(f, "v{object}"),
            Some(object) if self.is_tombstone() => write!(f, "t{object}"),
            Some(object) => write!(f, "?{object}"),
        }
    }
}
