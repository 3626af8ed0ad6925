//! Messages of the wire to this tree's types and back. Whatever bytes come,
//! nothing panics: what makes no sense is [`Malformed`](Denied::Malformed).

use crate::{
    Admission, Attach, Denied, Description, Expulsion, GatewayId, GatewayPeer, Introduction,
    Membership, MemoryRoute, Replication, Token, proto,
};
use fusee_fabric::verbs::{NodeQueuePair, QueuePairAddress};
use fusee_layout::message::{BlockStatistics, Effect, Refusal, Request, Response, Statistics};
use fusee_layout::{Address, BlockEntry, CLASSES_MAX, Class, DATABASES, PoolParams, Room};

type Checked<T> = Result<T, Denied>;

const fn malformed(what: &'static str) -> Denied {
    Denied::Malformed(what)
}

fn narrow<T: TryFrom<u32>>(number: u32, what: &'static str) -> Checked<T> {
    number.try_into().map_err(|_| malformed(what))
}

pub(crate) fn token(bytes: &[u8]) -> Checked<Token> {
    Token::from_bytes(bytes).ok_or(malformed("a token"))
}

pub(crate) fn gateway(bytes: &[u8]) -> Checked<GatewayId> {
    GatewayId::from_bytes(bytes).ok_or(malformed("the name of a process"))
}

fn class(number: u32) -> Checked<Class> {
    let number = u8::try_from(number).ok().filter(|&number| usize::from(number) < CLASSES_MAX);
    number.map(Class::new).ok_or(malformed("a size class"))
}

fn address(number: u64) -> Checked<Address> {
    if number >> 48 == 0 { Ok(Address::new(number)) } else { Err(malformed("an address")) }
}

pub(crate) fn params(message: Option<proto::Params>) -> Checked<PoolParams> {
    let message = message.ok_or(malformed("a message without parameters"))?;
    Ok(PoolParams {
        version: message.version,
        nodes: narrow(message.nodes, "the number of nodes")?,
        replicas: narrow(message.replicas, "the number of replicas")?,
        node_bytes: message.node_bytes,
        region_bytes: message.region_bytes,
        block_bytes: message.block_bytes,
        clients_max: message.clients_max,
        index_regions: message.index_regions,
        subtables: message.subtables,
        groups: message.groups,
        hash_seed: message.hash_seed,
    })
}

impl From<PoolParams> for proto::Params {
    fn from(params: PoolParams) -> Self {
        Self {
            version: params.version,
            nodes: params.nodes.into(),
            replicas: params.replicas.into(),
            node_bytes: params.node_bytes,
            region_bytes: params.region_bytes,
            block_bytes: params.block_bytes,
            clients_max: params.clients_max,
            index_regions: params.index_regions,
            subtables: params.subtables,
            groups: params.groups,
            hash_seed: params.hash_seed,
        }
    }
}

pub(crate) fn description(message: Option<proto::Description>) -> Checked<Description> {
    let message = message.ok_or(malformed("a message without a description"))?;
    Ok(Description {
        control_version: message.control_version,
        layout_version: message.layout_version,
        name: message.name,
        fabric: message.fabric,
        nodes: narrow(message.nodes, "the number of nodes")?,
        replicas: narrow(message.replicas, "the number of replicas")?,
        node_bytes: message.node_bytes,
        hash_seed: message.hash_seed,
        node: narrow(message.node, "a node's number")?,
    })
}

impl From<Description> for proto::Description {
    fn from(description: Description) -> Self {
        Self {
            control_version: description.control_version,
            layout_version: description.layout_version,
            name: description.name,
            fabric: description.fabric,
            nodes: description.nodes.into(),
            replicas: description.replicas.into(),
            node_bytes: description.node_bytes,
            hash_seed: description.hash_seed,
            node: description.node.into(),
        }
    }
}

pub(crate) fn attach(message: proto::AttachRequest) -> Checked<Attach> {
    let session = match &message.session[..] {
        [] => None,
        bytes => Some(token(bytes)?),
    };
    let gateway = gateway(&message.gateway)?;
    Ok(Attach { description: description(message.description)?, gateway, session })
}

