//! What is checked without running the system.

use crate::needs;
use crate::run::{HALF_HOUR, cargo, program};
use crate::suites;

/// The profile of all that is built for tests.
pub(crate) const PROFILE: &str = "ci";

/// All unsafe code is in the fabric. The sanitizer comes with nightly alone.
pub(crate) fn address_sanitizer() -> Result<(), String> {
    program("rustup", HALF_HOUR)
        .args(&["run", "nightly", "cargo", "test", "--package", "fusee-fabric", "--lib", "--tests"])
        .args(&["--target", "x86_64-unknown-linux-gnu", "--target-dir", "target/address"])
        .env("RUSTFLAGS", "-Zsanitizer=address -Cunsafe-allow-abi-mismatch=sanitizer")
        .run()
}

pub(crate) fn formatting() -> Result<(), String> {
    cargo(&["fmt", "--all", "--check"]).run()
}

/// Builds all that later steps run, once: packages chosen one by one would
/// unify features differently and build their dependencies again.
pub(crate) fn build() -> Result<(), String> {
    cargo(&["build", "--profile", PROFILE, "--workspace", "--all-targets"]).run()?;
    cargo(&["test", "--profile", PROFILE, "--workspace", "--no-run"])
        .args(&suites::test_targets())
        .run()
}

/// Builds the programs alone. There are no examples, but asking for them has
/// dependencies built with the features that tests need: the same as [`build`]'s.
pub(crate) fn build_programs() -> Result<(), String> {
    cargo(&["build", "--profile", PROFILE, "--workspace", "--bins", "--examples"]).run()
}

/// Builds what the benchmark runs, as users build it.
pub(crate) fn build_for_speed() -> Result<(), String> {
    cargo(&["build", "--release", "--package", "gateway", "--package", "mnd"])
        .args(&["--package", "tests", "--bins"])
        .run()
}

pub(crate) fn lints() -> Result<(), String> {
    let deny = ["--", "-D", "warnings"];
    cargo(&["clippy", "--workspace", "--all-targets"]).args(&deny).run()?;
    // The suites are not part of a plain `cargo test`, nor of all targets.
    cargo(&["clippy", "--workspace"]).args(&suites::test_targets()).args(&deny).run()
}

pub(crate) fn documents() -> Result<(), String> {
    cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings").run()
}

/// Advisories are left out: their database is no package and not everybody who
/// runs this can fetch it.
pub(crate) fn deny() -> Result<(), String> {
    let deny = needs::cargo_deny()?;
    program(&deny, HALF_HOUR).args(&["--workspace", "check", "licenses", "bans", "sources"]).run()
}

/// Unit, integration and documentation tests of every crate, without suites.
pub(crate) fn unit_tests() -> Result<(), String> {
    cargo(&["test", "--profile", PROFILE, "--workspace", "--quiet", "--no-fail-fast"]).run()
}
