//! What a pool answers: each memory node over the control plane, then each over the
//! fabric, with one READ, WRITE and CAS of memory that the doctor was given for that.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use fusee::StoreConfig;
use fusee_control::{Attachment, ControlError, Fabric as FabricKind, GatewayId, PoolFile, Tls};
use fusee_fabric::verbs::DeviceChoice;
use fusee_fabric::{Batch, Fabric, NodeDown, Ticket};
use fusee_layout::message::{Request, Response};
use fusee_layout::{Class, Geometry, NodeAddress};
use tokio::time::{Instant, timeout};

use super::Check;
use crate::joined::{Joined, Routes};

/// Nodes that answered a moment ago let a client in at once.
const JOIN_TIME_MAX: Duration = Duration::from_secs(10);
/// A node that takes longer for one verb is as good as down.
const PROBE_TIME_MAX: Duration = Duration::from_secs(5);
/// Times are the median of so many, since the first ones fill caches.
const ROUNDS: usize = 33;
/// What the WRITE carries: a small object.
const WRITE_BYTES: usize = 64;

/// Reads a pool file, with its certificates.
pub(super) fn file(path: &Path, insecure: bool) -> Result<(PoolFile, Option<Tls>), Check> {
    let name = "pool file";
    let file = PoolFile::read(path).map_err(|error| {
        Check::broken(name, error.to_string(), "README shows one; give all processes the same")
    })?;
    let tls = file.tls(insecure).map_err(|error| {
        Check::broken("certificates", error.to_string(), "see [tls] of the pool file in README")
    })?;
    Ok((file, tls))
}

/// What the file says.
pub(super) fn about(path: &Path, file: &PoolFile, tls: Option<&Tls>) -> Check {
    let found = format!(
        "{}: {:?} on {}, {} memory nodes of {}, {} copies of each key, TLS {}",
        path.display(),
        file.name,
        file.fabric,
        file.nodes.len(),
        file.memory,
        file.replicas,
        if tls.is_some() { "on" } else { "off" },
    );
    Check::good("pool file", found)
}

/// Asks each node for a session; all do if every check is good.
pub(super) async fn control_planes(path: &Path, file: &PoolFile, tls: Option<&Tls>) -> Vec<Check> {
    let gateway = GatewayId::random();
    let mut checks = Vec::new();
    let mut sessions = Vec::new();
    for (node, address) in (0..).zip(&file.nodes) {
        let name = format!("memory node {node}");
        let begin = Instant::now();
        checks.push(match Attachment::begin(file, tls, gateway, file.description(node)).await {
            Ok(session) => {
                sessions.push(session);
                Check::good(name, format!("{address} answers in {}", Time(begin.elapsed())))
            }
            Err(error) => Check::broken(name, error.to_string(), remedy(path, &error)),
        });
    }
    let incarnations: Vec<u64> = sessions.iter().map(|s| s.admission.incarnation).collect();
    if incarnations.windows(2).any(|two| two[0] != two[1]) {
        checks.push(Check::broken(
            "memory nodes",
            "they are of different lives of the pool, since some were started again",
            "stop all of them, then start them again, empty",
        ));
    }
    checks
}

fn remedy(path: &Path, error: &ControlError) -> String {
    let path = path.display();
    match error {
        ControlError::Unreachable { node, address, .. } => format!(
            "on its machine: mnd --pool {path} --node {node}; if it runs, see that {address} \
             is its address and that no firewall is between"
        ),
        ControlError::NotReady { .. } => {
            "start the memory nodes that it waits for, and look into its log".to_owned()
        }
        ControlError::Refused { node, .. } | ControlError::Ended { node, .. } => {
            format!("give it this pool file and this release, then start memory node {node} again")
        }
        ControlError::Untrusted { .. } => {
            "openssl verify -CAfile CA CERTIFICATE tells whether one was signed by the other; \
             openssl x509 -noout -subject -dates -ext subjectAltName -in CERTIFICATE the rest"
                .to_owned()
        }
    }
}

/// Joins, and runs verbs on each node.
pub(super) async fn data_paths(
    file: PoolFile,
    tls: Option<Tls>,
    choice: &DeviceChoice,
) -> Vec<Check> {
    let kind = file.fabric;
    let joined = Joined::join(file, tls, StoreConfig { index_cache_entries: 0 });
    let joined = match timeout(JOIN_TIME_MAX, joined).await {
        Ok(Ok(joined)) => joined,
        Ok(Err(reason)) => return vec![Check::broken("fabric", reason, fabric_remedy(kind))],
        Err(_) => {
            let found = format!("no way to the memory within {} s", JOIN_TIME_MAX.as_secs());
            return vec![Check::broken("fabric", found, fabric_remedy(kind))];
        }
    };
    let geometry = joined.geometry();
    let remote = match joined.routes() {
        Routes::Shm(nodes) => {
            return Probe { fabric: &joined.mapped(&nodes), geometry, kind }.run().await;
        }
        Routes::Tcp(_) => joined.over_tcp().await,
        Routes::Verbs => match joined.device(choice) {
            Ok(device) => joined.over_verbs(&device).await,
            Err(reason) => Err(reason),
        },
    };
    match remote {
        Ok(fabric) => Probe { fabric: &fabric, geometry, kind }.run().await,
        Err(reason) => vec![Check::broken("fabric", reason, fabric_remedy(kind))],
    }
}

