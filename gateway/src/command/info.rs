//! INFO: the server in numbers, under the names that dashboards know.

use std::fmt::Write as _;
use std::sync::Arc;

use fusee::DATABASES;

use super::table::COMMANDS;
use super::{Call, CommandId, is};
use crate::channels::Way;
use crate::keyspace::Keyspace;
use crate::phase::Phase;
use crate::reply::ErrorKind;
use crate::session::Place;
use crate::shared::{REDIS_VERSION, VERSION, unix_us};
use crate::stats::{LATENCY_NS, WorkerStats};

/// Counts of all workers at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    /// By command: calls, their time in nanoseconds, failures, and refusals.
    commands: Vec<[u64; 4]>,
    /// By command: calls by how long they took.
    latency: Vec<[u64; LATENCY_NS.len() + 1]>,
    /// By kind.
    errors: Vec<u64>,
    connections: u64,
    rejected: u64,
    bytes_in: u64,
    bytes_out: u64,
    hits: u64,
    misses: u64,
    expired: u64,
    /// Requests, bytes read and bytes written in a second: not counts.
    rates: [u64; 3],
}

impl Totals {
    pub(crate) fn sum(workers: &[Arc<WorkerStats>]) -> Self {
        let sum = |read: &dyn Fn(&WorkerStats) -> u64| workers.iter().map(|one| read(one)).sum();
        let commands = (0..COMMANDS.len()).map(|id| {
            let calls = |one: &WorkerStats| {
                one.commands[id].latency.iter().map(|count| count.get()).sum::<u64>()
            };
            [
                sum(&calls),
                sum(&|one| one.commands[id].latency_ns.get()),
                sum(&|one| one.commands[id].failed.get()),
                sum(&|one| one.commands[id].rejected.get()),
            ]
        });
        let latency = (0..COMMANDS.len()).map(|id| {
            std::array::from_fn(|bucket| sum(&|one| one.commands[id].latency[bucket].get()))
        });
        Self {
            commands: commands.collect(),
            latency: latency.collect(),
            errors: (0..ErrorKind::COUNT).map(|kind| sum(&|one| one.errors[kind].get())).collect(),
            connections: sum(&|one| one.connections.get()),
            rejected: sum(&|one| one.connections_rejected.get()),
            bytes_in: sum(&|one| one.bytes_in.get()),
            bytes_out: sum(&|one| one.bytes_out.get()),
            hits: sum(&|one| one.hits.get()),
            misses: sum(&|one| one.misses.get()),
            expired: sum(&|one| one.expired.get()),
            rates: std::array::from_fn(|rate| sum(&|one| one.rates[rate].get())),
        }
    }

    /// How often a command was called.
    pub(crate) fn calls(&self, command: CommandId) -> u64 {
        self.commands[usize::from(command)][0]
    }

    /// Its calls by the buckets of [`LATENCY_NS`].
    pub(crate) fn latency(&self, command: CommandId) -> &[u64] {
        &self.latency[usize::from(command)]
    }

    /// What was counted after `then`.
    pub(crate) fn since(mut self, then: &Self) -> Self {
        for (now, then) in self.commands.iter_mut().zip(&then.commands) {
            for (now, then) in now.iter_mut().zip(then) {
                *now = now.saturating_sub(*then);
            }
        }
        for (now, then) in self.latency.iter_mut().zip(&then.latency) {
            for (now, then) in now.iter_mut().zip(then) {
                *now = now.saturating_sub(*then);
            }
        }
        for (now, then) in self.errors.iter_mut().zip(&then.errors) {
            *now = now.saturating_sub(*then);
        }
        self.connections = self.connections.saturating_sub(then.connections);
        self.rejected = self.rejected.saturating_sub(then.rejected);
        self.bytes_in = self.bytes_in.saturating_sub(then.bytes_in);
        self.bytes_out = self.bytes_out.saturating_sub(then.bytes_out);
        self.hits = self.hits.saturating_sub(then.hits);
        self.misses = self.misses.saturating_sub(then.misses);
        self.expired = self.expired.saturating_sub(then.expired);
        self
    }
}

