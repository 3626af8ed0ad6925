//! The program itself: how it starts, says so, and ends.

mod common;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use common::Client;

struct Program(Child);

impl Program {
    fn start(arguments: &[&str]) -> (Self, SocketAddr) {
        let child = Command::new(env!("CARGO_BIN_EXE_gateway"))
            .args(["--port", "0", "--workers", "2", "--metrics-port", "0", "--memory", "256MiB"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut program = Self(child);
        let out = program.0.stdout.take().expect("piped");
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).expect("a line");
        let port = line
            .strip_prefix("Ready. Connect with: redis-cli -h 127.0.0.1 -p ")
            .unwrap_or_else(|| panic!("{line:?} does not say how to connect"));
        let port: u16 = port.trim().parse().expect("a port");
        (program, SocketAddr::from(([127, 0, 0, 1], port)))
    }

    fn signal(&self, name: &str) {
        let id = self.0.id().to_string();
        let status = Command::new("kill").args(["-s", name, &id]).status().expect("kill is there");
        assert!(status.success());
    }

    fn end(&mut self) -> (ExitStatus, String) {
        let status = self.0.wait().expect("it ends");
        let mut log = String::new();
        let mut stderr = self.0.stderr.take().expect("piped");
        stderr.read_to_string(&mut log).expect("text");
        (status, log)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It has ended, unless a test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "another process is waited for")]
fn sigterm_answers_what_has_arrived_and_exits_with_0() {
    let (mut program, address) = Program::start(&[]);
    let mut client = Client::connect(address);
    assert_eq!(client.ask("SET k v"), "+OK\\r\\n");
    let mut idle = Client::connect(address);
    assert_eq!(idle.ask("GET k"), "$1\\r\\nv\\r\\n");
    client.send(&b"INCR n\r\n".repeat(1000));
    let begin = Instant::now();
    program.signal("TERM");
    let (status, log) = program.end();
    assert!(
        begin.elapsed() < Duration::from_secs(5),
        "nothing has to wait for the end of the drain"
    );
    assert_eq!(status.code(), Some(0), "{log}");
    let replies = client.rest();
    assert!(replies.ends_with(b":1000\r\n"), "{}", replies.escape_ascii());
    assert_eq!(idle.rest(), b"");
    assert!(log.contains("stopped"), "{log}");
}

#[test]
fn a_second_signal_exits_at_once() {
    let (mut program, address) = Program::start(&["--drain", "600"]);
    let mut slow = Client::connect(address);
    let value = vec![b'v'; 1 << 20];
    slow.call(&["SET".as_bytes(), b"k", &value]);
    // Never read, so that the connection cannot end by itself.
    slow.stream.write_all(&b"GET k\r\n".repeat(50)).expect("it reads");
    pause(Duration::from_millis(300));
    program.signal("INT");
    pause(Duration::from_millis(100));
    // Supervisors tell a process and its group: that is one signal.
    program.signal("INT");
    pause(Duration::from_millis(1100));
    assert!(program.0.try_wait().expect("a child").is_none(), "it waits for the slow reader");
    program.signal("INT");
    let (status, log) = program.end();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("told twice to stop"), "{log}");
}

#[test]
fn the_drain_ends_with_its_time() {
    let (mut program, address) = Program::start(&["--drain", "1", "--log-format", "json"]);
    let mut slow = Client::connect(address);
    let value = vec![b'v'; 1 << 20];
    slow.call(&["SET".as_bytes(), b"k", &value]);
    slow.stream.write_all(&b"GET k\r\n".repeat(50)).expect("it reads");
    pause(Duration::from_millis(300));
    program.signal("TERM");
    let (status, log) = program.end();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains("did not end in time"), "{log}");
    assert!(log.lines().all(|line| line.starts_with('{') && line.ends_with('}')), "{log}");
}

#[test]
fn what_cannot_be_started_says_why() {
    let (_program, address) = Program::start(&[]);
    let port = address.port().to_string();
    for (arguments, code, hint) in [
        (&["--port", port.as_str(), "--metrics-port", "0"][..], 1, "choose another port by --port"),
        (&["--replicas", "3"], 2, "raise --memory-nodes or lower --replicas"),
        (&["--memory", "many"], 2, "such as 512MiB or 4GiB"),
        (&["--log-level", "a=b=c"], 2, "write error, warn, info, debug or trace"),
        (&["--bind", "192.0.2.1", "--metrics-port", "0"], 1, "choose an address of this machine"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_gateway"))
            .args(arguments)
            .output()
            .expect("it starts");
        let log = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {log}");
        assert!(log.contains(hint), "{arguments:?}: {log}");
    }
}

#[test]
fn the_environment_configures_too() {
    let output = Command::new(env!("CARGO_BIN_EXE_gateway"))
        .env("FUSEE_WORKERS", "0")
        .output()
        .expect("it starts");
    assert!(String::from_utf8_lossy(&output.stderr).contains("workers is 0"));
}

#[expect(clippy::disallowed_methods, reason = "waits for another process")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
