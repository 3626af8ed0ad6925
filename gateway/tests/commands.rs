//! Each command's edges and error texts, over a socket.

mod common;

use std::time::Duration;

use common::{Gateway, config};
use gateway::testing::MemoryKeyspace;

/// Words sent, and the bytes of the reply.
fn check(cases: &[(&str, &str)]) {
    let gateway = Gateway::start();
    let mut client = gateway.client();
    for (words, expected) in cases {
        let reply = client.ask(words);
        assert_eq!(reply, format!("{expected}\\r\\n"), "{words}");
    }
}

const NOT_INTEGER: &str = "-ERR value is not an integer or out of range";
const SYNTAX: &str = "-ERR syntax error";
const TOO_LONG: &str = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)";

#[test]
fn set_takes_every_option() {
    check(&[
        ("SET k v", "+OK"),
        ("set k w nx", "$-1"),
        ("SET k w NX GET", "$1\\r\\nv"),
        ("SET n w NX GET", "$-1"),
        ("GET n", "$1\\r\\nw"),
        ("SET m w XX", "$-1"),
        ("SET m w XX GET", "$-1"),
        ("EXISTS m", ":0"),
        ("SET k x XX", "+OK"),
        ("SET k y GET", "$1\\r\\nx"),
        ("SET k v EX 100", "+OK"),
        ("TTL k", ":100"),
        ("SET k v KEEPTTL", "+OK"),
        ("TTL k", ":100"),
        ("SET k v", "+OK"),
        ("TTL k", ":-1"),
        ("SET k v PX 100000", "+OK"),
        ("TTL k", ":100"),
        ("SET k v EXAT 33177117420", "+OK"),
        ("EXPIRETIME k", ":33177117420"),
        ("SET k v PXAT 33177117420123", "+OK"),
        ("PEXPIRETIME k", ":33177117420123"),
        ("SET k v EX 10 EX 200", "+OK"),
        ("TTL k", ":200"),
        ("SET k z NX XX", SYNTAX),
        ("SET k z KEEPTTL EX 10", SYNTAX),
        ("SET k z EX 10 PX 10", SYNTAX),
        ("SET k z EX", SYNTAX),
        ("SET k z WHAT", SYNTAX),
        ("SET k z PERSIST", SYNTAX),
        ("SET k z EX 0", "-ERR invalid expire time in \\'set\\' command"),
        ("SET k z EX -1", "-ERR invalid expire time in \\'set\\' command"),
        ("SET k z EX 9223372036854775807", "-ERR invalid expire time in \\'set\\' command"),
        ("SET k z PX 9223372036854775807", "-ERR invalid expire time in \\'set\\' command"),
        ("SET k z EX ten", NOT_INTEGER),
        ("GET k", "$1\\r\\nv"),
        ("SET k v EXAT 1", "+OK"),
        ("EXISTS k", ":0"),
        ("SET k", "-ERR wrong number of arguments for \\'set\\' command"),
    ]);
}

