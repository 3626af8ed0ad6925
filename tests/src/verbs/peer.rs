//! Memory nodes for the tests: in this process, or in another one that is reached
//! over TCP.

use fusee_fabric::verbs::{
    Device, NodeQueuePair, QueuePairAddress, ServedQueuePair, VerbsConfig, VerbsConnecting,
    VerbsError, VerbsFabric, VerbsNode,
};
use fusee_fabric::{ControlFuture, ControlPlane, Memory, ShmNode};
use fusee_layout::message::{Request, Response};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Memory of each node.
pub const NODE_BYTES: u64 = 64 << 20;

/// Nodes that a client can be connected to.
pub struct Peers {
    device: Device,
    nodes: Vec<Peer>,
}

/// A node.
pub enum Peer {
    /// In this process.
    Here(Server),
    /// Elsewhere; its queue pairs live as long as the connection.
    There(Mutex<BufReader<TcpStream>>),
}

/// A node's side.
pub struct Server {
    node: VerbsNode,
    served: Mutex<Vec<ServedQueuePair>>,
}

/// Does what is asked, and nothing.
struct Idle;

impl ControlPlane for Idle {
    fn call(&self, _: Request) -> ControlFuture<'_> {
        Box::pin(std::future::ready(Ok(Response::Done)))
    }
}

impl Server {
    /// With memory of its own.
    pub fn new(device: &Device) -> Result<Self, String> {
        let memory = Memory::private(NODE_BYTES as usize).map_err(|e| e.to_string())?;
        let node = VerbsNode::new(device, Arc::new(ShmNode::new(memory)));
        Ok(Self { node: node.map_err(|e| e.to_string())?, served: Mutex::default() })
    }

    fn accept(&self, client: &QueuePairAddress) -> Result<NodeQueuePair, VerbsError> {
        let queue_pair = self.node.accept(client)?;
        let end = queue_pair.end();
        self.served.lock().expect("nobody panics with it").push(queue_pair);
        Ok(end)
    }

    /// Ends every queue pair.
    pub fn revoke(&self) {
        self.served.lock().expect("nobody panics with it").clear();
    }

    /// Serves one connection after the other, for ever.
    pub fn serve(&self, listener: &TcpListener) -> Result<(), String> {
        loop {
            let (stream, _) = listener.accept().map_err(|e| e.to_string())?;
            let served = self.serve_one(stream);
            self.revoke();
            if let Err(error) = served {
                return Err(error.to_string());
            }
        }
    }

    fn serve_one(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?);
        let mut line = String::new();
        while lines.read_line(&mut line)? > 0 {
            let reply = match line.trim() {
                "revoke" => {
                    self.revoke();
                    "revoked".to_owned()
                }
                client => {
                    let end = address(client).map(|client| self.accept(&client));
                    let end = end.ok_or_else(|| std::io::Error::other("no address"))?;
                    let end = end.map_err(std::io::Error::other)?;
                    format!("{} {} {} {}", shown(&end.address), end.rkey, end.base, end.bytes)
                }
            };
            stream.write_all(format!("{reply}\n").as_bytes())?;
            line.clear();
        }
        Ok(())
    }
}

impl Peer {
    /// The node at an address, waited for until it is there.
    pub fn there(address: &str) -> Result<Self, String> {
        let started = Instant::now();
        loop {
            match TcpStream::connect(address) {
                Ok(stream) => return Ok(Self::There(Mutex::new(BufReader::new(stream)))),
                Err(error) if started.elapsed() > Duration::from_secs(30) => {
                    return Err(format!("{address}: {error}"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    fn ask(stream: &Mutex<BufReader<TcpStream>>, question: &str) -> Result<String, String> {
        let mut stream = stream.lock().expect("nobody panics with it");
        let mut reply = String::new();
        let asked = stream.get_mut().write_all(format!("{question}\n").as_bytes());
        asked.and_then(|()| stream.read_line(&mut reply)).map_err(|e| e.to_string())?;
        Ok(reply)
    }

    fn open(&self, client: &QueuePairAddress) -> Result<NodeQueuePair, String> {
        match self {
            Self::Here(server) => server.accept(client).map_err(|e| e.to_string()),
            Self::There(stream) => {
                let reply = Self::ask(stream, &shown(client))?;
                let words: Vec<&str> = reply.split_whitespace().collect();
                let end = |address| {
                    Some(NodeQueuePair {
                        address,
                        rkey: parsed(words.get(6)?)?,
                        base: parsed(words.get(7)?)?,
                        bytes: parsed(words.get(8)?)?,
                    })
                };
                address(&reply).and_then(end).ok_or_else(|| format!("no address: {reply:?}"))
            }
        }
    }

    /// Ends every queue pair to it.
    pub fn revoke(&self) -> Result<(), String> {
        match self {
            Self::Here(server) => {
                server.revoke();
                Ok(())
            }
            Self::There(stream) => Self::ask(stream, "revoke").map(|_| ()),
        }
    }
}

impl Peers {
    /// These nodes, reached by this device.
    pub fn new(device: Device, nodes: Vec<Peer>) -> Self {
        Self { device, nodes }
    }

    /// By number.
    pub fn node(&self, number: u16) -> &Peer {
        &self.nodes[usize::from(number)]
    }

    /// How many.
    pub fn count(&self) -> u16 {
        self.nodes.len() as u16
    }

    /// A client's queue pairs, as it would be connected, and what the nodes answer.
    pub fn open(
        &self,
        config: VerbsConfig,
    ) -> Result<(VerbsConnecting, Vec<NodeQueuePair>), String> {
        let connecting = VerbsConnecting::new(&self.device, self.count(), config);
        let connecting = connecting.map_err(|e| e.to_string())?;
        let addresses = connecting.addresses();
        let ends = self.nodes.iter().zip(&addresses).map(|(node, client)| node.open(client));
        Ok((connecting, ends.collect::<Result<_, _>>()?))
    }

    /// Control planes that do nothing.
    pub fn controls(&self) -> Vec<Arc<dyn ControlPlane>> {
        self.nodes.iter().map(|_| Arc::new(Idle) as Arc<dyn ControlPlane>).collect()
    }

    /// A client.
    pub fn fabric(&self, config: VerbsConfig) -> VerbsFabric {
        let (connecting, ends) = self.open(config).expect("queue pairs can be made");
        connecting.connect(&ends, self.controls()).expect("the nodes can be reached")
    }
}

fn shown(address: &QueuePairAddress) -> String {
    let gid = u128::from_be_bytes(address.gid);
    let QueuePairAddress { qpn, psn, lid, mtu, reads_max, .. } = address;
    format!("{qpn} {psn} {gid} {lid} {mtu} {reads_max}")
}

fn address(line: &str) -> Option<QueuePairAddress> {
    let words: Vec<&str> = line.split_whitespace().collect();
    Some(QueuePairAddress {
        qpn: parsed(words.first()?)?,
        psn: parsed(words.get(1)?)?,
        gid: parsed::<u128>(words.get(2)?)?.to_be_bytes(),
        lid: parsed(words.get(3)?)?,
        mtu: parsed(words.get(4)?)?,
        reads_max: parsed(words.get(5)?)?,
    })
}

fn parsed<T: FromStr>(word: &str) -> Option<T> {
    word.parse().ok()
}
