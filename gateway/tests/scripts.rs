//! The same scripts to redis-server and to us: the same bytes back, and the same counts of
//! commands and errors.

mod common;

use common::redis::Redis;
use common::{Client, Gateway, config};

/// How scripts end, what they see of failures, and where they say that those are.
const FAILURES: &[&str] = &[
    "return redis.call('nope')",
    "local a = 1\nreturn redis.call('incr', KEYS[1])",
    "redis.call('set', KEYS[1], 'x') return redis.call('incr', KEYS[1])",
    "redis.call('set', KEYS[1], 'x')\nreturn redis.pcall('incr', KEYS[1])",
    "redis.call('set', KEYS[1], 'x')\nlocal e = redis.pcall('incr', KEYS[1])\nreturn e.err",
    "local function f() return redis.call('get') end\n\nlocal a = f()\nreturn a",
    "local ok, e = pcall(redis.call, 'nope') return {tostring(ok), type(e), e}",
    "local ok, e = pcall(error, {err='MY error'}) return e",
    "local ok, e = pcall(error, {other='MY error'}) return type(e)",
    "local ok, e = pcall(function() return redis.call('nope') end) return e",
    "local ok, e = pcall(function() return redis.call('nope') end) error(e)",
    "local ok, e = pcall(redis.call, 'nope') return e.ignore_error_stats_update",
    "local ok, e = xpcall(function() redis.call('nope') end, function(e) return e.err end) return e",
    "local ok, e = xpcall(function() error('x') end, function(e) return 'got ' .. e end) return e",
    "local t = coroutine.create(function() redis.call('nope') end)\n\
     local ok, e = coroutine.resume(t) return e.err",
    "local f = coroutine.wrap(function() redis.call('nope') end) f()",
    "return error('text')",
    "error({err='CODE of my own'})",
    "error({err='Nothing'})",
    "return error({err='A B'}, 2)",
    "error(nil)",
    "return {err='MY error'}",
    "return {err='single'}",
    "return {err='two\\r\\nlines'}",
    "return redis.error_reply('single')",
    "return redis.error_reply('MY error')",
    "return redis.error_reply('-MY error')",
    "return redis.error_reply('-single')",
    "return redis.error_reply('')",
    "return redis.error_reply('MY \\r\\nerror\\r\\n')",
    "return redis.error_reply(1)",
    "return redis.error_reply('a', 'b')",
    "return redis.status_reply('a', 'b')",
    "return redis.status_reply('fine')",
    "return redis.error_reply('MY error').err",
    "redis.call()",
    "redis.pcall()",
    "return redis.pcall()",
    "return redis.pcall('ping', {})",
    "return redis.call('ping', {})",
    "local e = redis.pcall('ping', {}) return e.ignore_error_stats_update == nil",
    "return redis.call('subscribe', 'c')",
    "return redis.call('select', 99)",
    "return redis.pcall('select', 99)",
    "return redis.call('get', 'a', 'b')",
    "redis.setresp()",
    "redis.setresp(4)",
    "redis.log(1)",
    "redis.log('x', 'y')",
    "redis.log(10, 'y')",
    "redis.sha1hex()",
    "return redis.acl_check_cmd('nope')",
    "return redis.acl_check_cmd('get', 'k')",
    "redis.set_repl()",
    "redis.set_repl(99)",
    "local a = nil; a.b = 1",
    "return 1 + {}",
    "assert(false)",
    "assert(false, 'why')",
    "return string.rep()",
    "return {1, {err='in MY array'}, 2}",
    "return tostring(redis.call('get', 'none'))",
    "return #ARGV .. #KEYS",
];

