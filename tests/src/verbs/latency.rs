//! What each verb costs, one at a time, as perftest's ib_read_lat and the like
//! measure it.

use super::peer::Peers;
use super::{at, stage};
use fusee_fabric::verbs::{VerbsConfig, VerbsFabric};
use fusee_fabric::{Batch, Fabric};
use std::time::Instant;

/// A verb, or several.
type Post = fn(&mut Batch);

const CASES: &[(&str, Post)] = &[
    ("READ 8 B", |batch| {
        batch.read(at(0, 4096), 8);
    }),
    ("READ 1 KiB", |batch| {
        batch.read(at(0, 4096), 1024);
    }),
    ("WRITE 64 B", |batch| {
        let span = batch.stage(64);
        batch.write(at(0, 4096), span);
    }),
    ("WRITE 1 KiB", |batch| {
        let span = batch.stage(1024);
        batch.write(at(0, 4096), span);
    }),
    ("CAS", |batch| {
        batch.cas(at(0, 0), 1, 2);
    }),
    ("FAA", |batch| {
        batch.faa(at(0, 0), 1);
    }),
    ("WRITE 1 KiB, CAS, fenced READ 8 B", |batch| {
        let span = batch.stage(1024);
        batch.write(at(0, 4096), span);
        batch.cas(at(0, 0), 1, 2);
        batch.fence();
        batch.read(at(0, 8192), 8);
    }),
];

/// Messages of many packets, which take long enough to be lost in part.
const LARGE: &[(&str, Post)] = &[
    ("READ 64 KiB", |batch| {
        batch.read(at(0, 4096), 64 << 10);
    }),
    ("WRITE 64 KiB", |batch| {
        let span = batch.stage(64 << 10);
        batch.write(at(0, 4096), span);
    }),
    ("READ 1 MiB", |batch| {
        batch.read(at(0, 4096), 1 << 20);
    }),
    ("WRITE 1 MiB", |batch| {
        let span = batch.stage(1 << 20);
        batch.write(at(0, 4096), span);
    }),
    ("READ 8 MiB", |batch| {
        batch.read(at(0, 4096), 8 << 20);
    }),
    ("WRITE 8 MiB", |batch| {
        let span = batch.stage(8 << 20);
        batch.write(at(0, 4096), span);
    }),
];

/// What one costs, in us.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// The best.
    pub min: f64,
    /// Half are better.
    pub p50: f64,
    /// One in a hundred is worse.
    pub p99: f64,
    /// The worst.
    pub max: f64,
}

/// Measures verbs on a line or a few, or `large` ones, each so often.
pub fn measure(
    peers: &Peers,
    config: VerbsConfig,
    rounds: usize,
    large: bool,
) -> Vec<(&'static str, Latency)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be made").block_on(async {
        let fabric = peers.fabric(config);
        let mut measured = Vec::new();
        for &(name, post) in if large { LARGE } else { CASES } {
            measured.push((name, measure_one(&fabric, post, rounds).await));
        }
        measured
    })
}

async fn measure_one(fabric: &VerbsFabric, post: Post, rounds: usize) -> Latency {
    let mut took = Vec::with_capacity(rounds);
    let mut warm = fabric.batch();
    stage(&mut warm, &[0; 256]);
    fabric.recycle(fabric.run(warm).await);
    for _ in 0..rounds {
        let started = Instant::now();
        let mut batch = fabric.batch();
        post(&mut batch);
        let batch = fabric.run(batch).await;
        took.push(started.elapsed().as_nanos() as f64 / 1000.0);
        assert!(batch.tickets().all(|ticket| batch.done(ticket).is_ok()), "the node is up");
        fabric.recycle(batch);
    }
    took.sort_by(f64::total_cmp);
    Latency {
        min: took[0],
        p50: took[rounds / 2],
        p99: took[rounds * 99 / 100],
        max: took[rounds - 1],
    }
}
