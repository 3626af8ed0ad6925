//! Users: who they are, what they may do, and what they are told otherwise.

mod common;

use common::{Client, Gateway, config};
use gateway::config::Config;
use gateway::testing::MemoryKeyspace;

fn escaped(text: &str) -> String {
    format!("{}\\r\\n", text.replace('\'', "\\'"))
}

fn as_user(gateway: &Gateway, user: &str, password: &str) -> Client {
    let mut client = gateway.client();
    assert_eq!(client.ask(&format!("AUTH {user} {password}")), escaped("+OK"));
    client
}

#[test]
fn a_user_does_what_the_rules_allow_and_is_told_what_they_do_not() {
    let gateway = Gateway::start();
    let mut root = gateway.client();
    let rules = "ACL SETUSER bob on >pw ~app:* %R~shared:* &news:* +@string +@pubsub +ping -append";
    assert_eq!(root.ask(rules), escaped("+OK"));
    assert_eq!(root.ask("SET shared:x 1"), escaped("+OK"));
    let mut bob = as_user(&gateway, "bob", "pw");
    for (words, reply) in [
        ("SET app:1 v", "+OK"),
        ("GET app:1", "$1\\r\\nv"),
        ("GET shared:x", "$1\\r\\n1"),
        ("SET shared:x 2", "-NOPERM No permissions to access a key"),
        ("SET shared:x 2 GET", "-NOPERM No permissions to access a key"),
        ("MGET app:1 other", "-NOPERM No permissions to access a key"),
        ("APPEND app:1 x", "-NOPERM User bob has no permissions to run the 'append' command"),
        ("DEL app:1", "-NOPERM User bob has no permissions to run the 'del' command"),
        ("CLIENT LIST", "-NOPERM User bob has no permissions to run the 'client|list' command"),
        ("PUBLISH news:a hello", ":0"),
        ("PUBLISH other hello", "-NOPERM No permissions to access a channel"),
        ("PSUBSCRIBE news:?", "-NOPERM No permissions to access a channel"),
        ("PING", "+PONG"),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        ("NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with: "),
        ("AUTH default x", "+OK"),
        ("ACL WHOAMI", "$7\\r\\ndefault"),
    ] {
        assert_eq!(bob.ask(words), escaped(reply), "{words}");
    }
    assert!(root.ask("INFO errorstats").contains("errorstat_NOPERM:count=8"));
}

#[test]
fn a_pipeline_of_a_limited_user_stops_at_nothing_and_passes_nothing() {
    let gateway = Gateway::start();
    let mut root = gateway.client();
    root.ask("ACL SETUSER bob on >pw ~a* +get +set +auth");
    let mut bob = as_user(&gateway, "bob", "pw");
    let mut frames = Vec::new();
    let commands = [
        "SET a1 1",
        "SET b1 1",
        "SET a2 2",
        "SET a3 3",
        "GET a1",
        "GET b1",
        "GET a2",
        "AUTH default x",
        "SET b1 9",
        "GET b1",
    ];
    for words in commands {
        frames.extend(common::encode(&words.split(' ').collect::<Vec<_>>()));
    }
    bob.send(&frames);
    let replies: Vec<String> =
        commands.iter().map(|_| bob.reply().escape_ascii().to_string()).collect();
    let denied = "-NOPERM No permissions to access a key";
    let wanted =
        ["+OK", denied, "+OK", "+OK", "$1\\r\\n1", denied, "$1\\r\\n2", "+OK", "+OK", "$1\\r\\n9"];
    assert_eq!(replies, wanted.map(escaped));
}

