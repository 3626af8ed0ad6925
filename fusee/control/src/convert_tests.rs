//! Messages come back as they were sent, and strange ones are refused.

use super::*;
use fusee_layout::BlockState;
use proptest::prelude::*;
use prost::Message as _;

fn address_of() -> impl Strategy<Value = Address> {
    (0..1u64 << 48).prop_map(Address::new)
}

fn class_of() -> impl Strategy<Value = Class> {
    (0..CLASSES_MAX as u8).prop_map(Class::new)
}

fn room_of() -> impl Strategy<Value = Room> {
    prop::sample::select(vec![Room::Unknown, Room::Freed, Room::Unused])
}

fn pool_params() -> impl Strategy<Value = PoolParams> {
    (any::<(u32, u16, u8, u64)>(), any::<(u64, u64, u32)>(), any::<(u32, u32, u32, u64)>())
        .prop_map(
            |(
                (version, nodes, replicas, node_bytes),
                (region_bytes, block_bytes, clients_max),
                rest,
            )| {
                let (index_regions, subtables, groups, hash_seed) = rest;
                PoolParams {
                    version,
                    nodes,
                    replicas,
                    node_bytes,
                    region_bytes,
                    block_bytes,
                    clients_max,
                    index_regions,
                    subtables,
                    groups,
                    hash_seed,
                }
            },
        )
}

fn requests() -> impl Strategy<Value = Request> {
    prop_oneof![
        pool_params().prop_map(|params| Request::Join { params }),
        any::<u32>().prop_map(|client| Request::Leave { client }),
        any::<u32>().prop_map(|client| Request::Recover { client }),
        (any::<u32>(), class_of(), any::<bool>(), any::<bool>()).prop_map(
            |(client, class, reserve, fresh)| Request::Allocate { client, class, reserve, fresh }
        ),
        (any::<u32>(), address_of()).prop_map(|(client, block)| Request::Adopt { client, block }),
        (any::<u32>(), address_of(), room_of()).prop_map(|(client, block, room)| Request::Offer {
            client,
            block,
            room
        }),
        (any::<u32>(), address_of()).prop_map(|(client, block)| Request::Return { client, block }),
    ]
}

fn responses() -> impl Strategy<Value = Response> {
    let refusals =
        vec![Refusal::Full, Refusal::TooManyClients, Refusal::OtherParameters, Refusal::NotOwner];
    prop_oneof![
        Just(Response::Done),
        any::<(u32, u32)>().prop_map(|(client, index)| Response::Joined { client, index }),
        any::<u32>().prop_map(|client| Response::Expelled { client }),
        (address_of(), any::<bool>())
            .prop_map(|(block, adopted)| Response::Allocated { block, adopted }),
        prop::sample::select(refusals).prop_map(Response::Refused),
    ]
}

fn effects() -> impl Strategy<Value = Effect> {
    let states = vec![BlockState::Free, BlockState::Owned, BlockState::Orphan];
    let entry = (prop::sample::select(states), class_of(), room_of(), any::<u32>()).prop_map(
        |(state, class, room, client)| BlockEntry {
            state,
            class,
            room,
            client,
            turn: client as u8,
        },
    );
    prop_oneof![
        (address_of(), entry).prop_map(|(at, entry)| Effect::Entry { at, entry }),
        address_of().prop_map(|block| Effect::Zero { block }),
        any::<u32>().prop_map(|count| Effect::Entries { count }),
        any::<u32>().prop_map(|count| Effect::Expelled { count }),
        any::<(u32, [i64; DATABASES])>().prop_map(|(index, keys)| Effect::Departed { index, keys }),
    ]
}

fn queue_pairs() -> impl Strategy<Value = QueuePairAddress> {
    any::<(u32, u32, [u8; 16], u16, u16, u8)>().prop_map(|(qpn, psn, gid, lid, mtu, reads_max)| {
        QueuePairAddress { qpn, psn, gid, lid, mtu, reads_max }
    })
}

