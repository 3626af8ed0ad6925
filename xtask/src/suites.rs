//! The suites: programs and tests that run the whole system from outside.

use std::fmt::Write as _;

use crate::checks::PROFILE;
use crate::needs;
use crate::run::{HOUR, built, cargo, program};

/// A suite; it fails if it cannot run.
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    about: &'static str,
    pub(crate) run: fn(&Options) -> Result<(), String>,
}

/// How long and against what.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) server: String,
    pub(crate) fuzz_seconds: u64,
    pub(crate) soak_seconds: u64,
    pub(crate) histories: u64,
    pub(crate) seed: u64,
    /// Only the scenarios of the model that are checked in a minute or so.
    pub(crate) quick_model: bool,
    /// Write down what passes now, where a suite keeps a list of it.
    pub(crate) bless: bool,
}

impl Options {
    /// What CI has time for.
    pub(crate) fn short() -> Self {
        Self {
            server: "gateway".into(),
            fuzz_seconds: 60,
            soak_seconds: 60,
            histories: 2_000,
            seed: 1,
            quick_model: true,
            bless: false,
        }
    }
}

/// All suites, in the order in which `cargo xtask test` runs them.
pub(crate) const ALL: &[Suite] = &[
    Suite {
        name: "sim",
        about: "seeded histories on simulated memory nodes, each linearizable, no memory lost",
        run: |options| {
            let (histories, seed) = (options.histories.to_string(), options.seed.to_string());
            let play = ["--histories", &histories, "--seed", &seed];
            program(built(PROFILE, "sim")?, HOUR).args(&play).run()?;
            program(built(PROFILE, "sim")?, HOUR).args(&play).args(&["--transactions"]).run()
        },
    },
    Suite {
        name: "model",
        about: "the exhaustive models of writes and of transactions; small scenarios here",
        run: |options| {
            let quick: &[&str] = if options.quick_model { &["--quick"] } else { &[] };
            program(built(PROFILE, "model")?, 4 * HOUR).args(quick).run()
        },
    },
    Suite {
        name: "loom",
        about: "every interleaving of a few verbs on shared memory",
        run: |_| {
            // Another configuration of the same crates, so a folder of its own.
            cargo(&["test", "--release", "--package", "fusee-fabric", "--lib"])
                .args(&["--target-dir", "target/loom", "loom"])
                .env("RUSTFLAGS", "--cfg loom")
                .run()
        },
    },
    Suite {
        name: "resp",
        about: "malformed frames, half frames, huge headers, slow readers",
        run: |options| test_target("resp", options),
    },
    Suite {
        name: "polled",
        about: "the same and the gateway's own tests of sockets where there is no io_uring",
        run: polled,
    },
    Suite {
        name: "compat",
        about: "faults that other servers of this protocol had",
        run: |options| test_target("compat", options),
    },
    Suite {
        name: "redis-tools",
        about: "redis-cli, redis-benchmark and the exporter for Prometheus",
        run: |options| {
            needs::programs(&["redis-cli", "redis-benchmark", "prometheus-redis-exporter"])?;
            test_target("redis_tools", options)
        },
    },
    Suite {
        name: "redis-tcl",
        about: "Redis's own Tcl suite against the lists in tests/redis-tcl; --bless adds to them",
        run: redis_tcl,
    },
    Suite {
        name: "sdk",
        about: "redis-py, node-redis, ioredis and redis-rs read what the others wrote",
        run: sdk,
    },
    Suite {
        name: "linearizability",
        about: "histories of concurrent connections to several workers",
        run: |options| test_target("linearizability", options),
    },
    Suite {
        name: "gateways",
        about: "several gateways on one pool, some of them killed",
        run: |options| test_target("gateways", options),
    },
    Suite {
        name: "drain",
        about: "SIGTERM amid pipelined traffic",
        run: |options| test_target("drain", options),
    },
    Suite {
        name: "oom",
        about: "a full pool refuses writes, serves reads, and recovers by deletes",
        run: |options| test_target("oom", options),
    },
    Suite {
        name: "fabrics",
        about: "the same values and the same round trips on shared memory and over TCP",
        run: |options| test_target("fabrics", options),
    },
    Suite {
        name: "doctor",
        about: "gateway doctor at pools that are well, in part or not there",
        run: |options| test_target("doctor", options),
    },
    Suite {
        name: "rdma",
        about: "pools on Soft-RoCE devices in virtual machines, one to three; see rdma-load",
        run: |options| test_targets_of(&["rdma", "rdma_pool"], &[], options),
    },
    Suite {
        name: "pool",
        about: "memory nodes and gateways as processes: coming, going, dying, refusing",
        run: |options| test_target("pool", options),
    },
    Suite {
        name: "see",
        about: "a pool under load, Prometheus at it: each panel, rule and alert has its data",
        run: |options| {
            needs::programs(&["curl", "prometheus", "promtool"])?;
            test_target("see", options)
        },
    },
    Suite {
        name: "deploy",
        about: "units, images, compose file and chart, by the tools that know them",
        run: deploy,
    },
    Suite {
        name: "sessions",
        about: "connections that break, gateways that stall, restarted memory nodes, certificates",
        run: |options| test_target("sessions", options),
    },
    Suite {
        name: "restarts",
        about: "gateways killed one after the other, and the memory; see cargo xtask restarts",
        run: |_| {
            ["shm", "tcp"].into_iter().try_for_each(|fabric| {
                program(built(PROFILE, "restarts")?, HOUR)
                    .args(&["--starts", "30", "--fabric", fabric])
                    .run()
            })
        },
    },
    Suite {
        name: "soak",
        about: "memory under random overwriting; 60 s here, see cargo xtask soak",
        run: |options| {
            let seconds = options.soak_seconds.to_string();
            program(built(PROFILE, "soak")?, 4 * HOUR)
                .args(&["--seconds", &seconds, "--server", &options.server])
                .run()
        },
    },
    Suite {
        name: "fuzz",
        about: "random bytes to the parser and to a running server; 60 s here, see cargo xtask fuzz",
        run: fuzz,
    },
];

