//! A node over a fake data path.

use super::*;
use crate::daemon::Revoking;
use fusee_control::MemoryRoute;
use fusee_fabric::{Memory, ShmNode};
use fusee_layout::message::{Effect, Refusal};
use fusee_layout::{Address, BlockEntry, BlockState, Class, DATABASES, Geometry, PoolParams, Room};
use tokio::time::Instant;

/// Notes what it is told.
#[derive(Default)]
struct Path(Mutex<Vec<&'static str>>);

impl DataPath for Path {
    fn admit(&self, _: Token) -> Result<MemoryRoute, Denied> {
        self.0.lock().unwrap().push("admit");
        Ok(MemoryRoute::Shm { socket: "/nowhere".into() })
    }

    fn open_queue_pair(
        &self,
        _: Token,
        _: u64,
        worker: &QueuePairAddress,
    ) -> Result<NodeQueuePair, Denied> {
        self.0.lock().unwrap().push("open");
        Ok(NodeQueuePair { address: *worker, rkey: 1, base: 2, bytes: 3 })
    }

    fn revoke(&self, _: Token) -> Revoking<'_> {
        self.0.lock().unwrap().push("revoke");
        Box::pin(std::future::ready(()))
    }

    fn stream_closed(&self, _: &Token) -> Option<Duration> {
        Some(RETURN)
    }
}

const RETURN: Duration = Duration::from_millis(200);

struct Fixture {
    node: Node,
    path: Arc<Path>,
    geometry: Arc<Geometry>,
    pool: Token,
}

/// Node `number` of `nodes`; nobody else is there.
fn fixture(number: u16, nodes: u16) -> Fixture {
    let total = u64::from(nodes) * (16 << 20);
    let params = PoolParams::for_memory(total, nodes, 1, 3).unwrap();
    let geometry = Arc::new(Geometry::new(params).unwrap());
    let memory = Arc::new(ShmNode::new(Memory::private(params.node_bytes as usize).unwrap()));
    let own = || NodeMemory::new(number, geometry.clone(), memory.clone());
    let (pool, path) = (Token::random(), Arc::new(Path::default()));
    let (control_version, layout_version) = Description::versions();
    let description = Description {
        control_version,
        layout_version,
        name: "test".to_owned(),
        fabric: "shm".to_owned(),
        nodes,
        replicas: 1,
        node_bytes: 16 << 20,
        hash_seed: None,
        node: number,
    };
    let node = Node::new(Parts {
        description,
        membership: Membership { pool, params, incarnation: 9 },
        path: path.clone(),
        ledger: Ledger::new(number, geometry.clone(), own()),
        copies: Copies::new(number, pool, geometry.clone(), Vec::new()),
        memory: own(),
    });
    Fixture { node, path, geometry, pool }
}

impl Fixture {
    fn description(&self) -> Description {
        self.node.0.description.clone()
    }

    async fn attach(&self) -> (Token, Hold) {
        let (admission, hold) = self.attach_as(GatewayId::random(), None).await.unwrap();
        (admission.token, hold)
    }

    async fn attach_as(
        &self,
        gateway: GatewayId,
        session: Option<Token>,
    ) -> Result<(Admission, Hold), Denied> {
        let description = self.description();
        self.node.attach(Attach { description, gateway, session }).await
    }

    async fn join(&self, session: Token) -> u32 {
        let request = Request::Join { params: self.geometry.params };
        match self.node.request(session, request).await {
            Ok(Response::Joined { client, .. }) => client,
            other => panic!("{other:?}"),
        }
    }

    fn events(&self) -> Vec<&'static str> {
        self.path.0.lock().unwrap().clone()
    }
}

fn allocate(client: u32) -> Request {
    Request::Allocate { client, class: Class::new(3), reserve: false, fresh: false }
}

async fn until(mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..1000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it never came true");
}

#[tokio::test]
async fn queue_pairs_are_opened_for_sessions_that_live_and_nobody_else() {
    let fixture = fixture(0, 1);
    let worker = QueuePairAddress { qpn: 1, psn: 2, gid: [3; 16], lid: 4, mtu: 5, reads_max: 6 };
    let stranger = fixture.node.open_queue_pair(Token::random(), 7, worker).await;
    assert_eq!(stranger, Err(Denied::Unknown));
    let (session, _hold) = fixture.attach().await;
    assert!(fixture.node.open_queue_pair(session, 7, worker).await.is_ok());
    fixture.node.end(session).await;
    assert_eq!(fixture.node.open_queue_pair(session, 7, worker).await, Err(Denied::Unknown));
    assert_eq!(fixture.events(), ["admit", "open", "revoke"]);
}