const DEFAULT: &[&str] = &[
    "server",
    "clients",
    "memory",
    "persistence",
    "stats",
    "replication",
    "cpu",
    "modules",
    "errorstats",
    "cluster",
    "keyspace",
];
const OTHERS: &[&str] = &["commandstats", "latencystats"];
/// Shown to who names it: Redis has no such section.
const OWN: &[&str] = &["slowlog"];

/// INFO [section ...]
pub(super) async fn info<K: Keyspace>(call: &mut Call<'_, K>, place: &Place) {
    let asked = |section: &str| {
        let mut names = call.arguments.from(1);
        let is_default = DEFAULT.contains(&section);
        names.len() == 0 && is_default
            || names.any(|name| {
                is(name, section)
                    || is(name, "all")
                    || is(name, "everything")
                    || is(name, "default") && is_default
            })
    };
    let totals = place.shared.totals();
    let mut text = String::new();
    let own = |section: &&&str| call.arguments.from(1).any(|name| is(name, section));
    let sections = DEFAULT.iter().chain(OTHERS).filter(|section| asked(section));
    for section in sections.chain(OWN.iter().filter(own)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let title = match *section {
            "cpu" => "CPU".to_owned(),
            other => other[..1].to_uppercase() + &other[1..],
        };
        let _ = write!(text, "# {title}\r\n");
        match *section {
            "server" => server(place, &mut text),
            "clients" => clients(place, &mut text),
            "memory" => memory(call.keyspace, place, &mut text),
            "persistence" => fields(
                &mut text,
                &[
                    ("loading", "0"),
                    ("async_loading", "0"),
                    ("rdb_changes_since_last_save", "0"),
                    ("rdb_bgsave_in_progress", "0"),
                    ("rdb_last_bgsave_status", "ok"),
                    ("aof_enabled", "0"),
                    ("aof_rewrite_in_progress", "0"),
                    ("aof_last_bgrewrite_status", "ok"),
                    ("aof_last_write_status", "ok"),
                ],
            ),
            "stats" => stats(place, &totals, &mut text),
            "replication" => fields(
                &mut text,
                &[
                    ("role", "master"),
                    ("connected_slaves", "0"),
                    ("master_failover_state", "no-failover"),
                    ("master_replid", &place.shared.run_id),
                    ("master_repl_offset", "0"),
                    ("second_repl_offset", "-1"),
                    ("repl_backlog_active", "0"),
                    ("repl_backlog_size", "1048576"),
                    ("repl_backlog_histlen", "0"),
                ],
            ),
            "cpu" => cpu(&mut text),
            "errorstats" => errors(place, &totals, &mut text),
            "cluster" => fields(&mut text, &[("cluster_enabled", "0")]),
            "commandstats" => commands(&totals, &mut text),
            "latencystats" => latencies(&totals, &mut text),
            "slowlog" => slow(place, &mut text),
            "keyspace" => keyspace(call.keyspace, &mut text).await,
            _ => {}
        }
    }
    call.reply.verbatim(text.as_bytes());
}

fn fields(text: &mut String, fields: &[(&str, &str)]) {
    for (name, value) in fields {
        let _ = write!(text, "{name}:{value}\r\n");
    }
}

fn server(place: &Place, text: &mut String) {
    let shared = &place.shared;
    let uptime_s = shared.uptime_s();
    let multiplexing = if shared.settings.get("io-uring") == "yes" { "io_uring" } else { "epoll" };
    fields(
        text,
        &[
            ("redis_version", REDIS_VERSION),
            ("fusee_version", VERSION),
            ("redis_git_sha1", "00000000"),
            ("redis_git_dirty", "0"),
            ("redis_build_id", "0"),
            ("redis_mode", "standalone"),
            ("os", std::env::consts::OS),
            ("arch_bits", "64"),
            ("monotonic_clock", "POSIX clock_gettime"),
            ("multiplexing_api", multiplexing),
            ("atomicvar_api", "c11-builtin"),
            ("gcc_version", "0.0.0"),
            ("process_id", &std::process::id().to_string()),
            ("process_supervised", "no"),
            ("run_id", &shared.run_id),
            ("tcp_port", &shared.port.to_string()),
            ("server_time_usec", &unix_us().to_string()),
            ("uptime_in_seconds", &uptime_s.to_string()),
            ("uptime_in_days", &(uptime_s / 86_400).to_string()),
            ("hz", "10"),
            ("configured_hz", "10"),
            ("worker_threads", &shared.stats.len().to_string()),
            ("executable", ""),
            ("config_file", ""),
        ],
    );
}

