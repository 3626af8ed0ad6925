//! EVAL and its relatives, over sockets.

mod common;

use common::{Client, Gateway, config};
use gateway::config::Config;
use gateway::testing::MemoryKeyspace;

/// A gateway on keys of its own, and one on a store.
fn gateways() -> [Gateway; 2] {
    [Gateway::start(), Gateway::over_the_store(&config())]
}

fn eval(client: &mut Client, arguments: &[&str]) -> String {
    let words: Vec<&str> = [&["EVAL"], arguments].concat();
    String::from_utf8(client.call(&words)).unwrap().replace("\r\n", "|")
}

#[test]
fn values_go_both_ways_as_in_redis() {
    for gateway in gateways() {
        let mut client = gateway.client();
        for (script, reply) in [
            ("return 'a'", "$1|a|"),
            ("return 3.99", ":3|"),
            ("return true", ":1|"),
            ("return false", "$-1|"),
            ("return {1,'b',{2},nil,3}", "*3|:1|$1|b|*1|:2|"),
            ("return {ok='fine'}", "+fine|"),
            ("return {err='MY error'}", "-MY error|"),
            ("return redis.status_reply('fine')", "+fine|"),
            ("return redis.error_reply('wrong')", "-ERR wrong|"),
            ("return {KEYS[1],ARGV[1],ARGV[2]}", "*3|$1|k|$1|x|$1|y|"),
            ("redis.call('set',KEYS[1],7); return redis.call('incr',KEYS[1])", ":8|"),
            ("return type(redis.call('get','none'))", "$7|boolean|"),
            ("return redis.call('mget','k','none')", "*2|$1|8|$-1|"),
            ("return bit.tohex(bit.bor(1,0xf0),4)", "$4|00f1|"),
            ("return cjson.encode({1,2,{a='b/c'}})", "$18|[1,2,{\"a\":\"b\\/c\"}]|"),
            ("return cjson.decode('[1.5,{\"a\":[null]}]')[2].a[1] == cjson.null", ":1|"),
            ("return cmsgpack.unpack(cmsgpack.pack({1,{a='x'}}))[2].a", "$1|x|"),
            ("return redis.sha1hex('')", "$40|da39a3ee5e6b4b0d3255bfef95601890afd80709|"),
            ("return #redis.call('keys','*')", ":1|"),
            ("redis.call('select',1); return redis.call('exists','k')", ":0|"),
            ("return redis.call('copy',KEYS[1],'other','db','7')", ":1|"),
            ("return redis.call('move',KEYS[1],8)", ":1|"),
            ("redis.call('select',7); return redis.call('exists','other')", ":1|"),
            ("redis.call('select',8); return redis.call('move',KEYS[1],0)", ":1|"),
        ] {
            assert_eq!(eval(&mut client, &[script, "1", "k", "x", "y"]), reply, "{script}");
        }
    }
}

#[test]
fn a_script_that_fails_says_where_and_how() {
    for gateway in gateways() {
        let mut client = gateway.client();
        for (script, reply) in [
            (
                "return x",
                "-ERR user_script:1: Script attempted to access nonexistent global variable 'x' script: ",
            ),
            ("x = 1", "-ERR user_script:1: Attempt to modify a readonly table script: "),
            ("redis.call = 1", "-ERR user_script:1: Attempt to modify a readonly table script: "),
            (
                "setmetatable(_G, {})",
                "-ERR user_script:1: Attempt to modify a readonly table script: ",
            ),
            (
                "getmetatable(_G).__index = 1",
                "-ERR user_script:1: Attempt to modify a readonly table script: ",
            ),
            ("redis.call('nope')", "-ERR Unknown Redis command called from script script: "),
            (
                "redis.call('get')",
                "-ERR Wrong number of args calling Redis command from script script: ",
            ),
            (
                "redis.call('subscribe','c')",
                "-ERR This Redis command is not allowed from script script: ",
            ),
            (
                "redis.call()",
                "-ERR Please specify at least one argument for this redis lib call script: ",
            ),
            ("return {", "-ERR Error compiling script (new function): user_script:1: "),
            (
                "#!lua flags=no-writes\nredis.call('set','k',1)",
                "-ERR Write commands are not allowed from read-only scripts. script: ",
            ),
            ("#!lua flags=what\nreturn 1", "-ERR Unexpected flag in script shebang: what|"),
            ("#!python\nreturn 1", "-ERR Unexpected engine in script shebang: python|"),
            (
                "print(1)",
                "-ERR user_script:1: Script attempted to access nonexistent global variable 'print' script: ",
            ),
            ("return loadstring('\\27Lua') == nil", ":1|"),
        ] {
            let answer = eval(&mut client, &[script, "0"]);
            assert!(answer.starts_with(reply), "{script}: {answer}");
        }
        assert!(
            eval(&mut client, &["return 1", "-1"])
                .starts_with("-ERR Number of keys can't be negative")
        );
        assert!(
            eval(&mut client, &["return 1", "2", "a"])
                .starts_with("-ERR Number of keys can't be greater")
        );
        // As in Redis, what it wrote before it failed stays.
        assert!(eval(&mut client, &["redis.call('set','w',1) error('x')", "0"]).starts_with('-'));
        assert_eq!(client.ask("GET w"), "$1\\r\\n1\\r\\n");
        let line = eval(&mut client, &["local a = 1\nredis.call('nope')", "0"]);
        assert!(line.ends_with(", on @user_script:2.|"), "{line}");
    }
}