#[tokio::test]
async fn a_session_that_ends_is_shut_out_and_its_clients_expelled() {
    let fixture = fixture(0, 1);
    let (session, hold) = fixture.attach().await;
    let client = fixture.join(session).await;
    let given = fixture.node.request(session, allocate(client)).await.unwrap();
    assert!(matches!(given, Response::Allocated { .. }), "{given:?}");
    drop(hold);
    until(async || fixture.node.state().await.0.expelled == Some(1)).await;
    assert_eq!(fixture.events(), ["admit", "revoke"]);
    assert_eq!(fixture.node.state().await.0.members, Some(0));
    assert_eq!(fixture.node.sessions(), 0);
    for request in [allocate(client), Request::Leave { client }] {
        assert_eq!(fixture.node.request(session, request).await, Err(Denied::Unknown));
    }
    assert_eq!(fixture.node.statistics(session).await, Err(Denied::Unknown));
}

#[tokio::test]
async fn a_session_goes_on_if_its_gateway_comes_back_in_time() {
    let fixture = fixture(0, 1);
    let gateway = GatewayId::random();
    let (admission, hold) = fixture.attach_as(gateway, None).await.unwrap();
    let session = admission.token;
    let client = fixture.join(session).await;
    let mut hold = Some(hold);
    for breaks_first in [true, false, true, false] {
        if breaks_first {
            hold = None;
        }
        let (again, new) = fixture.attach_as(gateway, Some(session)).await.unwrap();
        assert_eq!(again, admission);
        if let Some(old) = hold.replace(new) {
            old.await;
        }
        tokio::time::sleep(RETURN * 2).await;
        let given = fixture.node.request(session, allocate(client)).await.unwrap();
        assert!(matches!(given, Response::Allocated { .. }), "{given:?}");
    }
    let stranger = fixture.attach_as(GatewayId::random(), Some(session)).await.err();
    assert_eq!(stranger, Some(Denied::Unknown), "the token alone is not enough");
    assert_eq!(fixture.events(), ["admit"]);
    let gone = Instant::now();
    drop(hold);
    until(async || fixture.node.state().await.0.expelled == Some(1)).await;
    assert!(gone.elapsed() >= RETURN, "{:?}", gone.elapsed());
    let late = fixture.attach_as(gateway, Some(session)).await.err();
    assert_eq!(late, Some(Denied::Unknown));
}

#[tokio::test]
async fn gateways_meet_while_their_sessions_last() {
    let fixture = fixture(0, 1);
    let ((one, _hold), (other, hold)) = (fixture.attach().await, fixture.attach().await);
    let secrets = [Token::random(), Token::random()];
    let meet = async |session, number: usize| {
        let address = format!("127.0.0.1:{number}");
        let met = fixture.node.meet(session, address, secrets[number]).await?;
        Ok(met.into_iter().map(|peer| (peer.address, peer.secret)).collect::<Vec<_>>())
    };
    assert_eq!(meet(one, 0).await, Ok(vec![]));
    assert_eq!(meet(other, 1).await, Ok(vec![("127.0.0.1:0".to_owned(), secrets[0])]));
    assert_eq!(meet(one, 0).await, Ok(vec![("127.0.0.1:1".to_owned(), secrets[1])]));
    drop(hold);
    until(async || fixture.node.sessions() == 1).await;
    assert_eq!(meet(one, 0).await, Ok(vec![]));
    assert_eq!(meet(other, 1).await, Err(Denied::Unknown));
}

#[tokio::test]
async fn a_gateway_that_has_left_leaves_nobody_to_expel() {
    let fixture = fixture(0, 1);
    let (session, hold) = fixture.attach().await;
    let client = fixture.join(session).await;
    let leave = Request::Leave { client };
    assert_eq!(fixture.node.request(session, leave).await, Ok(Response::Done));
    drop(hold);
    until(async || fixture.node.sessions() == 0).await;
    let statistics = fixture.node.state().await.0;
    assert_eq!((statistics.members, statistics.expelled), (Some(0), Some(0)));
}