fn fabric_remedy(kind: FabricKind) -> &'static str {
    match kind {
        FabricKind::Shm => {
            "run the gateway on the memory nodes' host, as a user that may open \
                            their sockets"
        }
        FabricKind::Tcp => "see that the memory nodes' data ports are not behind a firewall",
        FabricKind::Verbs => {
            "see the section on RDMA here, run the doctor on the memory node's \
                              machine too, and try: rping or ib_read_lat between the two"
        }
    }
}

/// A client of the pool that touches nothing but what it was given.
struct Probe<'a, F> {
    fabric: &'a F,
    geometry: &'a Geometry,
    kind: FabricKind,
}

impl<F: Fabric> Probe<'_, F> {
    async fn run(&self) -> Vec<Check> {
        let params = self.geometry.params;
        let client = match self.fabric.call(0, Request::Join { params }).await {
            Ok(Response::Joined { client, .. }) => client,
            Ok(Response::Refused(refusal)) => {
                return vec![Check::broken("fabric", refusal.to_string(), "see the log of node 0")];
            }
            other => {
                let found = format!("memory node 0 lets no client in: {other:?}");
                return vec![Check::broken("fabric", found, "see its log")];
            }
        };
        let mut checks = Vec::new();
        for node in 0..params.nodes {
            let name = format!("{} {node}", self.kind);
            checks.push(match timeout(PROBE_TIME_MAX, self.node(client, node)).await {
                Ok(Ok(Measured::All { read, write, cas })) => Check::good(
                    name,
                    format!(
                        "READ 8 B {}, WRITE {WRITE_BYTES} B {}, CAS {}",
                        Time(read),
                        Time(write),
                        Time(cas)
                    ),
                ),
                Ok(Ok(Measured::Full { read })) => Check::lacking(
                    name,
                    format!("READ 8 B {}, and no block left to write to", Time(read)),
                    "the pool is full: delete keys, or give it more memory",
                ),
                Ok(Err(NodeDown { node })) => Check::broken(
                    name,
                    format!("memory node {node} does not answer verbs"),
                    fabric_remedy(self.kind),
                ),
                Err(_) => Check::broken(
                    name,
                    format!("no answer within {} s", PROBE_TIME_MAX.as_secs()),
                    fabric_remedy(self.kind),
                ),
            });
        }
        // Whatever it still owns becomes an orphan, for others to use.
        for node in (0..params.nodes).rev() {
            let _ =
                timeout(PROBE_TIME_MAX, self.fabric.call(node, Request::Leave { client })).await;
        }
        checks
    }

    async fn node(&self, client: u32, node: u16) -> Result<Measured, NodeDown> {
        let superblock = NodeAddress { node, offset: 0 };
        let request =
            Request::Allocate { client, class: Class::SMALLEST, reserve: false, fresh: true };
        let block = match self.fabric.call(node, request).await? {
            Response::Allocated { block, adopted: false } => block,
            Response::Allocated { adopted: true, .. } | Response::Refused(_) => {
                let read = self.time(|batch| batch.read(superblock, 8)).await?;
                return Ok(Measured::Full { read });
            }
            _ => return Err(NodeDown { node }),
        };
        let place = self.geometry.placement.locate_all(block).next();
        let Some(place) = place.filter(|place| place.node == node) else {
            return Err(NodeDown { node });
        };
        let write = self
            .time(|batch| {
                let span = batch.stage(WRITE_BYTES);
                batch.staged(span).fill(0);
                batch.write(place, span)
            })
            .await?;
        let cas = self.time(|batch| batch.cas(place, 0, 0)).await?;
        let read = self.time(|batch| batch.read(place, 8)).await?;
        // The memory node zeroes it for the next owner.
        self.fabric.call(node, Request::Return { client, block }).await?;
        Ok(Measured::All { read, write, cas })
    }

    /// The median time of a verb.
    async fn time(&self, post: impl Fn(&mut Batch) -> Ticket) -> Result<Duration, NodeDown> {
        let mut took = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let begin = Instant::now();
            let mut batch = self.fabric.batch();
            let ticket = post(&mut batch);
            let batch = self.fabric.run(batch).await;
            took.push(begin.elapsed());
            let outcome = batch.done(ticket);
            self.fabric.recycle(batch);
            outcome?;
        }
        took.sort_unstable();
        Ok(took[ROUNDS / 2])
    }
}

/// How long verbs take on a node.
enum Measured {
    All {
        read: Duration,
        write: Duration,
        cas: Duration,
    },
    /// There was nothing to write to.
    Full {
        read: Duration,
    },
}

/// A time as people read it.
struct Time(Duration);

impl fmt::Display for Time {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = self.0.as_nanos() as f64 / 1000.0;
        if us < 1000.0 { write!(out, "{us:.1} us") } else { write!(out, "{:.1} ms", us / 1000.0) }
    }
}
