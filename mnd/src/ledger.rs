//! The ledger of a memory node: decides on requests and writes what it decided
//! into the node's own memory. The copies on other nodes are the host's part.

use crate::{Answer, Blocks, Change, Members, NodeMemory};
use fusee_layout::Geometry;
use fusee_layout::message::{Effect, Refusal, Request, Response, Statistics};
use std::sync::Arc;

/// What one memory node has given to whom.
#[derive(Debug)]
pub struct Ledger {
    blocks: Blocks,
    /// On node 0.
    members: Option<Members>,
    memory: NodeMemory,
}

impl Ledger {
    /// Of node `node` of a new pool.
    pub fn new(node: u16, geometry: Arc<Geometry>, memory: NodeMemory) -> Self {
        let members = (node == 0).then(|| Members::new(geometry.params));
        Self { blocks: Blocks::new(geometry, node), members, memory }
    }

    /// Does what a client asks, and tells what the other nodes have to write,
    /// in this order, before the answer goes out.
    pub fn handle(&mut self, request: Request) -> (Response, Vec<Effect>) {
        let answer = self.decide(request);
        let mut effects = Vec::with_capacity(answer.changes.len());
        for change in answer.changes {
            let effect = match change {
                Change::Entry { at, entry } => Effect::Entry { at, entry },
                Change::Zero { block } => Effect::Zero { block },
                Change::Entries { count } => Effect::Entries { count },
                Change::Expelled { count } => Effect::Expelled { count },
                // Node 0's copy of the client table is the one that counts: the
                // others get what it gets.
                Change::Departed { index } => {
                    Effect::Departed { index, keys: self.memory.departing_keys(index) }
                }
            };
            effects.push(effect);
        }
        self.memory.apply(&effects);
        (answer.response, effects)
    }

    /// What it has given and to how many.
    pub fn statistics(&self) -> Statistics {
        let members = self.members.as_ref().map(Members::present);
        let expelled = self.members.as_ref().map(Members::expelled);
        Statistics { blocks: self.blocks.statistics(), members, expelled }
    }

    fn decide(&mut self, request: Request) -> Answer {
        match (request, &mut self.members) {
            (Request::Join { params }, Some(members)) => members.join(&params),
            (Request::Recover { client }, Some(members)) => members.recover(client),
            (Request::Join { .. }, None) => Answer::refused(Refusal::NotOwner),
            (Request::Expel { client }, Some(members)) => {
                let answer = members.expel(client);
                if answer.response == Response::Done {
                    self.blocks.handle(request);
                }
                answer
            }
            (Request::Leave { client }, Some(members)) => {
                let mut answer = members.leave(client);
                if answer.response == Response::Done {
                    answer.changes.extend(self.blocks.handle(request).changes);
                }
                answer
            }
            (_, _) => self.blocks.handle(request),
        }
    }
}