const LIBRARIES: &[&str] = &[
    // JSON
    "return cjson.encode({})",
    "return cjson.encode({{}, {1}, {a={}}})",
    "return cjson.encode({1, 1.5, -0.1, 1e20, 1e15, 123456789012345, 2^53, 1/3, 0.1, -0})",
    "return cjson.encode({[1]=1, [2]=2, [4]=4})",
    "return cjson.encode({[1]=1, [12]=2})",
    "return cjson.encode({[100]=1})",
    "cjson.encode_sparse_array(true) return cjson.encode({[100]=1})",
    "cjson.encode_sparse_array(true, 1) return cjson.encode({[100]=1})",
    "cjson.encode_sparse_array(false, 0) return cjson.encode({[30]=1})",
    "return {cjson.encode_sparse_array(true, 3, 4)}",
    "cjson.encode_number_precision(3) return cjson.encode({1/3, 1234567})",
    "return cjson.encode_number_precision()",
    "cjson.encode_number_precision(15)",
    "cjson.encode_number_precision(1, 2)",
    "return cjson.encode({[1.5]='x'})",
    "return cjson.encode({[true]='x'})",
    "return cjson.encode({a=function() end})",
    "return cjson.encode(function() end)",
    "return cjson.encode(1/0)",
    "return cjson.encode({a=0/0})",
    "cjson.encode_invalid_numbers('null') return cjson.encode({1/0, 0/0})",
    "cjson.encode_invalid_numbers(true) return cjson.encode({1/0, -1/0})",
    "cjson.encode_invalid_numbers('maybe')",
    "return cjson.encode('a\"b\\\\c/d\\n\\0\\127\\200')",
    "return cjson.encode({cjson.null, true, false})",
    "return cjson.encode()",
    "return cjson.encode(1, 2)",
    "local t = {} t[1] = t return cjson.encode(t)",
    "cjson.encode_max_depth(2) return cjson.encode({{{}}})",
    "return cjson.encode(cjson.decode('{\"a\":[1,2.50,-3e2,\"x\"]}'))",
    "return cjson.decode('[1,2,{\"a\":null}]')[3].a == cjson.null",
    "return cjson.decode('\"\\\\u0041\\\\ud834\\\\udd1e\\\\n\\\\/\\200\"')",
    "return tostring(cjson.decode('0x10')) .. tostring(cjson.decode('1e3'))",
    "return tostring(cjson.decode('12345678901234567890'))",
    "return cjson.decode('x')",
    "return cjson.decode('')",
    "return cjson.decode('[1,]')",
    "return cjson.decode('[1 2]')",
    "return cjson.decode('{\"a\" 1}')",
    "return cjson.decode('{\"a\":1')",
    "return cjson.decode('{a:1}')",
    "return cjson.decode('\"abc')",
    "return cjson.decode('\"\\\\q\"')",
    "return cjson.decode('\"\\\\ud834\"')",
    "return cjson.decode('[1] x')",
    "return cjson.decode('nul')",
    "return cjson.decode('-')",
    "cjson.decode_invalid_numbers(false) return cjson.decode('0x10')",
    "cjson.decode_invalid_numbers(false) return cjson.decode('+1')",
    "cjson.decode_max_depth(2) return cjson.decode('[[[1]]]')",
    "return cjson.decode(string.rep('[', 2000))",
    "return cjson.decode(1)",
    "return cjson.decode({})",
    "return cjson.decode()",
    "local ok, e = pcall(cjson.decode, 'x') return {type(e), e}",
    "local ok, e = pcall(function() return cjson.decode('x') end) return {type(e), e}",
    "local other = cjson.new() other.encode_number_precision(3)\n\
     return {other.encode(1/3), cjson.encode(1/3)}",
    // MessagePack
    "return cmsgpack.pack(1, -1, 0.1, 0.5, 2^40, -2^40, 'x', true, nil, {1,2}, {a=1}, {})",
    "return cmsgpack.pack(('x'):rep(40), '\\255\\254', 2^63, 2^64, 65536, -129)",
    "return cmsgpack.pack({1, nil, 3})",
    "return cmsgpack.pack(function() end)",
    "return cmsgpack.pack()",
    "return {cmsgpack.unpack('\\1\\2\\163abc')}",
    "return {cmsgpack.unpack_one('\\1\\2\\163abc')}",
    "return {cmsgpack.unpack_one('\\1\\2\\163abc', 1)}",
    "return {cmsgpack.unpack_limit('\\1\\2\\163abc', 2)}",
    "return {cmsgpack.unpack_limit('\\1\\2\\163abc', 9, 1)}",
    "return cmsgpack.unpack('\\163a')",
    "return cmsgpack.unpack('\\193')",
    "return {cmsgpack.unpack_one('abc', 9)}",
    "return {cmsgpack.unpack_one('abc', -1)}",
    "return cmsgpack.unpack({})",
    "return {cmsgpack.unpack('')}",
    // struct
    "return struct.pack('bBhHiIlLTfdc3s', 1, 2, 3, 4, 5, 6, 7, 8, 9, 0.5, 0.25, 'abcd', 'z')",
    "return struct.pack('>bBhHiIlLTfdc3s', 1, 2, 3, 4, 5, 6, 7, 8, 9, 0.5, 0.25, 'abcd', 'z')",
    "return struct.pack('!4bi!8bd', 1, 2, 3, 4)",
    "return struct.pack('I3i7', 66051, -2)",
    "return {struct.unpack('bBhHiIlLT', struct.pack('bBhHiIlLT', -1,255,-2,65534,-3,5,-6,7,8))}",
    "return {struct.unpack('>I2c0s', '\\0\\3abcdef\\0')}",
    "return {struct.unpack('i4', 'abcdefgh', 3)}",
    "return struct.size('!8bdhc5i3')",
    "return struct.size('s')",
    "return struct.size('c0')",
    "return struct.pack('q', 1)",
    "return struct.pack('c5', 'abc')",
    "return struct.pack('i33', 1)",
    "return struct.pack('!3i', 1)",
    "return struct.unpack('i', 'abc')",
    "return struct.unpack('s', 'abc')",
    "return struct.unpack('c0', 'abc')",
    "return struct.unpack('i', 'abcd', 0)",
    "return struct.unpack('c2147483647', 'x')",
    "return struct.unpack('i99999999999', 'x')",
    // bit
    "return {bit.band(0xff, 0x0f), bit.bxor(1, 3), bit.lshift(1, 31), bit.tohex(-1)}",
];

