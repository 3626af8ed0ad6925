//! A write with two replicas or more, as long as it may still win.

use super::history::Op;
use super::policy::Departure;
use super::state::{Client, Pc, SLOTS, State};
use super::word::Word;
use super::{Protocol, Verb, cas};
use fusee::rules::{self, Ballot, Tally, Word as _};

impl Protocol {
    /// Phase 1 reads the two slots in either order.
    pub(super) fn verbs_of_read(&self, state: &State, client: usize, verbs: &mut Vec<Verb>) {
        let c = &state.clients[client];
        let (op, key) = self.scenario.ops[client];
        if op != Op::Get && self.allocate(&mut state.clone(), client, Word::NONE).is_none() {
            return;
        }
        for slot in (0..SLOTS).filter(|&slot| c.held[slot] == Word::NONE) {
            let word = state.memory[0][slot];
            let found = word.is_live() && self.is_of(state, word, key);
            let first = c.held[1 - slot] == Word::NONE;
            let inserts = matches!(op, Op::Set | Op::SetNx | Op::Modify);
            if found || first || !inserts {
                verbs.push(Verb::Read(slot));
                continue;
            }
            let mut held = c.held;
            held[slot] = word;
            let empty = |&x: &usize| !held[x].is_live() && !held[x].is_tentative();
            let room = |&x: &usize| !held[x].is_live();
            let mut targets: Vec<usize> = (0..SLOTS).filter(empty).collect();
            if targets.is_empty() {
                targets = (0..SLOTS).filter(room).collect();
            }
            let preferred = usize::from(c.prefer).wrapping_sub(1);
            if targets.contains(&preferred) {
                targets = vec![preferred];
            }
            if targets.is_empty() {
                verbs.push(Verb::Read(slot)); // no room
            }
            verbs.extend(targets.into_iter().map(|x| Verb::ReadThenInsert(slot, x)));
        }
    }

    pub(super) fn read(
        &self,
        state: &mut State,
        client: usize,
        slot: usize,
        target: Option<usize>,
    ) {
        let (op, key) = self.scenario.ops[client];
        let word = state.memory[0][slot];
        state.clients[client].pc = Pc::Read;
        if word.is_live() && self.is_of(state, word, key) {
            match op {
                Op::Get => self.finish(state, client, self.value_of(state, word)),
                Op::SetNx => self.finish(state, client, 0),
                _ => self.begin(state, client, slot, word, false),
            }
            return;
        }
        let c = &mut state.clients[client];
        c.held[slot] = word;
        if c.held[1 - slot] == Word::NONE {
            return;
        }
        match (op, target) {
            (Op::Get | Op::Del | Op::GetDel, _) => self.finish(state, client, 0),
            (_, None) => self.end(state, client, Pc::Spent),
            (_, Some(target)) => {
                let old = c.held[target];
                self.begin(state, client, target, old, true);
            }
        }
    }

    /// Writes the object and enters the round of `old`.
    fn begin(&self, state: &mut State, client: usize, slot: usize, old: Word, insert: bool) {
        if old.is_tentative() {
            let c = &mut state.clients[client];
            *c = Client { pc: Pc::MakeRoom, slot: slot as u8, old, held: Client::BLANK.held, ..*c };
            return;
        }
        let new = if self.write(client).deletes && self.lacks(Departure::Tombstones) {
            Word::FRESH
        } else {
            let Some(object) = self.allocate(state, client, old) else {
                self.end(state, client, Pc::Spent);
                return;
            };
            let live = Word::live(object);
            if self.write(client).deletes { live.tombstone() } else { live }
        };
        let c = &mut state.clients[client];
        c.slot = slot as u8;
        c.insert = insert;
        c.old = old;
        c.new = new;
        c.prefer = 0;
        c.held[slot] = Word::NONE;
        if !insert {
            c.held = Client::BLANK.held;
        }
        c.pc = if self.scenario.replicas == 1 { Pc::Swap } else { Pc::Vote };
        c.todo = self.all_backups();
        if insert && self.lacks(Departure::FencedCheck) && self.scenario.replicas > 1 {
            c.check = Word::DUE;
        }
    }

    /// Step 2: one vote, or the repair that has to precede it.
    pub(super) fn vote(&self, state: &mut State, client: usize, backup: usize) {
        let c = &mut state.clients[client];
        let word = &mut state.memory[backup + 1][usize::from(c.slot)];
        if c.lagging >> backup & 1 == 1 {
            cas(word, c.votes[backup], c.old);
            c.lagging &= !(1 << backup);
            c.votes[backup] = Word::NONE;
            return;
        }
        let found = cas(word, c.old, c.new);
        let mut ballot = rules::ballot(found, c.old, c.new);
        if self.lacks(Departure::LaggingBackups) && found != c.old {
            ballot = Ballot::Cast(found);
        }
        match ballot {
            Ballot::Lags(word) => {
                c.votes[backup] = word;
                c.lagging |= 1 << backup;
            }
            Ballot::Cast(word) => {
                c.votes[backup] = word;
                c.todo &= !(1 << backup);
                if word == c.new {
                    c.voted = true;
                    if backup == 0 && c.insert && !self.lacks(Departure::FencedCheck) {
                        c.check = Word::DUE;
                    }
                }
            }
        }
        self.after_votes(state, client);
    }

