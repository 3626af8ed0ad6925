//! The same random commands to redis-server and to us: the same bytes back.
//!
//! `REDIS_SERVER` names the program; otherwise it is looked for on PATH. It is
//! in Debian's package redis-server. Any 7.0 or 7.2 will do.

mod common;

use std::io::Write as _;
use std::net::Shutdown;

use common::redis::Redis;
use common::{Client, Gateway, config, encode};
use gateway::config::Config;

const ROUNDS: u64 = 400;
/// A flush of the store looks at its whole index, slowly without optimisation.
const ROUNDS_OVER_THE_STORE: u64 = if cfg!(debug_assertions) { 60 } else { 1000 };
const COMMANDS_PER_ROUND: u64 = 25;

/// A sequence that only the seed decides.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn choose<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len() as u64) as usize]
    }

    fn key(&mut self) -> Vec<u8> {
        self.choose(&["a", "b", "c", "d", "e", "f", "", "k\0\r\n"]).as_bytes().to_vec()
    }

    fn value(&mut self) -> Vec<u8> {
        match self.below(6) {
            0 => self.below(200).to_string().into_bytes(),
            1 => self.choose(&INTEGERS).as_bytes().to_vec(),
            2 => self.choose(&FLOATS).as_bytes().to_vec(),
            3 => (0..self.below(40)).map(|_| self.below(256) as u8).collect(),
            4 => vec![b'x'; self.below(3000) as usize],
            _ => self.choose(&["", "hello", "Hello World", "foo\r\nbar", "-"]).as_bytes().to_vec(),
        }
    }

    fn integer(&mut self) -> Vec<u8> {
        match self.below(4) {
            0 => self.choose(&INTEGERS).as_bytes().to_vec(),
            _ => (self.below(40) as i64 - 20).to_string().into_bytes(),
        }
    }

    /// Seconds that do not end while the test runs, or a wrong one.
    fn seconds(&mut self) -> Vec<u8> {
        self.choose(&[
            "100",
            "2000",
            "1000000",
            "0",
            "-1",
            "x",
            "9223372036854775807",
            "9223372036854775",
            "-9223372036854775808",
            "1.5",
        ])
        .as_bytes()
        .to_vec()
    }

    fn milliseconds(&mut self) -> Vec<u8> {
        let times = ["1000000", "2000000", "0", "-1", "x", "9223372036854775807"];
        self.choose(&times).as_bytes().to_vec()
    }

    fn moment(&mut self) -> Vec<u8> {
        self.choose(&[
            "33177117420",
            "33177117421",
            "33177117999999",
            "1",
            "0",
            "-5",
            "x",
            "9223372036854775807",
        ])
        .as_bytes()
        .to_vec()
    }

    fn field(&mut self) -> Vec<u8> {
        self.choose(&["f1", "f2", "f3", "other", "", "7"]).as_bytes().to_vec()
    }

    /// Short, so that redis-server keeps the order of fields.
    fn content(&mut self) -> Vec<u8> {
        let texts = ["", "5", "-3", "1.5", "text", " 1", "9223372036854775807", "nan", "1e3"];
        self.choose(&texts).as_bytes().to_vec()
    }

    fn place(&mut self) -> Vec<u8> {
        self.choose(&["0", "1", "7", "8", "100", "-1", "x", "4294967296"]).as_bytes().to_vec()
    }

    fn random_case(&mut self, word: &str) -> Vec<u8> {
        let upper = self.below(3) > 0;
        if upper { word.to_uppercase().into_bytes() } else { word.to_lowercase().into_bytes() }
    }
}

const INTEGERS: [&str; 14] = [
    "0",
    "1",
    "-1",
    "+1",
    "007",
    " 1",
    "9223372036854775807",
    "9223372036854775806",
    "-9223372036854775808",
    "9223372036854775808",
    "536870912",
    "536870911",
    "1e3",
    "12abc",
];
const FLOATS: [&str; 22] = [
    "0.1",
    "1.5",
    "-0",
    "3.0",
    "1e10",
    "1e-5",
    "1e20",
    "-2.5e-3",
    "0x1p3",
    "inf",
    "-inf",
    "nan",
    "1e5000",
    ".5",
    "5.",
    "1.e1",
    "abc",
    "1.1.1",
    "123456789.123456789",
    "1e17",
    "0.00000000000000001",
    "99999999999999999999999999.5",
];