/// As the other side gets it.
fn over_the_wire<M: prost::Message + Default>(message: &M) -> M {
    M::decode(message.encode_to_vec().as_slice()).unwrap()
}

proptest! {
    #[test]
    fn requests_come_back(request in requests()) {
        let token = Token::random();
        let message = call_request(token, request).unwrap();
        prop_assert_eq!(call(over_the_wire(&message)), Ok((token, request)));
    }

    #[test]
    fn responses_come_back(expected in responses()) {
        let message = proto::Reply::from(expected);
        prop_assert_eq!(response(&over_the_wire(&message)), Ok(expected));
    }

    #[test]
    fn replications_come_back(
        effects in prop::collection::vec(effects(), 0..20), from: u16, sequence: u64,
    ) {
        let expected = Replication { pool: Token::random(), from, sequence, effects };
        let message = proto::ReplicateRequest::from(expected.clone());
        prop_assert_eq!(replication(over_the_wire(&message)), Ok(expected));
    }

    #[test]
    fn queue_pairs_come_back(
        link: u64, worker in queue_pairs(), node in queue_pairs(), rkey: u32, base: u64, bytes: u64,
    ) {
        let session = Token::random();
        let token = session.bytes().to_vec();
        let message = proto::OpenQueuePairRequest { token, client: Some(worker.into()), link };
        prop_assert_eq!(open_queue_pair(over_the_wire(&message)), Ok((session, link, worker)));
        let expected = NodeQueuePair { address: node, rkey, base, bytes };
        let message = proto::OpenedQueuePair::from(expected);
        prop_assert_eq!(opened(over_the_wire(&message)), Ok(expected));
    }

    #[test]
    fn any_bytes_are_a_message_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let bytes = bytes.as_slice();
        let _ = proto::CallRequest::decode(bytes).map(call);
        let _ = proto::Reply::decode(bytes).map(|message| response(&message));
        let _ = proto::Attached::decode(bytes).map(admission);
        let _ = proto::AttachRequest::decode(bytes).map(|m| description(m.description));
        let _ = proto::IntroduceRequest::decode(bytes).map(introduction);
        let _ = proto::Introduced::decode(bytes).map(membership);
        let _ = proto::OpenQueuePairRequest::decode(bytes).map(open_queue_pair);
        let _ = proto::OpenedQueuePair::decode(bytes).map(opened);
        let _ = proto::ExpelRequest::decode(bytes).map(expulsion);
        let _ = proto::ReplicateRequest::decode(bytes).map(replication);
    }

    /// Random bytes are seldom a message, so numbers are put into whole ones.
    #[test]
    fn numbers_out_of_range_are_refused(client: u32, number in 64u32.., block in 1u64 << 48..) {
        use proto::call_request::{self as message, Request as Message};
        let whole = |request| proto::CallRequest {
            token: vec![1; Token::BYTES], request: Some(request),
        };
        for request in [
            Message::Allocate(message::Allocate { client, class: number, ..Default::default() }),
            Message::Return(message::Return { client, block }),
            Message::Adopt(message::Adopt { client, block }),
            Message::Offer(message::Offer { client, block: 64, room: number }),
            Message::Join(message::Join { params: None }),
        ] {
            prop_assert!(matches!(call(whole(request)), Err(Denied::Malformed(_))));
        }
        let refused = proto::reply::Reply::Refused(number as i32);
        let reply = proto::Reply { reply: Some(refused) };
        prop_assert!(response(&reply).is_err());
        for (gid, mtu) in [(vec![0; 15], 1024), (vec![0; 16], number.max(1 << 16))] {
            let node = proto::QueuePair { gid, mtu, ..Default::default() };
            let message = proto::OpenedQueuePair { node: Some(node), ..Default::default() };
            prop_assert!(opened(message).is_err());
        }
        let short = proto::CallRequest {
            token: vec![1; 15], request: Some(Message::Leave(message::Leave { client })),
        };
        prop_assert!(call(short).is_err());
    }
}
