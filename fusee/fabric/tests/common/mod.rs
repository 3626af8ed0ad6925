//! What the tests of several fabrics share.
#![allow(dead_code, reason = "each test program uses its part")]

use fusee_fabric::tcp::{TcpFabric, TcpPeer, TcpServer, Token};
use fusee_fabric::{Batch, ControlFuture, ControlPlane, Memory, ShmFabric, ShmNode, Span};
use fusee_layout::NodeAddress;
use fusee_layout::message::{Request, Response};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const BYTES: u64 = 1 << 16;
pub(crate) const TOKEN: Token = Token::new([7; 16]);

pub(crate) fn at(node: u16, offset: u64) -> NodeAddress {
    NodeAddress { node, offset }
}

pub(crate) fn nodes_of(count: u16, bytes: u64) -> Vec<Arc<ShmNode>> {
    let node = || ShmNode::new(Memory::private(bytes as usize).unwrap());
    (0..count).map(|_| Arc::new(node())).collect()
}

pub(crate) fn nodes(count: u16) -> Vec<Arc<ShmNode>> {
    nodes_of(count, BYTES)
}

/// Does what is asked, and nothing.
pub(crate) struct Idle;

impl ControlPlane for Idle {
    fn call(&self, _: Request) -> ControlFuture<'_> {
        Box::pin(std::future::ready(Ok(Response::Done)))
    }
}

pub(crate) fn controls(count: usize) -> Vec<Arc<dyn ControlPlane>> {
    (0..count).map(|_| Arc::new(Idle) as Arc<dyn ControlPlane>).collect()
}

pub(crate) fn shm(nodes: &[Arc<ShmNode>]) -> ShmFabric {
    ShmFabric::new(nodes.to_vec(), controls(nodes.len()))
}

pub(crate) fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

/// A server for each node, which has admitted [`TOKEN`].
pub(crate) fn servers(nodes: &[Arc<ShmNode>], threads: usize) -> Vec<TcpServer> {
    let server = |(number, node): (u16, &Arc<ShmNode>)| {
        let server = TcpServer::start(listen(), number, node.clone(), threads, None).unwrap();
        server.admit(TOKEN);
        server
    };
    (0..).zip(nodes).map(server).collect()
}

pub(crate) fn peers(servers: &[TcpServer]) -> Vec<TcpPeer> {
    let peer = |server: &TcpServer| TcpPeer { address: server.address(), token: TOKEN, tls: None };
    servers.iter().map(peer).collect()
}

pub(crate) async fn tcp(servers: &[TcpServer]) -> TcpFabric {
    // A machine that is busy with other tests must not look like a dead node.
    let patient = Duration::from_secs(20);
    TcpFabric::connect_within(peers(servers), controls(servers.len()), patient).await
}

pub(crate) fn stage(batch: &mut Batch, words: &[u64]) -> Span {
    let span = batch.stage(words.len() * 8);
    for (to, word) in batch.staged(span).chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    span
}

/// Runs a test's future as a worker would, and not for ever.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())
        .unwrap();
    let limited = async { tokio::time::timeout(Duration::from_secs(60), future).await };
    runtime.block_on(limited).expect("a test ends within a minute")
}