/// One command, right or nearly so.
fn command(random: &mut Random) -> Vec<Vec<u8>> {
    let mut out: Vec<Vec<u8>> = Vec::new();
    let names = [
        "get",
        "set",
        "setnx",
        "setex",
        "psetex",
        "getset",
        "getdel",
        "getex",
        "append",
        "strlen",
        "getrange",
        "substr",
        "setrange",
        "incr",
        "decr",
        "incrby",
        "decrby",
        "incrbyfloat",
        "mget",
        "mset",
        "del",
        "unlink",
        "exists",
        "touch",
        "type",
        "ttl",
        "expire",
        "pexpire",
        "expireat",
        "pexpireat",
        "expiretime",
        "pexpiretime",
        "persist",
        "ping",
        "echo",
        "select",
        "flushdb",
        "scan",
        "command|getkeys",
        "client|getname",
        "client|setname",
        "nonsense",
        "hello",
        "auth",
        "set",
        "set",
        "get",
        "config|get",
        "keys",
        "flushall",
        "client|what",
        "hset",
        "hset",
        "hmset",
        "hget",
        "hmget",
        "hgetall",
        "hkeys",
        "hvals",
        "hlen",
        "hdel",
        "hexists",
        "hstrlen",
        "hsetnx",
        "hincrby",
        "hincrbyfloat",
        "hscan",
        "setbit",
        "getbit",
        "bitcount",
        "bitpos",
        "bitop",
        "bitfield",
        "bitfield_ro",
        "lcs",
        "msetnx",
        "rename",
        "renamenx",
        "copy",
        "publish",
        "pubsub|numsub",
    ];
    let name = random.choose(&names);
    let (first, second) = name.split_once('|').map_or((name, None), |(a, b)| (a, Some(b)));
    out.push(random.random_case(first));
    out.extend(second.map(|word| random.random_case(word)));
    match name {
        "get" | "getdel" | "strlen" | "incr" | "decr" | "type" | "ttl" | "expiretime"
        | "pexpiretime" | "persist" => out.push(random.key()),
        "setnx" | "getset" | "append" => out.extend([random.key(), random.value()]),
        "setex" => out.extend([random.key(), random.seconds(), random.value()]),
        "psetex" => {
            out.extend([random.key(), random.milliseconds(), random.value()]);
        }
        "getrange" | "substr" => out.extend([random.key(), random.integer(), random.integer()]),
        "setrange" => {
            let offset = random.choose(&[
                "0",
                "1",
                "5",
                "100",
                "-1",
                "x",
                "536870912",
                "9223372036854775807",
            ]);
            out.extend([random.key(), offset.into(), random.value()]);
        }
        "incrby" | "decrby" => out.extend([random.key(), random.integer()]),
        "incrbyfloat" => {
            let by = random.choose(&FLOATS);
            out.extend([random.key(), by.into()]);
        }
        "mget" | "del" | "unlink" | "exists" | "touch" => {
            for _ in 0..=random.below(4) {
                out.push(random.key());
            }
        }
        "mset" => {
            for _ in 0..=random.below(3) {
                out.extend([random.key(), random.value()]);
            }
        }
        "set" => {
            out.extend([random.key(), random.value()]);
            options(
                random,
                &mut out,
                &["nx", "xx", "get", "keepttl", "ex", "px", "exat", "pxat", "persist", "what"],
            );
        }
        "getex" => {
            out.push(random.key());
            options(random, &mut out, &["persist", "ex", "px", "exat", "pxat", "keepttl", "nx"]);
        }
        "expire" | "pexpire" => {
            let time = match name {
                "expire" => random.seconds(),
                _ => random.milliseconds(),
            };
            out.extend([random.key(), time]);
            conditions(random, &mut out);
        }
        "expireat" | "pexpireat" => {
            out.extend([random.key(), random.moment()]);
            conditions(random, &mut out);
        }
        "ping" | "echo" | "nonsense" => {
            for _ in 0..random.below(3) {
                out.push(random.value());
            }
        }
        "select" => {
            out.push(random.choose(&["0", "0", "0", "1", "16", "-1", "x", "99999999999"]).into());
        }
        "scan" => {
            // All keys in one call, so that the order of buckets does not show;
            // the replies are compared only when there is at most one key.
            out.push(random.choose(&["x", "-", "0x", " 0"]).into());
        }
        "keys" => out.push(random.choose(&["nothing*", "[", "zz?"]).into()),
        "command|getkeys" => out.extend(command_words(random)),
        "client|setname" => out.push(random.choose(&["me", "", "two words", "x\n"]).into()),
        "hello" => {
            out.push(random.choose(&["4", "1", "x", "3", "2"]).into());
            out.push(random.choose(&["what", "setname", "auth"]).into());
        }
        "auth" => out.extend([random.choose(&["default", "nobody"]).into(), random.value()]),
        "config|get" => {
            out.push(random.choose(&["save", "appendonly", "nothing", "databases"]).into());
        }
        "client|what" => {}
        "hset" | "hmset" => {
            out.push(random.key());
            for _ in 0..=random.below(3) {
                out.extend([random.field(), random.content()]);
            }
        }
        "hget" | "hexists" | "hstrlen" => out.extend([random.key(), random.field()]),
        "hmget" | "hdel" => {
            out.push(random.key());
            for _ in 0..=random.below(4) {
                out.push(random.field());
            }
        }
        "hgetall" | "hkeys" | "hvals" | "hlen" => out.push(random.key()),
        "hsetnx" => out.extend([random.key(), random.field(), random.content()]),
        "hincrby" => out.extend([random.key(), random.field(), random.integer()]),
        "hincrbyfloat" => {
            let by = random.choose(&FLOATS);
            out.extend([random.key(), random.field(), by.into()]);
        }
        "hscan" => {
            out.extend([random.key(), random.choose(&["0", "0", "x"]).into()]);
            match random.below(4) {
                0 => out.extend(["match", "f*"].map(Into::into)),
                1 => out.extend(["count", random.choose(&["10", "0", "x"])].map(Into::into)),
                _ => {}
            }
        }
        "setbit" => {
            let bit = random.choose(&["0", "1", "1", "2", "x"]);
            out.extend([random.key(), random.place(), bit.into()]);
        }
        "getbit" => out.extend([random.key(), random.place()]),
        "bitcount" => {
            out.push(random.key());
            range(random, &mut out);
        }
        "bitpos" => {
            out.extend([random.key(), random.choose(&["0", "1", "2", "x"]).into()]);
            range(random, &mut out);
        }
        "bitop" => {
            let how = random.choose(&["and", "or", "xor", "not", "nor"]);
            out.extend([random.random_case(how), random.key(), random.key()]);
            for _ in 0..random.below(3) {
                out.push(random.key());
            }
        }
        "bitfield" | "bitfield_ro" => {
            out.push(random.key());
            for _ in 0..random.below(4) {
                fields(random, &mut out);
            }
        }
        "lcs" => {
            out.extend([random.key(), random.key()]);
            for _ in 0..random.below(3) {
                let word = random.choose(&["len", "idx", "withmatchlen", "what"]);
                out.push(random.random_case(word));
            }
        }
        "msetnx" => {
            for _ in 0..=random.below(2) {
                out.extend([random.key(), random.value()]);
            }
        }
        "rename" | "renamenx" => out.extend([random.key(), random.key()]),
        "copy" => {
            out.extend([random.key(), random.key()]);
            match random.below(6) {
                0 => out.extend(["db", random.choose(&["1", "16", "x"])].map(Into::into)),
                1 | 2 => out.push(random.random_case("replace")),
                3 => out.push("what".into()),
                _ => {}
            }
        }
        "publish" => out.extend([random.key(), random.value()]),
        "pubsub|numsub" => out.push(random.key()),
        _ => {}
    }
    match random.below(25) {
        0 => out.push(random.value()),
        // Redis 7.0 wants one argument more of COMMAND GETKEYS than 7.2 does.
        1 if out.len() > 1 && name != "command|getkeys" => drop(out.pop()),
        _ => {}
    }
    out
}

