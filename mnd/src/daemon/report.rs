//! What a memory node tells about itself: /metrics, /livez and /readyz.
//!
//! Served by another thread than the control plane, which leaves here what there is
//! to tell, so that somebody can say when that thread is stuck.

use super::Node;
use super::served::{Served, push_process};
use fusee_control::Supervisor;
use fusee_control::http::Page;
use fusee_fabric::tcp::TcpStatistics;
use fusee_fabric::{Backing, VerbKind};
use fusee_layout::message::Statistics;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// What there was to tell last.
#[derive(Clone, Debug, Default)]
pub struct Report(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    /// When the control plane's thread came round last.
    beat: Option<Instant>,
    serving: Option<Serving>,
    stopping: bool,
}

#[derive(Debug)]
struct Serving {
    node: u16,
    bytes: u64,
    backing: Backing,
    statistics: Statistics,
    sessions: usize,
    awaited: Vec<u16>,
    lost: Vec<u16>,
    served: Served,
    uptime_s: u64,
    /// Of a data path that this process executes.
    executed: Option<TcpStatistics>,
}

/// How often it is looked what there is to tell.
const INTERVAL: Duration = Duration::from_millis(250);
/// A thread that has not come round for so long is stuck.
const BEAT_MAX: Duration = Duration::from_secs(15);

