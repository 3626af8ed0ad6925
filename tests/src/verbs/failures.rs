//! What goes wrong, and how it is told: each check ruins a queue pair or a node.

use super::conformance::{Check, worker};
use super::peer::Peers;
use super::{at, read, stage, write};
use fusee_fabric::verbs::VerbsConfig;
use fusee_fabric::{Fabric, NodeDown};
use fusee_layout::message::Request;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// All of them. They need two nodes.
pub const CHECKS: &[Check] = &[
    ("a key that is not the node's fails that node's verbs at once, and no others", wrong_key),
    ("a revoked queue pair fails that node's verbs within its time, and no others", revoked),
    ("a patience that is shorter than the device's is kept", impatient),
    ("a node that cannot be reached is told, when connecting or within its time", unreachable),
];

/// The device gives up after half a second, and its worker after two.
const TOLD_WITHIN: Duration = Duration::from_millis(2500);

fn wrong_key(peers: &Peers) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be made").block_on(async {
        let (connecting, mut ends) = peers.open(VerbsConfig::default()).expect("as ever");
        ends[1].rkey ^= 0x5a5a_0000;
        let fabric = connecting.connect(&ends, peers.controls()).expect("as ever");
        let started = Instant::now();
        let mut batch = fabric.batch();
        let span = stage(&mut batch, &[5]);
        let up = batch.write(at(0, 0), span);
        let down = [
            batch.write(at(1, 0), span),
            batch.read(at(1, 0), 8),
            batch.cas(at(1, 0), 0, 1),
            batch.faa(at(1, 0), 1),
            batch.write_byte(at(1, 0), 1),
        ];
        let batch = fabric.run(batch).await;
        assert!(started.elapsed() < Duration::from_millis(400), "{:?}", started.elapsed());
        assert_eq!(batch.done(up), Ok(()));
        for ticket in down {
            assert_eq!(batch.done(ticket), Err(NodeDown { node: 1 }));
        }
        assert!(fabric.is_down(1) && !fabric.is_down(0));
        assert_eq!(fabric.counters().out_of_range(), 0);
        assert_eq!(read(&fabric, at(0, 0)).await, 5);
    });
}

fn revoked(peers: &Peers) {
    worker(peers, VerbsConfig::default(), async |fabric| {
        write(&fabric, at(1, 0), &[7]).await;
        peers.node(1).revoke().expect("the node is there");
        let fabric = Rc::new(fabric);
        let started = Instant::now();
        // Several at a time, so that one leads and the others are told by it.
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let fabric = fabric.clone();
                tokio::task::spawn_local(async move {
                    let mut batch = fabric.batch();
                    let down = batch.faa(at(1, 0), 1);
                    let up = batch.read(at(0, 0), 8);
                    let batch = fabric.run(batch).await;
                    (batch.done(down), batch.done(up))
                })
            })
            .collect();
        for task in tasks {
            let told = task.await.expect("it does not panic");
            assert_eq!(told, (Err(NodeDown { node: 1 }), Ok(())));
        }
        assert!(started.elapsed() < TOLD_WITHIN, "{:?}", started.elapsed());
        let started = Instant::now();
        let mut batch = fabric.batch();
        let down = batch.read(at(1, 0), 8);
        let batch = fabric.run(batch).await;
        assert_eq!(batch.done(down), Err(NodeDown { node: 1 }));
        assert!(started.elapsed() < Duration::from_millis(50), "it is known by now");
        let leave = Request::Leave { client: 1 };
        assert_eq!(fabric.call(1, leave).await, Err(NodeDown { node: 1 }));
        assert!(fabric.call(0, leave).await.is_ok());
    });
    worker(peers, VerbsConfig::default(), async |fabric| {
        assert_eq!(read(&fabric, at(1, 0)).await, 7, "nothing was done there");
    });
}

fn impatient(peers: &Peers) {
    for spin in [Duration::ZERO, Duration::from_secs(10)] {
        let deadline = Duration::from_millis(60);
        // A worker that spins looks at the clock only when it goes to sleep.
        let spin = spin.min(Duration::from_millis(20));
        let config = VerbsConfig { deadline, spin, ..VerbsConfig::default() };
        worker(peers, config, async |fabric| {
            peers.node(1).revoke().expect("the node is there");
            let started = Instant::now();
            let mut batch = fabric.batch();
            let down = batch.read(at(1, 0), 8);
            let batch = fabric.run(batch).await;
            assert_eq!(batch.done(down), Err(NodeDown { node: 1 }));
            let took = started.elapsed();
            assert!(took >= deadline && took < deadline * 5, "{took:?}");
        });
    }
}

fn unreachable(peers: &Peers) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be made").block_on(async {
        let (connecting, mut ends) = peers.open(VerbsConfig::default()).expect("as ever");
        // A documentation address (RFC 5737), to which there is no route.
        ends[1].address.gid[12..].copy_from_slice(&[192, 0, 2, 1]);
        match connecting.connect(&ends, peers.controls()) {
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains("find the way to the peer"), "{error}");
            }
            // An interface without neighbours (dummy) takes any address for one.
            Ok(fabric) => {
                let mut batch = fabric.batch();
                let ticket = batch.read(at(1, 0), 8);
                let batch = fabric.run(batch).await;
                assert_eq!(batch.done(ticket), Err(NodeDown { node: 1 }));
            }
        }
    });
}

/// READs from every node until one is down; tells which, and how long it took from the
/// last READ that it answered.
pub fn until_down(peers: &Peers, up: impl FnOnce()) -> (u16, Duration) {
    let mut up = Some(up);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be made").block_on(async {
        let fabric = peers.fabric(VerbsConfig::default());
        let mut answered = Instant::now();
        loop {
            let mut batch = fabric.batch();
            let nodes: Vec<_> = (0..peers.count()).map(|node| batch.read(at(node, 0), 8)).collect();
            let batch = fabric.run(batch).await;
            let down = (0..).zip(&nodes).find(|&(_, &ticket)| batch.done(ticket).is_err());
            if let Some((node, _)) = down {
                let others = nodes.iter().filter(|&&ticket| batch.done(ticket).is_ok());
                assert_eq!(others.count(), nodes.len() - 1, "the others answer");
                return (node, answered.elapsed());
            }
            answered = Instant::now();
            up.take().into_iter().for_each(|up| up());
            fabric.recycle(batch);
        }
    })
}
