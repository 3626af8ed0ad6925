//! A pool of processes on this host: memory nodes, and gateways that join them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::server::{Flavour, Options, Server, built};

/// Everything here happens within this time, or never.
const LIMIT: Duration = Duration::from_secs(30);

/// A pool file in a folder of its own, which goes with it.
#[derive(Debug)]
pub struct Pool {
    folder: PathBuf,
    nodes: u16,
}

impl Pool {
    /// Describes a pool on shared memory.
    pub fn shm(name: &str, nodes: u16, replicas: u8, memory_mib: u64) -> Self {
        // Not below target/: a socket's path has at most 107 bytes.
        let folder = std::env::temp_dir().join(format!("fusee-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).expect("the temporary folder takes folders");
        let pool = Self { folder, nodes };
        let addresses: Vec<String> =
            (0..nodes).map(|node| format!("\"unix:{}\"", pool.socket(node).display())).collect();
        let text = format!(
            "name = \"{name}\"\nfabric = \"shm\"\nreplicas = {replicas}\n\
             memory = \"{memory_mib}MiB\"\nnodes = [{}]\n",
            addresses.join(", ")
        );
        fs::write(pool.file(), text).expect("the folder takes files");
        pool
    }

    /// The pool file.
    pub fn file(&self) -> PathBuf {
        self.folder.join("pool.toml")
    }

    /// Where a node's control plane is.
    pub fn socket(&self, node: u16) -> PathBuf {
        self.folder.join(format!("{node}.sock"))
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
        let mut command = command("mnd");
        command.arg("--pool").arg(file).args(["--node", &node.to_string()]);
        command.args(["--metrics-port", "0", "--drain", "1"]);
        Process::start(command, self.folder.join(format!("mnd-{node}.log")))
    }

    /// Starts all memory nodes, and waits until gateways may come.
    pub fn start_nodes(&self) -> Vec<Process> {
        let mut nodes: Vec<Process> = (0..self.nodes).map(|node| self.start_node(node)).collect();
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

    /// Starts a gateway, and waits until it serves.
    pub fn gateway(&self) -> Server {
        let flags = vec!["--pool".to_owned(), self.file().display().to_string()];
        let options =
            Options { workers: Some(1), metrics: true, gateway_flags: flags, ..Options::default() };
        Server::start(Flavour::Gateway, &options)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("logs are left in {}", self.folder.display());
        } else {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
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
