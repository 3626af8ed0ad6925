//! Metrics of the data path: what the stores of this process have asked of memory, how
//! long that took, and the memory that they hold by size class.

use std::sync::Arc;

use fusee::Stats;
use fusee_fabric::{Counters, ROUND_TRIP_BUCKETS, ROUND_TRIP_NS, VerbKind};
use fusee_layout::{CLASSES_MAX, Class};

use crate::metrics::{Family, Kind, Series, Value};

/// What fabrics have counted, of stores that live and that have lived.
pub fn fabrics(counters: &[&Counters]) -> Vec<Family> {
    let sum = |read: &dyn Fn(&Counters) -> u64| -> f64 {
        counters.iter().map(|one| read(one)).sum::<u64>() as f64
    };
    let by_verb = VerbKind::ALL.map(|kind| (kind.name(), sum(&|one| one.verbs(kind))));
    let bytes = [("read", sum(&Counters::bytes_read)), ("write", sum(&Counters::bytes_written))];
    vec![
        round_trips(counters),
        Family::number(
            "fusee_batches_total",
            "Batches of verbs, each one round trip to all memory nodes that it touches.",
            Kind::Counter,
            sum(&Counters::batches),
        ),
        labelled("fusee_verbs_total", "Verbs that were done.", Kind::Counter, "verb", &by_verb),
        labelled(
            "fusee_verb_bytes_total",
            "Bytes that READs brought and WRITEs took.",
            Kind::Counter,
            "verb",
            &bytes,
        ),
        labelled(
            "fusee_verbs_failed_total",
            "Verbs that were not done: their node did not answer (down), or has no memory \
             there (out_of_range), to which only a damaged pool leads.",
            Kind::Counter,
            "reason",
            &[("down", sum(&Counters::failed)), ("out_of_range", sum(&Counters::out_of_range))],
        ),
    ]
}

/// The histograms of all nodes and kinds of verbs that were used.
fn round_trips(counters: &[&Counters]) -> Family {
    let nodes = counters.iter().map(|one| one.round_trips().nodes()).max().unwrap_or(0);
    let mut series = Vec::new();
    for node in 0..nodes {
        for kind in VerbKind::ALL {
            let times = counters.iter().filter_map(|one| one.round_trips().times(node, kind));
            let mut counts = vec![0; ROUND_TRIP_BUCKETS];
            let mut sum_ns = 0;
            for times in times {
                counts.iter_mut().zip(times.counts()).for_each(|(sum, count)| *sum += count);
                sum_ns += times.sum_ns();
            }
            if counts.iter().any(|count| *count > 0) {
                let bounds = ROUND_TRIP_NS.iter().map(|ns| *ns as f64 / 1e9).collect();
                let labels = vec![("verb", kind.name().to_owned()), ("node", node.to_string())];
                let sum = sum_ns as f64 / 1e9;
                series.push(Series { labels, value: Value::Histogram { bounds, counts, sum } });
            }
        }
    }
    Family {
        name: "fusee_round_trip_seconds",
        help: "From the posting of a batch to the completion of its verbs on a memory node, \
               once for each kind of verb among them. On shared memory one batch in 16 is \
               timed, and its time is that of all nodes.",
        kind: Kind::Histogram,
        series,
    }
}

/// The memory that stores hold now, by size class.
pub(crate) fn memory(stores: &[Arc<Stats>]) -> Vec<Family> {
    let classes = || (0..CLASSES_MAX as u8).map(Class::new);
    let sum = |read: &dyn Fn(&Stats) -> u64| stores.iter().map(|one| read(one)).sum::<u64>();
    let by_class = |name, help, read: &dyn Fn(&Stats, Class) -> u64| Family {
        name,
        help,
        kind: Kind::Gauge,
        series: classes()
            .filter(|&class| sum(&|one| one.blocks_by_class.of(class).get()) > 0)
            .map(|class| Series {
                labels: vec![("class", class.bytes().to_string())],
                value: Value::Number(sum(&|one| read(one, class)) as f64),
            })
            .collect(),
    };
    vec![
        by_class(
            "fusee_class_objects",
            "Objects in use in this gateway's blocks, by the bytes of their size class.",
            &|one, class| one.objects_in_use.of(class).get(),
        ),
        by_class(
            "fusee_class_blocks",
            "This gateway's blocks, by the bytes of their size class.",
            &|one, class| one.blocks_by_class.of(class).get(),
        ),
        labelled(
            "fusee_reclamation_backlog",
            "What waits to be used again: frees to be written, objects and blocks that other \
             clients may still hold.",
            Kind::Gauge,
            "stage",
            &[
                ("free", sum(&|one| one.frees_pending.get()) as f64),
                ("object_grace", sum(&|one| one.in_grace.get()) as f64),
                ("block_grace", sum(&|one| one.blocks_retiring.get()) as f64),
            ],
        ),
    ]
}

fn labelled(
    name: &'static str,
    help: &'static str,
    kind: Kind,
    label: &'static str,
    values: &[(&str, f64)],
) -> Family {
    let series = values.iter().map(|&(which, value)| Series {
        labels: vec![(label, which.to_owned())],
        value: Value::Number(value),
    });
    Family { name, help, kind, series: series.collect() }
}
