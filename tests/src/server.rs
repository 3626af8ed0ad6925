//! A server under test: our gateway, or redis-server to validate a suite
//! against the original.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Longest wait for the first PONG. A pool of several GiB is mapped and
/// perhaps zeroed before that.
const START_LIMIT: Duration = Duration::from_secs(30);
/// Longest wait for a drained exit before the process is killed.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// A free port may be taken by another process before the server binds it.
const START_ATTEMPTS: usize = 3;

/// Which program serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flavour {
    /// Our gateway with its embedded memory nodes.
    Gateway,
    /// redis-server from the PATH, without persistence.
    Redis,
    /// valkey-server from the PATH, without persistence.
    Valkey,
}

impl Flavour {
    /// Reads a name as given on a command line or in the environment.
    pub fn parse(name: &str) -> Result<Self, String> {
        match name {
            "gateway" => Ok(Self::Gateway),
            "redis" => Ok(Self::Redis),
            "valkey" => Ok(Self::Valkey),
            _ => Err(format!("{name:?} is not a server; there are gateway, redis and valkey")),
        }
    }

    /// The flavour that `SUITE_SERVER` asks for, our gateway if it does not.
    pub fn under_test() -> Self {
        match std::env::var("SUITE_SERVER") {
            Ok(name) => Self::parse(&name).unwrap_or_else(|message| panic!("{message}")),
            Err(_) => Self::Gateway,
        }
    }

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Redis => "redis-server",
            Self::Valkey => "valkey-server",
        }
    }

    fn program(self) -> PathBuf {
        match self {
            Self::Gateway => built("gateway"),
            Self::Redis | Self::Valkey => PathBuf::from(self.name()),
        }
    }

    /// Whether it can be started here.
    pub fn is_installed(self) -> bool {
        match self {
            Self::Gateway => self.program().exists(),
            Self::Redis | Self::Valkey => {
                let answer = Command::new(self.name()).arg("--version").output();
                answer.is_ok_and(|output| output.status.success())
            }
        }
    }

    /// Its own word for its version.
    pub fn version(self) -> String {
        let Ok(output) = Command::new(self.program()).arg("--version").output() else {
            return String::from("unknown");
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let word = text.split_whitespace().find_map(|word| {
            let word = word.strip_prefix("v=").unwrap_or(word);
            word.starts_with(|first: char| first.is_ascii_digit()).then(|| word.to_owned())
        });
        word.unwrap_or_else(|| text.trim().to_owned())
    }
}

/// How to start a server. The default is what the README's command starts,
/// on a free port.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Size of the pool in MiB; the server's default if not given.
    pub memory_mib: Option<u64>,
    /// Threads that serve; the server's default if not given. Ours alone.
    pub workers: Option<usize>,
    /// Serve `/metrics` on a free port. Ours alone.
    pub metrics: bool,
    /// Flags for our gateway beyond these.
    pub gateway_flags: Vec<String>,
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    child: Child,
    flavour: Flavour,
    port: u16,
    metrics_port: Option<u16>,
    log: PathBuf,
}

impl Server {
    /// Starts a server and waits until it answers PING.
    ///
    /// # Panics
    /// If it does not come up; the message names its log.
    pub fn start(flavour: Flavour, options: &Options) -> Self {
        let mut failure = String::new();
        for _ in 0..START_ATTEMPTS {
            match Self::try_start(flavour, options) {
                Ok(server) => return server,
                Err(message) => failure = message,
            }
        }
        panic!("{} does not start: {failure}", flavour.name());
    }

    /// Starts the flavour that the environment asks for.
    pub fn under_test(options: &Options) -> Self {
        Self::start(Flavour::under_test(), options)
    }