#[tokio::test]
async fn node_0_waits_for_the_others_and_knows_them_by_their_processes() {
    let fixture = fixture(0, 3);
    let attach = || fixture.attach_as(GatewayId::random(), None);
    let introduce = |from, process| {
        let description = fixture.description();
        fixture.node.introduce(Introduction { description, from, process })
    };
    let early = attach().await.err();
    assert!(matches!(early, Some(Denied::NotReady(_))), "{early:?}");
    let (one, two) = (GatewayId::random(), GatewayId::random());
    let pool = introduce(1, one).await.unwrap().pool;
    assert_eq!(pool, fixture.pool);
    assert!(introduce(1, one).await.is_ok(), "it may ask again");
    let other = introduce(1, two).await;
    assert!(matches!(other, Err(Denied::Refused(_))), "another process has other memory");
    for stranger in [0, 3] {
        assert!(introduce(stranger, two).await.is_err());
    }
    assert_eq!(fixture.node.awaited(), [2]);
    introduce(2, two).await.unwrap();
    assert!(attach().await.is_ok());
}

#[tokio::test]
async fn only_who_knows_the_pool_expels_and_copies() {
    let fixture = fixture(1, 2);
    let (session, hold) = fixture.attach().await;
    fixture.node.0.sessions.end(&session).unwrap();
    drop(hold);
    let gateway = GatewayId::random();
    let (admission, _hold) = fixture.attach_as(gateway, None).await.unwrap();
    let expel = |pool| fixture.node.expel(Expulsion { pool, gateway, clients: vec![1] });
    assert_eq!(expel(Token::random()).await, Err(Denied::Unknown));
    assert_eq!(fixture.node.sessions(), 1);
    assert_eq!(expel(fixture.pool).await, Ok(()));
    assert_eq!(fixture.node.sessions(), 0);
    assert_eq!(fixture.events().last(), Some(&"revoke"));
    let late = fixture.node.request(admission.token, allocate(1)).await;
    assert_eq!(late, Err(Denied::Unknown), "after an expulsion nothing is decided");
    let late = fixture.attach_as(gateway, Some(admission.token)).await.err();
    assert_eq!(late, Some(Denied::Unknown), "nor is it let in again");
    let never_here = GatewayId::random();
    let expulsion = Expulsion { pool: fixture.pool, gateway: never_here, clients: Vec::new() };
    assert_eq!(fixture.node.expel(expulsion).await, Ok(()));
    for gateway in [gateway, never_here] {
        let late = fixture.attach_as(gateway, None).await.err();
        assert_eq!(late, Some(Denied::Unknown));
    }

    let copy = |pool, sequence, effects| {
        fixture.node.replicate(Replication { pool, from: 0, sequence, effects })
    };
    let count = vec![Effect::Entries { count: 2 }];
    assert_eq!(copy(Token::random(), 1, count.clone()).await, Err(Denied::Unknown));
    assert_eq!(copy(fixture.pool, 1, count.clone()).await, Ok(()));
    assert_eq!(copy(fixture.pool, 1, count.clone()).await, Ok(()), "sent again");
    assert!(
        matches!(copy(fixture.pool, 3, count).await, Err(Denied::Refused(_))),
        "one is missing"
    );
    let entry = BlockEntry {
        state: BlockState::Owned,
        class: Class::new(0),
        room: Room::Unknown,
        client: 1,
        turn: 1,
    };
    let region = fixture.geometry.data_regions().start;
    let block = fixture.geometry.block(region, 0);
    for strange in [
        Effect::Entry { at: block, entry },
        Effect::Entry { at: Address::new((1 << 48) - 64), entry },
        Effect::Zero { block: block.plus(64) },
        Effect::Zero { block: Address::new(0) },
        Effect::Entries { count: u32::MAX },
        Effect::Departed { index: 0, keys: [0; DATABASES] },
        Effect::Departed { index: u32::MAX, keys: [0; DATABASES] },
    ] {
        let refused = copy(fixture.pool, 2, vec![strange]).await;
        assert_eq!(refused, Err(Denied::Malformed("an effect")), "{strange:?}");
    }
    let good = Effect::Entry { at: fixture.geometry.block_entry(region, 0), entry };
    assert_eq!(copy(fixture.pool, 2, vec![good]).await, Ok(()));
    let join = Request::Join { params: fixture.geometry.params };
    let (session, _hold) = fixture.attach().await;
    let refused = Ok(Response::Refused(Refusal::NotOwner));
    assert_eq!(fixture.node.request(session, join).await, refused, "node 0 alone lets in");
}

#[tokio::test]
async fn a_stopping_node_takes_no_gateway() {
    let fixture = fixture(0, 1);
    let (_session, hold) = fixture.attach().await;
    fixture.node.refuse_gateways();
    let late = fixture.attach_as(GatewayId::random(), None).await.err();
    assert!(matches!(late, Some(Denied::NotReady(_))), "{late:?}");
    assert_eq!(fixture.node.sessions(), 1);
    drop(hold);
    until(async || fixture.node.sessions() == 0).await;
}
