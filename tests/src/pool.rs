//! A pool of processes on this host: memory nodes, and gateways that join them.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::server::{Flavour, Options, Server, built};

/// Everything here happens within this time, or never.
const LIMIT: Duration = Duration::from_secs(30);

/// The fabrics that a suite is about: those that every machine has, or those that
/// `SUITE_FABRICS` names, with commas between.
///
/// # Panics
/// If it names one that there is not.
pub fn fabrics() -> Vec<&'static str> {
    const ALL: [&str; 3] = ["shm", "tcp", "verbs"];
    let Ok(chosen) = std::env::var("SUITE_FABRICS") else { return ALL[..2].to_vec() };
    let known = |name: &str| ALL.into_iter().find(|&fabric| fabric == name);
    let find = |name: &str| known(name).unwrap_or_else(|| panic!("{name:?} is not a fabric"));
    chosen.split(',').map(find).collect()
}

/// What the pool file says.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// How gateways reach the memory: `shm`, `tcp` or `verbs`.
    pub fabric: &'static str,
    /// Memory nodes.
    pub nodes: u16,
    /// Copies of every key.
    pub replicas: u8,
    /// Memory of each node in MiB.
    pub memory_mib: u64,
    /// Are the control planes on ports of this host, rather than on Unix sockets?
    pub on_ports: bool,
    /// The end of the pool file.
    pub more: String,
}

impl Default for PoolOptions {
    fn default() -> Self {
        let more = String::new();
        Self { fabric: "shm", nodes: 2, replicas: 1, memory_mib: 64, on_ports: false, more }
    }
}

/// A pool file in a folder of its own, which goes with it, and the memory nodes that
/// are kept with it.
#[derive(Debug)]
pub struct Pool {
    folder: PathBuf,
    addresses: Vec<String>,
    nodes: Vec<Process>,
}

impl Pool {
    /// Describes a pool, and starts nothing.
    ///
    /// # Panics
    /// If there is no folder for it, or no free port.
    pub fn describe(options: &PoolOptions) -> Self {
        let folder = own_folder();
        let address = |node: u16| match options.on_ports {
            true => format!("127.0.0.1:{}", free_port()),
            false => format!("unix:{}/{node}.sock", folder.display()),
        };
        let addresses: Vec<String> = (0..options.nodes).map(address).collect();
        let PoolOptions { fabric, replicas, memory_mib, more, .. } = options;
        let text = format!(
            "name = \"test\"\nfabric = \"{fabric}\"\nreplicas = {replicas}\n\
             memory = \"{memory_mib}MiB\"\nnodes = {addresses:?}\n{more}\n"
        );
        let pool = Self { folder, addresses, nodes: Vec::new() };
        fs::write(pool.file(), text).expect("the folder takes files");
        pool
    }

    /// Describes a pool and starts its memory nodes, which end when it is dropped.
    /// They come up while gateways wait.
    ///
    /// # Panics
    /// As [`Self::describe`], or if the program is missing.
    pub fn start(options: &PoolOptions) -> Self {
        let mut pool = Self::describe(options);
        pool.nodes = (0..options.nodes).map(|node| pool.start_node(node)).collect();
        pool
    }

    /// The processes of the memory nodes that are kept with it.
    pub fn pids(&self) -> impl Iterator<Item = Pid> {
        self.nodes.iter().map(|node| Pid::from_child(&node.child))
    }

    /// The pool file.
    pub fn file(&self) -> PathBuf {
        self.folder.join("pool.toml")
    }

    /// The folder that goes with the pool.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where a node's control plane is, as the pool file has it.
    pub fn address(&self, node: u16) -> &str {
        &self.addresses[usize::from(node)]
    }

    /// A pool file that differs: `from` is replaced by `to` in it.
    pub fn other_file(&self, from: &str, to: &str) -> PathBuf {
        let text = fs::read_to_string(self.file()).expect("it was written");
        assert!(text.contains(from), "{from:?} is not in the pool file");
        let path = self.folder.join("other.toml");
        fs::write(&path, text.replace(from, to)).expect("the folder takes files");
        path
    }