fn clients(place: &Place, text: &mut String) {
    let shared = &place.shared;
    fields(
        text,
        &[
            ("connected_clients", &shared.clients.count().to_string()),
            ("cluster_connections", "0"),
            ("maxclients", &shared.settings.max_clients().to_string()),
            ("client_recent_max_input_buffer", "0"),
            ("client_recent_max_output_buffer", "0"),
            ("blocked_clients", "0"),
            ("tracking_clients", "0"),
            ("clients_in_timeout_table", "0"),
        ],
    );
}

fn memory<K: Keyspace>(keyspace: &K, place: &Place, text: &mut String) {
    let (scripts, script_bytes) = place.shared.scripts.size();
    let usage = keyspace.usage();
    let rss = resident_bytes();
    let system = system_bytes();
    fields(
        text,
        &[
            ("used_memory", &usage.used_bytes.to_string()),
            ("used_memory_human", &human(usage.used_bytes)),
            ("used_memory_rss", &rss.to_string()),
            ("used_memory_rss_human", &human(rss)),
            ("used_memory_peak", &usage.used_bytes.to_string()),
            ("used_memory_peak_human", &human(usage.used_bytes)),
            ("used_memory_overhead", "0"),
            ("used_memory_startup", "0"),
            ("used_memory_dataset", &usage.used_bytes.to_string()),
            ("used_memory_lua", "0"),
            ("used_memory_scripts", &script_bytes.to_string()),
            ("number_of_cached_scripts", &scripts.to_string()),
            ("total_system_memory", &system.to_string()),
            ("total_system_memory_human", &human(system)),
            ("maxmemory", &usage.capacity_bytes.to_string()),
            ("maxmemory_human", &human(usage.capacity_bytes)),
            ("maxmemory_policy", "noeviction"),
            ("mem_fragmentation_ratio", "1.00"),
            ("mem_allocator", "fusee"),
            ("active_defrag_running", "0"),
            ("lazyfree_pending_objects", "0"),
            ("lazyfreed_objects", "0"),
        ],
    );
}

fn stats(place: &Place, totals: &Totals, text: &mut String) {
    let calls: u64 = totals.commands.iter().map(|[calls, ..]| calls).sum();
    let errors: u64 = totals.errors.iter().sum();
    let channels = &place.shared.channels;
    let [requests, bytes_in, bytes_out] = totals.rates;
    let kib = |bytes: u64| format!("{:.2}", bytes as f64 / 1024.0);
    fields(
        text,
        &[
            ("total_connections_received", &totals.connections.to_string()),
            ("total_commands_processed", &calls.to_string()),
            ("instantaneous_ops_per_sec", &requests.to_string()),
            ("total_net_input_bytes", &totals.bytes_in.to_string()),
            ("total_net_output_bytes", &totals.bytes_out.to_string()),
            ("instantaneous_input_kbps", &kib(bytes_in)),
            ("instantaneous_output_kbps", &kib(bytes_out)),
            ("rejected_connections", &totals.rejected.to_string()),
            ("sync_full", "0"),
            ("sync_partial_ok", "0"),
            ("sync_partial_err", "0"),
            ("expired_keys", &totals.expired.to_string()),
            ("evicted_keys", "0"),
            ("evicted_clients", "0"),
            ("keyspace_hits", &totals.hits.to_string()),
            ("keyspace_misses", &totals.misses.to_string()),
            ("pubsub_channels", &channels.count(Way::Channel).to_string()),
            ("pubsub_patterns", &channels.count(Way::Pattern).to_string()),
            ("pubsubshard_channels", &channels.count(Way::Shard).to_string()),
            ("latest_fork_usec", "0"),
            ("total_forks", "0"),
            ("migrate_cached_sockets", "0"),
            ("total_error_replies", &errors.to_string()),
        ],
    );
}

fn cpu(text: &mut String) {
    let [user, system] = cpu_seconds();
    fields(
        text,
        &[("used_cpu_sys", &format!("{system:.6}")), ("used_cpu_user", &format!("{user:.6}"))],
    );
}

