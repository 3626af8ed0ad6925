//! The thread that serves no clients: metrics, and whether the workers live.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::mesh::{self, Others};
use crate::metrics::{self, Beside, Source};
use crate::shared::{Shared, unix_ms};
use fusee_control::http::{Page, serve};

/// A worker that has not come round for so long is stuck. Its sweep runs four
/// times a second; one huge command may hold it up for seconds.
const BEAT_MS_MAX: u64 = 15_000;

/// How often what the `metrics` crate gathers is drained.
const UPKEEP: Duration = Duration::from_secs(5);

/// Serves until `ended`.
pub(crate) async fn run(
    listener: Option<TcpListener>,
    others: Option<Others>,
    shared: Arc<Shared>,
    beside: Beside,
    stopping: watch::Receiver<bool>,
    mut ended: watch::Receiver<bool>,
) {
    let Beside { sources, trouble } = beside;
    let meshed = async {
        if let Some(others) = others
            && let Err(error) = mesh::run(others, shared.clone()).await
        {
            tracing::error!(%error, "messages are not exchanged with other gateways");
        }
        std::future::pending::<()>().await;
    };
    let shared = shared.clone();
    let page = move |path: &str| match path {
        "/metrics" => Some(metrics_page(&shared, &sources)),
        "/livez" => Some(live(&shared)),
        "/readyz" if *stopping.borrow() => {
            Some(Page::text("503 Service Unavailable", "stopping\n"))
        }
        "/readyz" => match trouble() {
            Some(trouble) => Some(Page::text("503 Service Unavailable", &(trouble + "\n"))),
            None => Some(live(&shared)),
        },
        _ => None,
    };
    let upkeep = async {
        loop {
            tokio::time::sleep(UPKEEP).await;
            metrics::recorded().run_upkeep();
        }
    };
    let serving = async {
        match listener.map(tokio::net::TcpListener::from_std) {
            Some(Ok(listener)) => serve(listener, page).await,
            Some(Err(error)) => tracing::error!(%error, "metrics are not served"),
            None => {}
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = serving => {}
        () = upkeep => {}
        () = meshed => {}
        _ = ended.wait_for(|ended| *ended) => {}
    }
}

fn metrics_page(shared: &Shared, sources: &[Source]) -> Page {
    ::metrics::counter!("gateway_scrapes_total").increment(1);
    let mut families = metrics::gateway(shared);
    for source in sources {
        families.extend(source());
    }
    Page::metrics(metrics::render(&families) + &metrics::recorded().render())
}

/// Which worker is stuck, if one is.
pub(crate) fn stuck(shared: &Shared) -> Option<usize> {
    let now_ms = unix_ms();
    let is_stuck = |beat: u64| now_ms.saturating_sub(beat) > BEAT_MS_MAX;
    shared.stats.iter().position(|worker| is_stuck(worker.beat_ms.get()))
}

fn live(shared: &Shared) -> Page {
    match stuck(shared) {
        None => Page::text("200 OK", "ok\n"),
        Some(worker) => Page::text(
            "503 Service Unavailable",
            &format!("worker {worker} has not come round for {} s\n", BEAT_MS_MAX / 1000),
        ),
    }
}
