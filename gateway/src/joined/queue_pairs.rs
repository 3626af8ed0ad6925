//! A worker's queue pairs: opened when it begins, and another one whenever one has ended
//! while the session lives, as when a cable was pulled for a second.

use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fusee_control::NodeClient;
use fusee_fabric::ControlPlane;
use fusee_fabric::verbs::{Device, VerbsConfig, VerbsConnecting, VerbsFabric};

/// Between two looks at a queue pair; doubled with each attempt at another one that fails.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Opens a queue pair to each node, and keeps them as long as the fabric is there.
pub(super) async fn open(
    device: &Device,
    clients: Vec<NodeClient>,
    controls: Vec<Arc<dyn ControlPlane>>,
) -> Result<Rc<VerbsFabric>, String> {
    // Of this process: a session's workers are told apart by it.
    static LINKS: AtomicU64 = AtomicU64::new(0);
    let link = LINKS.fetch_add(1, Relaxed);
    let connecting = VerbsConnecting::new(device, clients.len() as u16, VerbsConfig::default());
    let connecting = connecting.map_err(|error| error.to_string())?;
    let mut ends = Vec::new();
    for (client, address) in clients.iter().zip(connecting.addresses()) {
        let end = client.open_queue_pair(link, address).await.map_err(|error| error.to_string())?;
        ends.push(end);
    }
    let fabric = connecting.connect(&ends, controls).map_err(|error| error.to_string())?;
    let fabric = Rc::new(fabric);
    for (node, client) in (0..).zip(clients) {
        tokio::task::spawn_local(keep(Rc::downgrade(&fabric), node, link, client));
    }
    Ok(fabric)
}

/// Has the node make another queue pair whenever the one to it has ended.
async fn keep(fabric: Weak<VerbsFabric>, node: u16, link: u64, client: NodeClient) {
    let mut pause = PAUSE_MIN;
    let mut told = String::new();
    loop {
        tokio::time::sleep(pause).await;
        let Some(is_down) = fabric.upgrade().map(|fabric| fabric.is_down(node)) else { return };
        if !is_down {
            pause = PAUSE_MIN;
            continue;
        }
        match replace(&fabric, node, link, &client).await {
            Ok(()) => {
                tracing::info!(node, "there is a queue pair to the memory node again");
                told.clear();
            }
            Err(reason) => {
                if reason != told {
                    tracing::warn!(node, "no queue pair to a memory node, trying again: {reason}");
                    told = reason;
                }
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// Nothing of the fabric is held on to while others are waited for, so that it ends when its
/// worker gives it up.
async fn replace(
    fabric: &Weak<VerbsFabric>,
    node: u16,
    link: u64,
    client: &NodeClient,
) -> Result<(), String> {
    let Some(made) = fabric.upgrade().map(|fabric| fabric.replacement(node)) else {
        return Ok(());
    };
    let made = made.map_err(|error| error.to_string())?;
    let end = client.open_queue_pair(link, made.address()).await;
    let end = end.map_err(|error| error.to_string())?;
    let connected = tokio::task::spawn_blocking(move || made.connect(end)).await;
    let connected = connected.map_err(|error| error.to_string())?;
    let connected = connected.map_err(|error| error.to_string())?;
    let replaced = fabric.upgrade().map(|fabric| fabric.replace(node, connected));
    replaced.unwrap_or(Ok(())).map_err(|error| error.to_string())
}
