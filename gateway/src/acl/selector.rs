//! A set of commands, keys and channels that go together: what a user may do, or
//! one of several such sets.

use super::Access;
use crate::channels::Way;
use crate::command::table::{COMMANDS, Command};
use crate::command::{CommandId, Local, Run, docs, glob};
use crate::request::Arguments;

const SYNTAX: &str = "Syntax error";
const UNKNOWN: &str = "Unknown command or category name in ACL";
const KEYS_AFTER_ALL: &str = "Adding a pattern after the * pattern (or the 'allkeys' flag) is not \
    valid and does not have any effect. Try 'resetkeys' to start with an empty list of patterns";
const CHANNELS_AFTER_ALL: &str = "Adding a pattern after the * pattern (or the 'allchannels' flag) \
    is not valid and does not have any effect. Try 'resetchannels' to start with an empty list of \
    channels";

/// What a user may not do: the command, or the argument at a place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Denied {
    Command,
    Key(usize),
    Channel(usize),
}

/// Commands, one bit each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct CommandSet([u64; 4]);
const _: () = assert!(CommandId::MAX as u32 == 4 * u64::BITS - 1);

impl CommandSet {
    fn set(&mut self, id: CommandId, is_in: bool) {
        let bit = 1 << (id % 64);
        let word = &mut self.0[usize::from(id / 64)];
        *word = if is_in { *word | bit } else { *word & !bit };
    }

    fn has(&self, id: CommandId) -> bool {
        self.0[usize::from(id / 64)] & 1 << (id % 64) != 0
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct KeyPattern {
    pattern: Vec<u8>,
    access: Access,
}

/// Commands, and the keys and channels that they may be used on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Selector {
    commands: CommandSet,
    /// Whether it begins with all commands or with none; then the rules since.
    has_all_commands: bool,
    rules: Vec<String>,
    has_all_keys: bool,
    keys: Vec<KeyPattern>,
    has_all_channels: bool,
    channels: Vec<Vec<u8>>,
}

impl Selector {
    /// Everything, also what later versions have.
    pub(super) fn all() -> Self {
        let everything = Self { has_all_keys: true, has_all_channels: true, ..Self::default() };
        let mut this = everything;
        this.all_commands(true);
        this
    }

    pub(super) fn is_unlimited(&self) -> bool {
        self.has_all_commands && self.rules.is_empty() && self.has_all_keys && self.has_all_channels
    }

    /// Whether a command with these arguments is allowed.
    pub(super) fn check(&self, id: CommandId, arguments: Arguments<'_>) -> Result<(), Denied> {
        let command = &COMMANDS[usize::from(id)];
        if !command.needs_no_auth() && !self.commands.has(id) {
            return Err(Denied::Command);
        }
        if !self.has_all_keys {
            for place in command.keys_among(arguments) {
                let wanted = Access::of(command, arguments, place);
                let key = arguments.get(place);
                let is_allowed = self.keys.iter().any(|KeyPattern { pattern, access }| {
                    access.covers(wanted) && glob::matches(pattern, key)
                });
                if !is_allowed {
                    return Err(Denied::Key(place));
                }
            }
        }
        if !self.has_all_channels {
            let (places, is_pattern) = match command.run {
                Run::Local(Local::Publish(_)) => (1..2, false),
                Run::Local(Local::Subscribe(way)) => (1..arguments.len(), way == Way::Pattern),
                _ => (0..0, false),
            };
            for place in places {
                if !self.has_channel(arguments.get(place), is_pattern) {
                    return Err(Denied::Channel(place));
                }
            }
        }
        Ok(())
    }

    /// Whether a channel may be used, or a pattern of channels listened to.
    pub(super) fn has_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        // Whoever may listen to a pattern may listen to no wider one.
        self.has_all_channels
            || self.channels.iter().any(|pattern| {
                if is_pattern { pattern == channel } else { glob::matches(pattern, channel) }
            })
    }

