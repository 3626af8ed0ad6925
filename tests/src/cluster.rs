//! A pool whose memory nodes are processes, and gateways that join it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::server::{Flavour, Options, Server, built, scratch};

/// What the pool file says.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// How gateways reach the memory: `shm` or `tcp`.
    pub fabric: &'static str,
    /// Memory nodes.
    pub nodes: u16,
    /// Copies of every key.
    pub replicas: u8,
    /// Memory of each node in MiB.
    pub memory_mib: u64,
}

/// Memory nodes that run. Dropping it ends them, after the gateways that a test
/// has dropped before.
#[derive(Debug)]
pub struct Pool {
    nodes: Vec<Child>,
    folder: PathBuf,
}

impl Pool {
    /// Starts the memory nodes of a pool. They come up while gateways wait.
    ///
    /// # Panics
    /// If a program or the folder is missing.
    pub fn start(options: &PoolOptions) -> Self {
        let folder = own_folder();
        let sockets: Vec<String> = (0..options.nodes)
            .map(|node| format!("\"unix:{}/{node}.sock\"", folder.display()))
            .collect();
        let text = format!(
            "name = \"test\"\nfabric = \"{}\"\nreplicas = {}\nmemory = \"{}MiB\"\nnodes = [{}]\n",
            options.fabric,
            options.replicas,
            options.memory_mib,
            sockets.join(", ")
        );
        fs::write(folder.join("pool.toml"), text).expect("the folder is ours");
        let mut pool = Self { nodes: Vec::new(), folder };
        for node in 0..options.nodes {
            let node = pool.start_node(node);
            pool.nodes.push(node);
        }
        pool
    }

    fn start_node(&self, node: u16) -> Child {
        let log = scratch("logs").join(format!(
            "mnd-{}-{node}.log",
            self.folder.file_name().expect("it has a name").to_string_lossy()
        ));
        let output = File::create(&log).expect("the folder of logs is ours");
        // As for a server: it ends with the thread that started it.
        Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(built("mnd"))
            .arg("--pool")
            .arg(self.file())
            .args(["--node", &node.to_string(), "--metrics-port", "0"])
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a file has room for another name"))
            .stderr(output)
            .spawn()
            .expect("setpriv (package util-linux) and mnd are there")
    }

    /// The pool file.
    pub fn file(&self) -> PathBuf {
        self.folder.join("pool.toml")
    }

    /// A gateway that has joined.
    ///
    /// # Panics
    /// If it does not come up; the message names its log.
    pub fn gateway(&self, options: &Options) -> Server {
        let mut options = options.clone();
        options.gateway_flags.extend(["--pool".to_owned(), self.file().display().to_string()]);
        Server::start(Flavour::Gateway, &options)
    }

    /// The memory nodes' processes.
    pub fn pids(&self) -> impl Iterator<Item = Pid> {
        self.nodes.iter().map(Pid::from_child)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            // Ours and not yet waited for, so the id cannot belong to another.
            let _ = kill_process(Pid::from_child(node), Signal::KILL);
            let _ = node.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A new folder with a short name: paths of Unix sockets have 107 bytes.
fn own_folder() -> PathBuf {
    let base = std::env::temp_dir();
    let name = |number: u32| format!("fusee-test-{}-{number}", std::process::id());
    (0..1000)
        .map(|number| base.join(name(number)))
        .find(|path: &PathBuf| fs::create_dir(Path::new(path)).is_ok())
        .unwrap_or_else(|| panic!("no folder can be made in {}", base.display()))
}
