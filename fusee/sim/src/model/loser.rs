//! A write with two replicas or more, once another word has won its round.

use super::policy::Departure;
use super::state::{Client, Pc, State};
use super::word::Word;
use super::{Protocol, Verb, cas};
use fusee::rules::{self, Evidence, Verdict, Winner, Word as _, Write};

/// Values of [`Client::early`].
const ABSENT: u8 = 1;
const PRESENT: u8 = 2;

impl Protocol {
    /// A poll that would change nothing is no step.
    pub(super) fn verbs_of_loser(&self, state: &State, client: usize, verbs: &mut Vec<Verb>) {
        let c = &state.clients[client];
        let slot = usize::from(c.slot);
        let moved = state.memory[0][slot] != c.old;
        let may_help = match c.pc {
            Pc::HelpWait => {
                let other = 1 - slot;
                !self.forbids(state, c.winner, state.memory[1][other], state.memory[0][other])
            }
            _ => !self.lacks(Departure::Helping),
        };
        if moved || may_help {
            verbs.push(Verb::Go);
        }
    }

    /// Another word has won (`NONE`: nobody knows which).
    pub(super) fn lose(&self, state: &mut State, client: usize, winner: Word) {
        let c = &mut state.clients[client];
        c.pc = Pc::Lost;
        c.winner = winner;
        c.check = Word::NONE;
        c.held = Client::BLANK.held;
        if winner == Word::NONE {
            c.votes = Client::BLANK.votes;
        }
    }

    /// READ of the primary: judge, follow an abandonment, or help.
    pub(super) fn poll(&self, state: &mut State, client: usize) {
        let c = &mut state.clients[client];
        let primary = state.memory[0][usize::from(c.slot)];
        if primary != c.old {
            c.seen = primary;
            self.moved(state, client);
        } else if !self.lacks(Departure::Helping) {
            self.start_help(state, client);
        }
    }

    /// The primary left `old` for what we saw there.
    fn moved(&self, state: &mut State, client: usize) {
        let c = &mut state.clients[client];
        c.votes = Client::BLANK.votes;
        if c.seen == c.winner.tombstone() && c.seen != c.winner && c.insert {
            c.pc = Pc::HelpFollow;
            c.todo = self.all_backups();
        } else {
            if !c.insert {
                c.seen = Word::NONE; // asked of inserts only
            }
            self.round_over(state, client);
        }
    }

    pub(super) fn help_follow(&self, state: &mut State, client: usize, backup: usize) {
        let c = &mut state.clients[client];
        let word = &mut state.memory[backup + 1][usize::from(c.slot)];
        cas(word, c.winner, c.winner.tombstone());
        c.todo &= !(1 << backup);
        if c.todo == 0 {
            self.round_over(state, client);
        }
    }

    pub(super) fn round_over(&self, state: &mut State, client: usize) {
        let c = &mut state.clients[client];
        if c.winner == Word::NONE && !c.voted {
            self.again(state, client);
        } else {
            c.pc = Pc::Judge;
            if c.early != 0 {
                self.judge(state, client);
            }
        }
    }

    fn recorded(&self, state: &State, word: Word, old: Word) -> bool {
        let Some(object) = word.object() else { return false };
        // The header tells when the address holds another generation.
        let there = self.scenario.pool.is_none_or(|pool| {
            let cell = &state.cells[usize::from(object / pool.generations)];
            cell.generation == object % pool.generations
        });
        there && state.records[usize::from(object)] == old
    }

    /// Mutation: the own record travels in the batch that reads the primary.
    pub(super) fn read_early(&self, state: &mut State, client: usize) {
        let c = state.clients[client];
        let own = c.voted && self.recorded(state, c.new, c.old);
        state.clients[client].early = if own { PRESENT } else { ABSENT };
    }

    /// READ of the own record and of the winner's.
    pub(super) fn judge(&self, state: &mut State, client: usize) {
        let c = state.clients[client];
        let own = match c.early {
            0 => c.voted && self.recorded(state, c.new, c.old),
            early => early == PRESENT,
        };
        let own_read = !self.lacks(Departure::OwnRecord)
            && (c.winner == Word::NONE || !self.lacks(Departure::OwnRecordDespiteMajority));
        let winner = (c.winner != Word::NONE).then(|| {
            let mut write = self.writer(state, c.winner).map_or(
                // Only a mutation's word has no writer: a delete that wrote 0.
                Write { deletes: true, blind: true },
                |writer| self.write(writer),
            );
            write.blind |= self.lacks(Departure::ConditionalWinner);
            Winner {
                word: c.winner,
                recorded: self.recorded(state, c.winner, c.old)
                    || c.winner == Word::FRESH
                    || self.lacks(Departure::WinnerOfMyRound),
                write,
                same_key: self.is_of(state, c.winner, self.scenario.ops[client].1),
            }
        });
        let mut evidence = Evidence { primary: c.seen, own_recorded: own && own_read, winner };
        if let Some(winner) = &mut evidence.winner
            && self.lacks(Departure::AbandonmentIsNoWin)
            && winner.word == c.seen
            && let Some(object) = c.seen.object()
        {
            winner.word = Word::live(object);
            evidence.primary = winner.word;
        }
        let mut me = self.write(client);
        me.blind |= self.lacks(Departure::ConditionalLoser);
        let mut verdict = rules::judge(me, c.insert, &evidence);
        if c.insert && self.lacks(Departure::InsertLoserLooks) {
            verdict = Verdict::JustBefore;
        }
        let lost_to_set = winner.is_some_and(|w| w.recorded && !w.write.deletes);
        if me.deletes && me.blind && lost_to_set && self.lacks(Departure::DeleteAfterSet) {
            verdict = Verdict::JustBefore;
        }
        match verdict {
            Verdict::Committed => self.succeed(state, client),
            Verdict::JustBefore => {
                self.free(state, c.new);
                let replaced = if c.insert { 0 } else { self.value_of(state, c.old) };
                let result = if self.write(client).blind { 1 } else { replaced };
                self.finish(state, client, result);
            }
            Verdict::JustAfter => {
                self.free(state, c.new);
                self.finish(state, client, 0);
            }
            Verdict::Again => self.again(state, client),
        }
    }