impl From<Attach> for proto::AttachRequest {
    fn from(attach: Attach) -> Self {
        Self {
            description: Some(attach.description.into()),
            gateway: attach.gateway.bytes().to_vec(),
            session: attach.session.map_or_else(Vec::new, |session| session.bytes().to_vec()),
        }
    }
}

impl From<Admission> for proto::Attached {
    fn from(admission: Admission) -> Self {
        let path = match admission.path {
            MemoryRoute::Shm { socket } => proto::attached::Path::Shm(proto::ShmPath {
                socket: socket.to_string_lossy().into_owned(),
            }),
            MemoryRoute::Tcp { address } => proto::attached::Path::Tcp(proto::TcpPath { address }),
            MemoryRoute::Verbs { device } => {
                proto::attached::Path::Verbs(proto::VerbsPath { device })
            }
        };
        Self {
            token: admission.token.bytes().to_vec(),
            params: Some(admission.params.into()),
            incarnation: admission.incarnation,
            path: Some(path),
        }
    }
}

pub(crate) fn admission(message: proto::Attached) -> Checked<Admission> {
    let path = match message.path.ok_or(malformed("a way to the memory"))? {
        proto::attached::Path::Shm(shm) => MemoryRoute::Shm { socket: shm.socket.into() },
        proto::attached::Path::Tcp(tcp) => MemoryRoute::Tcp { address: tcp.address },
        proto::attached::Path::Verbs(verbs) => MemoryRoute::Verbs { device: verbs.device },
    };
    Ok(Admission {
        token: token(&message.token)?,
        params: params(message.params)?,
        incarnation: message.incarnation,
        path,
    })
}

fn queue_pair(message: Option<proto::QueuePair>) -> Checked<QueuePairAddress> {
    let message = message.ok_or(malformed("a message without a queue pair"))?;
    Ok(QueuePairAddress {
        qpn: message.qpn,
        psn: message.psn,
        gid: message.gid.try_into().map_err(|_| malformed("a GID"))?,
        lid: narrow(message.lid, "a LID")?,
        mtu: narrow(message.mtu, "an MTU")?,
        reads_max: narrow(message.reads_max, "the number of READs under way")?,
    })
}

impl From<QueuePairAddress> for proto::QueuePair {
    fn from(address: QueuePairAddress) -> Self {
        Self {
            qpn: address.qpn,
            psn: address.psn,
            gid: address.gid.to_vec(),
            lid: address.lid.into(),
            mtu: address.mtu.into(),
            reads_max: address.reads_max.into(),
        }
    }
}

pub(crate) fn open_queue_pair(
    message: proto::OpenQueuePairRequest,
) -> Checked<(Token, u64, QueuePairAddress)> {
    Ok((token(&message.token)?, message.link, queue_pair(message.client)?))
}

pub(crate) fn opened(message: proto::OpenedQueuePair) -> Checked<NodeQueuePair> {
    Ok(NodeQueuePair {
        address: queue_pair(message.node)?,
        rkey: message.rkey,
        base: message.base,
        bytes: message.bytes,
    })
}

impl From<NodeQueuePair> for proto::OpenedQueuePair {
    fn from(end: NodeQueuePair) -> Self {
        Self { node: Some(end.address.into()), rkey: end.rkey, base: end.base, bytes: end.bytes }
    }
}

pub(crate) fn call(message: proto::CallRequest) -> Checked<(Token, Request)> {
    use proto::call_request::Request as Message;
    let token = token(&message.token)?;
    let request = match message.request.ok_or(malformed("an empty request"))? {
        Message::Join(join) => Request::Join { params: params(join.params)? },
        Message::Leave(leave) => Request::Leave { client: leave.client },
        Message::Recover(recover) => Request::Recover { client: recover.client },
        Message::Allocate(allocate) => Request::Allocate {
            client: allocate.client,
            class: class(allocate.class)?,
            reserve: allocate.reserve,
            fresh: allocate.fresh,
        },
        Message::Adopt(adopt) => {
            Request::Adopt { client: adopt.client, block: address(adopt.block)? }
        }
        Message::Offer(offer) => Request::Offer {
            client: offer.client,
            block: address(offer.block)?,
            room: room(offer.room)?,
        },
        Message::Return(back) => {
            Request::Return { client: back.client, block: address(back.block)? }
        }
    };
    Ok((token, request))
}

