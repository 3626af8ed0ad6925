//! The control plane: what a memory node's own processor does for clients,
//! since verbs cannot.

use crate::NodeDown;
use fusee_layout::message::{Request, Response};
use std::future::Future;
use std::pin::Pin;

/// A control request under way. Boxed: no operation waits for one, except for a
/// new block.
pub type ControlFuture<'a> = Pin<Box<dyn Future<Output = Result<Response, NodeDown>> + Send + 'a>>;

/// A client's way to one memory node's control plane.
pub trait ControlPlane: Send + Sync {
    /// Asks for something. If the node does not answer, it may have done it.
    fn call(&self, request: Request) -> ControlFuture<'_>;
}