#[test]
fn relatives_of_set_keep_their_rules() {
    check(&[
        ("SETNX k v", ":1"),
        ("SETNX k w", ":0"),
        ("SETEX k 100 w", "+OK"),
        ("TTL k", ":100"),
        ("SETEX k 0 w", "-ERR invalid expire time in \\'setex\\' command"),
        ("SETEX k 9223372036854775807 w", "-ERR invalid expire time in \\'setex\\' command"),
        ("PSETEX k -5 w", "-ERR invalid expire time in \\'psetex\\' command"),
        ("PSETEX k 100000 w", "+OK"),
        ("GETSET k x", "$1\\r\\nw"),
        ("TTL k", ":-1"),
        ("GETSET none x", "$-1"),
        ("GETDEL none", "$1\\r\\nx"),
        ("GETDEL none", "$-1"),
        ("GETEX none", "$-1"),
        ("GETEX none EX 0", "$-1"),
        ("GETEX k EX 100", "$1\\r\\nx"),
        ("TTL k", ":100"),
        ("GETEX k", "$1\\r\\nx"),
        ("TTL k", ":100"),
        ("GETEX k PERSIST", "$1\\r\\nx"),
        ("TTL k", ":-1"),
        ("GETEX k EX 0", "-ERR invalid expire time in \\'getex\\' command"),
        ("GETEX k PERSIST EX 5", SYNTAX),
        ("GETEX k NX", SYNTAX),
        ("GETEX k PXAT 1", "$1\\r\\nx"),
        ("EXISTS k", ":0"),
        ("MSET a 1 b 2", "+OK"),
        ("MGET a b c", "*3\\r\\n$1\\r\\n1\\r\\n$1\\r\\n2\\r\\n$-1"),
        ("MSET a 1 b", "-ERR wrong number of arguments for \\'mset\\' command"),
        ("MSET a", "-ERR wrong number of arguments for \\'mset\\' command"),
    ]);
}

#[test]
fn parts_of_strings_are_read_and_written() {
    check(&[
        ("APPEND k Hello", ":5"),
        ("APPEND k -World", ":11"),
        ("STRLEN k", ":11"),
        ("STRLEN none", ":0"),
        ("GETRANGE k 0 4", "$5\\r\\nHello"),
        ("SUBSTR k -5 -1", "$5\\r\\nWorld"),
        ("GETRANGE k 5 2", "$0\\r\\n"),
        ("GETRANGE k a 2", NOT_INTEGER),
        ("GETRANGE none 0 -1", "$0\\r\\n"),
        ("SETRANGE k 6 Redis", ":11"),
        ("GET k", "$11\\r\\nHello-Redis"),
        ("SETRANGE new 3 x", ":4"),
        ("GET new", "$4\\r\\n\\x00\\x00\\x00x"),
        ("SETRANGE new -1 x", "-ERR offset is out of range"),
        ("SETRANGE new 536870912 x", TOO_LONG),
        ("SETRANGE new 9223372036854775807 x", TOO_LONG),
        ("SETRANGE new x x", NOT_INTEGER),
        ("STRLEN new", ":4"),
        ("EXPIRE k 100", ":1"),
        ("APPEND k !", ":12"),
        ("SETRANGE k 0 J", ":12"),
        ("TTL k", ":100"),
    ]);
}

#[test]
fn numbers_count_and_refuse_to_overflow() {
    check(&[
        ("INCR n", ":1"),
        ("INCRBY n 41", ":42"),
        ("DECR n", ":41"),
        ("DECRBY n 42", ":-1"),
        ("INCRBY n 9223372036854775807", ":9223372036854775806"),
        ("INCRBY n 2", "-ERR increment or decrement would overflow"),
        ("INCRBY n 1.5", NOT_INTEGER),
        ("DECRBY n -9223372036854775808", "-ERR decrement would overflow"),
        ("SET n 9223372036854775808", "+OK"),
        ("INCR n", NOT_INTEGER),
        ("SET n 007", "+OK"),
        ("INCR n", NOT_INTEGER),
        ("SET f 10.50", "+OK"),
        ("INCRBYFLOAT f 0.1", "$4\\r\\n10.6"),
        ("INCRBYFLOAT f -5", "$3\\r\\n5.6"),
        ("INCRBYFLOAT f 5.0e3", "$22\\r\\n5005.60000000000000009"),
        ("INCRBYFLOAT f x", "-ERR value is not a valid float"),
        ("INCRBYFLOAT f inf", "-ERR increment would produce NaN or Infinity"),
        ("SET f abc", "+OK"),
        ("INCRBYFLOAT f 1", "-ERR value is not a valid float"),
        ("SET n 5 EX 100", "+OK"),
        ("INCR n", ":6"),
        ("TTL n", ":100"),
    ]);
}