#[test]
fn a_script_may_do_what_its_user_may() {
    let gateway = Gateway::start();
    let mut root = gateway.client();
    root.ask("ACL SETUSER bob on >pw ~a* &news +@scripting +@string +publish +auth -append");
    let mut bob = as_user(&gateway, "bob", "pw");
    let refused = "-ERR The user executing the script can't";
    for (script, keys, reply) in [
        ("return redis.call('set','a1','v')", "1 a1", "+OK".to_owned()),
        // The keys that it names are asked for, and those that it does not.
        ("return 1", "1 b1", "-NOPERM No permissions to access a key".to_owned()),
        ("return redis.call('set','b1','v')", "0", format!("{refused} access at least one of")),
        ("return redis.call('append','a1','v')", "0", format!("{refused} run this command or")),
        ("return redis.call('publish','news','v')", "0", ":0".to_owned()),
        ("return redis.call('publish','other','v')", "0", format!("{refused} publish to the")),
        ("return redis.pcall('del','a1').err", "0", format!("$70\r\n{}", &refused[1..])),
        (
            "return {redis.acl_check_cmd('set','a1',1), redis.acl_check_cmd('set','b1',1)}",
            "0",
            "*2\r\n:1\r\n$-1".to_owned(),
        ),
        (
            "return redis.acl_check_cmd('nosuch')",
            "0",
            "-ERR Invalid command passed to redis.acl_check_cmd()".to_owned(),
        ),
    ] {
        let mut words = vec!["EVAL", script];
        words.extend(keys.split(' '));
        let got = String::from_utf8(bob.call(&words)).unwrap();
        assert!(got.starts_with(&reply), "{script}: {got}");
    }
    assert!(root.ask("GET b1").starts_with("$-1"));
    let log = root.ask("ACL LOG");
    for part in ["lua", "channel", "other", "b1", "append"] {
        assert!(log.contains(part), "{part} in {log}");
    }
    assert_eq!(
        root.ask("COMMAND GETKEYS EVAL x 2 a b c"),
        escaped("*2\\r\\n$1\\r\\na\\r\\n$1\\r\\nb")
    );
}

#[test]
fn keys_of_functions_are_asked_for_as_those_of_scripts() {
    let gateway = Gateway::start();
    let mut root = gateway.client();
    let code = "#!lua name=l\nredis.register_function('one', function() return 1 end)\n\
                redis.register_function{function_name='look', callback=function() return 1 end, \
                flags={'no-writes'}}";
    assert_eq!(root.call(&["FUNCTION", "LOAD", code]), b"$1\r\nl\r\n");
    root.ask("ACL SETUSER bob on >pw %R~r* ~a* +@scripting");
    let mut bob = as_user(&gateway, "bob", "pw");
    let denied = "-NOPERM No permissions to access a key";
    for (words, reply) in [
        ("EVAL 0 1 r1", denied),
        ("FCALL one 1 r1", denied),
        ("FCALL one 1 a1", ":1"),
        ("FCALL_RO look 1 r1", ":1"),
        ("FCALL_RO look 1 b1", denied),
    ] {
        assert_eq!(bob.ask(words), escaped(reply), "{words}");
    }
}

#[test]
fn exec_asks_again_what_its_user_may_do() {
    let gateway = Gateway::start();
    let mut root = gateway.client();
    root.ask("ACL SETUSER bob on >pw ~* +@transaction +@string +auth +acl|whoami");
    root.ask("ACL SETUSER amy on >pw ~* +get +exec +acl|whoami");
    let mut bob = as_user(&gateway, "bob", "pw");
    // What is refused when it is to be kept breaks the transaction.
    bob.ask("MULTI");
    assert!(bob.ask("DEL k").starts_with("-NOPERM User bob has no permissions"));
    assert!(bob.ask("EXEC").starts_with("-EXECABORT"));
    // What is forbidden after it was kept does not run, and the others do.
    bob.ask("MULTI");
    for words in ["SET k 1", "APPEND k 2", "ACL WHOAMI", "GET k"] {
        assert_eq!(bob.ask(words), escaped("+QUEUED"));
    }
    root.ask("ACL SETUSER bob -append -acl|whoami");
    let refused = "-NOPERM ACLs rules changed between the moment the transaction was accumulated \
        and the EXEC call. This command is no longer allowed for the following reason: no \
        permission to execute the command or subcommand";
    let wanted = format!("*4\\r\\n+OK\\r\\n{refused}\\r\\n{refused}\\r\\n$1\\r\\n1");
    assert_eq!(bob.ask("EXEC"), escaped(&wanted));
    assert!(root.ask("ACL LOG").contains("multi"));
    // AUTH among what was kept counts for what follows it.
    bob.ask("MULTI");
    for words in ["SET k 2", "AUTH amy pw", "SET k 3", "GET k"] {
        assert_eq!(bob.ask(words), escaped("+QUEUED"));
    }
    let wanted = format!("*4\\r\\n+OK\\r\\n+OK\\r\\n{refused}\\r\\n$1\\r\\n2");
    assert_eq!(bob.ask("EXEC"), escaped(&wanted));
    assert_eq!(bob.ask("ACL WHOAMI"), escaped("$3\\r\\namy"));
}