#[test]
fn a_known_script_is_run_by_its_name() {
    let config = Config { workers: 2, ..config() };
    for gateway in
        [Gateway::with(&config, MemoryKeyspace::default()), Gateway::over_the_store(&config)]
    {
        let mut client = gateway.client();
        let sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
        let unknown = "-NOSCRIPT No matching script. Please use EVAL.\\r\\n";
        assert_eq!(client.ask(&format!("EVALSHA {sha} 0")), unknown);
        assert_eq!(
            client.call(&["SCRIPT", "LOAD", "return 1"]),
            format!("$40\r\n{sha}\r\n").as_bytes()
        );
        // Also another worker's client finds it.
        for _ in 0..24 {
            let mut other = gateway.client();
            assert_eq!(other.ask(&format!("EVALSHA {} 0", sha.to_uppercase())), ":1\\r\\n");
        }
        assert_eq!(client.ask(&format!("SCRIPT EXISTS {sha} nope")), "*2\\r\\n:1\\r\\n:0\\r\\n");
        assert_eq!(client.ask("SCRIPT FLUSH"), "+OK\\r\\n");
        assert_eq!(client.ask(&format!("EVALSHA {sha} 0")), unknown);
        let none = "-NOTBUSY No scripts in execution right now.\\r\\n";
        assert_eq!(client.ask("SCRIPT KILL"), none);
    }
}

#[test]
fn a_script_touches_keys_that_it_does_not_name_and_is_kept_by_multi() {
    for gateway in gateways() {
        let mut client = gateway.client();
        let script =
            "for n = 1, 30 do redis.call('incr', 'a' .. n) end return redis.call('get', 'a30')";
        assert_eq!(eval(&mut client, &[script, "0"]), "$1|1|");
        assert_eq!(client.ask("MULTI"), "+OK\\r\\n");
        assert_eq!(client.ask("INCR a30"), "+QUEUED\\r\\n");
        assert_eq!(eval(&mut client, &[script, "0"]), "+QUEUED|");
        assert_eq!(client.ask("GET a1"), "+QUEUED\\r\\n");
        assert_eq!(client.ask("EXEC"), "*3\\r\\n:2\\r\\n$1\\r\\n3\\r\\n$1\\r\\n2\\r\\n");
        assert_eq!(client.ask("DBSIZE"), ":30\\r\\n");
    }
}

#[test]
fn a_script_that_takes_long_keeps_nobody_waiting_and_leaves_nothing_when_killed() {
    let gateway = Gateway::over_the_store(&config());
    let mut client = gateway.client();
    let mut other = gateway.client();
    let endless =
        "redis.call('set','k',1) while true do pcall(function() while true do end end) end";
    client.send(&common::encode(&["EVAL", endless, "0"]));
    assert_eq!(other.ask("SET a 1"), "+OK\\r\\n");
    assert_eq!(other.ask("EXISTS k"), ":0\\r\\n");
    // It has not begun yet, perhaps, or moves to its own thread.
    let kill = |_| other.ask("SCRIPT KILL") == "+OK\\r\\n";
    assert!((0..100_000).any(kill), "it was never found running");
    let reply = String::from_utf8(client.reply()).unwrap();
    assert!(reply.contains("Script killed by user with SCRIPT KILL"), "{reply}");
    assert_eq!(client.ask("EXISTS k"), ":0\\r\\n");
    // As long as it runs, no memory is used again, so there is a limit.
    assert_eq!(other.ask("CONFIG SET script-time-limit 100"), "+OK\\r\\n");
    let reply = eval(&mut client, &[endless, "0"]);
    assert!(reply.starts_with("-ERR the script was ended after 100 ms"), "{reply}");
    assert_eq!(client.ask("EXISTS k"), ":0\\r\\n");
    assert_eq!(other.ask("CONFIG SET script-time-limit 0"), "+OK\\r\\n");
    // One that ends has its commands done, however long it took.
    let long = "for n = 1, 40 do for m = 1, 100000 do end redis.call('incr', KEYS[1]) end return 1";
    assert_eq!(eval(&mut client, &[long, "1", "n"]), ":1|");
    assert_eq!(other.ask("GET n"), "$2\\r\\n40\\r\\n");
}

