//! The gateway.

use gateway::config::Config;
use gateway::testing::MemoryKeyspace;

fn main() {
    let config = Config::default();
    let keyspace = MemoryKeyspace::default();
    let server = gateway::start(&config, move |_| Ok(keyspace.clone())).expect("starts");
    eprintln!("{:?}", server.addresses());
    server.join();
}
