//! Who is a client of the pool. Memory node 0 decides.

use crate::{Answer, Change};
use fusee_layout::message::{Refusal, Response};
use fusee_layout::{Member, PoolParams};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

/// The clients of a pool, and the places in the client table.
#[derive(Debug)]
pub struct Members {
    params: PoolParams,
    /// The last id that was given.
    last: u32,
    /// The last place that was given. Place 0 is that of all who have left.
    last_index: u32,
    left: BinaryHeap<Reverse<u32>>,
    present: HashMap<u32, u32>,
    /// Those who have died, and who recovers their memory.
    expelled: BTreeMap<u32, Option<u32>>,
    /// The one that was given last to be recovered.
    turn: u32,
}

impl Members {
    /// Of a new pool: nobody.
    pub fn new(params: PoolParams) -> Self {
        let (left, present) = (BinaryHeap::new(), HashMap::new());
        let expelled = BTreeMap::new();
        Self { params, last: 0, last_index: 0, left, present, expelled, turn: 0 }
    }

    /// Somebody wants to be a client.
    pub fn join(&mut self, params: &PoolParams) -> Answer {
        if *params != self.params {
            return Answer::refused(Refusal::OtherParameters);
        }
        if u64::from(self.last) + 1 >= Member::DEPARTED {
            return Answer::refused(Refusal::TooManyClients);
        }
        // Low places first, so that the part of the table in use stays short.
        let mut changes = Vec::new();
        let index = if let Some(Reverse(index)) = self.left.pop() {
            index
        } else if self.last_index + 1 < self.params.clients_max {
            self.last_index += 1;
            changes.push(Change::Entries { count: self.last_index + 1 });
            self.last_index
        } else {
            return Answer::refused(Refusal::TooManyClients);
        };
        self.last += 1;
        self.present.insert(self.last, index);
        Answer { changes, response: Response::Joined { client: self.last, index } }
    }

    /// A client leaves, or one that was expelled has been recovered.
    pub fn leave(&mut self, client: u32) -> Answer {
        if self.expelled.remove(&client).is_some() {
            return Answer { changes: vec![self.count_expelled()], response: Response::Done };
        }
        self.depart(client)
    }

    /// A client has died: it is to be recovered.
    pub fn expel(&mut self, client: u32) -> Answer {
        if !self.present.contains_key(&client) {
            return Answer::refused(Refusal::NotOwner);
        }
        self.expelled.insert(client, None);
        self.depart(client)
    }

    fn depart(&mut self, client: u32) -> Answer {
        let Some(index) = self.present.remove(&client) else {
            return Answer::refused(Refusal::NotOwner);
        };
        self.left.push(Reverse(index));
        // What it has not finished recovering, somebody else begins again.
        for recoverer in self.expelled.values_mut().filter(|r| **r == Some(client)) {
            *recoverer = None;
        }
        let changes = vec![Change::Departed { index }, self.count_expelled()];
        Answer { changes, response: Response::Done }
    }

    /// A client asks for one to recover. It gets all that are nobody else's in
    /// turn: what is in the way of one recovery may be another's to finish.
    pub fn recover(&mut self, client: u32) -> Answer {
        if !self.present.contains_key(&client) {
            return Answer::refused(Refusal::NotOwner);
        }
        let waiting = |expelled: &(&u32, &Option<u32>)| expelled.1.is_none_or(|of| of == client);
        let next = self.expelled.range(self.turn + 1..).find(waiting);
        let next = next.or_else(|| self.expelled.iter().find(waiting));
        let Some((&expelled, _)) = next else { return Answer::plain(Response::Done) };
        self.turn = expelled;
        self.expelled.insert(expelled, Some(client));
        let changes = vec![self.count_expelled()];
        Answer { changes, response: Response::Expelled { client: expelled } }
    }

    fn count_expelled(&self) -> Change {
        Change::Expelled { count: self.expelled.values().filter(|r| r.is_none()).count() as u32 }
    }

    /// How many have died and are not recovered.
    pub fn expelled(&self) -> u32 {
        self.expelled.len() as u32
    }

    /// How many clients there are.
    pub fn present(&self) -> u32 {
        self.present.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(clients_max: u32) -> PoolParams {
        PoolParams { clients_max, ..PoolParams::for_memory(64 << 20, 1, 1, 5).unwrap() }
    }

    fn joined(answer: Answer) -> (u32, u32) {
        match answer.response {
            Response::Joined { client, index } => (client, index),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn ids_are_never_given_twice_and_places_are_reused() {
        let params = params(4);
        let mut members = Members::new(params);
        assert_eq!(joined(members.join(&params)), (1, 1));
        assert_eq!(joined(members.join(&params)), (2, 2));
        let third = members.join(&params);
        assert_eq!(third.changes, vec![Change::Entries { count: 4 }]);
        assert_eq!(joined(third), (3, 3));
        let full = Response::Refused(Refusal::TooManyClients);
        assert_eq!(members.join(&params).response, full);
        let left = [Change::Departed { index: 2 }, Change::Expelled { count: 0 }];
        assert_eq!(members.leave(2).changes, left);
        assert_eq!(members.present(), 2);
        let fourth = members.join(&params);
        assert_eq!(fourth.changes, vec![], "its place was counted before");
        assert_eq!(joined(fourth), (4, 2));
        assert_eq!(members.join(&params).response, full);
    }

    #[test]
    fn strangers_can_neither_join_nor_leave() {
        let params = params(4);
        let mut members = Members::new(params);
        let other = PoolParams { hash_seed: 6, ..params };
        let refused = members.join(&other);
        assert_eq!(refused.response, Response::Refused(Refusal::OtherParameters));
        let (client, _) = joined(members.join(&params));
        members.leave(client);
        for stranger in [client, 0, 77] {
            let refused = members.leave(stranger);
            assert_eq!(refused, Answer::refused(Refusal::NotOwner));
        }
    }

    #[test]
    fn who_died_is_recovered_by_one_at_a_time_and_again_if_that_one_dies() {
        let params = params(8);
        let mut members = Members::new(params);
        let [a, b, c, d] = [(); 4].map(|()| joined(members.join(&params)).0);
        assert_eq!(members.recover(a).response, Response::Done, "nobody has died");
        for (dead, count) in [(c, 1), (d, 2)] {
            let changes = members.expel(dead).changes;
            assert!(changes.contains(&Change::Departed { index: dead }), "nobody waits for it");
            assert!(changes.contains(&Change::Expelled { count }));
        }
        assert_eq!(
            members.expel(c),
            Answer::refused(Refusal::NotOwner),
            "it is no client any more"
        );
        assert_eq!(members.recover(d), Answer::refused(Refusal::NotOwner));

        let to = |client| Response::Expelled { client };
        assert_eq!(members.recover(a).response, to(c));
        let other = members.recover(b);
        assert_eq!(other.response, to(d));
        assert_eq!(other.changes, [Change::Expelled { count: 0 }]);
        assert_eq!(members.recover(a).response, to(c), "until it is done");

        assert!(members.expel(a).changes.contains(&Change::Expelled { count: 2 }));
        for dead in [d, a, c] {
            assert_eq!(members.recover(b).response, to(dead), "each in turn");
        }
        assert_eq!(members.leave(d).changes, [Change::Expelled { count: 0 }]);
        for dead in [a, c] {
            assert_eq!(members.recover(b).response, to(dead));
            assert_eq!(members.leave(dead).response, Response::Done);
        }
        assert_eq!(members.recover(b).response, Response::Done);
        assert_eq!((members.present(), members.expelled()), (1, 0));
    }
}