const COUNTS: &str = "#!lua name=counts\n\
    local function add(keys, args) return redis.call('incrby', keys[1], args[1]) end\n\
    redis.register_function('add', add)\n\
    redis.register_function{function_name='peek', callback=function(keys) return \
    redis.call('get', keys[1]) end, flags={'no-writes'}, description='looks'}";

#[test]
fn functions_are_loaded_called_listed_and_removed() {
    for gateway in gateways() {
        let mut client = gateway.client();
        let mut call =
            |words: &[&str]| String::from_utf8(client.call(words)).unwrap().replace("\r\n", "|");
        assert_eq!(
            call(&["FUNCTION", "STATS"]),
            "*4|$14|running_script|$-1|$7|engines|*2|$3|LUA|*4|$15|libraries_count|:0|$15|functions_count|:0|"
        );
        assert_eq!(call(&["FCALL", "add", "1", "k", "2"]), "-ERR Function not found|");
        assert_eq!(call(&["FUNCTION", "LOAD", COUNTS]), "$6|counts|");
        assert_eq!(call(&["FUNCTION", "LOAD", COUNTS]), "-ERR Library 'counts' already exists|");
        assert_eq!(call(&["FUNCTION", "LOAD", "REPLACE", COUNTS]), "$6|counts|");
        let other = COUNTS.replace("name=counts", "name=other");
        assert_eq!(call(&["FUNCTION", "LOAD", &other]), "-ERR Function add already exists|");
        assert_eq!(call(&["FCALL", "add", "1", "k", "2"]), ":2|");
        assert_eq!(call(&["FCALL", "add", "x", "k", "2"]), "-ERR Bad number of keys provided|");
        assert_eq!(call(&["FCALL_RO", "peek", "1", "k"]), "$1|2|");
        assert_eq!(
            call(&["FCALL_RO", "add", "1", "k", "2"]),
            "-ERR Can not execute a script with write flag using *_ro command.|"
        );
        let list = "*1|*6|$12|library_name|$6|counts|$6|engine|$3|LUA|$9|functions|*2|\
                    *6|$4|name|$3|add|$11|description|$-1|$5|flags|*0|\
                    *6|$4|name|$4|peek|$11|description|$5|looks|$5|flags|*1|+no-writes|";
        assert_eq!(call(&["FUNCTION", "LIST", "LIBRARYNAME", "COU*"]), list);
        assert_eq!(call(&["FUNCTION", "LIST", "LIBRARYNAME", "x*"]), "*0|");
        // They are nobody's keys, and stay when these go.
        assert_eq!(call(&["DBSIZE"]), ":1|");
        assert_eq!(call(&["FLUSHALL"]), "+OK|");
        assert_eq!(call(&["FCALL", "add", "1", "k", "5"]), ":5|");
        assert_eq!(call(&["FUNCTION", "DELETE", "nope"]), "-ERR Library not found|");
        assert_eq!(call(&["FUNCTION", "DELETE", "counts"]), "+OK|");
        assert_eq!(call(&["FCALL", "add", "1", "k", "5"]), "-ERR Function not found|");
        // Within a transaction its own libraries are seen, and after it.
        for words in
            [&["MULTI"][..], &["FUNCTION", "LOAD", COUNTS], &["FCALL", "add", "1", "k", "1"]]
        {
            call(words);
        }
        assert_eq!(call(&["EXEC"]), "*2|$6|counts|:6|");
        assert_eq!(call(&["FCALL", "add", "1", "k", "1"]), ":7|");
        assert_eq!(call(&["FUNCTION", "FLUSH"]), "+OK|");
        assert_eq!(call(&["FUNCTION", "LIST"]), "*0|");
    }
}

