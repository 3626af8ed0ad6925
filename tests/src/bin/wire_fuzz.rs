//! Sends damaged requests to a running server and sees that it survives them.
#![expect(clippy::print_stdout, reason = "a fuzzer reports how far it came")]

use std::io::{ErrorKind, Read, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use tests::process;
use tests::random::Random;
use tests::resp::push_command;
use tests::server::{Flavour, Options, Server};

/// What all connections together may leave behind in the server.
const GROWTH_MAX: u64 = 256 << 20;
/// Every so many connections the server's health is looked at.
const CHECK_EVERY: u64 = 50;

/// Damaged requests against a running server.
#[derive(Parser, Debug)]
#[command(version)]
struct Arguments {
    /// How long.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Connection `n` of a run draws from seed + n, so a fault repeats alone.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// gateway, redis or valkey.
    #[arg(long, default_value = "gateway", value_parser = Flavour::parse)]
    server: Flavour,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let options = Options { memory_mib: Some(256), workers: Some(2), ..Options::default() };
    let mut server = Server::start(arguments.server, &options);
    let before = process::resident_bytes(server.pid()).expect("it runs");
    let begin = Instant::now();
    let mut connections = 0;
    while begin.elapsed() < Duration::from_secs(arguments.seconds) {
        let seed = arguments.seed + connections;
        connect_and_damage(&server, &mut Random::new(seed));
        connections += 1;
        if connections % CHECK_EVERY != 0 {
            continue;
        }
        if let Err(fault) = health(&mut server, before) {
            let first = seed + 1 - CHECK_EVERY;
            println!("FAILED: {fault} after seeds {first} to {seed}\n{}", server.log_tail());
            return ExitCode::FAILURE;
        }
    }
    println!("{connections} connections sent damaged requests; the server is well");
    ExitCode::SUCCESS
}

fn health(server: &mut Server, resident_before: u64) -> Result<(), String> {
    if !server.answers_ping().unwrap_or(false) {
        return Err("no PONG for a new connection".into());
    }
    let resident = process::resident_bytes(server.pid()).map_err(|error| error.to_string())?;
    let growth = resident.saturating_sub(resident_before);
    // Its pool is part of what is resident, and Redis has no pool.
    let pool = 256 << 20;
    if growth > GROWTH_MAX + pool {
        return Err(format!("it grew by {} MiB", growth >> 20));
    }
    Ok(())
}

fn connect_and_damage(server: &Server, random: &mut Random) {
    let mut bytes = requests(random);
    for _ in 0..random.below(6) {
        damage(&mut bytes, random);
    }
    let mut stream = server.connect();
    stream.set_read_timeout(Some(Duration::from_millis(5))).expect("the limit is not zero");
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let most = rest.len().min(1 + random.below(4096));
        let count = 1 + random.below(most);
        // Refusing what is damaged is right, so errors end the connection only.
        if stream.write_all(&rest[..count]).is_err() {
            return;
        }
        rest = &rest[count..];
        if random.below(4) == 0 && !read_some(&mut stream) {
            return;
        }
    }
    read_some(&mut stream);
}

/// Takes what has come; false when the connection is over.
fn read_some(stream: &mut impl Read) -> bool {
    let mut piece = [0; 16 << 10];
    match stream.read(&mut piece) {
        Ok(count) => count > 0,
        Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}

/// Some well-formed requests, as arrays or inline.
fn requests(random: &mut Random) -> Vec<u8> {
    const COMMANDS: [&str; 40] = [
        "GET",
        "SET",
        "DEL",
        "INCR",
        "MGET",
        "MSET",
        "SCAN",
        "KEYS",
        "EXPIRE",
        "TTL",
        "APPEND",
        "STRLEN",
        "GETDEL",
        "GETEX",
        "SETNX",
        "EXISTS",
        "TYPE",
        "PING",
        "ECHO",
        "SELECT",
        "HELLO",
        "COMMAND",
        "INFO",
        "DBSIZE",
        "CONFIG",
        "CLIENT",
        "UNLINK",
        "PERSIST",
        "PTTL",
        "DECRBY",
        "INCRBYFLOAT",
        "GETRANGE",
        "SETRANGE",
        "MSETNX",
        "PEXPIREAT",
        "FLUSHDB",
        "TIME",
        "QUIT",
        "RESET",
        "NOSUCH",
    ];
    const WORDS: [&str; 24] = [
        "a",
        "b",
        "key",
        "1",
        "-1",
        "0",
        "100",
        "9223372036854775807",
        "-9223372036854775808",
        "NX",
        "XX",
        "EX",
        "PX",
        "GET",
        "KEEPTTL",
        "MATCH",
        "COUNT",
        "*",
        "[a-",
        "COUNT",
        "GETNAME",
        "3",
        "1e400",
        "",
    ];
    let mut bytes = Vec::new();
    for _ in 0..1 + random.below(8) {
        let mut words = vec![COMMANDS[random.below(COMMANDS.len())].as_bytes().to_vec()];
        for _ in 0..random.below(6) {
            let length = random.below(200);
            words.push(match random.below(5) {
                0 => random.bytes(length),
                _ => WORDS[random.below(WORDS.len())].as_bytes().to_vec(),
            });
        }
        if random.below(5) == 0 {
            bytes.extend(words.join(&b' '));
            bytes.extend_from_slice(if random.below(2) == 0 { b"\r\n" } else { b"\n" });
        } else {
            push_command(&mut bytes, &words);
        }
    }
    bytes
}

/// Changes a byte, cuts, repeats, or puts a troublesome number somewhere.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    const NUMBERS: [&str; 12] = [
        "-1",
        "-2",
        "0",
        "2147483647",
        "2147483648",
        "4294967296",
        "9223372036854775807",
        "9223372036854775808",
        "536870912",
        "536870913",
        "1048576",
        "1048577",
    ];
    if bytes.is_empty() {
        return;
    }
    let at = random.below(bytes.len());
    let length = random.below(bytes.len() - at + 1).min(64);
    match random.below(7) {
        0 => bytes[at] = random.word().to_le_bytes()[0],
        1 => bytes.truncate(at),
        2 => drop(bytes.drain(at..at + length)),
        3 => {
            let piece = bytes[at..at + length].to_vec();
            let times = 1 + random.below(300);
            bytes.splice(at..at, piece.repeat(times));
        }
        4 => {
            let noise = random.bytes(length);
            bytes.splice(at..at, noise);
        }
        5 => {
            let heads: Vec<usize> =
                (0..bytes.len()).filter(|&at| matches!(bytes[at], b'*' | b'$')).collect();
            if let Some(&head) = heads.get(random.below(heads.len().max(1))) {
                let digits = bytes[head + 1..].iter().take_while(|b| b.is_ascii_digit()).count();
                let number = NUMBERS[random.below(NUMBERS.len())].bytes();
                bytes.splice(head + 1..head + 1 + digits, number);
            }
        }
        _ => {
            let end = if random.below(2) == 0 { b"\r\n".as_slice() } else { b"\n" };
            bytes.splice(at..at, end.iter().copied());
        }
    }
}
