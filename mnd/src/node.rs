//! A memory node within the process of its clients: its control plane is a call.

use crate::{Ledger, NodeMemory};
use fusee_fabric::{ControlFuture, ControlPlane};
use fusee_layout::message::{Request, Response, Statistics};
use std::sync::{Mutex, MutexGuard};

/// The control plane of one memory node.
#[derive(Debug)]
pub struct MemoryNode {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    ledger: Ledger,
    /// The memory of all other nodes.
    others: Vec<NodeMemory>,
}

impl ControlPlane for MemoryNode {
    fn call(&self, request: Request) -> ControlFuture<'_> {
        Box::pin(async move { Ok(self.handle(request)) })
    }
}

impl MemoryNode {
    /// The node with this ledger; the memory of the others is in the same process.
    pub fn new(ledger: Ledger, others: Vec<NodeMemory>) -> Self {
        Self { state: Mutex::new(State { ledger, others }) }
    }

    /// Does what a client asks.
    fn handle(&self, request: Request) -> Response {
        let mut state = self.lock();
        let (response, effects) = state.ledger.handle(request);
        // Written under the lock, so that no table goes back to what an earlier
        // request made of it.
        for other in &mut state.others {
            other.apply(&effects);
        }
        response
    }

    /// What it has given and to how many.
    pub fn statistics(&self) -> Statistics {
        self.lock().ledger.statistics()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no request makes a memory node panic")
    }
}
