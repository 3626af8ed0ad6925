//! What a fabric promises, asked of the one on TCP, also when memory nodes die,
//! hang or talk nonsense.
#![cfg(not(loom))]
#![expect(clippy::disallowed_methods, reason = "sockets live in real time")]

mod common;

use common::{
    BYTES, TOKEN, at, controls, listen, nodes, nodes_of, peers, run, servers, shm, stage, tcp,
};
use fusee_fabric::tcp::{TcpFabric, TcpPeer, TcpServer, Token, VERB_BYTES_MAX};
use fusee_fabric::{Batch, Counters, Fabric, NodeDown, ShmEndpoint, Ticket, VerbKind};
use fusee_layout::message::{Request, Response};
use proptest::prelude::*;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::pin::pin;
use std::task::{Context, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[derive(Clone, Debug)]
enum Do {
    Read(usize),
    Write(Vec<u64>),
    WriteByte(u8),
    Cas(u64, u64),
    Faa(u64),
}

/// Verbs on a few words of three nodes, of which there are two, and behind their end.
fn verbs() -> impl Strategy<Value = Vec<(u16, u64, Do)>> {
    let verb = prop_oneof![
        (0..40usize).prop_map(Do::Read),
        prop::collection::vec(0..4u64, 0..40).prop_map(Do::Write),
        (0..4u8).prop_map(Do::WriteByte),
        (0..4u64, 0..4u64).prop_map(|(expected, new)| Do::Cas(expected, new)),
        (0..4u64).prop_map(Do::Faa),
    ];
    let node = prop_oneof![10 => 0..2u16, 1 => 2..3u16];
    let word = prop_oneof![10 => 0..8u64, 1 => (BYTES / 8 - 4)..(BYTES / 8 + 4)];
    prop::collection::vec((node, word, verb), 0..30)
}

fn post(batch: &mut Batch, verbs: &[(u16, u64, Do)]) {
    for (node, word, verb) in verbs {
        let to = at(*node, word * 8);
        match verb {
            Do::Read(words) => batch.read(to, words * 8),
            Do::Write(words) => {
                let span = stage(batch, words);
                batch.write(to, span)
            }
            Do::WriteByte(value) => batch.write_byte(to.plus(word % 8), *value),
            Do::Cas(expected, new) => batch.cas(to, *expected, *new),
            Do::Faa(add) => batch.faa(to, *add),
        };
    }
}

/// Everything that a batch tells.
fn told(batch: &Batch, verbs: &[(u16, u64, Do)]) -> Vec<Result<Vec<u64>, NodeDown>> {
    let tell = |(ticket, (_, _, verb)): (Ticket, &(u16, u64, Do))| match verb {
        Do::Read(_) => batch.words(ticket).map(<[u64]>::to_vec),
        _ => batch.word(ticket).map(|word| vec![word]),
    };
    batch.tickets().zip(verbs).map(tell).collect()
}

fn counted(counters: &Counters) -> ([u64; 4], [u64; 4]) {
    let kinds = [VerbKind::Read, VerbKind::Write, VerbKind::Cas, VerbKind::Faa];
    let bytes = [counters.bytes_read(), counters.bytes_written()];
    let verbs = kinds.map(|kind| counters.verbs(kind));
    (verbs, [counters.batches(), bytes[0], bytes[1], counters.out_of_range()])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn verbs_do_and_count_what_they_do_on_shared_memory(
        batches in prop::collection::vec(verbs(), 1..20),
    ) {
        let (ours, theirs) = (nodes(2), nodes(2));
        let servers = servers(&theirs, 1);
        run(async {
            let (shm, tcp) = (shm(&ours), tcp(&servers).await);
            for verbs in &batches {
                let (mut one, mut two) = (shm.batch(), tcp.batch());
                post(&mut one, verbs);
                post(&mut two, verbs);
                let (one, two) = (shm.run(one).await, tcp.run(two).await);
                assert_eq!(told(&one, verbs), told(&two, verbs));
                shm.recycle(one);
                tcp.recycle(two);
            }
            assert_eq!(counted(shm.counters()), counted(tcp.counters()));
            for node in 0..2 {
                let both = [&ours, &theirs].map(|nodes| {
                    let endpoint = ShmEndpoint::new(nodes.clone());
                    let mut batch = Batch::new();
                    let ticket = batch.read(at(node, 0), BYTES as usize);
                    endpoint.execute(&mut batch);
                    batch.words(ticket).unwrap().to_vec()
                });
                assert_eq!(both[0], both[1]);
            }
        });
    }
}

#[test]
fn a_batch_is_counted_while_its_owner_is_polled() {
    let nodes = nodes(2);
    let servers = servers(&nodes, 1);
    run(async {
        let fabric = tcp(&servers).await;
        let mut batch = fabric.batch();
        batch.faa(at(0, 0), 1);
        batch.faa(at(1, 0), 1);
        let mut running = pin!(fabric.run(batch));
        let mut seen = 0;
        std::future::poll_fn(|context| {
            assert_eq!(fabric.counters().batches(), 0, "counted while nobody polled");
            let poll = running.as_mut().poll(context);
            seen = fabric.counters().batches();
            poll.map(drop)
        })
        .await;
        assert_eq!(seen, 1);
    });
}

#[test]
fn a_batch_larger_than_a_frame_does_what_it_does_on_shared_memory() {
    let bytes = 48u64 << 20;
    let nodes = nodes_of(2, bytes);
    let servers = servers(&nodes, 1);
    run(async {
        let fabric = tcp(&servers).await;
        let mut batch = fabric.batch();
        let long: Vec<u64> = (0..VERB_BYTES_MAX as u64 / 8).collect();
        let span = stage(&mut batch, &long);
        batch.write(at(0, 8), span);
        batch.write(at(1, 0), span);
        let adds: Vec<_> = (0..10_000).map(|n| batch.faa(at(0, 8 + n % 100 * 8), 1)).collect();
        let read = batch.read(at(0, 8), VERB_BYTES_MAX);
        let too_long = batch.read(at(0, 0), VERB_BYTES_MAX + 8);
        let last = batch.read(at(1, VERB_BYTES_MAX as u64 - 8), 8);
        let batch = fabric.run(batch).await;
        for (n, add) in (0u64..).zip(adds) {
            assert_eq!(batch.word(add), Ok(n % 100 + n / 100));
        }
        let words = batch.words(read).unwrap();
        assert!((0u64..).zip(words).all(|(n, &word)| word == n + if n < 100 { 100 } else { 0 }));
        assert_eq!(batch.done(too_long), Err(NodeDown { node: 0 }));
        assert_eq!(batch.word(last), Ok(VERB_BYTES_MAX as u64 / 8 - 1));
        assert_eq!(fabric.counters().batches(), 1);
        assert_eq!(fabric.counters().verbs(VerbKind::Faa), 10_000);
    });
}

#[test]
fn many_batches_are_under_way_at_once_and_take_effect_in_posted_order() {
    let nodes = nodes(2);
    let servers = servers(&nodes, 2);
    run(async {
        let fabric = std::rc::Rc::new(tcp(&servers).await);
        let tasks: Vec<_> = (0..2_000u64)
            .map(|number| {
                let fabric = fabric.clone();
                tokio::task::spawn_local(async move {
                    let mut batch = fabric.batch();
                    let tickets = [batch.faa(at(0, 0), 1), batch.faa(at(1, 8), 1)];
                    let own = stage(&mut batch, &[number; 9]);
                    batch.write(at(0, 64), own);
                    let read = batch.read(at(0, 64), 72);
                    let batch = fabric.run(batch).await;
                    assert_eq!(batch.words(read).unwrap(), [number; 9]);
                    let words = tickets.map(|ticket| batch.word(ticket).unwrap());
                    fabric.recycle(batch);
                    words
                })
            })
            .collect();
        for (number, task) in (0u64..).zip(tasks) {
            assert_eq!(task.await.unwrap(), [number; 2], "posted in the order of the tasks");
        }
        assert_eq!(fabric.counters().batches(), 2_000);
    });
}

#[test]
fn atomics_of_several_workers_lose_nothing() {
    let nodes = nodes(1);
    let servers = servers(&nodes, 2);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                run(async {
                    let fabric = tcp(&servers).await;
                    for _ in 0..1_000 {
                        let mut batch = fabric.batch();
                        for _ in 0..4 {
                            batch.faa(at(0, 0), 3);
                        }
                        let batch = fabric.run(batch).await;
                        fabric.recycle(batch);
                    }
                });
            });
        }
    });
    let total = run(async { word(&tcp(&servers).await, 0, 0).await });
    assert_eq!(total, Ok(3 * 1_000 * 4 * 3));
}