/// A client's request; `None` for what no client asks.
pub(crate) fn call_request(token: Token, request: Request) -> Option<proto::CallRequest> {
    use proto::call_request::{self as message, Request as Message};
    let request = match request {
        Request::Join { params } => Message::Join(message::Join { params: Some(params.into()) }),
        Request::Leave { client } => Message::Leave(message::Leave { client }),
        Request::Recover { client } => Message::Recover(message::Recover { client }),
        Request::Allocate { client, class, reserve, fresh } => {
            let class = class.number().into();
            Message::Allocate(message::Allocate { client, class, reserve, fresh })
        }
        Request::Adopt { client, block } => {
            Message::Adopt(message::Adopt { client, block: block.get() })
        }
        Request::Offer { client, block, room } => {
            Message::Offer(message::Offer { client, block: block.get(), room: room as u32 })
        }
        Request::Return { client, block } => {
            Message::Return(message::Return { client, block: block.get() })
        }
        Request::Expel { .. } => return None,
    };
    Some(proto::CallRequest { token: token.bytes().to_vec(), request: Some(request) })
}

fn room(number: u32) -> Checked<Room> {
    [Room::Unknown, Room::Freed, Room::Unused]
        .into_iter()
        .find(|&room| room as u32 == number)
        .ok_or(malformed("a block's room"))
}

impl From<Response> for proto::Reply {
    fn from(response: Response) -> Self {
        use proto::reply::Reply;
        let reply = match response {
            Response::Done => Reply::Done(proto::Done {}),
            Response::Joined { client, index } => Reply::Joined(proto::Joined { client, index }),
            Response::Allocated { block, adopted } => {
                Reply::Allocated(proto::Allocated { block: block.get(), adopted })
            }
            Response::Expelled { client } => Reply::Expelled(client),
            Response::Refused(refusal) => Reply::Refused(i32::from(match refusal {
                Refusal::Full => proto::Refusal::Full,
                Refusal::TooManyClients => proto::Refusal::TooManyClients,
                Refusal::OtherParameters => proto::Refusal::OtherParameters,
                Refusal::NotOwner => proto::Refusal::NotOwner,
            })),
        };
        Self { reply: Some(reply) }
    }
}

pub(crate) fn response(message: &proto::Reply) -> Checked<Response> {
    use proto::reply::Reply;
    Ok(match message.reply.as_ref().ok_or(malformed("an empty reply"))? {
        Reply::Done(_) => Response::Done,
        Reply::Joined(joined) => Response::Joined { client: joined.client, index: joined.index },
        Reply::Allocated(allocated) => {
            Response::Allocated { block: address(allocated.block)?, adopted: allocated.adopted }
        }
        Reply::Expelled(client) => Response::Expelled { client: *client },
        Reply::Refused(refusal) => Response::Refused(match proto::Refusal::try_from(*refusal) {
            Ok(proto::Refusal::Full) => Refusal::Full,
            Ok(proto::Refusal::TooManyClients) => Refusal::TooManyClients,
            Ok(proto::Refusal::OtherParameters) => Refusal::OtherParameters,
            Ok(proto::Refusal::NotOwner) => Refusal::NotOwner,
            Ok(proto::Refusal::Unspecified) | Err(_) => return Err(malformed("a refusal")),
        }),
    })
}

impl From<Statistics> for proto::StatisticsReply {
    fn from(Statistics { blocks, members, expelled }: Statistics) -> Self {
        Self {
            free: blocks.free,
            owned: blocks.owned,
            orphans: blocks.orphans,
            reserved: blocks.reserved,
            block_bytes: blocks.block_bytes,
            members,
            expelled,
        }
    }
}

