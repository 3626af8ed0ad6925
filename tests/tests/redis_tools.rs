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

/// What a tool that runs until it is stopped has printed in `seconds`.
fn cli_for(server: &Server, seconds: &str, arguments: &[&str]) -> String {
    let output = Command::new("timeout")
        // Into a pipe it would write only what fills a buffer.
        .args([
            "--signal",
            "INT",
            seconds,
            "stdbuf",
            "-oL",
            "redis-cli",
            "-p",
            &server.port().to_string(),
        ])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn cli_stat_and_latency_show_numbers() {
    let server = server();
    for number in 0..100 {
        Client::connect(&server).command(&["SET", &format!("k{number}"), "v"]);
    }
    let text = cli_for(&server, "3", &["--stat", "-i", "0.2"]);
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .filter(|words: &Vec<&str>| words.first().is_some_and(|word| word.parse::<u64>().is_ok()))
        .collect();
    assert!(rows.len() >= 3 && rows.iter().all(|row| row[0] == "100"), "{text}");

    let text = cli(&server, &["--latency", "--raw", "-i", "1"], b"");
    let numbers: Vec<f64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert!(numbers.len() == 4 && numbers[3] > 1.0, "{text}");
    let text = cli_for(&server, "4", &["--latency-history", "--raw", "-i", "1"]);
    assert!(text.lines().count() >= 2, "{text}");
}

#[test]
fn cli_monitor_shows_what_others_do() {
    let server = server();
    let text = std::thread::scope(|scope| {
        let monitor = scope.spawn(|| cli_for(&server, "3", &["monitor"]));
        let begun = std::time::Instant::now();
        while begun.elapsed() < std::time::Duration::from_millis(2500) {
            Client::connect(&server).command(&["SET", "watched", "a \"b\""]);
        }
        monitor.join().unwrap()
    });
    assert!(text.starts_with("OK\n"), "{text}");
    assert!(text.contains(r#""SET" "watched" "a \"b\"""#), "{text}");
}

/// prometheus-redis-exporter's page about a server.
fn scraped(server: &Server, flags: &[&str]) -> String {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let mut exporter = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--", "prometheus-redis-exporter"])
        .args(["-redis.addr", &format!("redis://{}", server.address())])
        .args(["-web.listen-address", &address])
        .args(flags)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = std::time::Instant::now();
    let stream = loop {
        match std::net::TcpStream::connect(&address) {
            Ok(stream) => break stream,
            Err(error) if begun.elapsed().as_secs() > 30 => panic!("no exporter: {error}"),
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(20)),
        }
    };
    let mut page = String::new();
    (&stream).write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    std::io::Read::read_to_string(&mut &stream, &mut page).unwrap();
    let _ = exporter.kill();
    let _ = exporter.wait();
    page
}

#[test]
fn the_exporter_for_prometheus_finds_redis_up_and_no_error() {
    let server = server();
    let mut client = Client::connect(&server);
    for number in 0..10 {
        client.command(&["SET", &format!("k{number}"), "v", "EX", "1000"]);
        client.command(&["GET", &format!("k{number}")]);
    }
    let flags = [
        "-include-system-metrics",
        "-include-config-metrics",
        "-export-client-list",
        "-check-keys",
        "k*",
    ];
    let page = scraped(&server, &flags);
    for line in [
        "redis_up 1",
        "redis_exporter_last_scrape_error{err=\"\"} 0",
        "redis_db_keys{db=\"db0\"} 10",
        "redis_commands_total{cmd=\"set\"} 10",
        "redis_key_size{db=\"db0\",key=\"k3\"} 1",
        "redis_config_maxclients 10000",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
    }
    client.command(&["CONFIG", "SET", "requirepass", "secret"]);
    let page = scraped(&server, &["-redis.password", "secret"]);
    assert!(page.contains("\nredis_up 1\n"), "{page}");
    assert!(scraped(&server, &[]).contains("\nredis_up 0\n"), "let in without the password");
}