async fn word(fabric: &TcpFabric, node: u16, offset: u64) -> Result<u64, NodeDown> {
    let mut batch = fabric.batch();
    let ticket = batch.read(at(node, offset), 8);
    let batch = fabric.run(batch).await;
    batch.word(ticket)
}

#[test]
fn a_dropped_future_recalls_nothing() {
    let nodes = nodes(1);
    let servers = servers(&nodes, 1);
    run(async {
        let fabric = tcp(&servers).await;
        for round in 1..=100u64 {
            {
                let mut batch = fabric.batch();
                let span = stage(&mut batch, &[round; 500]);
                batch.write(at(0, 0), span);
                batch.read(at(0, 0), 4000);
                batch.faa(at(0, 8000), 1);
                let future = pin!(fabric.run(batch));
                assert!(future.poll(&mut Context::from_waker(Waker::noop())).is_pending());
            }
            // Its memory is not given to the next batch while it is under way.
            let mut batch = fabric.batch();
            let span = stage(&mut batch, &[u64::MAX; 500]);
            batch.write(at(0, 16_000), span);
            let seen = batch.read(at(0, 0), 4000);
            let batch = fabric.run(batch).await;
            assert_eq!(batch.words(seen).unwrap(), [round; 500]);
            fabric.recycle(batch);
        }
        assert_eq!(word(&fabric, 0, 8000).await, Ok(100));
        assert_eq!(fabric.counters().batches(), 201);
    });
}