    fn try_start(flavour: Flavour, options: &Options) -> Result<Self, String> {
        let port = free_port().map_err(|error| format!("no free port: {error}"))?;
        let metrics_port = if options.metrics && flavour == Flavour::Gateway {
            Some(free_port().map_err(|error| format!("no free port: {error}"))?)
        } else {
            None
        };
        let folder = scratch("logs");
        let log = folder.join(format!("{}-{port}.log", flavour.name()));
        let output = File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        let errors = output.try_clone().map_err(|error| format!("{}: {error}", log.display()))?;

        // setpriv ends the server when the thread that started it ends, even
        // by a kill that runs no destructor.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(flavour.program());
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
        match flavour {
            Flavour::Gateway => gateway_arguments(&mut command, options, metrics_port),
            Flavour::Redis | Flavour::Valkey => redis_arguments(&mut command, options),
        }
        let child = command
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(|error| format!("setpriv (package util-linux): {error}"))?;
        let mut server = Self { child, flavour, port, metrics_port, log };
        server.wait_for_pong()?;
        Ok(server)
    }

    fn wait_for_pong(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + START_LIMIT;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("it ended with {status}:\n{}", self.log_tail()));
            }
            if self.answers_ping().unwrap_or(false) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(format!("no PONG in {START_LIMIT:?}:\n{}", self.log_tail()))
    }

    /// Whether a fresh connection gets its PONG.
    pub fn answers_ping(&self) -> io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&self.address(), Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"*1\r\n$4\r\nPING\r\n")?;
        let mut reply = [0; 7];
        stream.read_exact(&mut reply)?;
        Ok(&reply == b"+PONG\r\n")
    }

    /// What it is.
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// The port of [`Self::address`].
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Where it serves its metrics, if it was asked to.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    /// A fresh connection that gives up after 30 s of silence.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address())
            .unwrap_or_else(|error| panic!("{} refuses: {error}", self.flavour.name()));
        stream.set_nodelay(true).expect("a fresh socket takes options");
        let limit = Some(Duration::from_secs(30));
        stream.set_read_timeout(limit).expect("the limit is not zero");
        stream.set_write_timeout(limit).expect("the limit is not zero");
        stream
    }

    /// What it has printed so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The last lines of what it printed.
    pub fn log_tail(&self) -> String {
        let text = self.log();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Panics with the log's end if the process has ended.
    pub fn assert_running(&mut self) {
        if let Some(status) = self.child.try_wait().expect("the child is ours to wait for") {
            panic!("{} ended with {status}:\n{}", self.flavour.name(), self.log_tail());
        }
    }

    /// Ends it by SIGKILL.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to drain and waits for its end; `None` if it had to be killed.
    pub fn terminate(&mut self) -> Option<ExitStatus> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Some(status);
        }
        // Ours and not yet waited for, so the id cannot belong to another.
        let _ = kill_process(self.pid(), Signal::TERM);
        self.wait()
    }

    /// Waits for its end, of which it has been told; `None` if it had to be killed.
    pub fn wait(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + STOP_LIMIT;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        None
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.terminate();
    }
}

fn gateway_arguments(command: &mut Command, options: &Options, metrics_port: Option<u16>) {
    if let Some(mib) = options.memory_mib {
        command.arg("--memory").arg(format!("{mib}MiB"));
    }
    if let Some(workers) = options.workers {
        command.arg("--workers").arg(workers.to_string());
    }
    command.arg("--metrics-port").arg(metrics_port.unwrap_or(0).to_string());
    command.args(&options.gateway_flags);
}

fn redis_arguments(command: &mut Command, options: &Options) {
    command.args(["--save", "", "--appendonly", "no", "--enable-debug-command", "yes"]);
    if let Some(mib) = options.memory_mib {
        command.arg("--maxmemory").arg(format!("{mib}mb"));
    }
}

/// A program of this workspace, from the folder that this one was built into.
pub fn built(program: &str) -> PathBuf {
    let own = std::env::current_exe().expect("Linux names the running program");
    let folder = own.parent().expect("a program lies in a folder");
    let folder = if folder.ends_with("deps") { folder.parent().unwrap_or(folder) } else { folder };
    folder.join(program)
}

/// A folder under `target/suites` for what the suites leave behind.
pub fn scratch(name: &str) -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = built("x")
        .parent()
        .and_then(Path::parent)
        .map_or_else(|| manifest.join("../target"), Path::to_path_buf);
    let folder = target.join("suites").join(name);
    fs::create_dir_all(&folder)
        .unwrap_or_else(|error| panic!("{} cannot be made: {error}", folder.display()));
    folder
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
