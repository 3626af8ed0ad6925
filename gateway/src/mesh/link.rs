//! The way of messages to one other gateway.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fusee_control::GatewayPeer;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tracing::debug;

use super::frame::GREETING;
use super::{BROUGHT, LOST};

/// Bytes that wait for a gateway; what comes when there are as many is lost.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// How long a gateway may take to be connected to, or to take a batch of messages.
const TIME_MAX: Duration = Duration::from_secs(5);
/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(100);
/// Messages that are sent together.
const BATCH_BYTES: usize = 256 * 1024;

/// Messages that wait for another gateway, and the task that brings them.
#[derive(Debug, Default)]
pub(super) struct Link {
    waiting: Mutex<Waiting>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    frames: VecDeque<Arc<[u8]>>,
    bytes: usize,
    has_ended: bool,
}

impl Link {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a message wait to be sent, unless too many do.
    pub(super) fn put(&self, frame: Arc<[u8]>) {
        let mut waiting = self.lock();
        if waiting.bytes + frame.len() > WAITING_BYTES_MAX {
            return lost(1);
        }
        waiting.bytes += frame.len();
        waiting.frames.push_back(frame);
        drop(waiting);
        self.wake.notify_one();
    }

    /// Ends the task; what waits is lost with the gateway that it was for.
    pub(super) fn end(&self) {
        self.lock().has_ended = true;
        self.wake.notify_one();
    }

    /// Brings messages until the link ends.
    pub(super) async fn run(self: Arc<Self>, peer: GatewayPeer) {
        while !self.lock().has_ended {
            if let Err(error) = self.bring(&peer).await {
                // What waits is of before the break: nobody gets it late.
                let mut waiting = self.lock();
                lost(waiting.frames.len());
                waiting.frames.clear();
                waiting.bytes = 0;
                debug!(gateway = %peer.gateway, address = peer.address, %error, "a link broke");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Connects and brings messages; `Ok` when the link has ended.
    async fn bring(&self, peer: &GatewayPeer) -> io::Result<()> {
        let mut stream = timely(TcpStream::connect(&peer.address)).await?;
        stream.set_nodelay(true)?;
        let mut batch = [&GREETING[..], peer.secret.bytes()].concat();
        let mut count = 0;
        loop {
            let sending = std::mem::take(&mut count);
            timely(stream.write_all(&batch)).await.inspect_err(|_| lost(sending))?;
            metrics::counter!(BROUGHT).increment(sending as u64);
            batch.clear();
            // Nothing comes back but the end of the connection.
            tokio::select! {
                taken = self.take(&mut batch) => match taken {
                    Some(taken) => count = taken,
                    None => return Ok(()),
                },
                closed = stream.readable() => {
                    closed?;
                    match stream.try_read(&mut [0]) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) => return Err(error),
                        Ok(_) => return Err(io::ErrorKind::ConnectionAborted.into()),
                    }
                }
            }
        }
    }

    /// Waits for messages and takes some, and tells how many; `None` once the link has
    /// ended.
    async fn take(&self, batch: &mut Vec<u8>) -> Option<usize> {
        loop {
            {
                let mut waiting = self.lock();
                if waiting.has_ended {
                    return None;
                }
                let mut count = 0;
                while batch.len() < BATCH_BYTES
                    && let Some(frame) = waiting.frames.pop_front()
                {
                    waiting.bytes -= frame.len();
                    batch.extend_from_slice(&frame);
                    count += 1;
                }
                if count > 0 {
                    return Some(count);
                }
            }
            self.wake.notified().await;
        }
    }
}

async fn timely<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(TIME_MAX, work).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()))
}

/// Counts messages that another gateway will not get.
fn lost(count: usize) {
    metrics::counter!(LOST).increment(count as u64);
}