#[test]
fn keys_end_when_they_are_told_to() {
    check(&[
        ("EXPIRE none 10", ":0"),
        ("TTL none", ":-2"),
        ("SET k v", "+OK"),
        ("TTL k", ":-1"),
        ("PERSIST k", ":0"),
        ("EXPIRE k 10", ":1"),
        ("TTL k", ":10"),
        ("EXPIRE k 20 NX", ":0"),
        ("EXPIRE k 5 GT", ":0"),
        ("EXPIRE k 20 GT", ":1"),
        ("EXPIRE k 30 LT", ":0"),
        ("EXPIRE k 10 LT XX", ":1"),
        ("PERSIST k", ":1"),
        ("EXPIRE k 10 XX", ":0"),
        ("EXPIRE k 10 GT", ":0"),
        ("EXPIRE k 10 LT", ":1"),
        (
            "EXPIRE k 10 NX GT",
            "-ERR NX and XX, GT or LT options at the same time are not compatible",
        ),
        ("EXPIRE k 10 GT LT", "-ERR GT and LT options at the same time are not compatible"),
        ("EXPIRE k 10 AB", "-ERR Unsupported option AB"),
        ("EXPIRE k ten", NOT_INTEGER),
        ("EXPIRE k 9223372036854775807", "-ERR invalid expire time in \\'expire\\' command"),
        ("PEXPIRE k 9223372036854775807", "-ERR invalid expire time in \\'pexpire\\' command"),
        ("EXPIREAT k 33177117420", ":1"),
        ("EXPIRETIME k", ":33177117420"),
        ("PEXPIREAT k 33177117420999", ":1"),
        ("PEXPIRETIME k", ":33177117420999"),
        ("EXPIRE k -1", ":1"),
        ("EXISTS k", ":0"),
        ("TYPE k", "+none"),
        ("EXPIRETIME k", ":-2"),
    ]);
}

#[test]
fn expired_keys_are_gone_for_every_command() {
    let gateway = Gateway::start();
    let mut client = gateway.client();
    for words in ["SET k v PX 1400", "SET n 5 PX 1400", "SET x v"] {
        assert_eq!(client.ask(words), "+OK\\r\\n");
    }
    assert_eq!(client.ask("TTL k"), ":1\\r\\n");
    gateway.keyspace.advance(Duration::from_millis(1001));
    assert_eq!(client.ask("TTL k"), ":0\\r\\n");
    gateway.keyspace.advance(Duration::from_secs(1));
    for (words, expected) in [
        ("GET k", "$-1"),
        ("TYPE k", "+none"),
        ("EXISTS k n x", ":1"),
        ("DBSIZE", ":1"),
        ("KEYS *", "*1\\r\\n$1\\r\\nx"),
        ("INCR n", ":1"),
        ("TTL n", ":-1"),
        ("DEL k", ":0"),
        ("SET k w NX", "+OK"),
    ] {
        assert_eq!(client.ask(words), format!("{expected}\\r\\n"), "{words}");
    }
}