/// A node's place taken by something that welcomes everybody and then does as told.
fn impostor(then: impl Fn(&mut TcpStream) + Send + 'static) -> (SocketAddr, JoinHandle<()>) {
    let listener = listen();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || welcome_once(&listener, then));
    (address, thread)
}

fn welcome_once(listener: &TcpListener, then: impl Fn(&mut TcpStream)) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut hello = [0; 40];
    stream.read_exact(&mut hello).unwrap();
    assert_eq!(&hello[..8], b"FUSEETCP");
    assert_eq!(hello[16..32], TOKEN.bytes());
    let mut welcome = *b"FUSEETCP\0\0\0\0\x01\0\0\0";
    welcome[12..].copy_from_slice(&hello[8..12]);
    stream.write_all(&welcome).unwrap();
    then(&mut stream);
}

/// A batch for a good node 0 and node 1, of which the outcome is returned with
/// the time that it took.
async fn on_both(fabric: &TcpFabric) -> ([Result<(), NodeDown>; 2], Duration) {
    let begin = Instant::now();
    let mut batch = fabric.batch();
    let span = stage(&mut batch, &[5; 4]);
    let tickets = [0, 1].map(|node| {
        batch.faa(at(node, 8), 1);
        batch.write(at(node, 64), span)
    });
    let batch = fabric.run(batch).await;
    (tickets.map(|ticket| batch.done(ticket)), begin.elapsed())
}

const DEADLINE: Duration = Duration::from_millis(300);

async fn with_node_1_at(servers: &[TcpServer], address: SocketAddr) -> TcpFabric {
    let peers = vec![peers(servers).remove(0), TcpPeer { address, token: TOKEN, tls: None }];
    TcpFabric::connect_within(peers, controls(2), DEADLINE).await
}