fn errors(place: &Place, totals: &Totals, text: &mut String) {
    let kinds = ErrorKind::ALL.iter().zip(&totals.errors);
    for (kind, count) in kinds.filter(|(kind, count)| **kind != ErrorKind::Other && **count > 0) {
        let _ = write!(text, "errorstat_{}:count={count}\r\n", kind.prefix());
    }
    for (code, count) in place.shared.codes() {
        // As Redis keeps them from being taken for other fields.
        let code = String::from_utf8_lossy(&code).replace(['#', ':', '\n', '\r'], "_");
        let _ = write!(text, "errorstat_{code}:count={count}\r\n");
    }
}

fn commands(totals: &Totals, text: &mut String) {
    for (command, [calls, ns, failed, rejected]) in COMMANDS.iter().zip(&totals.commands) {
        if calls + rejected > 0 {
            let _ = write!(
                text,
                "cmdstat_{}:calls={calls},usec={},usec_per_call={:.2},rejected_calls={rejected},failed_calls={failed}\r\n",
                command.name,
                ns / 1000,
                *ns as f64 / 1000.0 / (*calls).max(1) as f64,
            );
        }
    }
}

/// What SLOWLOG GET has, by its numbers, with where the time went. SLOWLOG GET itself says no
/// more than Redis's, since clients take it apart.
fn slow(place: &Place, text: &mut String) {
    for command in place.shared.slow.commands(usize::MAX) {
        let _ = write!(
            text,
            "slow_{}:usec={},phase={}",
            command.id,
            command.elapsed_us,
            command.phases.slowest().name()
        );
        for phase in [Phase::Queue, Phase::Run, Phase::Fabric, Phase::Conflict] {
            let _ = write!(text, ",{}={}", phase.name(), command.phases.us(phase));
        }
        text.push_str("\r\n");
    }
}

/// Percentiles from the latency buckets: the upper end of the bucket in which
/// each lies.
fn latencies(totals: &Totals, text: &mut String) {
    for (command, buckets) in COMMANDS.iter().zip(&totals.latency) {
        let calls: u64 = buckets.iter().sum();
        if calls == 0 {
            continue;
        }
        let percentile = |share: f64| {
            let mut left = (calls as f64 * share).ceil() as u64;
            let place = buckets.iter().position(|count| {
                left = left.saturating_sub(*count);
                left == 0
            });
            let last = LATENCY_NS.len() - 1;
            LATENCY_NS[place.unwrap_or(last).min(last)] as f64 / 1000.0
        };
        let _ = write!(
            text,
            "latency_percentiles_usec_{}:p50={:.3},p99={:.3},p99.9={:.3}\r\n",
            command.name,
            percentile(0.5),
            percentile(0.99),
            percentile(0.999)
        );
    }
}

async fn keyspace<K: Keyspace>(keyspace: &K, text: &mut String) {
    for database in 0..DATABASES {
        // A database that cannot be counted now is left out, as an empty one is.
        if let Ok(keys @ 1..) = keyspace.len(database).await {
            let _ = write!(text, "db{database}:keys={keys},expires=0,avg_ttl=0\r\n");
        }
    }
}

/// As Redis writes sizes for people.
fn human(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes}B"),
        1024..1_048_576 => format!("{:.2}K", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.2}M", bytes as f64 / 1_048_576.0),
        _ => format!("{:.2}G", bytes as f64 / 1_073_741_824.0),
    }
}

/// Of /proc/self/statm, in 4 KiB pages; 0 where there is none.
pub(crate) fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0_u64) * 4096
}

/// Of /proc/meminfo; 0 where there is none.
pub(crate) fn system_bytes() -> u64 {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kilobytes.unwrap_or(0_u64) * 1024
}

/// User and system time of this process, of /proc/self/stat, in seconds.
pub(crate) fn cpu_seconds() -> [f64; 2] {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name may hold anything but the last parenthesis.
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let mut ticks = after.split_whitespace().skip(11).map(|text| text.parse().unwrap_or(0.0));
    [(); 2].map(|()| ticks.next().unwrap_or(0.0) / 100.0)
}
