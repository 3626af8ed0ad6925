//! Control requests: decided by the memory node's own code, carried out on the
//! simulator's memory, each in one moment.

use crate::{Control, Nodes};
use fusee_layout::message::{Refusal, Request, Response};
use fusee_layout::{Geometry, MEMBER_BYTES, Member, NodeAddress, Superblock};
use mnd::{Answer, Blocks, Change, Members};
use std::sync::Arc;

/// The memory nodes of a pool, as far as they decide anything.
#[derive(Debug)]
pub struct MemoryNodes {
    geometry: Arc<Geometry>,
    blocks: Vec<Blocks>,
    members: Members,
}

impl MemoryNodes {
    /// Those of a new pool, and its formatted memory.
    pub fn create(geometry: Arc<Geometry>) -> (Self, Nodes) {
        let params = geometry.params;
        let mut nodes = Nodes::new(params.nodes, params.node_bytes);
        for node in 0..params.nodes {
            nodes.put_bytes(NodeAddress { node, offset: 0 }, &Superblock { params }.write());
        }
        let blocks = (0..params.nodes).map(|node| Blocks::new(geometry.clone(), node)).collect();
        (Self { blocks, members: Members::new(params), geometry }, nodes)
    }

    fn decide(&mut self, node: u16, request: Request) -> Answer {
        let blocks = &mut self.blocks[usize::from(node)];
        match request {
            Request::Join { params } if node == 0 => self.members.join(&params),
            Request::Recover { client } if node == 0 => self.members.recover(client),
            Request::Expel { client } if node == 0 => {
                let answer = self.members.expel(client);
                if answer.response == Response::Done {
                    blocks.handle(request);
                }
                answer
            }
            Request::Join { .. } => {
                Answer { changes: Vec::new(), response: Response::Refused(Refusal::NotOwner) }
            }
            Request::Leave { client } if node == 0 => {
                let mut answer = self.members.leave(client);
                if answer.response == Response::Done {
                    answer.changes.extend(blocks.handle(request).changes);
                }
                answer
            }
            _ => blocks.handle(request),
        }
    }

    fn carry_out(&self, nodes: &mut Nodes, change: Change) {
        let Geometry { params, placement, .. } = &*self.geometry;
        match change {
            Change::Entry { at, entry } => {
                for at in placement.locate_all(at) {
                    nodes.words_mut(at, 1)[0] = entry.word();
                }
            }
            Change::Zero { block } => {
                for at in placement.locate_all(block) {
                    nodes.words_mut(at, (params.block_bytes / 8) as usize).fill(0);
                }
            }
            Change::Entries { count } => {
                for node in 0..params.nodes {
                    let at = NodeAddress { node, offset: Geometry::MEMBERS_AT };
                    nodes.words_mut(at, 1)[0] = count.into();
                }
            }
            Change::Expelled { count } => {
                for node in 0..params.nodes {
                    let at = NodeAddress { node, offset: Geometry::EXPELLED_AT };
                    nodes.words_mut(at, 1)[0] = count.into();
                }
            }
            Change::Departed { index } => {
                for node in 0..params.nodes {
                    let entry = |index| NodeAddress { node, offset: Geometry::member_at(index) };
                    let leaver = Member::parse(&nodes.bytes(entry(index), MEMBER_BYTES));
                    let all = Member::parse(&nodes.bytes(entry(0), MEMBER_BYTES));
                    let mut all = Member { client: Member::DEPARTED, quiescent: 0, ..all };
                    for (sum, more) in all.keys.iter_mut().zip(leaver.keys) {
                        *sum += more;
                    }
                    let mut bytes = [0; MEMBER_BYTES];
                    all.write(&mut bytes);
                    nodes.put_bytes(entry(0), &bytes);
                    nodes.words_mut(entry(index), MEMBER_BYTES / 8).fill(0);
                }
            }
        }
    }
}

impl Control for MemoryNodes {
    fn handle(&mut self, nodes: &mut Nodes, node: u16, request: Request) -> Response {
        let answer = self.decide(node, request);
        for change in answer.changes {
            self.carry_out(nodes, change);
        }
        answer.response
    }
}
