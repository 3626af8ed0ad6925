//! Which events are told: the letters of notify-keyspace-events.

/// A class of events, or of channels that they are told by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    Generic,
    String,
    List,
    Set,
    Hash,
    SortedSet,
    Expired,
    Evicted,
    Stream,
    Module,
    /// Told by channels that are named after keys.
    Keyspace,
    /// Told by channels that are named after events.
    Keyevent,
    Miss,
    New,
}

/// Each class by its letter, in the order in which Redis 7.2 tells them.
const LETTERS: [(u8, Class); 14] = [
    (b'g', Class::Generic),
    (b'$', Class::String),
    (b'l', Class::List),
    (b's', Class::Set),
    (b'h', Class::Hash),
    (b'z', Class::SortedSet),
    (b'x', Class::Expired),
    (b'e', Class::Evicted),
    (b't', Class::Stream),
    (b'd', Class::Module),
    (b'K', Class::Keyspace),
    (b'E', Class::Keyevent),
    (b'm', Class::Miss),
    (b'n', Class::New),
];
/// What the letter A stands for: the first ten.
const ALL: u16 = (1 << 10) - 1;

/// Some classes, a bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Classes(u16);

impl Classes {
    /// The classes of these letters; `None` if one of them is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut classes = 0;
        for letter in text.bytes() {
            classes |= match LETTERS.iter().find(|(known, _)| *known == letter) {
                Some((_, class)) => 1 << *class as u16,
                None if letter == b'A' => ALL,
                None => return None,
            };
        }
        Some(Self(classes))
    }

    /// The letters as Redis tells them.
    pub(crate) fn letters(self) -> String {
        let has_all = self.0 & ALL == ALL;
        let skipped = if has_all { ALL } else { 0 };
        let others = LETTERS.iter().filter(|(_, class)| {
            let bit = 1 << *class as u16;
            self.0 & bit != 0 && skipped & bit == 0
        });
        let all = has_all.then_some('A');
        all.into_iter().chain(others.map(|(letter, _)| char::from(*letter))).collect()
    }

    #[inline]
    pub(crate) fn has(self, class: Class) -> bool {
        self.0 & 1 << class as u16 != 0
    }

    /// Whether anything at all is told.
    #[inline]
    pub(crate) fn tell_something(self) -> bool {
        self.has(Class::Keyspace) || self.has(Class::Keyevent)
    }

    pub(crate) fn bits(self) -> u16 {
        self.0
    }

    pub(crate) fn from_bits(bits: u16) -> Self {
        Self(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_told_in_redis_order() {
        for (text, told) in [
            ("", ""),
            ("gKE", "gKE"),
            ("EKg", "gKE"),
            ("$lshzxeKE", "$lshzxeKE"),
            ("KA", "AK"),
            ("g$lshzxetdKE", "AKE"),
            ("AKEnm", "AKEmn"),
            ("nmE", "Emn"),
        ] {
            let classes = Classes::parse(text).unwrap();
            assert_eq!(classes.letters(), told, "{text}");
        }
        assert_eq!(Classes::parse("KEy"), None);
        assert!(Classes::parse("KA").unwrap().has(Class::Hash));
        assert!(!Classes::parse("KA").unwrap().has(Class::New));
        assert!(!Classes::parse("A").unwrap().tell_something());
    }

    #[test]
    fn every_class_has_a_bit_and_a_letter_of_its_own() {
        let bits: u16 = LETTERS.iter().map(|(_, class)| 1 << *class as u16).sum();
        assert_eq!(bits, (1 << LETTERS.len()) - 1);
        let all: u16 = LETTERS[..10].iter().map(|(_, class)| 1 << *class as u16).sum();
        assert_eq!(all, ALL);
    }
}