impl Report {
    /// Keeps what is told up to date: on the control plane's thread.
    pub(super) async fn keep(&self, node: &Node, bytes: u64, backing: Backing) {
        let started = Instant::now();
        loop {
            let (statistics, lost) = node.state().await;
            let serving = Serving {
                node: node.number(),
                bytes,
                backing,
                statistics,
                sessions: node.sessions(),
                awaited: node.awaited(),
                lost,
                served: node.served().await,
                uptime_s: started.elapsed().as_secs(),
                executed: node.executed(),
            };
            {
                let mut seen = self.0.lock().expect("nobody panics with it");
                seen.beat = Some(Instant::now());
                seen.serving = Some(serving);
                seen.stopping = node.is_stopping();
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Tells a service manager how things stand. A node is up when it is in the pool, also
    /// while gateways have to wait for others; what it waits for is its status.
    pub fn tell(&self, supervisor: &Supervisor) {
        let seen = self.0.lock().expect("nobody panics with it");
        if seen.trouble().is_some() {
            return;
        }
        supervisor.alive();
        match (&seen.serving, seen.wait()) {
            _ if seen.stopping => supervisor.stopping(),
            (Some(_), waits) => supervisor.ready(&waits.unwrap_or_else(|| "serving".to_owned())),
            (None, waits) => supervisor.status(&waits.unwrap_or_default()),
        }
    }

    /// The page of a path.
    pub fn page(&self, path: &str) -> Option<Page> {
        let seen = self.0.lock().expect("nobody panics with it");
        match path {
            "/metrics" => Some(Page::metrics(seen.metrics())),
            "/livez" => Some(answer(seen.trouble())),
            "/readyz" => Some(answer(seen.trouble().or_else(|| seen.wait()))),
            _ => None,
        }
    }
}

fn answer(trouble: Option<String>) -> Page {
    match trouble {
        None => Page::text("200 OK", "ok\n"),
        Some(trouble) => Page::text("503 Service Unavailable", &(trouble + "\n")),
    }
}

impl Seen {
    /// Why the process had better be started again.
    fn trouble(&self) -> Option<String> {
        let stuck = self.beat.is_some_and(|beat| beat.elapsed() > BEAT_MAX);
        stuck.then(|| format!("the control plane is stuck for {} s", BEAT_MAX.as_secs()))
    }

    /// Why no gateway can come.
    fn wait(&self) -> Option<String> {
        match &self.serving {
            _ if self.stopping => Some("stopping".to_owned()),
            None => Some("waiting for memory node 0".to_owned()),
            Some(serving) if !serving.awaited.is_empty() => {
                Some(format!("waiting for the memory nodes {:?}", serving.awaited))
            }
            Some(_) => None,
        }
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        let Some(serving) = &self.serving else { return text };
        let blocks = serving.statistics.blocks;
        let bytes = |count: u32| u64::from(count) * blocks.block_bytes;
        let mut family = |name: &str, help: &str, samples: &[(&str, u64)]| {
            push_family(&mut text, name, "gauge", help, samples);
        };
        family(
            "mnd_build_info",
            "1, with the version as a label.",
            &[(concat!("{version=\"", env!("CARGO_PKG_VERSION"), "\"}"), 1)],
        );
        family("mnd_node", "The node's number in its pool.", &[("", serving.node.into())]);
        family(
            "mnd_memory_bytes",
            "Memory that the node gives to its pool.",
            &[("", serving.bytes)],
        );
        family(
            "mnd_ready",
            "1 if gateways may come.",
            &[("", u64::from(self.trouble().or_else(|| self.wait()).is_none()))],
        );
        family(
            "mnd_huge_pages",
            "1 if the memory lies on reserved huge pages.",
            &[("", u64::from(serving.backing == Backing::HugeTlb))],
        );
        family(
            "mnd_block_bytes",
            "Bytes of the node's primary blocks by state; reserved ones are free too.",
            &[
                ("{state=\"free\"}", bytes(blocks.free)),
                ("{state=\"owned\"}", bytes(blocks.owned)),
                ("{state=\"orphan\"}", bytes(blocks.orphans)),
                ("{state=\"reserved\"}", bytes(blocks.reserved)),
            ],
        );
        family("mnd_sessions", "Gateways at the node's memory.", &[("", serving.sessions as u64)]);
        family(
            "mnd_peers_lost",
            "Memory nodes that miss copies of what this one decided.",
            &[("", serving.lost.len() as u64)],
        );
        if let Some(members) = serving.statistics.members {
            family("mnd_clients", "Workers of all gateways.", &[("", members.into())]);
        }
        if let Some(expelled) = serving.statistics.expelled {
            family(
                "mnd_clients_expelled",
                "Workers that have died and whose memory is not recovered.",
                &[("", expelled.into())],
            );
        }
        serving.served.push(&mut text);
        push_process(&mut text, serving.uptime_s);
        if let Some(executed) = &serving.executed {
            push_executed(&mut text, executed);
        }
        text
    }
}

/// What a data path on TCP has done.
fn push_executed(text: &mut String, executed: &TcpStatistics) {
    push_family(
        text,
        "mnd_tcp_connections",
        "gauge",
        "Workers of gateways that are connected to have verbs executed.",
        &[("", executed.connections)],
    );
    push_family(
        text,
        "mnd_tcp_connections_closed_total",
        "counter",
        "Connections that were not let in, sent what makes no sense, or did not read replies.",
        &[
            ("{reason=\"refused\"}", executed.refused),
            ("{reason=\"malformed\"}", executed.malformed),
            ("{reason=\"stalled\"}", executed.stalled),
        ],
    );
    push_family(
        text,
        "mnd_tcp_batches_total",
        "counter",
        "Frames with verbs that were executed: batches, or this node's parts of them.",
        &[("", executed.batches)],
    );
    let verbs = |kind: VerbKind| executed.verbs[kind as usize];
    push_family(
        text,
        "mnd_tcp_verbs_total",
        "counter",
        "Verbs executed, by kind.",
        &[
            ("{verb=\"read\"}", verbs(VerbKind::Read)),
            ("{verb=\"write\"}", verbs(VerbKind::Write)),
            ("{verb=\"cas\"}", verbs(VerbKind::Cas)),
            ("{verb=\"faa\"}", verbs(VerbKind::Faa)),
        ],
    );
    push_family(
        text,
        "mnd_tcp_bytes_total",
        "counter",
        "Bytes that READs took away and WRITEs brought.",
        &[("{verb=\"read\"}", executed.bytes_read), ("{verb=\"write\"}", executed.bytes_written)],
    );
    push_family(
        text,
        "mnd_tcp_verbs_out_of_range_total",
        "counter",
        "Verbs for memory that the node does not have.",
        &[("", executed.out_of_range)],
    );
}

fn push_family(text: &mut String, name: &str, kind: &str, help: &str, samples: &[(&str, u64)]) {
    let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    for (labels, value) in samples {
        let _ = writeln!(text, "{name}{labels} {value}");
    }
}
