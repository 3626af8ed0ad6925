//! The exported histogram of round trips says what the fabric did: the simulator injects
//! the delays, and knows them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use fusee_fabric::{Batch, Fabric, ROUND_TRIP_NS, Verb, VerbKind, round_trip_bucket};
use fusee_layout::NodeAddress;
use fusee_layout::message::{Request, Response};
use fusee_sim::{
    Control, Delays, Executor, Meddler, Meddling, Nodes, Rng, Seen, Settings, Sim, SimPool, Tearing,
};
use gateway::fabric_metrics::fabrics;
use gateway::metrics::render;

struct NoControl;

impl Control for NoControl {
    fn handle(&mut self, _nodes: &mut Nodes, _node: u16, _request: Request) -> Response {
        Response::Done
    }
}

/// Notes when a verb of each node took effect last.
struct Stopwatch {
    sim: Sim,
    last_ns: Rc<RefCell<BTreeMap<u16, u64>>>,
}

impl Stopwatch {
    fn note(&self, verb: &Seen) {
        let now_ns = self.sim.now_ns();
        self.last_ns.borrow_mut().insert(verb.at.node, now_ns);
    }
}

impl Meddler for Stopwatch {
    fn execute(&mut self, verb: &Seen, _word: u64) -> Meddling {
        self.note(verb);
        Meddling::Execute
    }

    fn read(&mut self, verb: &Seen, _words: &mut [u64]) {
        self.note(verb);
    }
}

/// By verb and node: samples in each bucket, and the sum of the times.
type Expected = BTreeMap<(&'static str, u16), (Vec<u64>, u64)>;

const BATCHES: u64 = 300;

#[test]
fn the_exported_round_trips_are_the_injected_delays() {
    let executor = Executor::new();
    let sim = executor.sim();
    // From a part of a microsecond to half a millisecond.
    let delays = Delays { slow_percent: 20, stuck_percent: 10, ..Delays::EVEN };
    let settings = Settings { delays, tearing: Tearing::NONE };
    let control = Box::new(NoControl);
    let pool = SimPool::new(sim.clone(), Nodes::new(3, 4096), control, settings, Rng::new(7));
    let last_ns = Rc::new(RefCell::new(BTreeMap::new()));
    pool.meddle(Box::new(Stopwatch { sim: sim.clone(), last_ns: last_ns.clone() }));
    let fabric = pool.fabric(0);
    let (fabric, expected) = executor
        .block_on(u64::MAX, async move {
            let mut expected = Expected::new();
            for number in 0..BATCHES {
                let batch = batch(number);
                let kinds: Vec<(u16, VerbKind)> = batch
                    .posted()
                    .iter()
                    .map(|posted| (posted.at.node, posted.verb.kind()))
                    .collect();
                let posted_ns = sim.now_ns();
                last_ns.borrow_mut().clear();
                let batch = fabric.run(batch).await;
                assert!(batch.tickets().all(|ticket| batch.done(ticket).is_ok()));
                for (&node, &done_ns) in last_ns.borrow().iter() {
                    let elapsed_ns = done_ns - posted_ns;
                    for kind in VerbKind::ALL {
                        if !kinds.contains(&(node, kind)) {
                            continue;
                        }
                        let (counts, sum_ns) = expected
                            .entry((kind.name(), node))
                            .or_insert((vec![0; ROUND_TRIP_NS.len() + 1], 0));
                        counts[round_trip_bucket(elapsed_ns)] += 1;
                        *sum_ns += elapsed_ns;
                    }
                }
            }
            (fabric, expected)
        })
        .expect("all batches complete");
    let page = render(&fabrics(&[&**fabric.counters()]));
    assert!(expected.len() > 8, "verbs of all kinds went to all nodes: {expected:?}");
    for ((verb, node), (counts, sum_ns)) in &expected {
        let labels = format!("verb=\"{verb}\",node=\"{node}\"");
        let ends = ROUND_TRIP_NS.iter().map(|ns| (*ns as f64 / 1e9).to_string());
        let mut so_far = 0;
        for (end, count) in ends.chain(["+Inf".to_owned()]).zip(counts) {
            so_far += count;
            let line =
                format!("fusee_round_trip_seconds_bucket{{{labels},le=\"{end}\"}} {so_far}\n");
            assert!(page.contains(&line), "{line} in {page}");
        }
        let sum = *sum_ns as f64 / 1e9;
        let line = format!("fusee_round_trip_seconds_sum{{{labels}}} {sum}\n");
        assert!(page.contains(&line), "{line} in {page}");
    }
    let series = page.lines().filter(|line| line.starts_with("fusee_round_trip_seconds_count"));
    assert_eq!(series.count(), expected.len(), "and nothing else is told");
}

/// One to four verbs of all kinds on one to three nodes.
fn batch(number: u64) -> Batch {
    let mut batch = Batch::new();
    for verb in 0..=number % 4 {
        let at = NodeAddress { node: ((number + verb) % 3) as u16, offset: 64 * verb };
        match (number / 4 + verb) % 4 {
            0 => drop(batch.read(at, 64)),
            1 => {
                let span = batch.stage(64);
                batch.write(at, span);
            }
            2 => drop(batch.cas(at, 0, 0)),
            _ => drop(batch.faa(at, 1)),
        }
    }
    assert!(batch.posted().iter().all(|posted| !matches!(posted.verb, Verb::WriteByte(_))));
    batch
}
