//! Development commands: `cargo xtask help` lists them.
//!
//! Without dependencies, so that the first command after a clone begins at once.
#![expect(clippy::print_stdout, reason = "a command line speaks on standard output")]

mod checks;
mod needs;
mod run;
mod suites;

use std::process::ExitCode;

use run::{Report, Step};
use suites::Options;

const HELP: &str = "\
Development commands

  cargo xtask test                  everything that CI runs: formatting, build,
                                    lints, documents, licences, unit tests, and
                                    all suites in their short form
  cargo xtask suite NAME [OPTIONS]  one suite; without NAME, the list of them
      --server redis                the same suite against redis-server
      --bless                       redis-tcl alone: note what passes now
  cargo xtask bench [OPTIONS]       speed against redis-server; --help explains
  cargo xtask fuzz [--seconds N]    malformed requests; 600 s by default
  cargo xtask soak [--minutes N]    memory under random overwriting; 30 by default
  cargo xtask restarts [OPTIONS]    gateways that come, go and are killed on one pool,
                                    and its memory; --help explains
  cargo xtask sim [--histories N] [--seed S]
                                    simulated histories, 100,000 by default
  cargo xtask model                 the exhaustive models of the protocol, all
                                    scenarios
  cargo xtask sanitize              the fabric's tests under AddressSanitizer; needs a
                                    nightly toolchain
  cargo xtask deny                  licences, bans and sources of dependencies
  cargo xtask help                  this page
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        ["test"] => Ok(test()),
        ["suite"] => {
            print!("{}", suites::list());
            Ok(ExitCode::SUCCESS)
        }
        ["suite", name, ref rest @ ..] => suite(name, rest),
        ["bench", ..] => bench(&arguments[1..]),
        ["fuzz", ref rest @ ..] => long(rest, "fuzz", "--seconds", 600, |o, n| o.fuzz_seconds = n),
        ["soak", ref rest @ ..] => {
            long(rest, "soak", "--minutes", 30, |o, n| o.soak_seconds = n * 60)
        }
        ["restarts", ..] => restarts(&arguments[1..]),
        ["sim", ref rest @ ..] => sim(rest),
        ["model"] => long(&[], "model", "", 0, |o, _| o.quick_model = false),
        ["sanitize"] => {
            let step = Step::new("address sanitizer", checks::address_sanitizer);
            Ok(Report::of(vec![step]).print())
        }
        ["deny"] => {
            Ok(Report::of(vec![Step::new("licences, bans, sources", checks::deny)]).print())
        }
        [other, ..] => Err(format!("{other:?} is not a command; cargo xtask help lists them")),
    };
    outcome.unwrap_or_else(|message| {
        eprintln!("xtask: {message}");
        ExitCode::from(2)
    })
}

/// Everything for CI. A failed check does not hide the outcome of the others,
/// but nothing can be tested that was not built.
fn test() -> ExitCode {
    let mut steps = vec![Step::new("formatting", checks::formatting)];
    steps.push(Step::required("build", checks::build));
    steps.push(Step::new("lints", checks::lints));
    steps.push(Step::new("documents", checks::documents));
    steps.push(Step::new("licences, bans, sources", checks::deny));
    steps.push(Step::new("unit tests", checks::unit_tests));
    for suite in suites::ALL {
        let options = Options::short();
        steps.push(Step::new(suite.name, move || (suite.run)(&options)));
    }
    Report::of(steps).print()
}

fn suite(name: &str, rest: &[&str]) -> Result<ExitCode, String> {
    let suite = suites::find(name)?;
    let mut options = Options::short();
    match *rest {
        [] => {}
        ["--server", server @ ("gateway" | "redis" | "valkey")] => options.server = server.into(),
        ["--bless"] if name == "redis-tcl" => options.bless = true,
        _ => return Err("after a suite's name comes at most --server gateway|redis|valkey".into()),
    }
    Ok(built_then(Step::new(suite.name, move || (suite.run)(&options))))
}

/// A suite in its long form, with one number to choose.
fn long(
    rest: &[&str],
    name: &str,
    flag: &str,
    default: u64,
    set: fn(&mut Options, u64),
) -> Result<ExitCode, String> {
    let suite = suites::find(name)?;
    let mut options = Options::short();
    let number = match *rest {
        [] => default,
        [given, number] if given == flag => whole(flag, number)?,
        _ => return Err(format!("{name} takes {flag} N at most")),
    };
    set(&mut options, number);
    Ok(built_then(Step::new(suite.name, move || (suite.run)(&options))))
}

fn sim(rest: &[&str]) -> Result<ExitCode, String> {
    let suite = suites::find("sim")?;
    let mut options = Options { histories: 100_000, ..Options::short() };
    for pair in rest.chunks(2) {
        match *pair {
            ["--histories", number] => options.histories = whole("--histories", number)?,
            ["--seed", number] => options.seed = whole("--seed", number)?,
            _ => return Err("sim takes --histories N and --seed S".into()),
        }
    }
    Ok(built_then(Step::new(suite.name, move || (suite.run)(&options))))
}

/// The benchmark prints its own results.
fn bench(arguments: &[String]) -> Result<ExitCode, String> {
    checks::build_for_speed()?;
    run::program(&run::built("release", "bench")?, run::HOUR).args(arguments).run()?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the course of the memory.
fn restarts(arguments: &[String]) -> Result<ExitCode, String> {
    checks::build_programs()?;
    run::program(&run::built(checks::PROFILE, "restarts")?, run::HOUR).args(arguments).run()?;
    Ok(ExitCode::SUCCESS)
}

fn built_then(step: Step) -> ExitCode {
    Report::of(vec![Step::required("build", checks::build_programs), step]).print()
}

fn whole(flag: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{flag} takes a whole number, not {text:?}"))
}