    /// Changes it by one rule of ACL SETUSER, or tells why that is none.
    pub(super) fn apply(&mut self, rule: &[u8]) -> Result<(), &'static str> {
        let word = rule.to_ascii_lowercase();
        match &word[..] {
            b"allkeys" | b"~*" => {
                self.has_all_keys = true;
                self.keys.clear();
            }
            b"resetkeys" => {
                self.has_all_keys = false;
                self.keys.clear();
            }
            b"allchannels" | b"&*" => {
                self.has_all_channels = true;
                self.channels.clear();
            }
            b"resetchannels" => {
                self.has_all_channels = false;
                self.channels.clear();
            }
            b"allcommands" | b"+@all" => self.all_commands(true),
            b"nocommands" | b"-@all" => self.all_commands(false),
            [b'~', ..] => self.add_keys(&rule[1..], Access { reads: true, writes: true })?,
            [b'%', rest @ ..] => {
                let end = rest.iter().position(|byte| *byte == b'~').ok_or(SYNTAX)?;
                let mut access = Access::default();
                for letter in &rest[..end] {
                    match letter {
                        b'r' if !access.reads => access.reads = true,
                        b'w' if !access.writes => access.writes = true,
                        _ => return Err(SYNTAX),
                    }
                }
                if access == Access::default() {
                    return Err(SYNTAX);
                }
                self.add_keys(&rule[end + 2..], access)?;
            }
            [b'&', ..] => {
                let pattern = &rule[1..];
                if self.has_all_channels {
                    return Err(CHANNELS_AFTER_ALL);
                }
                if has_blanks(pattern) {
                    return Err(SYNTAX);
                }
                if !self.channels.iter().any(|known| known == pattern) {
                    self.channels.push(pattern.to_vec());
                }
            }
            [sign @ (b'+' | b'-'), b'@', category @ ..] => {
                let commands = COMMANDS.iter().zip(0..);
                let is_known = docs::CATEGORIES.iter().any(|known| known.as_bytes() == category);
                if !is_known {
                    return Err(UNKNOWN);
                }
                for (command, id) in commands {
                    if docs::categories(command).any(|name| name.as_bytes()[1..] == *category) {
                        self.commands.set(id, *sign == b'+');
                    }
                }
                self.note(&word);
            }
            [sign @ (b'+' | b'-'), name @ ..] => {
                let command = docs::named(name).ok_or(UNKNOWN)?;
                self.commands.set(command.id(), *sign == b'+');
                for subcommand in command.subcommands() {
                    self.commands.set(subcommand.id(), *sign == b'+');
                }
                self.note(&word);
            }
            _ => return Err(SYNTAX),
        }
        Ok(())
    }

    fn all_commands(&mut self, is_in: bool) {
        self.commands = CommandSet(if is_in { [u64::MAX; 4] } else { [0; 4] });
        self.has_all_commands = is_in;
        self.rules.clear();
    }

    fn add_keys(&mut self, pattern: &[u8], access: Access) -> Result<(), &'static str> {
        if self.has_all_keys {
            return Err(KEYS_AFTER_ALL);
        }
        if has_blanks(pattern) {
            return Err(SYNTAX);
        }
        if pattern == b"*" && access.reads && access.writes {
            self.has_all_keys = true;
            self.keys.clear();
            return Ok(());
        }
        match self.keys.iter_mut().find(|known| known.pattern == pattern) {
            Some(known) => {
                known.access.reads |= access.reads;
                known.access.writes |= access.writes;
            }
            None => self.keys.push(KeyPattern { pattern: pattern.to_vec(), access }),
        }
        Ok(())
    }

    /// Remembers a rule about commands in place of those that it makes void.
    fn note(&mut self, rule: &[u8]) {
        let rule = String::from_utf8_lossy(rule).into_owned();
        let about = |rule: &str| rule[1..].to_owned();
        let (own, within) = (about(&rule), format!("{}|", about(&rule)));
        self.rules.retain(|other| about(other) != own && !about(other).starts_with(&within));
        self.rules.push(rule);
    }

    /// The patterns of its keys, with blanks between, as rules.
    pub(crate) fn key_rules(&self) -> Vec<u8> {
        if self.has_all_keys {
            return b"~*".to_vec();
        }
        let rules: Vec<Vec<u8>> = self
            .keys
            .iter()
            .map(|KeyPattern { pattern, access }| {
                let head: &[u8] = match (access.reads, access.writes) {
                    (true, true) => b"~",
                    (true, false) => b"%R~",
                    _ => b"%W~",
                };
                [head, pattern].concat()
            })
            .collect();
        rules.join(&b' ')
    }

    pub(crate) fn channel_rules(&self) -> Vec<u8> {
        if self.has_all_channels {
            return b"&*".to_vec();
        }
        let rules: Vec<Vec<u8>> =
            self.channels.iter().map(|one| [b"&", &one[..]].concat()).collect();
        rules.join(&b' ')
    }

    pub(crate) fn command_rules(&self) -> String {
        let mut words = vec![if self.has_all_commands { "+@all" } else { "-@all" }];
        words.extend(self.rules.iter().map(String::as_str));
        words.join(" ")
    }

    /// Appends it as a line of an ACL file has it.
    pub(super) fn describe(&self, out: &mut Vec<u8>) {
        let keys = self.key_rules();
        if !keys.is_empty() {
            out.extend_from_slice(&keys);
            out.push(b' ');
        }
        if !self.has_all_channels {
            out.extend_from_slice(b"resetchannels ");
        }
        let channels = self.channel_rules();
        if !channels.is_empty() {
            out.extend_from_slice(&channels);
            out.push(b' ');
        }
        out.extend_from_slice(self.command_rules().as_bytes());
    }
}

/// Whether a pattern could not be told apart from its neighbours in a file.
fn has_blanks(text: &[u8]) -> bool {
    text.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0)
}

/// The names of the commands of a category; `None` if there is no such category.
pub(crate) fn commands_of(category: &[u8]) -> Option<Vec<&'static str>> {
    let is_known =
        docs::CATEGORIES.iter().any(|known| category.eq_ignore_ascii_case(known.as_bytes()));
    let wanted = category.to_ascii_lowercase();
    let is_in = |command: &&Command| {
        command.run != Run::CloseSilently
            && docs::categories(command).any(|name| name.as_bytes()[1..] == wanted)
    };
    // A container's name stands for its subcommands.
    is_known.then(|| COMMANDS.iter().filter(is_in).map(|command| command.name).collect())
}
