//! A user: passwords, and what they may do who know one.

use ring::digest::{SHA256, digest};

use super::selector::{Denied, Selector};
use crate::command::CommandId;
use crate::request::Arguments;

const BAD_HASH: &str = "The password hash must be exactly 64 characters and contain only lowercase \
    hexadecimal characters";
const NO_SUCH_PASSWORD: &str = "The password you are trying to remove from the user does not exist";

/// The SHA-256 of a password.
type PasswordHash = [u8; 32];

/// A user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct User {
    pub(crate) name: Vec<u8>,
    pub(crate) is_enabled: bool,
    /// Whether any password is right.
    pub(crate) takes_any_password: bool,
    passwords: Vec<PasswordHash>,
    pub(crate) root: Selector,
    /// What they may do beside: each is asked as a whole.
    pub(crate) selectors: Vec<Selector>,
}

impl User {
    /// A user who may do nothing yet.
    pub(super) fn new(name: &[u8]) -> Self {
        Self {
            name: name.to_vec(),
            is_enabled: false,
            takes_any_password: false,
            passwords: Vec::new(),
            root: Selector::default(),
            selectors: Vec::new(),
        }
    }

    /// The default user as a server starts with it.
    pub(super) fn all_powerful(password: &[u8]) -> Self {
        let mut user =
            Self { is_enabled: true, root: Selector::all(), ..Self::new(super::DEFAULT) };
        user.set_password(password);
        user
    }

    /// Makes a password the only one; without it, any is right.
    pub(super) fn set_password(&mut self, password: &[u8]) {
        self.passwords.clear();
        self.takes_any_password = password.is_empty();
        if !password.is_empty() {
            self.passwords.push(hash(password));
        }
    }

    /// Whether connections are this user's without a word.
    pub(crate) fn is_open(&self) -> bool {
        self.is_enabled && self.takes_any_password
    }

    /// Whether nothing they ask for has to be looked at.
    #[inline]
    pub(crate) fn is_unlimited(&self) -> bool {
        self.root.is_unlimited()
    }

    /// Whether a password is right. Hashes are compared, so how long it takes tells
    /// nothing of the password.
    pub(super) fn accepts(&self, password: &[u8]) -> bool {
        self.takes_any_password || self.passwords.contains(&hash(password))
    }

    /// Whether they may run a command with these arguments.
    pub(crate) fn check(&self, id: CommandId, arguments: Arguments<'_>) -> Result<(), Denied> {
        let mut worst = match self.root.check(id, arguments) {
            Ok(()) => return Ok(()),
            Err(denied) => denied,
        };
        for selector in &self.selectors {
            match selector.check(id, arguments) {
                Ok(()) => return Ok(()),
                // The one that was nearest to being allowed tells most.
                Err(denied) => worst = worst.max(denied),
            }
        }
        Err(worst)
    }

    /// Whether they may go on listening to a channel, or to a pattern of channels.
    pub(crate) fn may_listen(&self, channel: &[u8], is_pattern: bool) -> bool {
        std::iter::once(&self.root)
            .chain(&self.selectors)
            .any(|selector| selector.has_channel(channel, is_pattern))
    }

    /// Changes the user by one rule of ACL SETUSER, or tells why that is none.
    pub(super) fn apply(&mut self, rule: &[u8]) -> Result<(), &'static str> {
        match &rule.to_ascii_lowercase()[..] {
            b"on" => self.is_enabled = true,
            b"off" => self.is_enabled = false,
            // Values are never taken from payloads unchecked.
            b"sanitize-payload" | b"skip-sanitize-payload" => {}
            b"nopass" => self.set_password(b""),
            b"resetpass" => {
                self.passwords.clear();
                self.takes_any_password = false;
            }
            b"reset" => *self = Self::new(&self.name),
            b"clearselectors" => self.selectors.clear(),
            [b'>', ..] => self.add(hash(&rule[1..])),
            [b'#', ..] => self.add(unhex(&rule[1..]).ok_or(BAD_HASH)?),
            [b'<', ..] => self.forget(hash(&rule[1..]))?,
            [b'!', ..] => self.forget(unhex(&rule[1..]).ok_or(BAD_HASH)?)?,
            [b'(', .., b')'] => {
                let mut selector = Selector::default();
                let words = rule[1..rule.len() - 1].split(u8::is_ascii_whitespace);
                for word in words.filter(|word| !word.is_empty()) {
                    selector.apply(word)?;
                }
                self.selectors.push(selector);
            }
            _ => self.root.apply(rule)?,
        }
        Ok(())
    }

    fn add(&mut self, hash: PasswordHash) {
        self.takes_any_password = false;
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
    }

    fn forget(&mut self, hash: PasswordHash) -> Result<(), &'static str> {
        let at = self.passwords.iter().position(|known| *known == hash).ok_or(NO_SUCH_PASSWORD)?;
        self.passwords.remove(at);
        Ok(())
    }

    /// The hashes of the passwords, as text.
    pub(crate) fn password_hashes(&self) -> impl ExactSizeIterator<Item = String> {
        self.passwords.iter().map(hex)
    }

    /// Appends the line of ACL LIST, which is also that of an ACL file.
    pub(crate) fn describe(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"user ");
        out.extend_from_slice(&self.name);
        out.extend_from_slice(if self.is_enabled { b" on " } else { b" off " });
        if self.takes_any_password {
            out.extend_from_slice(b"nopass ");
        }
        for hash in self.password_hashes() {
            out.extend_from_slice(format!("#{hash} ").as_bytes());
        }
        self.root.describe(out);
        for selector in &self.selectors {
            out.extend_from_slice(b" (");
            selector.describe(out);
            out.push(b')');
        }
    }
}

/// Whether a user may be called so.
pub(crate) fn is_user_name(name: &[u8]) -> bool {
    !name.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0)
}

/// Rules of which each selector is one, although its words came one by one.
pub(crate) fn merged(words: &[&[u8]]) -> Result<Vec<Vec<u8>>, String> {
    let mut rules = Vec::new();
    let mut open: Option<Vec<u8>> = None;
    for word in words {
        let mut rule = match open.take() {
            Some(begun) => [&begun, &b" "[..], word].concat(),
            None => word.to_vec(),
        };
        if rule.starts_with(b"(") && !rule.ends_with(b")") {
            open = Some(std::mem::take(&mut rule));
        } else {
            rules.push(rule);
        }
    }
    match open {
        None => Ok(rules),
        Some(begun) => {
            let first = begun.split(u8::is_ascii_whitespace).next().unwrap_or_default();
            let first = String::from_utf8_lossy(first);
            Err(format!("Unmatched parenthesis in acl selector starting at '{first}'."))
        }
    }
}

fn hash(password: &[u8]) -> PasswordHash {
    digest(&SHA256, password).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

fn hex(hash: &PasswordHash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &[u8]) -> Option<PasswordHash> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut hash = PasswordHash::default();
    if text.len() != 2 * hash.len() {
        return None;
    }
    for (byte, digits) in hash.iter_mut().zip(text.chunks(2)) {
        *byte = digit(digits[0])? << 4 | digit(digits[1])?;
    }
    Some(hash)
}