/// Suites that take longer than CI has time for, or need what it has not.
const ON_DEMAND: &[Suite] = &[
    Suite {
        name: "verbs",
        about: "what fabrics promise, asked of verbs on Soft-RoCE; on demand, 10 minutes",
        run: |options| test_target("verbs", options),
    },
    Suite {
        name: "rdma-load",
        about: "all values, 5 minutes of load and latency on Soft-RoCE; on demand, half an hour",
        run: rdma_load,
    },
    Suite {
        name: "verbs-abi",
        about: "the binding of libibverbs against rdma-core's headers; on demand, 3 minutes",
        run: |_| {
            needs::programs(&["cmake", "clang"])?;
            // It has dependencies of its own, and links what the product only loads.
            cargo(&["test", "--manifest-path", "fusee/fabric/verbs-abi/Cargo.toml"])
                .args(&["--target-dir", "target/verbs-abi"])
                .run()
        },
    },
];

pub(crate) fn find(name: &str) -> Result<&'static Suite, String> {
    ALL.iter()
        .chain(ON_DEMAND)
        .find(|suite| suite.name == name)
        .ok_or_else(|| format!("{name:?} is not a suite; these are:\n{}", list()))
}

pub(crate) fn list() -> String {
    let mut text = String::new();
    for suite in ALL.iter().chain(ON_DEMAND) {
        writeln!(text, "  {:<16} {}", suite.name, suite.about).expect("a String takes all");
    }
    text
}

/// Names of the integration tests that are suites, as flags for cargo.
pub(crate) fn test_targets() -> Vec<&'static str> {
    [
        "resp",
        "compat",
        "redis_tools",
        "sdk",
        "linearizability",
        "gateways",
        "drain",
        "oom",
        "pool",
        "sessions",
        "fabrics",
        "doctor",
        "rdma",
        "rdma_pool",
        "rdma_load",
        "see",
        "deploy",
        "verbs",
    ]
    .into_iter()
    .flat_map(|name| ["--test", name])
    .collect()
}