    /// Starts memory node `node`, and does not wait for it.
    pub fn start_node(&self, node: u16) -> Process {
        self.start_node_with(node, &self.file())
    }

    /// Starts memory node `node` with another pool file.
    pub fn start_node_with(&self, node: u16, file: &Path) -> Process {
        self.start_node_flags(node, file, &["--metrics-port", "0"])
    }

    /// Starts memory node `node`, which logs all that there is to log.
    pub fn start_node_loudly(&self, node: u16) -> Process {
        let flags = ["--metrics-port", "0", "--log-level", "trace"];
        self.start_node_flags(node, &self.file(), &flags)
    }

    /// Starts memory node `node`, and tells where it serves its metrics.
    pub fn start_node_measured(&self, node: u16) -> (Process, SocketAddr) {
        let port = free_port();
        let node =
            self.start_node_flags(node, &self.file(), &["--metrics-port", &port.to_string()]);
        (node, SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    fn start_node_flags(&self, node: u16, file: &Path, flags: &[&str]) -> Process {
        let mut command = command("mnd");
        command.arg("--pool").arg(file).args(["--node", &node.to_string()]);
        command.args(["--drain", "1"]).args(flags);
        Process::start(command, self.folder.join(format!("mnd-{node}.log")))
    }

    /// Starts all memory nodes, and waits until gateways may come.
    pub fn start_nodes(&self) -> Vec<Process> {
        let count = self.addresses.len() as u16;
        let mut nodes: Vec<Process> = (0..count).map(|node| self.start_node(node)).collect();
        nodes[0].wait_for_line("gateways may come");
        nodes
    }

    /// Starts a gateway and does not wait for it; nobody speaks to it.
    pub fn start_gateway_with(&self, file: &Path) -> Process {
        let mut command = command("gateway");
        command.arg("--pool").arg(file);
        command.args(["--port", "0", "--metrics-port", "0", "--workers", "1"]);
        Process::start(command, self.folder.join("gateway.log"))
    }

    /// Starts a gateway with one worker and metrics, and waits until it serves.
    pub fn gateway(&self) -> Server {
        self.gateway_with(&Options { workers: Some(1), metrics: true, ..Options::default() })
    }

    /// Starts a gateway, and waits until it serves.
    ///
    /// # Panics
    /// If it does not come up; the message names its log.
    pub fn gateway_with(&self, options: &Options) -> Server {
        let mut options = options.clone();
        options.gateway_flags.extend(["--pool".to_owned(), self.file().display().to_string()]);
        Server::start(Flavour::Gateway, &options)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.nodes.clear();
        if std::thread::panicking() {
            eprintln!("logs are left in {}", self.folder.display());
        } else {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// A new folder with a short name, not below target/: a socket's path has at most 107
/// bytes.
fn own_folder() -> PathBuf {
    let base = std::env::temp_dir();
    let name = |number: u32| format!("fusee-test-{}-{number}", std::process::id());
    (0..1000)
        .map(|number| base.join(name(number)))
        .find(|path| fs::create_dir(path).is_ok())
        .unwrap_or_else(|| panic!("no folder can be made in {}", base.display()))
}

fn free_port() -> u16 {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
    free.expect("this host has free ports").port()
}

/// A program of this workspace that runs. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

/// A program that ends when the thread that starts it does.
fn command(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(built(program)).stdin(Stdio::null());
    command
}

impl Process {
    fn start(mut command: Command, log: PathBuf) -> Self {
        let output = File::create(&log).expect("the folder takes files");
        let errors = output.try_clone().expect("files can be cloned");
        let child = command.stdout(output).stderr(errors).spawn();
        Self { child: child.expect("setpriv (package util-linux) runs"), log }
    }

    /// What it has printed so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Waits until it has printed a line with `text` in it.
    pub fn wait_for_line(&mut self, text: &str) {
        let deadline = Instant::now() + LIMIT;
        while !self.log().contains(text) {
            let ended = self.child.try_wait().expect("the child is ours to wait for");
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "no line with {text:?} ({ended:?}):\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().expect("the child is ours to wait for") {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the child is ours to signal");
    }

    /// Asks it to end, and waits for that.
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