#[test]
fn what_is_wrong_with_a_library_is_said_as_in_redis() {
    let gateway = Gateway::start();
    let mut client = gateway.client();
    let failed = "ERR Error registering functions: ";
    for (code, error) in [
        ("redis.register_function()", "ERR wrong number of arguments to redis.register_function"),
        (
            "redis.register_function('x', 1)",
            "ERR second argument to redis.register_function must be a function",
        ),
        (
            "redis.call('get', 'x')",
            "ERR user_function:2: Script attempted to access nonexistent global variable 'call'",
        ),
        (
            "redis.register_function{function_name='x'}",
            "ERR redis.register_function must get a callback argument",
        ),
        (
            "redis.register_function('a-b', function() end)",
            "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one character long",
        ),
        ("x = 1", "ERR user_function:2: Attempt to modify a readonly table"),
        (
            "local x = y",
            "ERR user_function:2: Script attempted to access nonexistent global variable 'y'",
        ),
        (
            "redis.register_function{function_name='x', callback=print, flags={'no'}}",
            "ERR user_function:2: Script attempted to access nonexistent global variable 'print'",
        ),
        (
            "redis.register_function{function_name='x', callback=type, flags={'no'}}",
            "ERR unknown flag given",
        ),
        ("while true do end", "ERR FUNCTION LOAD timeout"),
    ] {
        let code = format!("#!lua name=a\n{code}");
        let reply = String::from_utf8(client.call(&["FUNCTION", "LOAD", &code])).unwrap();
        assert_eq!(reply, format!("-{failed}{error}\r\n"), "{code}");
    }
    let reply = client.call(&["FUNCTION", "LOAD", "#!lua name=a\nfoo("]);
    let reply = String::from_utf8(reply).unwrap();
    assert!(reply.starts_with("-ERR Error compiling function: user_function:2: "), "{reply}");
    let reply = client.call(&["FUNCTION", "LOAD", "#!lua name=a\nreturn 1"]);
    assert_eq!(reply, b"-ERR No functions registered\r\n");
    let fails = "#!lua name=a\nredis.register_function('e1', function() redis.call('nope') end) \
                 redis.register_function('e2', function() return x end) \
                 redis.register_function('e3', function() KEYS[1] = 1 end) \
                 redis.register_function('e4', function() redis.register_function() end) \
                 redis.register_function('e5', function() getmetatable('').__index.len = nil end)";
    assert_eq!(client.call(&["FUNCTION", "LOAD", fails]), b"$1\r\na\r\n");
    for (name, error) in [
        ("e1", "ERR Unknown Redis command called from script"),
        ("e2", "ERR user_function:2: Script attempted to access nonexistent global variable 'x'"),
        (
            "e3",
            "ERR user_function:2: Script attempted to access nonexistent global variable 'KEYS'",
        ),
        ("e4", "ERR user_function:2: attempt to call field 'register_function' (a nil value)"),
        ("e5", "ERR user_function:2: Attempt to modify a readonly table"),
    ] {
        let reply = String::from_utf8(client.call(&["FCALL", name, "0"])).unwrap();
        assert_eq!(reply, format!("-{error} script: {name}, on @user_function:2.\r\n"));
    }
}

#[test]
fn a_script_that_takes_long_returns_what_it_likes() {
    let gateway = Gateway::over_the_store(&config());
    let mut client = gateway.client();
    let script = "local n = 0 for i = 1, 3e7 do n = n + i % 7 end return {1, {'a'}, KEYS[1]}";
    assert_eq!(eval(&mut client, &[script, "1", "k"]), "*3|:1|*1|$1|a|$1|k|");
}

#[test]
fn a_function_that_takes_long_is_told_of_and_can_be_killed() {
    let gateway = Gateway::over_the_store(&Config { workers: 2, ..config() });
    let mut client = gateway.client();
    let code = "#!lua name=l\nredis.register_function('loop', function() redis.call('set', 'k', 'v') \
                while true do end end)";
    assert_eq!(client.call(&["FUNCTION", "LOAD", code]), b"$1\r\nl\r\n");
    let mut slow = gateway.client();
    slow.send(&common::encode(&["FCALL", "loop", "1", "k", "a"]));
    let stats = loop {
        let stats = client.ask("FUNCTION STATS");
        if stats.contains("duration_ms") {
            break stats;
        }
    };
    assert!(stats.contains("$4\\r\\nname\\r\\n$4\\r\\nloop\\r\\n"), "{stats}");
    assert!(stats.contains("*5\\r\\n$5\\r\\nfcall\\r\\n$4\\r\\nloop\\r\\n$1\\r\\n1"), "{stats}");
    assert_eq!(client.ask("FUNCTION KILL"), "+OK\\r\\n");
    let reply = String::from_utf8(slow.reply()).unwrap();
    assert!(reply.contains("Script killed by user"), "{reply}");
    assert_eq!(client.ask("EXISTS k"), ":0\\r\\n");
}