impl From<proto::StatisticsReply> for Statistics {
    fn from(message: proto::StatisticsReply) -> Self {
        let blocks = BlockStatistics {
            free: message.free,
            owned: message.owned,
            orphans: message.orphans,
            reserved: message.reserved,
            block_bytes: message.block_bytes,
        };
        Self { blocks, members: message.members, expelled: message.expelled }
    }
}

pub(crate) fn introduction(message: proto::IntroduceRequest) -> Checked<Introduction> {
    Ok(Introduction {
        description: description(message.description)?,
        from: narrow(message.from, "a node's number")?,
        process: gateway(&message.process)?,
    })
}

impl From<Membership> for proto::Introduced {
    fn from(membership: Membership) -> Self {
        Self {
            pool: membership.pool.bytes().to_vec(),
            params: Some(membership.params.into()),
            incarnation: membership.incarnation,
        }
    }
}

pub(crate) fn membership(message: proto::Introduced) -> Checked<Membership> {
    Ok(Membership {
        pool: token(&message.pool)?,
        params: params(message.params)?,
        incarnation: message.incarnation,
    })
}

pub(crate) fn peer(message: proto::GatewayPeer) -> Checked<GatewayPeer> {
    Ok(GatewayPeer {
        gateway: gateway(&message.gateway)?,
        address: message.address,
        secret: token(&message.secret)?,
    })
}

impl From<GatewayPeer> for proto::GatewayPeer {
    fn from(peer: GatewayPeer) -> Self {
        Self {
            gateway: peer.gateway.bytes().to_vec(),
            address: peer.address,
            secret: peer.secret.bytes().to_vec(),
        }
    }
}

pub(crate) fn expulsion(message: proto::ExpelRequest) -> Checked<Expulsion> {
    Ok(Expulsion {
        pool: token(&message.pool)?,
        gateway: gateway(&message.gateway)?,
        clients: message.clients,
    })
}

impl From<Replication> for proto::ReplicateRequest {
    fn from(replication: Replication) -> Self {
        Self {
            pool: replication.pool.bytes().to_vec(),
            from: replication.from.into(),
            sequence: replication.sequence,
            effects: replication.effects.into_iter().map(Into::into).collect(),
        }
    }
}

pub(crate) fn replication(message: proto::ReplicateRequest) -> Checked<Replication> {
    Ok(Replication {
        pool: token(&message.pool)?,
        from: narrow(message.from, "a node's number")?,
        sequence: message.sequence,
        effects: message.effects.into_iter().map(effect).collect::<Checked<_>>()?,
    })
}

impl From<Effect> for proto::Effect {
    fn from(effect: Effect) -> Self {
        use proto::effect;
        let effect = match effect {
            Effect::Entry { at, entry } => {
                effect::Effect::Entry(effect::Entry { at: at.get(), word: entry.word() })
            }
            Effect::Zero { block } => effect::Effect::ZeroedBlock(block.get()),
            Effect::Entries { count } => effect::Effect::Entries(count),
            Effect::Expelled { count } => effect::Effect::Expelled(count),
            Effect::Departed { index, keys } => {
                effect::Effect::Departed(effect::Departed { index, keys: keys.to_vec() })
            }
        };
        Self { effect: Some(effect) }
    }
}

fn effect(message: proto::Effect) -> Checked<Effect> {
    use proto::effect;
    Ok(match message.effect.ok_or(malformed("an empty effect"))? {
        effect::Effect::Entry(entry) => Effect::Entry {
            at: address(entry.at)?,
            entry: BlockEntry::from_word(entry.word).ok_or(malformed("a block table's entry"))?,
        },
        effect::Effect::ZeroedBlock(block) => Effect::Zero { block: address(block)? },
        effect::Effect::Entries(count) => Effect::Entries { count },
        effect::Effect::Expelled(count) => Effect::Expelled { count },
        effect::Effect::Departed(departed) => {
            let keys: [i64; DATABASES] =
                departed.keys.try_into().map_err(|_| malformed("a count of keys"))?;
            Effect::Departed { index: departed.index, keys }
        }
    })
}

#[cfg(test)]
#[path = "convert_tests.rs"]
mod tests;
