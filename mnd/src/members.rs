//! Who is a client of the pool. Memory node 0 decides.

use crate::{Answer, Change};
use fusee_layout::message::{Refusal, Response};
use fusee_layout::{Member, PoolParams};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

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
}

impl Members {
    /// Of a new pool: nobody.
    pub fn new(params: PoolParams) -> Self {
        let (left, present) = (BinaryHeap::new(), HashMap::new());
        Self { params, last: 0, last_index: 0, left, present }
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

    /// A client leaves.
    pub fn leave(&mut self, client: u32) -> Answer {
        let Some(index) = self.present.remove(&client) else {
            return Answer::refused(Refusal::NotOwner);
        };
        self.left.push(Reverse(index));
        Answer { changes: vec![Change::Departed { index }], response: Response::Done }
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
        assert_eq!(members.leave(2).changes, vec![Change::Departed { index: 2 }]);
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
}
