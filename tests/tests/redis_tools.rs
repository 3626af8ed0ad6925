//! redis-cli and redis-benchmark as people use them.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use tests::resp::{Client, Reply, push_command};
use tests::server::{Options, Server};

fn server() -> Server {
    Server::under_test(&Options { memory_mib: Some(1024), workers: Some(2), ..Options::default() })
}

/// Runs a tool against the server with `input`, for two minutes at most.
fn run(server: &Server, program: &str, arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new("timeout")
        .args(["120", program, "-p", &server.port().to_string()])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input));
        child.wait_with_output().unwrap()
    })
}

fn cli(server: &Server, arguments: &[&str], input: &[u8]) -> String {
    let output = run(server, "redis-cli", arguments, input);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {}\n{text}{errors}", output.status);
    text
}

#[test]
fn cli_shows_replies_as_redis_does() {
    let server = server();
    let conversation = [
        ("set greeting hello", "OK"),
        ("get greeting", "\"hello\""),
        ("get nobody", "(nil)"),
        ("incr visits", "(integer) 1"),
        ("incrby visits 41", "(integer) 42"),
        ("incr greeting", "(error) ERR value is not an integer or out of range"),
        ("mset a 1 b 2", "OK"),
        ("mget a nobody b", "1) \"1\"\n2) (nil)\n3) \"2\""),
        ("expire a 100", "(integer) 1"),
        ("ttl a", "(integer) 100"),
        ("type a", "string"),
        ("del a b", "(integer) 2"),
        ("exists a", "(integer) 0"),
        ("append greeting \" world\"", "(integer) 11"),
        ("strlen greeting", "(integer) 11"),
        ("getdel greeting", "\"hello world\""),
        ("set lock me nx", "OK"),
        ("set lock you nx", "(nil)"),
        ("set lock you get", "\"me\""),
        ("echo \"a\\x00b\"", "\"a\\x00b\""),
        ("select 1", "OK"),
        ("dbsize", "(integer) 0"),
        ("select 0", "OK"),
        ("flushall", "OK"),
        ("keys *", "(empty array)"),
        ("ping", "PONG"),
    ];
    let input: String = conversation.iter().map(|(line, _)| format!("{line}\n")).collect();
    let expected: String = conversation.iter().map(|(_, reply)| format!("{reply}\n")).collect();
    for resp in ["-2", "-3"] {
        let answers = cli(&server, &[resp, "--no-raw"], input.as_bytes());
        assert_eq!(answers, expected, "{resp}");
    }
}

#[test]
fn cli_on_a_terminal_finds_the_documentation_it_asks_for() {
    let server = server();
    // Only on a terminal does redis-cli ask for COMMAND DOCS and COMMAND.
    // In the foreground, or timeout takes redis-cli out of the terminal's group where
    // the shell that `script` starts (that of $SHELL) does not hand over its own place.
    let command = format!("timeout --foreground 20 redis-cli -p {}", server.port());
    let mut child = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env("TERM", "dumb")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"set terminal yes\nget terminal\nquit\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}:\n{text}", output.status);
    assert!(text.contains("\"yes\""), "{text}");
    assert!(!text.contains("rror"), "{text}");
}

#[test]
fn cli_pipe_loads_a_hundred_thousand_keys() {
    const KEYS: usize = 100_000;
    let server = server();
    let mut input = Vec::new();
    for number in 0..KEYS {
        push_command(&mut input, &["SET", &format!("pipe:{number}"), &format!("value {number}")]);
    }
    let text = cli(&server, &["--pipe"], &input);
    assert!(text.contains(&format!("errors: 0, replies: {KEYS}")), "{text}");

    let mut client = Client::connect(&server);
    assert_eq!(client.command(&["DBSIZE"]), Reply::Integer(KEYS as i64));
    assert_eq!(client.command(&["GET", "pipe:99999"]), Reply::bulk("value 99999"));

    let scanned = cli(&server, &["--scan", "--pattern", "pipe:1234*"], b"");
    let mut keys: Vec<&str> = scanned.lines().collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 11, "pipe:1234 and pipe:12340 to pipe:12349: {keys:?}");

    let all = cli(&server, &["--scan"], b"");
    let mut keys: Vec<&str> = all.lines().collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), KEYS);
}

#[test]
fn cli_bigkeys_finds_the_biggest() {
    let server = server();
    let mut client = Client::connect(&server);
    for number in 0..1000 {
        let value = "x".repeat(if number == 577 { 5000 } else { number % 100 });
        assert_eq!(client.command(&["SET", &format!("big:{number}"), &value]), Reply::ok());
    }
    let text = cli(&server, &["--bigkeys"], b"");
    assert!(text.contains("Sampled 1000 keys in the keyspace!"), "{text}");
    assert!(text.contains("Biggest string found '\"big:577\"' has 5000 bytes"), "{text}");
}

#[test]
fn cli_takes_a_value_from_standard_input() {
    let server = server();
    let value: Vec<u8> = (0..=255).cycle().take(3_000_000).collect();
    assert_eq!(cli(&server, &["-x", "set", "bytes"], &value), "OK\n");
    let mut client = Client::connect(&server);
    assert_eq!(client.command(&["GET", "bytes"]), Reply::Bulk(value));
}

#[test]
fn benchmark_runs_without_errors_at_pipeline_1_and_16() {
    let mut server = server();
    for (pipeline, requests) in [("1", "30000"), ("16", "200000")] {
        let arguments =
            ["-t", "get,set,incr,mset", "-P", pipeline, "-n", requests, "-r", "100000", "-q"];
        let output = run(&server, "redis-benchmark", &arguments, b"");
        let text = String::from_utf8_lossy(&output.stdout).replace('\r', "\n");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}\n{text}{errors}", output.status);
        let said = format!("{text}{errors}").to_lowercase();
        assert!(!said.contains("error") && !said.contains("warning"), "{text}{errors}");
        for name in ["SET", "GET", "INCR", "MSET (10 keys)"] {
            let line = text.lines().find(|line| {
                line.starts_with(&format!("{name}: ")) && line.contains("requests per second")
            });
            assert!(line.is_some(), "no result for {name} at {pipeline}:\n{text}");
        }
        server.assert_running();
    }
    let mut client = Client::connect(&server);
    assert!(client.command(&["DBSIZE"]).integer() > 10_000);
}