    /// The duplicate check's READ, of whoever is due to make it.
    pub(super) fn check(&self, state: &mut State, client: usize) {
        let c = &mut state.clients[client];
        c.check = state.memory[1][1 - usize::from(c.slot)];
        match c.pc {
            Pc::Vote => self.after_votes(state, client),
            Pc::Adopt => self.after_adoption(state, client),
            _ => self.after_help(state, client),
        }
    }

    /// Step 3.
    fn after_votes(&self, state: &mut State, client: usize) {
        let c = &mut state.clients[client];
        if c.todo != 0 || c.check == Word::DUE {
            return;
        }
        match rules::tally(&c.votes[..self.backups()], c.new) {
            Tally::Unanimous => self.after_adoption(state, client),
            Tally::Lost(winner) => self.lose(state, client, winner),
            Tally::Leads(_) if self.lacks(Departure::PrimaryBeforeAdoption) => {
                self.start_adoption(state, client);
            }
            Tally::Leads(_) => c.pc = Pc::Split,
        }
    }

    /// Rules 2 and 3, once the primary is known.
    pub(super) fn split(&self, state: &mut State, client: usize) {
        let c = &mut state.clients[client];
        let primary = state.memory[0][usize::from(c.slot)];
        let leader = match rules::tally(&c.votes[..self.backups()], c.new) {
            Tally::Leads(leader) => leader,
            other => unreachable!("no primary is read after {other:?}"),
        };
        if primary != c.old {
            self.lose(state, client, Word::NONE);
            state.clients[client].seen = primary;
            self.round_over(state, client);
        } else if leader == c.new {
            self.start_adoption(state, client);
        } else {
            self.lose(state, client, leader);
        }
    }

    fn start_adoption(&self, state: &mut State, client: usize) {
        let c = &mut state.clients[client];
        c.pc = Pc::Adopt;
        c.todo = (0..self.backups()).filter(|&b| c.votes[b] != c.new).map(|b| 1 << b).sum();
    }

    /// Step 4.
    pub(super) fn adopt(&self, state: &mut State, client: usize, backup: usize) {
        let c = &mut state.clients[client];
        cas(&mut state.memory[backup + 1][usize::from(c.slot)], c.votes[backup], c.new);
        c.votes[backup] = c.new;
        c.todo &= !(1 << backup);
        if backup == 0 && c.insert {
            c.check = Word::DUE;
        }
        self.after_adoption(state, client);
    }

    /// Step 5.
    fn after_adoption(&self, state: &mut State, client: usize) {
        let c = state.clients[client];
        if c.todo != 0 || c.check == Word::DUE {
            return;
        }
        let key = self.scenario.ops[client].1;
        let held = c.held[1 - usize::from(c.slot)];
        let duplicate = c.insert && self.is_duplicate(state, c.check, held, key);
        state.clients[client] = Client {
            pc: match duplicate {
                true => Pc::Abandon,
                false if self.lacks(Departure::RecordFirst) => Pc::Commit,
                false => Pc::Record,
            },
            votes: Client::BLANK.votes,
            held: Client::BLANK.held,
            check: Word::NONE,
            voted: false,
            ..c
        };
    }

    pub(super) fn is_duplicate(&self, state: &State, seen: Word, held: Word, key: u8) -> bool {
        if self.lacks(Departure::DuplicateCheck) {
            return false;
        }
        let same_key = self.is_of(state, seen, key);
        let same_fingerprint =
            self.has_fingerprint(state, seen, key) && !self.lacks(Departure::TombstonesInProgress);
        rules::is_duplicate(seen, held, same_key, same_fingerprint)
    }

    /// Step 6. (Before step 7, except in a mutation.)
    pub(super) fn record(&self, state: &mut State, client: usize) {
        let c = &mut state.clients[client];
        if let Some(object) = c.new.object() {
            state.records[usize::from(object)] = c.old;
        }
        c.pc = Pc::Commit;
        if self.lacks(Departure::RecordFirst) {
            self.succeed(state, client);
        }
    }

    /// Step 7. Whatever it finds: whoever moved the primary moved it to `new`.
    pub(super) fn commit(&self, state: &mut State, client: usize) {
        let c = state.clients[client];
        self.cas_primary(state, usize::from(c.slot), c.old, c.new);
        if self.lacks(Departure::RecordFirst) {
            state.clients[client].pc = Pc::Record;
        } else {
            self.succeed(state, client);
        }
    }

    /// Takes the insert back, unless a helper has committed it.
    pub(super) fn abandon(&self, state: &mut State, client: usize) {
        let c = state.clients[client];
        let found = self.cas_primary(state, usize::from(c.slot), c.old, c.new.tombstone());
        if found != c.old {
            self.succeed(state, client);
            return;
        }
        let c = &mut state.clients[client];
        c.pc = Pc::Follow;
        c.todo = self.all_backups();
        if self.lacks(Departure::BackupsFollow) {
            c.todo = 0;
            self.after_following(state, client);
        }
    }

    pub(super) fn follow(&self, state: &mut State, client: usize, backup: usize) {
        let c = &mut state.clients[client];
        let word = &mut state.memory[backup + 1][usize::from(c.slot)];
        cas(word, c.new, c.new.tombstone());
        c.todo &= !(1 << backup);
        self.after_following(state, client);
    }

    fn after_following(&self, state: &mut State, client: usize) {
        let c = state.clients[client];
        if c.todo == 0 {
            self.release_old(state, c.old);
            self.release_own_tombstone(state, c.new);
            self.restart(state, client, Some(1 - usize::from(c.slot)));
        }
    }
}