#[test]
fn replies_of_a_script_are_of_the_protocol_that_it_asks_for() {
    for gateway in gateways() {
        let mut client = gateway.client();
        for (hello, resp, script, reply) in [
            ("HELLO 2", 2, "return true", ":1|"),
            ("HELLO 2", 2, "return false", "$-1|"),
            ("HELLO 2", 3, "return false", ":0|"),
            ("HELLO 3", 2, "return true", ":1|"),
            ("HELLO 3", 2, "return false", "_|"),
            ("HELLO 3", 3, "return true", "#t|"),
            ("HELLO 3", 3, "return false", "#f|"),
            ("HELLO 3", 3, "return nil", "_|"),
            ("HELLO 2", 3, "return {big_number='12\\n3'}", "$4|12 3|"),
            ("HELLO 3", 3, "return {big_number='12\\n3'}", "(12 3|"),
        ] {
            client.ask(hello);
            let script = format!("redis.setresp({resp}); {script}");
            assert_eq!(eval(&mut client, &[&script, "0"]), reply, "{hello}: {script}");
        }
    }
}

#[test]
fn tables_of_any_length_go_both_ways() {
    let gateway = Gateway::start();
    let mut client = gateway.client();
    let arguments: Vec<String> = (0..30_000).map(|number| format!("argument {number}")).collect();
    let script = "local t = {} for n = 1, #ARGV do t['x' .. n] = ARGV[n] end \
                  t = cmsgpack.unpack(cmsgpack.pack(t)) \
                  for n = 1, #ARGV do assert(t['x' .. n] == ARGV[n]) end \
                  redis.setresp(3) return {ARGV, {map=t}}";
    let mut call = vec!["EVAL", script, "0"];
    call.extend(arguments.iter().map(String::as_str));
    let reply = String::from_utf8(client.call(&call)).unwrap();
    let (head, rest) = reply.split_at(reply.find("$").unwrap());
    assert_eq!(head, "*2\r\n*30000\r\n");
    let whole: String =
        arguments.iter().map(|text| format!("${}\r\n{text}\r\n", text.len())).collect();
    assert!(rest.starts_with(&format!("{whole}*60000\r\n$")), "items are missing");
}

#[test]
fn others_are_told_of_a_slow_script_if_they_shall_be() {
    let gateway = Gateway::over_the_store(&Config { workers: 2, ..config() });
    let (mut client, mut other) = (gateway.client(), gateway.client());
    let code = "#!lua name=l\nredis.register_function('loop', function() while true do end end)";
    assert_eq!(client.call(&["FUNCTION", "LOAD", code]), b"$1\r\nl\r\n");
    assert_eq!(other.ask("CONFIG SET busy-reply-threshold 10"), "+OK\\r\\n");
    let busy = "BUSY Redis is busy running a script. You can only call";
    for (call, kill, not_kill) in [
        (&["EVAL", "while true do end", "0"][..], "SCRIPT KILL", "FUNCTION KILL"),
        (&["FCALL", "loop", "0"], "FUNCTION KILL", "SCRIPT KILL"),
    ] {
        let told = format!("-{busy} {kill} or SHUTDOWN NOSAVE.\\r\\n");
        let mut begun = gateway.client();
        assert_eq!(begun.ask("MULTI"), "+OK\\r\\n");
        assert_eq!(begun.ask("SET k v"), "+QUEUED\\r\\n");
        client.send(&common::encode(call));
        client.send(&common::encode(&["PING"]));
        assert!((0..100_000).any(|_| other.ask("PING") == told), "nobody was told");
        assert_eq!(other.ask("GET k"), told);
        // A new client is told as well, and who has begun a transaction has it no more.
        assert_eq!(gateway.client().ask("PING"), told);
        let abort = "-EXECABORT Transaction discarded because of: ";
        assert_eq!(begun.ask("EXEC"), format!("{abort}{}", &told[1..]));
        assert_eq!(begun.ask("EXEC"), told);
        assert_eq!(other.ask("MULTI"), "+OK\\r\\n");
        assert_eq!(other.ask("GET k"), told);
        assert_eq!(other.ask(not_kill), "+QUEUED\\r\\n");
        assert_eq!(other.ask("DISCARD"), "+OK\\r\\n");
        assert_eq!(other.ask(not_kill), told);
        assert_eq!(other.ask(kill), "+OK\\r\\n");
        let reply = client.reply().escape_ascii().to_string();
        assert!(reply.contains("Script killed by user"), "{reply}");
        assert_eq!(client.reply(), b"+PONG\r\n");
        assert_eq!(other.ask("PING"), "+PONG\\r\\n");
    }
    assert_eq!(other.ask("EXISTS k"), ":0\\r\\n");
}