/// Runs one of [`test_targets`]; one test at a time, since each has a server.
fn test_target(name: &str, options: &Options) -> Result<(), String> {
    test_targets_of(&[name], &[], options)
}

/// Runs several of them, with variables.
fn test_targets_of(
    names: &[&str],
    variables: &[(&str, &str)],
    options: &Options,
) -> Result<(), String> {
    let mut arguments = vec!["test", "--profile", PROFILE, "--workspace"];
    arguments.extend(names.iter().flat_map(|name| ["--test", name]));
    arguments.extend(["--", "--test-threads", "1"]);
    let command = cargo(&arguments).env("SUITE_SERVER", &options.server);
    variables.iter().fold(command, |command, (name, value)| command.env(name, value)).run()
}

/// Machines run suites of this one, which have to be there.
fn rdma_load(options: &Options) -> Result<(), String> {
    let suites = ["--test", "fabrics", "--test", "gateways"];
    let build = ["test", "--no-run", "--profile", PROFILE, "--workspace"];
    cargo(&[&build[..], &suites[..]].concat()).run()?;
    test_targets_of(&["rdma_load"], &[("SUITE_RDMA_SECONDS", "300")], options)
}

/// Everything else runs with io_uring, which this machine has to have.
fn polled(options: &Options) -> Result<(), String> {
    let tests = ["resp", "drain", "wire", "memory", "clients", "process"];
    test_targets_of(&tests, &[("FUSEE_IO_URING", "no")], options)
}

/// The suite is Redis's and stays out of the tree: it comes from Debian's source
/// package, or from the folder that `REDIS_TESTS` names.
fn redis_tcl(options: &Options) -> Result<(), String> {
    needs::programs(&["tclsh"])?;
    let suite = needs::redis_source()?;
    let bless: &[&str] = if options.bless { &["--bless"] } else { &[] };
    program(built(PROFILE, "redis_tcl")?, HOUR)
        .args(&["--server", &options.server])
        .args(bless)
        .env("REDIS_TESTS", &suite)
        .run()
}

/// Half of the time for the parser alone, where cases are cheap, and half for
/// the whole server.
fn fuzz(options: &Options) -> Result<(), String> {
    let seconds = options.fuzz_seconds.div_ceil(2).to_string();
    let seed = options.seed.to_string();
    cargo(&["test", "--profile", PROFILE, "--workspace", "--test", "fuzz", "--", "--nocapture"])
        .limit(24 * HOUR)
        .env("FUZZ_SECONDS", &seconds)
        .env("FUZZ_SEED", &seed)
        .run()?;
    program(built(PROFILE, "wire_fuzz")?, 24 * HOUR)
        .args(&["--seconds", &seconds, "--seed", &seed, "--server", &options.server])
        .run()
}

fn deploy(options: &Options) -> Result<(), String> {
    needs::programs(&["systemd-analyze", "python3"])?;
    let tools = needs::deploy_tools()?;
    cargo(&["test", "--profile", PROFILE, "--workspace", "--test", "deploy"])
        .args(&["--", "--test-threads", "1"])
        .env("SUITE_SERVER", &options.server)
        .env("SUITE_TOOLS", &tools)
        .run()
}

fn sdk(options: &Options) -> Result<(), String> {
    needs::programs(&["redis-cli", "python3"])?;
    let python = needs::python_sdks()?;
    let node = needs::node_sdks(&python)?;
    cargo(&[
        "test",
        "--profile",
        PROFILE,
        "--workspace",
        "--test",
        "sdk",
        "--",
        "--test-threads",
        "1",
    ])
    .env("SUITE_SERVER", &options.server)
    .env("SUITE_PYTHON", &python)
    .env("SUITE_NODE", &node.node)
    .env("SUITE_NODE_FOLDER", &node.folder)
    .run()
}