#[test]
fn keys_are_counted_found_and_removed() {
    check(&[
        ("MSET a 1 b 2 c 3", "+OK"),
        ("EXISTS a a none", ":2"),
        ("TOUCH a none", ":1"),
        ("TYPE a", "+string"),
        ("DBSIZE", ":3"),
        ("SELECT 1", "+OK"),
        ("DBSIZE", ":0"),
        ("RANDOMKEY", "$-1"),
        ("SET other 1", "+OK"),
        ("RANDOMKEY", "$5\\r\\nother"),
        ("KEYS o[a-t]?er", "*1\\r\\n$5\\r\\nother"),
        ("SCAN 0 COUNT 5000", "*2\\r\\n$1\\r\\n0\\r\\n*1\\r\\n$5\\r\\nother"),
        ("SCAN 0 COUNT 5000 MATCH x*", "*2\\r\\n$1\\r\\n0\\r\\n*0"),
        ("SCAN 0 TYPE hash COUNT 5000", "*2\\r\\n$1\\r\\n0\\r\\n*0"),
        ("SCAN x", "-ERR invalid cursor"),
        ("SCAN 0 COUNT 0", SYNTAX),
        ("SCAN 0 COUNT x", NOT_INTEGER),
        ("SCAN 0 MATCH", SYNTAX),
        ("FLUSHDB", "+OK"),
        ("DBSIZE", ":0"),
        ("SELECT 0", "+OK"),
        ("DEL a b none", ":2"),
        ("UNLINK c", ":1"),
        ("SET a 1", "+OK"),
        ("FLUSHALL ASYNC", "+OK"),
        ("FLUSHALL NEVER", SYNTAX),
        ("FLUSHALL ASYNC SYNC", SYNTAX),
        ("DBSIZE", ":0"),
        ("SELECT 16", "-ERR DB index is out of range"),
        ("SELECT -1", "-ERR DB index is out of range"),
        ("SELECT x", NOT_INTEGER),
    ]);
}

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn a_hash_is_no_string_and_a_string_is_no_hash() {
    let gateway = Gateway::start();
    let mut client = gateway.client();
    client.ask("HSET h f v");
    client.ask("SET s v");
    for words in [
        "GET h",
        "STRLEN h",
        "GETRANGE h 0 1",
        "SET h v GET",
        "SET h v NX GET",
        "GETSET h v",
        "GETDEL h",
        "GETEX h",
        "APPEND h v",
        "SETRANGE h 0 v",
        "INCR h",
        "INCRBYFLOAT h 1",
        "SETBIT h 1 1",
        "GETBIT h 1",
        "BITCOUNT h",
        "BITPOS h 1",
        "BITFIELD h GET u8 0",
        "BITFIELD_RO h GET u8 0",
        "BITOP AND d s h",
        "HSET s f v",
        "HMSET s f v",
        "HSETNX s f v",
        "HGET s f",
        "HMGET s f",
        "HGETALL s",
        "HLEN s",
        "HDEL s f",
        "HEXISTS s f",
        "HSTRLEN s f",
        "HINCRBY s f 1",
        "HINCRBYFLOAT s f 1",
        "HRANDFIELD s",
        "HSCAN s 0",
    ] {
        assert_eq!(client.ask(words), format!("{WRONG_TYPE}\\r\\n"), "{words}");
    }
    for (words, expected) in [
        ("MGET s h", "*2\\r\\n$1\\r\\nv\\r\\n$-1"),
        ("SETNX h v", ":0"),
        ("MSETNX new v h v", ":0"),
        ("EXISTS new", ":0"),
        ("SET h v NX", "$-1"),
        ("TYPE h", "+hash"),
        ("EXPIRE h 100", ":1"),
        ("HGET h f", "$1\\r\\nv"),
        ("TTL h", ":100"),
        ("PERSIST h", ":1"),
        ("COPY h i", ":1"),
        ("RENAME i j", "+OK"),
        ("HGETALL j", "*2\\r\\n$1\\r\\nf\\r\\n$1\\r\\nv"),
        ("SCAN 0 COUNT 5000 TYPE string", "*2\\r\\n$1\\r\\n0\\r\\n*1\\r\\n$1\\r\\ns"),
        ("SET h v", "+OK"),
        ("TYPE h", "+string"),
        ("HDEL j f", ":1"),
        ("EXISTS j", ":0"),
    ] {
        assert_eq!(client.ask(words), format!("{expected}\\r\\n"), "{words}");
    }
}

