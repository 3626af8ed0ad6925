//! Runs Redis's own Tcl suite against a server and compares with the lists in
//! `tests/redis-tcl`: see `tests::tcl`.
#![expect(clippy::print_stdout, reason = "a suite reports how it went")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;
use tests::server::{Flavour, Options, Server};
use tests::tcl::{self, Expectations, Outcome, Test};

/// Files of the suite about what is here.
const FILES: [&str; 23] = [
    "unit/type/string",
    "unit/type/incr",
    "unit/type/hash",
    "unit/expire",
    "unit/keyspace",
    "unit/scan",
    "unit/protocol",
    "unit/multi",
    "unit/quit",
    "unit/querybuf",
    "unit/info-command",
    "unit/bitops",
    "unit/bitfield",
    "unit/slowlog",
    "unit/latency-monitor",
    "unit/pubsub",
    "unit/scripting",
    "unit/functions",
    "unit/info",
    "unit/introspection",
    "unit/introspection-2",
    "unit/other",
    "unit/dump",
];
/// Files that the suite runs only on a server that it has started itself, although they ask
/// nothing of it that another could not do.
const KEPT_INSIDE: [&str; 1] = ["unit/info"];
/// What an external server is not asked to do: Redis's own words for it.
const TAGS: &str = "-needs:repl -needs:pfdebug -needs:save -needs:config-maxmemory \
                    -needs:config-resetstat -needs:reset";
/// Longest silence of one test, and the longest run of a file.
const TEST_SECONDS: &str = "90";
const FILE_SECONDS: &str = "300";

/// Redis's own Tcl suite.
#[derive(Parser, Debug)]
#[command(version)]
struct Arguments {
    /// The folder that has `runtest`.
    #[arg(long, env = "REDIS_TESTS", value_name = "FOLDER")]
    suite: PathBuf,
    /// gateway, redis or valkey.
    #[arg(long, default_value = "gateway", value_parser = Flavour::parse)]
    server: Flavour,
    /// Write into the lists what passes now; against redis, the names of all tests.
    #[arg(long)]
    bless: bool,
    /// Only these files.
    #[arg(long, value_name = "unit/...")]
    file: Vec<String>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            println!("FAILED: {message}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool, String> {
    let lists = Path::new(env!("CARGO_MANIFEST_DIR")).join("redis-tcl");
    let read = |name| {
        let path = lists.join(name);
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let mut expected = Expectations::parse(&read("passes.txt")?, &read("reasons.txt")?)?;
    let files: Vec<&str> = match &arguments.file[..] {
        [] => FILES.to_vec(),
        some => some.iter().map(String::as_str).collect(),
    };
    let mut outcomes = BTreeMap::new();
    for file in &files {
        let before = outcomes.len();
        let broken = run_file(arguments, &expected, file, &mut outcomes)?;
        let failed = |(test, outcome): &(&Test, &Outcome)| {
            test.0 == *file && matches!(outcome, Outcome::Failed(_))
        };
        let failures = outcomes.iter().filter(failed).count();
        let passed = outcomes.len() - before - failures;
        println!("{file}: {passed} passed, {failures} failed{}", broken.unwrap_or_default());
    }
    if arguments.server != Flavour::Gateway {
        if arguments.bless {
            expected.know(outcomes.keys().cloned());
            write(&lists, &expected)?;
        }
        let failed: Vec<_> = outcomes.iter().filter(|(_, o)| **o != Outcome::Passed).collect();
        println!("{} tests, {} failed: {failed:?}", outcomes.len(), failed.len());
        return Ok(failed.is_empty());
    }
    if arguments.bless {
        expected.bless(&outcomes);
        write(&lists, &expected)?;
    }
    let verdict = expected.judge(&files, &outcomes);
    for line in &verdict.news {
        println!("new: {line}");
    }
    if !verdict.news.is_empty() {
        println!("these pass now: add them by `cargo xtask suite redis-tcl --bless`");
    }
    for line in &verdict.faults {
        println!("FAULT {line}");
    }
    let (passes, others) = expected.counts();
    println!("expected: {passes} pass, {others} do not yet, each with its reason");
    Ok(verdict.faults.is_empty())
}

fn write(lists: &Path, expected: &Expectations) -> Result<(), String> {
    let (passes, reasons) = expected.print();
    for (name, text) in [("passes.txt", passes), ("reasons.txt", reasons)] {
        let path = lists.join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// Runs a file against a fresh server; tells why it broke off, if it did.
fn run_file(
    arguments: &Arguments,
    expected: &Expectations,
    file: &str,
    outcomes: &mut BTreeMap<Test, Outcome>,
) -> Result<Option<String>, String> {
    let gateway_flags = ["--enable-debug-command", "yes"].map(str::to_owned).to_vec();
    let options =
        Options { memory_mib: Some(1024), workers: Some(2), gateway_flags, ..Options::default() };
    let server = Server::start(arguments.server, &options);
    let run =
        if KEPT_INSIDE.contains(&file) { opened(&arguments.suite, file)? } else { file.into() };
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--", "timeout", "--kill-after=5", FILE_SECONDS])
        .args(["./runtest", "--host", "127.0.0.1", "--port", &server.port().to_string()])
        .args(["--single", &run, "--durable", "--singledb", "--ignore-encoding"])
        .args(["--ignore-digest", "--no-latency", "--clients", "1", "--timeout", TEST_SECONDS])
        .args(["--tags", TAGS]);
    for name in expected.not_started(file) {
        command.args(["--skiptest", name]);
    }
    let output = command
        .env("TERM", "dumb")
        .current_dir(&arguments.suite)
        .output()
        .map_err(|error| format!("setpriv (package util-linux): {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let log = tests::server::scratch("redis-tcl").join(file.replace('/', "-"));
    fs::write(&log, &output.stdout).map_err(|error| format!("{}: {error}", log.display()))?;
    if !text.contains("Testing ") {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{file} did not begin: {text}{errors}"));
    }
    tcl::read_output(file, &run, &text, outcomes);
    Ok(tcl::broke_off(&text).map(|why| format!("; broke off: {why}")))
}

/// A copy of a file that does not ask for a server of its own; how the suite calls it.
fn opened(suite: &Path, file: &str) -> Result<String, String> {
    let copy = format!("{file}-opened");
    let path = |file: &str| suite.join("tests").join(file).with_extension("tcl");
    let text = fs::read_to_string(path(file)).map_err(|error| format!("{file}: {error}"))?;
    let text = text.replace("external:skip", "");
    fs::write(path(&copy), text).map_err(|error| format!("{copy}: {error}"))?;
    Ok(copy)
}
