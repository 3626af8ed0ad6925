//! Which arguments of a command are keys.

use super::Command;
use crate::command::function::Function;
use crate::command::{Run, eval};
use crate::request::Arguments;

impl Command {
    /// The places of its keys among these arguments, also where one of these says
    /// how many there are.
    pub fn keys_among(&self, arguments: Arguments<'_>) -> impl Iterator<Item = usize> + use<> {
        let counted = if self.counts_keys() { eval::key_places(arguments) } else { 0..0 };
        self.key_places(arguments.len()).chain(counted)
    }

    /// Whether an argument says how many keys follow.
    pub fn counts_keys(&self) -> bool {
        matches!(self.run, Run::Eval(_) | Run::Function(Function::Call | Function::CallRo))
    }

    /// Whether the key at this place of the arguments is the first.
    pub(crate) fn is_first_key(&self, place: usize) -> bool {
        place == usize::from(self.keys.0.unsigned_abs())
    }

    /// The places of its keys among so many arguments.
    pub fn key_places(&self, arguments: usize) -> impl Iterator<Item = usize> + use<> {
        let (first, last, step) = self.keys;
        let last = if last < 0 {
            arguments.saturating_sub(usize::from(last.unsigned_abs()))
        } else {
            last as usize
        };
        let end = if first == 0 { 0 } else { last + 1 };
        (first as usize..end.min(arguments)).step_by(step.max(1) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{COMMANDS, find};

    #[test]
    fn keys_are_where_the_table_says() {
        let places = |name: &[u8], arguments| {
            let id = find(name).expect("a command");
            COMMANDS[usize::from(id)].key_places(arguments).collect::<Vec<_>>()
        };
        assert_eq!(places(b"get", 2), [1]);
        assert_eq!(places(b"mset", 5), [1, 3]);
        assert_eq!(places(b"mget", 4), [1, 2, 3]);
        assert_eq!(places(b"ping", 2), [0; 0]);
        assert_eq!(places(b"set", 5), [1]);
    }
}