    /// Our word can never win any more.
    pub(super) fn again(&self, state: &mut State, client: usize) {
        self.free(state, state.clients[client].new);
        self.restart(state, client, None);
    }

    /// READ of what the primary holds in the other slot, in the same batch.
    pub(super) fn help_read(&self, state: &mut State, client: usize) {
        let c = &mut state.clients[client];
        c.seen = state.memory[0][1 - usize::from(c.slot)];
        self.after_help(state, client);
    }

    fn start_help(&self, state: &mut State, client: usize) {
        let backups = self.backups();
        let c = &mut state.clients[client];
        c.pc = Pc::HelpAdopt;
        c.todo = (0..backups).filter(|&b| c.votes[b] != c.winner).map(|b| 1 << b).sum();
        if c.insert {
            c.seen = Word::DUE;
            if c.votes[0] == c.winner {
                c.check = Word::DUE;
            }
        }
        self.after_help(state, client);
    }

    pub(super) fn help_adopt(&self, state: &mut State, client: usize, backup: usize) {
        let c = &mut state.clients[client];
        cas(&mut state.memory[backup + 1][usize::from(c.slot)], c.votes[backup], c.winner);
        c.votes[backup] = c.winner;
        c.todo &= !(1 << backup);
        if backup == 0 && c.insert {
            c.check = Word::DUE;
        }
        self.after_help(state, client);
    }

    pub(super) fn after_help(&self, state: &mut State, client: usize) {
        let c = &mut state.clients[client];
        if c.todo == 0 && c.check != Word::DUE && c.seen != Word::DUE {
            self.conclude_help(state, client);
        }
    }

    fn forbids(&self, state: &State, winner: Word, check: Word, held: Word) -> bool {
        !self.lacks(Departure::HelperChecks)
            && self.is_duplicate(state, check, held, self.key_of(state, winner))
    }

    /// The helper's duplicate check is complete.
    fn conclude_help(&self, state: &mut State, client: usize) {
        let c = state.clients[client];
        let other = 1 - usize::from(c.slot);
        let forbidden = c.insert && self.forbids(state, c.winner, c.check, c.seen);
        let c = &mut state.clients[client];
        c.check = Word::NONE;
        c.seen = Word::NONE;
        if !forbidden {
            c.votes = Client::BLANK.votes;
            c.pc = if self.lacks(Departure::RecordFirst) { Pc::HelpCommit } else { Pc::HelpRecord };
        } else if self.lacks(Departure::OnlyOwnerAbandons) {
            let (old, winner) = (c.old, c.winner);
            self.cas_primary(state, 1 - other, old, winner.tombstone());
            state.clients[client].pc = Pc::Lost;
        } else if self.lacks(Departure::HelperGivesWay) {
            c.pc = Pc::HelpWait;
        } else {
            // The round is lost for us whatever becomes of the winner: all
            // backups hold its word.
            let object = c.new;
            self.free(state, object);
            self.restart(state, client, Some(other));
        }
    }

    pub(super) fn help_record(&self, state: &mut State, client: usize) {
        let c = &mut state.clients[client];
        if let Some(object) = c.winner.object() {
            state.records[usize::from(object)] = c.old;
        }
        c.pc = Pc::HelpCommit;
        if self.lacks(Departure::RecordFirst) {
            self.moved(state, client);
        }
    }

    /// CAS of the primary; what it finds serves as the next poll.
    pub(super) fn help_commit(&self, state: &mut State, client: usize) {
        let c = state.clients[client];
        let found = self.cas_primary(state, usize::from(c.slot), c.old, c.winner);
        let next = &mut state.clients[client];
        next.seen = if found == c.old { c.winner } else { found };
        if self.lacks(Departure::RecordFirst) {
            next.pc = Pc::HelpRecord;
        } else {
            self.moved(state, client);
        }
    }
}