fn show(reply: &[u8]) -> String {
    reply.escape_ascii().to_string()
}

/// Runs all scripts on both; which gave other replies.
fn differences(ours: &mut Client, redis: &mut Client, scripts: &[&str]) -> Vec<String> {
    let mut different = Vec::new();
    for script in scripts {
        let call = ["EVAL", script, "1", "k", "v"];
        let (ours, redis) = (ours.call(&call), redis.call(&call));
        if ours != redis {
            different.push(format!(
                "{script}\n  ours:  {}\n  redis: {}",
                show(&ours),
                show(&redis)
            ));
        }
    }
    different
}

#[test]
fn scripts_fail_as_in_redis() {
    let redis = Redis::start();
    for gateway in [Gateway::start(), Gateway::over_the_store(&config())] {
        let mut redis = Client::connect(redis.address);
        redis.ask("FLUSHALL");
        let different = differences(&mut gateway.client(), &mut redis, FAILURES);
        assert!(different.is_empty(), "{}", different.join("\n"));
    }
}

#[test]
fn libraries_of_scripts_are_redis_libraries() {
    let redis = Redis::start();
    let gateway = Gateway::start();
    let mut redis = Client::connect(redis.address);
    let mut ours = gateway.client();
    let mut different = Vec::new();
    for script in LIBRARIES {
        // What a script chooses of JSON's settings holds there for ever.
        redis.ask("SCRIPT FLUSH");
        different.extend(differences(&mut ours, &mut redis, &[script]));
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// `name: calls, rejected, failed` of each command, and errors by their codes.
fn counts(client: &mut Client) -> Vec<String> {
    let text = ["commandstats", "errorstats"]
        .map(|section| String::from_utf8(client.call(&["INFO", section])).expect("INFO is text"));
    let lines = text.iter().flat_map(|text| text.lines()).filter_map(|line| {
        if let Some(error) = line.strip_prefix("errorstat_") {
            return Some(error.to_owned());
        }
        let (name, fields) = line.strip_prefix("cmdstat_")?.split_once(':')?;
        if name == "info" || name.starts_with("config") {
            return None;
        }
        let field = |wanted: &str| {
            let fields = fields.split(',').filter_map(|field| field.split_once('='));
            fields.into_iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.to_owned())
        };
        let [calls, rejected, failed] = ["calls", "rejected_calls", "failed_calls"].map(field);
        Some(format!("{name}: {calls:?} {rejected:?} {failed:?}"))
    });
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    lines
}

#[test]
fn what_scripts_and_transactions_run_is_counted_as_in_redis() {
    let redis = Redis::start();
    let library = "#!lua name=l\nredis.register_function('f', function(keys) \
                   return redis.call('incr', keys[1]) end)";
    for gateway in [Gateway::start(), Gateway::over_the_store(&config())] {
        let stories: &[&[&[&str]]] = &[
            &[&["EVAL", "return redis.call('set', 'a', 1)", "0"]],
            &[&["EVAL", "for n = 1, 5 do redis.call('incr', KEYS[1]) end", "1", "n"]],
            // Keys that it does not name: it begins anew for each.
            &[&["EVAL", "for n = 1, 5 do redis.call('incr', 'x' .. n) end", "0"]],
            &[&["EVAL", "redis.call('set', 'a', 'x') return redis.call('incr', 'a')", "0"]],
            &[&["EVAL", "redis.pcall('incr', 'a')", "0"]],
            &[&["EVAL", "return redis.pcall('incr', 'a')", "0"]],
            &[&["EVAL", "return redis.pcall('incr', 'a').err", "0"]],
            &[&["EVAL", "return redis.call('get')", "0"]],
            &[&["EVAL", "redis.pcall('subscribe', 'c')", "0"]],
            &[&["EVAL", "redis.pcall('nope')", "0"]],
            &[&["EVAL", "return redis.call('select', 99)", "0"]],
            &[&["EVAL", "return {err='MADE up'}", "0"], &["EVAL", "return {err='MADE up'}", "0"]],
            &[&["EVAL", "return {err='nocode'}", "0"]],
            &[&["EVAL", "error({err='OTHER one'})", "0"]],
            &[&["EVAL", "return redis.call('ping', {})", "0"]],
            &[&["EVAL", "redis.pcall('ping', {})", "0"]],
            &[&["EVAL_RO", "return redis.pcall('set', 'a', 1).err", "0"]],
            &[&["EVAL", "return x", "0"]],
            &[&["EVAL", "return {", "0"]],
            &[&["EVAL", "a"]],
            &[&["EVAL", "return #redis.call('keys', 'x*')", "0"]],
            &[&["EVALSHA", "0000000000000000000000000000000000000000", "0"]],
            &[&["FUNCTION", "LOAD", "REPLACE", library], &["FCALL", "f", "1", "n"]],
            &[&["FCALL", "none", "1", "n"]],
            &[&["SET", "a"], &["SET", "a", "1"], &["NOPE"], &["CLIENT", "NOPE"], &["GET"]],
            &[&["MULTI"], &["SET", "a", "1"], &["AUTH", "a"], &["INCR", "a"], &["EXEC"]],
            &[&["MULTI"], &["SET", "a"], &["GET", "a"], &["EXEC"]],
            &[&["MULTI"], &["SET", "a", "x"], &["INCR", "a"], &["PUBLISH", "c", "m"], &["EXEC"]],
            &[&["MULTI"], &["EVAL", "return redis.call('incr', 'a')", "0"], &["EXEC"]],
            &[&["MULTI"], &["SUBSCRIBE", "c"], &["MULTI"], &["WATCH", "a"], &["DISCARD"]],
            &[&["MULTI"], &["GET", "a"], &["DISCARD"]],
            &[&["EXEC"], &["DISCARD"]],
            &[&["WATCH", "a"], &["SET", "a", "y"], &["MULTI"], &["GET", "a"], &["EXEC"]],
        ];
        let mut redis = Client::connect(redis.address);
        let mut ours = gateway.client();
        redis.ask("FLUSHALL");
        redis.ask("FUNCTION FLUSH");
        for story in stories {
            let mut both = [&mut ours, &mut redis].map(|client| {
                client.ask("CONFIG RESETSTAT");
                for call in *story {
                    client.call(call);
                }
                counts(client)
            });
            let [ours, redis] = &mut both;
            assert_eq!(ours, redis, "{story:?}");
        }
    }
}