#[test]
fn values_move_to_other_names_with_their_end() {
    check(&[
        ("RENAME none a", "-ERR no such key"),
        ("RENAMENX none a", "-ERR no such key"),
        ("SET a 1 EX 100", "+OK"),
        ("SET b 2 EX 500", "+OK"),
        ("RENAMENX a b", ":0"),
        ("RENAMENX a a", ":0"),
        ("RENAME a a", "+OK"),
        ("RENAME a b", "+OK"),
        ("EXISTS a", ":0"),
        ("GET b", "$1\\r\\n1"),
        ("TTL b", ":100"),
        ("RENAMENX b a", ":1"),
        ("COPY a b", ":1"),
        ("COPY a b", ":0"),
        ("SET a 3", "+OK"),
        ("COPY a b REPLACE", ":1"),
        ("TTL b", ":-1"),
        ("COPY a a", "-ERR source and destination objects are the same"),
        ("COPY a a DB 1", ":1"),
        ("COPY none b REPLACE", ":0"),
        ("COPY a moved", ":1"),
        ("MOVE moved 0", "-ERR source and destination objects are the same"),
        ("MOVE moved x", NOT_INTEGER),
        ("MOVE moved 16", "-ERR DB index is out of range"),
        ("MOVE moved 1", ":1"),
        ("MOVE moved 1", ":0"),
        ("EXISTS moved", ":0"),
        ("COPY a moved", ":1"),
        ("MOVE moved 1", ":0"),
        ("DEL moved", ":1"),
        ("COPY a b DB 16", "-ERR DB index is out of range"),
        ("COPY a b DB x", NOT_INTEGER),
        ("COPY a b WHAT", SYNTAX),
        ("SELECT 1", "+OK"),
        ("GET a", "$1\\r\\n3"),
        ("MSETNX x 1 y 2 x 3", ":1"),
        ("MGET x y", "*2\\r\\n$1\\r\\n3\\r\\n$1\\r\\n2"),
        ("MSETNX z 1 y 3", ":0"),
        ("EXISTS z", ":0"),
        ("MSETNX z 1 y", "-ERR wrong number of arguments for \\'msetnx\\' command"),
    ]);
}