#[test]
fn who_may_no_longer_listen_is_disconnected() {
    let gateway = Gateway::start();
    let mut root = gateway.client();
    root.ask("ACL SETUSER bob on >pw &a* &b +@pubsub");
    let [mut a, mut b, mut pattern] = [0; 3].map(|_| as_user(&gateway, "bob", "pw"));
    assert!(a.ask("SUBSCRIBE a1").contains("subscribe"));
    assert!(b.ask("SUBSCRIBE b").contains("subscribe"));
    assert!(pattern.ask("PSUBSCRIBE a*").contains("psubscribe"));
    assert_eq!(root.ask("ACL SETUSER bob resetchannels &a*"), escaped("+OK"));
    assert_eq!(b.rest(), b"");
    assert_eq!(root.ask("PUBLISH a1 x"), escaped(":2"));
    assert!(String::from_utf8(a.reply()).unwrap().contains("message"));
    assert!(String::from_utf8(pattern.reply()).unwrap().contains("pmessage"));
    assert_eq!(root.ask("ACL SETUSER bob resetchannels &a1"), escaped("+OK"));
    assert_eq!(pattern.rest(), b"");
    assert_eq!(root.ask("PUBLISH a1 y"), escaped(":1"));
}

#[test]
fn changes_of_a_user_reach_connections_that_are_there() {
    let gateway = Gateway::with(&Config { workers: 2, ..config() }, MemoryKeyspace::default());
    let mut root = gateway.client();
    root.ask("ACL SETUSER bob on >pw ~* +get");
    let mut bobs: Vec<Client> = (0..4).map(|_| as_user(&gateway, "bob", "pw")).collect();
    for bob in &mut bobs {
        assert!(bob.ask("SET k v").starts_with("-NOPERM"));
    }
    assert_eq!(root.ask("ACL SETUSER bob +set -get"), escaped("+OK"));
    for bob in &mut bobs {
        assert_eq!(bob.ask("SET k v"), escaped("+OK"));
        assert!(bob.ask("GET k").starts_with("-NOPERM"));
    }
    assert_eq!(root.ask("ACL DELUSER bob nobody"), escaped(":1"));
    for mut bob in bobs {
        assert_eq!(bob.rest(), b"", "the connections of who is removed are ended");
    }
    // What the default user may no longer do, its connections may not either.
    let mut other = gateway.client();
    assert_eq!(other.ask("ACL SETUSER default >secret -flushall"), escaped("+OK"));
    assert!(root.ask("FLUSHALL").starts_with("-NOPERM"));
    assert_eq!(root.ask("GET k"), escaped("$1\\r\\nv"));
    assert!(gateway.client().ask("GET k").starts_with("-NOAUTH"));
}

#[test]
fn requirepass_is_the_password_of_the_default_user() {
    let config = Config { require_pass: "secret".to_owned(), ..config() };
    let gateway = Gateway::with(&config, MemoryKeyspace::default());
    let mut client = gateway.client();
    assert!(client.ask("PING").starts_with("-NOAUTH"));
    assert!(client.ask("AUTH wrong").starts_with("-WRONGPASS"));
    assert_eq!(client.ask("AUTH secret"), escaped("+OK"));
    assert!(client.ask("ACL LOG").contains("auth"));
    assert_eq!(client.ask("CONFIG SET requirepass other"), escaped("+OK"));
    assert!(gateway.client().ask("AUTH secret").starts_with("-WRONGPASS"));
    assert_eq!(gateway.client().ask("AUTH default other"), escaped("+OK"));
    assert!(gateway.client().ask("HELLO 3 AUTH default other").starts_with('%'));
    assert_eq!(client.call(&["CONFIG", "SET", "requirepass", ""]), b"+OK\r\n");
    assert_eq!(gateway.client().ask("PING"), escaped("+PONG"));
}