fn range(random: &mut Random, out: &mut Vec<Vec<u8>>) {
    for _ in 0..random.below(3) {
        out.push(random.integer());
    }
    if random.below(3) == 0 {
        let unit = random.choose(&["bit", "byte", "what"]);
        out.push(random.random_case(unit));
    }
}

/// An operation of BITFIELD, right or nearly so.
fn fields(random: &mut Random, out: &mut Vec<Vec<u8>>) {
    let word = random.choose(&["get", "get", "set", "incrby", "overflow", "what"]);
    out.push(random.random_case(word));
    if word == "overflow" {
        let how = random.choose(&["wrap", "sat", "fail", "what"]);
        return out.push(random.random_case(how));
    }
    out.push(random.choose(&["u8", "i8", "u1", "i64", "u63", "i5", "u13", "u64", "x8"]).into());
    out.push(random.choose(&["0", "7", "100", "#0", "#3", "-1", "#x", "4294967296"]).into());
    if word != "get" {
        out.push(random.integer());
    }
}

fn command_words(random: &mut Random) -> Vec<Vec<u8>> {
    let words = random.choose(&[
        "get a",
        "mset a 1 b 2",
        "ping x",
        "nonsense x",
        "mget a b c",
        "get a b",
        "set a 1 ex 5",
    ]);
    words.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn options(random: &mut Random, out: &mut Vec<Vec<u8>>, names: &[&str]) {
    for _ in 0..[0, 0, 1, 1, 1, 2, 3][random.below(7) as usize] {
        let name = random.choose(names);
        out.push(random.random_case(name));
        match name {
            "ex" => out.push(random.seconds()),
            "px" => out.push(
                random
                    .choose(&["1000000", "5000000", "0", "-3", "y", "9223372036854775807"])
                    .into(),
            ),
            "exat" => out.push(random.moment()),
            "pxat" => {
                out.push(
                    random.choose(&["33177117420123", "33177117420500", "1", "0", "z"]).into(),
                );
            }
            _ => {}
        }
    }
}

fn conditions(random: &mut Random, out: &mut Vec<Vec<u8>>) {
    for _ in 0..[0, 0, 1, 1, 2][random.below(5) as usize] {
        let name = random.choose(&["nx", "xx", "gt", "lt", "what"]);
        out.push(random.random_case(name));
    }
}

fn show(arguments: &[Vec<u8>]) -> String {
    let words: Vec<_> = arguments.iter().map(|word| word.escape_ascii().to_string()).collect();
    words.join(" ")
}

/// Whether two replies tell of the same end of a key, read one after the other,
/// or of two servers.
fn is_alike(name: &[u8], one: &str, other: &str) -> bool {
    let slack = match name.to_ascii_lowercase().as_slice() {
        b"ttl" | b"expiretime" => 10,
        b"pexpiretime" => 10_000,
        // Redis 7.0 does not look at a range of a key that is not there.
        b"bitcount" | b"bitpos" => {
            return one.starts_with("-ERR") && [":0\\r\\n", ":-1\\r\\n"].contains(&other);
        }
        b"hello" => return [one, other].iter().all(|reply| reply.contains("standalone")),
        _ => return false,
    };
    let number = |reply: &str| -> Option<i64> {
        reply.strip_prefix(':')?.strip_suffix("\\r\\n")?.parse().ok()
    };
    match (number(one), number(other)) {
        (Some(one @ 0..), Some(other @ 0..)) => one.abs_diff(other) <= slack,
        _ => false,
    }
}

fn same_replies(gateway: &Gateway, rounds: u64, resp3: bool, seed: u64) {
    let redis = Redis::start();
    let mut random = Random(seed);
    let mut faults: Vec<(Vec<u8>, String)> = Vec::new();
    'rounds: for round in 0..rounds {
        let mut theirs = Client::connect(redis.address);
        let mut ours = gateway.client();
        if resp3 {
            theirs.ask("HELLO 3");
            ours.ask("HELLO 3");
        }
        let commands: Vec<_> = (0..COMMANDS_PER_ROUND).map(|_| command(&mut random)).collect();
        let pipeline: Vec<u8> = commands.iter().flat_map(|words| encode(words)).collect();
        theirs.send(&pipeline);
        ours.send(&pipeline);
        for (index, words) in commands.iter().enumerate() {
            let expected = theirs.reply().escape_ascii().to_string();
            let reply = ours.reply().escape_ascii().to_string();
            if reply == expected || is_alike(&words[0], &reply, &expected) {
                continue;
            }
            let name = words[0].to_ascii_lowercase();
            if !faults.iter().any(|(known, _)| *known == name) {
                let before: Vec<_> = commands[..index].iter().map(|words| show(words)).collect();
                let fault = format!(
                    "seed {seed}, round {round}: {}\n  ours  {reply}\n  redis {expected}\n  after {}",
                    show(words),
                    before.join("\n        ")
                );
                faults.push((name, fault));
            }
            // From here on they hold different keys.
            for address in [gateway.address, redis.address] {
                Client::connect(address).ask("FLUSHALL");
            }
            continue 'rounds;
        }
    }
    // The first of each command: all of them are told at once.
    let faults: Vec<String> = faults.into_iter().map(|(_, fault)| fault).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

#[test]
fn replies_in_resp2_are_redis_replies() {
    same_replies(&Gateway::start(), ROUNDS, false, 1);
}

#[test]
fn replies_in_resp3_are_redis_replies() {
    same_replies(&Gateway::start(), ROUNDS, true, 2);
}

#[test]
fn replies_over_the_store_are_redis_replies() {
    same_replies(&Gateway::over_the_store(&config()), ROUNDS_OVER_THE_STORE, false, 5);
    let config = Config { replicas: 2, memory_nodes: 2, ..config() };
    same_replies(&Gateway::over_the_store(&config), ROUNDS_OVER_THE_STORE, true, 6);
}

/// Numbers alone, which random commands rarely bring together.
#[test]
fn sums_of_floats_are_redis_sums() {
    let redis = Redis::start();
    let gateway = Gateway::start();
    let (mut theirs, mut ours) = (Client::connect(redis.address), gateway.client());
    let mut random = Random(3);
    for _ in 0..20_000 {
        let mut number = || -> String {
            let digits: String =
                (0..=random.below(18)).map(|_| char::from(b'0' + random.below(10) as u8)).collect();
            let at = random.below(digits.len() as u64 + 1) as usize;
            let sign = if random.below(2) == 0 { "-" } else { "" };
            let exponent = match random.below(3) {
                0 => format!("e{}", random.below(60) as i64 - 30),
                _ => String::new(),
            };
            format!("{sign}{}.{}{exponent}", &digits[..at], &digits[at..])
        };
        let (a, b) = (number(), number());
        for words in [format!("SET f {a}"), format!("INCRBYFLOAT f {b}")] {
            assert_eq!(ours.ask(&words), theirs.ask(&words), "{a} + {b}");
        }
    }
}

/// What a client sends that is mostly no request, and all that it gets back.
#[test]
fn malformed_requests_are_answered_as_by_redis() {
    let redis = Redis::start();
    let gateway = Gateway::start();
    let mut random = Random(4);
    for round in 0..4_000 {
        let sent = malformed(&mut random);
        let answer = |address| {
            let mut client = Client::connect(address);
            // A protocol error may have closed the connection by then.
            let _ = client.stream.write_all(&sent);
            let _ = client.stream.shutdown(Shutdown::Write);
            client.rest().escape_ascii().to_string()
        };
        let (ours, theirs) = (answer(gateway.address), answer(redis.address));
        assert_eq!(ours, theirs, "round {round}: {}", sent.escape_ascii());
    }
}

fn malformed(random: &mut Random) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..=random.below(4) {
        match random.below(5) {
            0 => out.extend(encode(&["ECHO", "a\r\nb"])),
            1 => {
                let words = random.choose(&[
                    "PING",
                    "ECHO \"a\\x41\\n\\q\"",
                    "ECHO 'it\\'s'",
                    "ECHO \"open",
                    "ECHO 'open",
                    "ECHO \"a\"b",
                    "",
                    "   ",
                    "echo  x ",
                    "ECHO a'b c'",
                    "ECHO \\x41",
                    "ECHO \"\"",
                    "ECHO 'a\\",
                ]);
                out.extend(words.as_bytes());
                out.extend(random.choose(&["\r\n", "\n", "\r\r\n", " \n"]).as_bytes());
            }
            2 => {
                let count = random.choose(&[
                    "0",
                    "-1",
                    "-10",
                    "1",
                    "2",
                    "x",
                    "",
                    "01",
                    "+1",
                    " 1",
                    "3000000000",
                    "9223372036854775807",
                    "99999999999999999999",
                    "1 ",
                    "-",
                ]);
                out.extend(format!("*{count}\r\n").as_bytes());
            }
            3 => {
                let length = random.choose(&[
                    "0",
                    "-1",
                    "4",
                    "x",
                    "",
                    "04",
                    "2147483648",
                    "9223372036854775807",
                    "5",
                ]);
                let mark = random.choose(&["$", "$", "$", "*", ":", "+"]);
                out.extend(format!("*1\r\n{mark}{length}\r\nPING\r\n").as_bytes());
            }
            _ => {
                // A valid request with a byte changed, taken out or put in.
                let mut request = encode(&["ECHO", "world"]);
                let at = random.below(request.len() as u64) as usize;
                let byte =
                    random.choose(&["\r", "\n", "$", "*", "0", "5", "a", "\"", " "]).as_bytes()[0];
                match random.below(3) {
                    0 => request[at] = byte,
                    1 => drop(request.remove(at)),
                    _ => request.insert(at, byte),
                }
                out.extend(request);
            }
        }
    }
    out
}
