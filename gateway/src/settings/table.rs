//! Every setting, once: those that clients, dashboards and Redis's tests ask for.

use super::value::Kind;
use Access::{Bound, Fixed, Hidden, Live, Remembered};
use Kind::{
    Bytes, BytesOrShare, EventClasses, Number, OneOf, OutputLimits, SavePoints, Text, YesNo,
};

/// What may be done with a setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    /// Changes something.
    Live,
    /// Is remembered and told; what it would change is not there.
    Remembered,
    /// Remembered, and told only to who names it.
    Hidden,
    /// Is what it is.
    Fixed,
    /// Fixed, but Redis would try to.
    Bound,
}

/// A setting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) name: &'static str,
    /// Another name, or nothing.
    alias: &'static str,
    pub(super) access: Access,
    pub(super) value: Kind,
    pub(super) default: &'static str,
}

impl Setting {
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        [self.name, self.alias].into_iter().filter(|name| !name.is_empty())
    }

    pub(super) fn is_hidden(&self) -> bool {
        self.access == Hidden
    }
}

const fn row(
    name: &'static str,
    alias: &'static str,
    access: Access,
    value: Kind,
    default: &'static str,
) -> Setting {
    Setting { name, alias, access, value, default }
}

const ANY: Kind = Number(i64::MIN, i64::MAX);
const COUNT: Kind = Number(0, i64::MAX);
const INT: Kind = Number(0, i32::MAX as i64);
const POLICIES: Kind = OneOf(&[
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "noeviction",
]);
const LEVELS: Kind = OneOf(&["debug", "verbose", "notice", "warning", "nothing"]);
const FSYNC: Kind = OneOf(&["everysec", "always", "no"]);

#[rustfmt::skip]
pub(super) const SETTINGS: &[Setting] = &[
    row("acl-pubsub-default", "", Fixed, Text, "resetchannels"),
    row("aclfile", "", Fixed, Text, ""),
    row("acllog-max-len", "", Live, COUNT, "128"),
    row("activedefrag", "", Remembered, YesNo, "no"),
    row("aof-use-rdb-preamble", "", Remembered, YesNo, "yes"),
    row("appendfsync", "", Remembered, FSYNC, "everysec"),
    row("appendonly", "", Fixed, YesNo, "no"),
    row("bind", "", Bound, Text, ""),
    row("busy-reply-threshold", "lua-time-limit", Live, COUNT, "0"),
    row("client-output-buffer-limit", "", Live, OutputLimits, "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60"),
    row("client-query-buffer-limit", "", Remembered, Bytes, "1073741824"),
    row("cluster-enabled", "", Fixed, YesNo, "no"),
    row("daemonize", "", Fixed, YesNo, "no"),
    row("databases", "", Fixed, INT, "16"),
    row("dbfilename", "", Fixed, Text, ""),
    row("dir", "", Fixed, Text, ""),
    row("dynamic-hz", "", Remembered, YesNo, "yes"),
    row("enable-debug-command", "", Fixed, Text, "no"),
    row("hash-max-listpack-entries", "hash-max-ziplist-entries", Remembered, COUNT, "512"),
    row("hash-max-listpack-value", "hash-max-ziplist-value", Remembered, COUNT, "64"),
    row("hz", "", Remembered, INT, "10"),
    row("io-threads", "", Fixed, INT, "1"),
    row("io-uring", "", Fixed, Text, "no"),
    row("key-load-delay", "", Hidden, ANY, "0"),
    row("latency-monitor-threshold", "", Live, COUNT, "0"),
    row("latency-tracking", "", Remembered, YesNo, "yes"),
    row("lazyfree-lazy-expire", "", Remembered, YesNo, "no"),
    row("lfu-decay-time", "", Remembered, INT, "1"),
    row("lfu-log-factor", "", Remembered, INT, "10"),
    row("list-compress-depth", "", Remembered, INT, "0"),
    row("list-max-listpack-size", "list-max-ziplist-size", Remembered, ANY, "-2"),
    row("loglevel", "", Remembered, LEVELS, "notice"),
    row("maxclients", "", Live, Number(1, u32::MAX as i64), "10000"),
    row("maxmemory", "", Live, Bytes, "0"),
    row("maxmemory-clients", "", Remembered, BytesOrShare, "0"),
    row("maxmemory-policy", "", Remembered, POLICIES, "noeviction"),
    row("maxmemory-samples", "", Remembered, INT, "5"),
    row("min-replicas-to-write", "min-slaves-to-write", Fixed, INT, "0"),
    row("notify-keyspace-events", "", Live, EventClasses, ""),
    row("port", "", Bound, INT, "6379"),
    row("protected-mode", "", Live, YesNo, "yes"),
    row("proto-max-bulk-len", "", Fixed, Bytes, "536870912"),
    row("rdb-key-save-delay", "", Hidden, ANY, "0"),
    row("repl-backlog-size", "", Remembered, Bytes, "1048576"),
    row("replica-read-only", "slave-read-only", Fixed, YesNo, "yes"),
    row("replica-serve-stale-data", "slave-serve-stale-data", Remembered, YesNo, "yes"),
    row("replicaof", "slaveof", Fixed, Text, ""),
    row("requirepass", "", Live, Text, ""),
    row("save", "", Remembered, SavePoints, ""),
    row("script-time-limit", "", Live, COUNT, "60000"),
    row("set-max-intset-entries", "", Remembered, COUNT, "512"),
    row("slowlog-log-slower-than", "", Live, Number(-1, i64::MAX), "10000"),
    row("slowlog-max-len", "", Live, COUNT, "128"),
    row("stream-node-max-bytes", "", Remembered, Bytes, "4096"),
    row("stream-node-max-entries", "", Remembered, COUNT, "100"),
    row("tcp-keepalive", "", Remembered, INT, "300"),
    row("timeout", "", Live, INT, "0"),
    row("tls-port", "", Fixed, INT, "0"),
    row("unixsocket", "", Fixed, Text, ""),
    row("zset-max-listpack-entries", "zset-max-ziplist-entries", Remembered, COUNT, "128"),
    row("zset-max-listpack-value", "zset-max-ziplist-value", Remembered, COUNT, "64"),
];