/// Things that a memory node never says in reply to the first request.
fn nonsense() -> Vec<Vec<u8>> {
    let frame = |words: u32, number: u32, rest: &[u64]| {
        let mut bytes = words.to_le_bytes().to_vec();
        bytes.extend(number.to_le_bytes());
        bytes.extend(rest.iter().flat_map(|word| word.to_le_bytes()));
        bytes
    };
    vec![
        Vec::new(),
        vec![1],
        frame(3, 0, &[])[..7].to_vec(),
        frame(3, 0, &[3])[..12].to_vec(),
        frame(0, 0, &[]),
        frame(u32::MAX, 0, &[0; 100]),
        frame(1, 0, &[]),
        frame(2, 0, &[3]),
        frame(3, 1, &[3, 0]),
        frame(3, 0, &[7, 0]),
        frame(4, 0, &[3, 0, 0]),
        b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n".to_vec(),
    ]
}

#[test]
fn a_torn_or_senseless_reply_fails_the_verbs_of_its_node_alone() {
    let nodes = nodes(1);
    let servers = servers(&nodes, 1);
    for bytes in nonsense() {
        let told = bytes.clone();
        let (address, thread) = impostor(move |stream| {
            stream.read_exact(&mut [0; 24]).unwrap();
            stream.write_all(&told).unwrap();
        });
        run(async {
            let fabric = with_node_1_at(&servers, address).await;
            assert!(fabric.is_up(1));
            let (outcome, _) = on_both(&fabric).await;
            assert_eq!(outcome, [Ok(()), Err(NodeDown { node: 1 })], "{bytes:?}");
            // Until there is a connection again, verbs fail at once.
            let (outcome, took) = on_both(&fabric).await;
            assert_eq!(outcome, [Ok(()), Err(NodeDown { node: 1 })]);
            assert!(took < DEADLINE, "{took:?}");
        });
        thread.join().unwrap();
    }
    assert_eq!(servers[0].statistics().malformed, 0);
}

#[test]
fn a_node_that_hangs_is_down_after_the_deadline_and_used_again_when_it_answers() {
    let nodes = nodes(2);
    let mut servers = servers(&nodes, 1);
    let good = servers.pop().unwrap();
    let listener = listen();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        welcome_once(&listener, |stream| {
            // Reads for ever, says nothing.
            while stream.read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0) {}
        });
        listener
    });
    run(async {
        let fabric = with_node_1_at(&servers, address).await;
        let (first, second) = tokio::join!(on_both(&fabric), async {
            tokio::time::sleep(DEADLINE / 2).await;
            on_both(&fabric).await
        });
        for (outcome, took) in [first, second] {
            assert_eq!(outcome, [Ok(()), Err(NodeDown { node: 1 })]);
            assert!(took < 5 * DEADLINE, "{took:?}");
        }
        assert!(first.1 >= DEADLINE, "{:?}", first.1);
        assert!(!fabric.is_up(1));
        assert_eq!(fabric.call(1, Request::Leave { client: 1 }).await, Ok(Response::Done));
        drop(good);
        let listener = thread.join().unwrap();
        let good = TcpServer::start(listener, 1, nodes[1].clone(), 1, None).unwrap();
        good.admit(TOKEN);
        while !fabric.is_up(1) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(on_both(&fabric).await.0, [Ok(()), Ok(())]);
    });
}

#[test]
fn a_node_that_is_not_there_is_down_from_the_beginning() {
    let nodes = nodes(1);
    let servers = servers(&nodes, 1);
    let nobody = listen().local_addr().unwrap();
    run(async {
        let fabric = with_node_1_at(&servers, nobody).await;
        assert_eq!((fabric.is_up(0), fabric.is_up(1), fabric.is_up(2)), (true, false, false));
        assert_eq!(on_both(&fabric).await.0, [Ok(()), Err(NodeDown { node: 1 })]);
    });
}