#[test]
fn users_outlive_a_gateway_in_their_file() {
    let folder = std::env::temp_dir().join(format!("acl-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("users.acl");
    std::fs::write(&file, "user default on nopass ~* &* +@all\nuser amy on >old +get ~a*\n")
        .unwrap();
    let config = Config { acl_file: Some(file.clone()), ..config() };
    let gateway = Gateway::with(&config, MemoryKeyspace::default());
    let mut root = gateway.client();
    as_user(&gateway, "amy", "old");
    assert_eq!(root.ask("ACL SETUSER bob on >pw ~* +@read (+set ~b*)"), escaped("+OK"));
    assert_eq!(root.ask("ACL SAVE"), escaped("+OK"));
    assert!(!std::fs::read_to_string(&file).unwrap().contains(">old"), "hashes only");
    let told = root.ask("ACL LIST");
    gateway.stop();

    let gateway = Gateway::with(&config, MemoryKeyspace::default());
    let mut root = gateway.client();
    assert_eq!(root.ask("ACL LIST"), told);
    let mut bob = as_user(&gateway, "bob", "pw");
    assert_eq!(bob.ask("SET b1 1"), escaped("+OK"));
    assert!(bob.ask("SET a1 1").starts_with("-NOPERM"));
    // A wrong file changes nothing.
    std::fs::write(&file, "user amy on\nuser bob +nosuch\n").unwrap();
    let refused = root.ask("ACL LOAD");
    assert!(refused.contains("users.acl:2: Unknown command or category"), "{refused}");
    assert_eq!(root.ask("ACL LIST"), told);
    std::fs::write(&file, "user amy on >new +get ~a*\n").unwrap();
    assert_eq!(root.ask("ACL LOAD"), escaped("+OK"));
    assert_eq!(bob.rest(), b"", "bob is no more");
    as_user(&gateway, "amy", "new");
    assert_eq!(root.ask("PING"), escaped("+PONG"), "no line, no change of the default user");
    drop(gateway);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn users_are_told_as_redis_tells_them() {
    let gateway = Gateway::start();
    let mut root = gateway.client();
    assert_eq!(root.ask("ACL USERS"), escaped("*1\\r\\n$7\\r\\ndefault"));
    let line = "user default on nopass ~* &* +@all";
    assert_eq!(root.ask("ACL LIST"), escaped(&format!("*1\\r\\n${}\\r\\n{line}", line.len())));
    assert_eq!(root.ask("ACL GETUSER nobody"), escaped("$-1"));
    root.ask("ACL SETUSER bob on >pw ~a* %R~b &c* +@all -@dangerous (+set ~x)");
    let told = root.ask("ACL GETUSER bob");
    for part in ["~a* %R~b", "&c*", "+@all -@dangerous", "-@all +set", "~x", "30c952fab122c3f9"] {
        assert!(told.contains(part), "{part} in {told}");
    }
    assert_eq!(root.ask("ACL GENPASS 5").len(), escaped("$2\\r\\nab").len());
    assert_eq!(root.ask("ACL GENPASS").len(), escaped("$64\\r\\n").len() + 64);
    assert_ne!(root.ask("ACL GENPASS"), root.ask("ACL GENPASS"));
    assert!(root.ask("ACL GENPASS 0").starts_with("-ERR ACL GENPASS argument must be"));
    for (words, reply) in [
        ("ACL DRYRUN bob set x 1", "+OK"),
        ("ACL DRYRUN bob keys x", "User bob has no permissions to run the 'keys' command"),
        ("ACL DRYRUN bob get z", "User bob has no permissions to access the 'z' key"),
        ("ACL DRYRUN nobody get z", "-ERR User 'nobody' not found"),
        ("ACL DRYRUN bob nosuch", "-ERR Command 'nosuch' not found"),
        ("ACL DELUSER default", "-ERR The 'default' user cannot be removed"),
        ("ACL CAT nosuch", "-ERR Unknown category 'nosuch'"),
        (
            "ACL SETUSER bob +nosuch",
            "-ERR Error in ACL SETUSER modifier '+nosuch': Unknown command or category name in ACL",
        ),
        (
            "ACL SETUSER bob (+get",
            "-ERR Unmatched parenthesis in acl selector starting at '(+get'.",
        ),
    ] {
        let got = root.ask(words);
        assert!(got.ends_with(&escaped(reply)), "{words}: {got}");
    }
}

/// What `ACL CAT category` of redis-server says of the commands that are here.
#[test]
fn categories_hold_the_commands_that_they_hold_in_redis() {
    let redis = common::redis::Redis::start();
    let gateway = Gateway::start();
    let (mut theirs, mut ours) = (Client::connect(redis.address), gateway.client());
    let names = |reply: Vec<u8>| -> Vec<String> {
        let text = String::from_utf8(reply).unwrap();
        text.lines().filter(|line| !line.starts_with(['*', '$'])).map(str::to_owned).collect()
    };
    let known = names(ours.call(&["COMMAND", "LIST"]));
    let categories = names(theirs.call(&["ACL", "CAT"]));
    assert_eq!(names(ours.call(&["ACL", "CAT"])), categories);
    let unknown_to_redis_7_0 = ["client|setinfo", "client|no-touch"];
    let mut differences = Vec::new();
    for category in categories {
        let mut wanted = names(theirs.call(&["ACL", "CAT", &category]));
        let mut got = names(ours.call(&["ACL", "CAT", &category]));
        wanted.retain(|name| known.contains(name));
        got.retain(|name| !unknown_to_redis_7_0.contains(&name.as_str()));
        for name in wanted.iter().filter(|name| !got.contains(name)) {
            differences.push(format!("{category} lacks {name}"));
        }
        for name in got.iter().filter(|name| !wanted.contains(name)) {
            differences.push(format!("{category} has {name}"));
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

/// COMMAND GETKEYSANDFLAGS of redis-server, which its ACL goes by.
#[test]
fn keys_are_used_for_what_redis_uses_them() {
    let redis = common::redis::Redis::start();
    let gateway = Gateway::start();
    let mut clients = [Client::connect(redis.address), gateway.client()];
    for words in [
        "GET k",
        "MGET a b",
        "DUMP k",
        "EXISTS a b",
        "TOUCH a",
        "TYPE k",
        "STRLEN k",
        "WATCH a b",
        "HEXISTS k f",
        "HGET k f",
        "MEMORY USAGE k",
        "OBJECT ENCODING k",
        "SET k v",
        "SET k v PX 1 GET",
        "SETEX k 1 v",
        "SETNX k v",
        "MSET a 1 b 2",
        "MSETNX a 1 b 2",
        "APPEND k v",
        "SETRANGE k 0 v",
        "INCR k",
        "GETSET k v",
        "GETDEL k",
        "GETEX k",
        "DEL a b",
        "UNLINK a",
        "RENAME a b",
        "RENAMENX a b",
        "COPY a b",
        "MOVE a 1",
        "RESTORE k 0 v",
        "EXPIRE k 1",
        "PERSIST k",
        "SETBIT k 0 1",
        "BITOP NOT a b",
        "BITFIELD k GET u8 0",
        "BITFIELD k GET u8 0 SET u8 0 1",
        "BITFIELD_RO k GET u8 0",
        "HSET k f v",
        "HSETNX k f v",
        "HDEL k f",
        "HINCRBY k f 1",
        "EVAL s 2 a b c",
        "EVALSHA_RO s 1 a",
        "FCALL f 1 a",
        "FCALL_RO f 1 a",
    ] {
        let request = format!("COMMAND GETKEYSANDFLAGS {words}");
        let [wanted, got] = clients.each_mut().map(|client| client.ask(&request));
        assert_eq!(got, wanted, "{words}");
    }
}