#[test]
fn fields_are_shown_a_part_at_a_time() {
    let gateway = Gateway::start();
    let mut client = gateway.client();
    let mut words = vec!["HSET".to_owned(), "h".to_owned()];
    for index in 0..2000 {
        words.extend([format!("field:{index}"), format!("value:{index}")]);
    }
    assert_eq!(client.call(&words), b":2000\r\n");
    let mut seen = std::collections::BTreeMap::<String, usize>::new();
    let mut cursor = "0".to_owned();
    let mut calls = 0;
    loop {
        let reply = client.ask(&format!("HSCAN h {cursor} COUNT 100"));
        calls += 1;
        // A field that comes and goes meanwhile does not hide those that stay.
        client.ask(&format!("HDEL h gone:{}", calls - 1));
        client.ask(&format!("HSET h gone:{calls} x"));
        let mut lines = reply.split("\\r\\n").skip(2);
        cursor = lines.next().expect("a cursor").to_owned();
        for line in lines.filter(|line| line.starts_with("field:")) {
            *seen.entry(line.to_owned()).or_default() += 1;
        }
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(seen.len(), 2000);
    assert!(seen.values().all(|times| *times == 1));
    assert!((15..=30).contains(&calls), "{calls} calls");
}

#[test]
fn fields_are_chosen_at_random() {
    let gateway = Gateway::start();
    let mut client = gateway.client();
    for index in 0..10 {
        client.ask(&format!("HSET h f{index} v{index}"));
    }
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..300 {
        seen.insert(client.ask("HRANDFIELD h"));
    }
    assert_eq!(seen.len(), 10, "{seen:?}");
    let unique = client.ask("HRANDFIELD h 100");
    assert!(
        unique.starts_with("*10\\r\\n")
            && (0..10).all(|index| unique.contains(&format!("f{index}")))
    );
    assert!(client.ask("HRANDFIELD h -25").starts_with("*25\\r\\n"));
    assert!(client.ask("HRANDFIELD h 3 WITHVALUES").starts_with("*6\\r\\n"));
    for (words, expected) in [
        ("HRANDFIELD none", "$-1"),
        ("HRANDFIELD none 5", "*0"),
        ("HRANDFIELD h 0", "*0"),
        ("HRANDFIELD h x", NOT_INTEGER),
        ("HRANDFIELD h 1 WHAT", SYNTAX),
        ("HRANDFIELD h -9223372036854775808", "-ERR value is out of range"),
        (
            "HRANDFIELD h -9223372036854770000",
            "-ERR the reply is larger than 2 GiB: ask for fewer fields",
        ),
    ] {
        assert_eq!(client.ask(words), format!("{expected}\\r\\n"), "{words}");
    }
}

#[test]
fn values_tell_how_they_are_kept() {
    check(&[
        ("OBJECT ENCODING none", "$-1"),
        ("MEMORY USAGE none", "$-1"),
        ("SET n 12", "+OK"),
        ("OBJECT ENCODING n", "$3\\r\\nint"),
        ("SET s text", "+OK"),
        ("OBJECT ENCODING s", "$6\\r\\nembstr"),
        ("SETRANGE s 50 x", ":51"),
        ("OBJECT ENCODING s", "$3\\r\\nraw"),
        ("HSET h f v", ":1"),
        ("OBJECT ENCODING h", "$8\\r\\nlistpack"),
        ("HSET h f 01234567890123456789012345678901234567890123456789012345678901234", ":0"),
        ("OBJECT ENCODING h", "$9\\r\\nhashtable"),
        ("OBJECT REFCOUNT h", ":1"),
        ("MEMORY USAGE n", ":48"),
        ("MEMORY USAGE n SAMPLES 5", ":48"),
        ("MEMORY USAGE n SAMPLES x", NOT_INTEGER),
        ("MEMORY USAGE n WHAT 5", SYNTAX),
    ]);
}

#[test]
fn a_scan_sees_every_key_that_stays() {
    let gateway = Gateway::start();
    let mut client = gateway.client();
    for index in 0..3000 {
        client.ask(&format!("SET key:{index} v"));
    }
    let mut seen = std::collections::BTreeSet::new();
    let mut cursor = "0".to_owned();
    loop {
        let reply = client.ask(&format!("SCAN {cursor} COUNT 100"));
        let mut lines = reply.split("\\r\\n").skip(2);
        cursor = lines.next().expect("a cursor").to_owned();
        seen.extend(lines.filter(|line| line.starts_with("key:")).map(str::to_owned));
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(seen.len(), 3000);
}

#[test]
fn what_is_unknown_says_so_and_goes_on() {
    check(&[
        ("FOO", "-ERR unknown command \\'FOO\\', with args beginning with: "),
        ("foo a bc", "-ERR unknown command \\'foo\\', with args beginning with: \\'a\\' \\'bc\\' "),
        (
            "CLIENT MAINT_NOTIFICATIONS ON",
            "-ERR unknown subcommand \\'MAINT_NOTIFICATIONS\\'. Try CLIENT HELP.",
        ),
        ("CLIENT TRACKING ON", "-ERR unknown subcommand \\'TRACKING\\'. Try CLIENT HELP."),
        ("CLIENT", "-ERR wrong number of arguments for \\'client\\' command"),
        ("CLIENT ID x", "-ERR wrong number of arguments for \\'client|id\\' command"),
        ("GET", "-ERR wrong number of arguments for \\'get\\' command"),
        ("gEt a b", "-ERR wrong number of arguments for \\'get\\' command"),
        ("PING a b", "-ERR wrong number of arguments for \\'ping\\' command"),
        ("PING", "+PONG"),
    ]);
}

#[test]
fn connections_tell_of_themselves() {
    check(&[
        ("CLIENT GETNAME", "$-1"),
        ("CLIENT SETNAME me", "+OK"),
        ("CLIENT GETNAME", "$2\\r\\nme"),
        ("CLIENT SETINFO LIB-NAME redis-py", "+OK"),
        ("CLIENT SETINFO lib-ver 8", "+OK"),
        ("CLIENT SETINFO x 8", "-ERR Unrecognized option \\'x\\'"),
        ("CLIENT ID", ":1"),
        ("CLIENT NO-EVICT on", "+OK"),
        ("HELLO 4", "-NOPROTO unsupported protocol version"),
        ("HELLO x", "-ERR Protocol version is not an integer or out of range"),
        ("HELLO 3 WHAT", "-ERR Syntax error in HELLO option \\'WHAT\\'"),
        (
            "HELLO 3 AUTH user pass",
            "-WRONGPASS invalid username-password pair or user is disabled.",
        ),
        ("AUTH default any", "+OK"),
        (
            "HELLO 3 AUTH default any SETNAME you",
            "%7\\r\\n$6\\r\\nserver\\r\\n$5\\r\\nredis\\r\\n$7\\r\\nversion\\r\\n$5\\r\\n7.2.4\\r\\n$5\\r\\nproto\\r\\n:3\\r\\n$2\\r\\nid\\r\\n:1\\r\\n$4\\r\\nmode\\r\\n$10\\r\\nstandalone\\r\\n$4\\r\\nrole\\r\\n$6\\r\\nmaster\\r\\n$7\\r\\nmodules\\r\\n*0",
        ),
        ("GET none", "_"),
        ("CLIENT GETNAME", "$3\\r\\nyou"),
        ("RESET", "+RESET"),
        ("GET none", "$-1"),
        ("CLIENT GETNAME", "$-1"),
        ("FUNCTION FLUSH", "+OK"),
    ]);
}

#[test]
fn the_server_is_configured_and_described() {
    let gateway = Gateway::start();
    let mut client = gateway.client();
    for (words, expected) in [
        ("CONFIG GET save", "*2\\r\\n$4\\r\\nsave\\r\\n$0\\r\\n"),
        ("CONFIG GET appendonly", "*2\\r\\n$10\\r\\nappendonly\\r\\n$2\\r\\nno"),
        ("CONFIG SET timeout 7", "+OK"),
        ("CONFIG GET TIMEOUT", "*2\\r\\n$7\\r\\ntimeout\\r\\n$1\\r\\n7"),
        ("CONFIG SET timeout 0", "+OK"),
        (
            "CONFIG SET nothing 1",
            "-ERR Unknown option or number of arguments for CONFIG SET - \\'nothing\\'",
        ),
        (
            "CONFIG SET port 1",
            "-ERR CONFIG SET failed (possibly related to argument \\'port\\') - Unable to listen on this port: it is chosen when the server starts",
        ),
        ("CONFIG SET timeout", "-ERR wrong number of arguments for \\'config|set\\' command"),
        ("CONFIG RESETSTAT", "+OK"),
        ("CONFIG GET nothing", "*0"),
        ("COMMAND GETKEYS MSET a 1 b 2", "*2\\r\\n$1\\r\\na\\r\\n$1\\r\\nb"),
        ("COMMAND GETKEYS PING", "-ERR The command has no key arguments"),
        ("COMMAND GETKEYS NOTHING x", "-ERR Invalid command specified"),
        ("COMMAND INFO nothing", "*1\\r\\n*-1"),
    ] {
        assert_eq!(client.ask(words), format!("{expected}\\r\\n"), "{words}");
    }
    client.ask("SET a 1");
    client.ask("GET a");
    client.ask("INCRBY a x");
    let info = client.ask("INFO everything");
    for field in [
        "redis_version:7.2.4",
        "fusee_version:",
        "redis_mode:standalone",
        "role:master",
        "loading:0",
        "connected_clients:1",
        "mem_allocator:",
        "cluster_enabled:0",
        "keyspace_hits:1",
        "cmdstat_get:calls=1,",
        "cmdstat_incrby:calls=1,usec=",
        "failed_calls=1",
        "errorstat_ERR:count=3",
        "latency_percentiles_usec_get:",
        "db0:keys=1,expires=0,avg_ttl=0",
    ] {
        assert!(info.contains(field), "{field} in {info}");
    }
    let clients = client.ask("INFO clients");
    assert!(clients.contains("# Clients") && !clients.contains("# Server"), "{clients}");
    client.ask("HELLO 3");
    assert!(client.ask("INFO").contains("txt:# Server"));
    assert!(client.ask("COMMAND").starts_with('*'));
    assert!(client.ask("COMMAND DOCS get").starts_with("%1\\r\\n$3\\r\\nget\\r\\n%3"));
    assert!(client.ask("CLIENT LIST").contains("id=1 addr=127.0.0.1:"));
    assert!(client.ask("TIME").starts_with("*2\\r\\n$10\\r\\n"));
}

#[test]
fn a_full_pool_refuses_writes_and_serves_the_rest() {
    let gateway = Gateway::with(&config(), MemoryKeyspace::with_capacity(1000));
    let mut client = gateway.client();
    let oom = "-OOM command not allowed when used memory > \\'maxmemory\\'.\\r\\n";
    let value = "v".repeat(600);
    assert_eq!(client.ask(&format!("SET a {value}")), "+OK\\r\\n");
    for words in ["SET b", "APPEND a", "SETNX b", "MSET b"] {
        assert_eq!(client.ask(&format!("{words} {value}")), oom, "{words}");
    }
    assert_eq!(client.ask("STRLEN a"), ":600\\r\\n");
    assert_eq!(client.ask("DEL a"), ":1\\r\\n");
    assert_eq!(client.ask(&format!("SET b {value}")), "+OK\\r\\n");
    assert!(client.ask("INFO errorstats").contains("errorstat_OOM:count=4"));
}

#[test]
fn debug_is_for_who_was_allowed_to_use_it() {
    let gateway = Gateway::start();
    assert!(gateway.client().ask("DEBUG SLEEP 0").starts_with("-ERR DEBUG command not allowed"));
    let settings = gateway::config::Config { enable_debug_command: true, ..config() };
    let gateway = Gateway::over_the_store(&settings);
    let mut client = gateway.client();
    client.ask("HSET h f v");
    client.ask("COPY h h2");
    assert_eq!(client.ask("DEBUG DIGEST-VALUE h"), client.ask("DEBUG DIGEST-VALUE h2"));
    client.ask("HSET h2 f w");
    assert_ne!(client.ask("DEBUG DIGEST-VALUE h"), client.ask("DEBUG DIGEST-VALUE h2"));
    for (words, reply) in [
        ("DEBUG OBJECT h", "encoding:listpack"),
        ("DEBUG OBJECT nosuch", "-ERR no such key"),
        ("DEBUG STRINGMATCH-LEN 10 aaaaaaaaaa", ":1"),
        ("DEBUG STRINGMATCH-LEN 10 a*b", ":0"),
        ("DEBUG STRINGMATCH-LEN -1 a", "-ERR value is not an integer or out of range"),
        ("DEBUG SLEEP 0.01", "+OK"),
        ("DEBUG SLEEP nan", "+OK"),
        ("DEBUG PROTOCOL true", ":1"),
        ("DEBUG JMAP", "-ERR DEBUG: unknown subcommand"),
        ("DEBUG SET-ACTIVE-EXPIRE 0", "+OK"),
        ("SET k v PX 1", "+OK"),
        ("DEBUG SLEEP 0.2", "+OK"),
        ("DBSIZE", ":3"),
        ("DEBUG SET-ACTIVE-EXPIRE 1", "+OK"),
        ("DEBUG SLEEP 0.5", "+OK"),
        ("DBSIZE", ":2"),
    ] {
        let got = client.ask(words);
        assert!(got.contains(reply), "{words}: {got}");
    }
}