#[test]
fn a_server_that_stops_fails_what_is_under_way() {
    let nodes = nodes(2);
    let mut servers = servers(&nodes, 1);
    run(async {
        let fabric = std::rc::Rc::new(tcp(&servers).await);
        let load: Vec<_> = (0..50)
            .map(|_| {
                let fabric = fabric.clone();
                tokio::task::spawn_local(async move {
                    loop {
                        let (outcome, _) = on_both(&fabric).await;
                        assert_eq!(outcome[0], Ok(()));
                        if outcome[1].is_err() {
                            break;
                        }
                    }
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(servers.pop());
        for task in load {
            task.await.unwrap();
        }
    });
    assert!(servers[0].statistics().batches > 50);
}

#[test]
fn a_worker_that_was_held_up_does_not_take_its_own_delay_for_the_nodes() {
    let nodes = nodes(2);
    let servers = servers(&nodes, 1);
    run(async {
        let address = servers[1].address();
        let fabric = with_node_1_at(&servers, address).await;
        for pause in [true, false] {
            let mut future = pin!(on_both(&fabric));
            assert!(futures_poll(future.as_mut()).is_pending());
            if pause {
                // Let it be sent first.
                tokio::task::yield_now().await;
            }
            std::thread::sleep(2 * DEADLINE);
            assert_eq!(future.await.0, [Ok(()), Ok(())]);
        }
    });
}

fn futures_poll<F: Future>(future: std::pin::Pin<&mut F>) -> std::task::Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_session_that_is_not_known_or_for_another_node_is_not_let_in() {
    let nodes = nodes(2);
    let servers = servers(&nodes, 1);
    run(async {
        let mut swapped = peers(&servers);
        swapped.swap(0, 1);
        let fabric = TcpFabric::connect(swapped, controls(2)).await;
        assert!(!fabric.is_up(0) && !fabric.is_up(1));
        let mut guessed = peers(&servers);
        guessed[0].token = Token::new([8; 16]);
        let fabric = TcpFabric::connect(guessed, controls(2)).await;
        assert!(!fabric.is_up(0) && fabric.is_up(1));
        assert_eq!(on_both(&fabric).await.0, [Err(NodeDown { node: 0 }), Ok(())]);
    });
    // Counted a moment after the client was told.
    while servers[0].statistics().refused < 2 {
        std::thread::yield_now();
    }
}

#[test]
fn nothing_of_a_session_is_executed_once_it_has_been_revoked() {
    let nodes = nodes(1);
    let servers = servers(&nodes, 2);
    let endpoint = ShmEndpoint::new(nodes);
    let count = || {
        let mut batch = Batch::new();
        let ticket = batch.read(at(0, 0), 8);
        endpoint.execute(&mut batch);
        batch.word(ticket).unwrap()
    };
    for round in 0..20 {
        let token = Token::new([100 + round; 16]);
        servers[0].admit(token);
        let (begun, wait) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let address = servers[0].address();
            let peer = TcpPeer { address, token, tls: None };
            scope.spawn(move || run(add_until_it_is_down(peer, begun)));
            (0..500).for_each(|_| wait.recv().unwrap());
            // There are hundreds of frames at the server now.
            servers[0].revoke(&token);
            let after = count();
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(count(), after);
        });
    }
}

async fn add_until_it_is_down(peer: TcpPeer, begun: std::sync::mpsc::Sender<()>) {
    let fabric = std::rc::Rc::new(TcpFabric::connect(vec![peer], controls(1)).await);
    let add = async |fabric: std::rc::Rc<TcpFabric>, begun: std::sync::mpsc::Sender<()>| loop {
        let mut batch = fabric.batch();
        let ticket = batch.faa(at(0, 0), 1);
        batch.read(at(0, 0), BYTES as usize / 4);
        let batch = fabric.run(batch).await;
        if batch.word(ticket).is_err() {
            break;
        }
        let _ = begun.send(());
        fabric.recycle(batch);
    };
    let tasks: Vec<_> =
        (0..400).map(|_| tokio::task::spawn_local(add(fabric.clone(), begun.clone()))).collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert!(!fabric.is_up(0));
}

#[test]
fn a_node_that_is_taken_from_its_clients_is_down_for_them() {
    let nodes = nodes(2);
    let servers = servers(&nodes, 1);
    run(async {
        let fabric = tcp(&servers).await;
        nodes[1].set_down(true);
        assert_eq!(on_both(&fabric).await.0, [Ok(()), Err(NodeDown { node: 1 })]);
        nodes[1].set_down(false);
        while !fabric.is_up(1) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(word(&fabric, 1, 8).await, Ok(0), "nothing was done there");
        assert_eq!(on_both(&fabric).await.0, [Ok(()), Ok(())]);
    });
}
