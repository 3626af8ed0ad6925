//! Running programs within a time limit, and telling how it went.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Limit of what nobody waits for at a desk.
pub(crate) const HOUR: Duration = Duration::from_hours(1);
/// Limit of one build or one suite.
pub(crate) const HALF_HOUR: Duration = Duration::from_mins(30);

/// What coreutils' timeout answers when the time is over.
const TIMED_OUT: i32 = 124;

/// A program about to run.
pub(crate) struct Program {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(String, OsString)>,
    folder: PathBuf,
    shown: String,
    limit: Duration,
}

/// `program`, ended after `limit` together with all that it started, and with
/// us when we end first.
pub(crate) fn program(program: impl AsRef<OsStr>, limit: Duration) -> Program {
    Program {
        shown: program.as_ref().to_string_lossy().into_owned(),
        program: program.as_ref().to_owned(),
        arguments: Vec::new(),
        environment: Vec::new(),
        folder: root().to_path_buf(),
        limit,
    }
}

/// cargo, as it runs us.
pub(crate) fn cargo(arguments: &[&str]) -> Program {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut this = program(cargo, HALF_HOUR);
    this.shown = "cargo".into();
    this.args(arguments)
}

impl Program {
    pub(crate) fn args<A: AsRef<OsStr>>(mut self, arguments: &[A]) -> Self {
        for argument in arguments {
            self.shown.push(' ');
            self.shown.push_str(&argument.as_ref().to_string_lossy());
            self.arguments.push(argument.as_ref().to_owned());
        }
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.into(), value.as_ref().to_owned()));
        self
    }

    pub(crate) fn folder(mut self, folder: &Path) -> Self {
        self.folder = folder.to_path_buf();
        self
    }

    pub(crate) fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs it with its output on ours.
    pub(crate) fn run(self) -> Result<(), String> {
        println!("$ {}", self.shown);
        let status = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "--", "timeout", "--kill-after=10"])
            .arg(self.limit.as_secs().to_string())
            .arg(&self.program)
            .args(&self.arguments)
            .envs(self.environment)
            .current_dir(&self.folder)
            .status()
            .map_err(|error| format!("setpriv (package util-linux): {error}"))?;
        match status.code() {
            Some(0) => Ok(()),
            Some(TIMED_OUT) => Err(format!("{} took over {:?}", self.shown, self.limit)),
            _ => Err(format!("{}: {status}", self.shown)),
        }
    }
}

/// Whether a program is there and says so.
pub(crate) fn answers(program: &str, argument: &str) -> bool {
    output_of(program, argument).is_some()
}

/// What a program prints, if it is there and succeeds.
pub(crate) fn output_of(program: &str, argument: &str) -> Option<String> {
    let output = Command::new(program).arg(argument).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The root of the source tree.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// Cargo's target folder; we lie in one of its profiles' folders.
fn target() -> PathBuf {
    let own = std::env::current_exe().expect("Linux names the running program");
    let profile = own.parent().expect("a program lies in a folder");
    profile.parent().expect("which lies in the target folder").to_path_buf()
}

/// A built program of this workspace.
pub(crate) fn built(profile: &str, name: &str) -> Result<PathBuf, String> {
    let path = target().join(profile).join(name);
    if path.exists() { Ok(path) } else { Err(format!("no package here builds a program {name:?}")) }
}

/// Where the suites keep what they install and leave behind.
pub(crate) fn scratch(name: &str) -> PathBuf {
    target().join("suites").join(name)
}

/// Something with an outcome.
pub(crate) struct Step {
    name: String,
    required: bool,
    work: Box<dyn FnOnce() -> Result<(), String>>,
}

impl Step {
    pub(crate) fn new(name: &str, work: impl FnOnce() -> Result<(), String> + 'static) -> Self {
        Self { name: name.into(), required: false, work: Box::new(work) }
    }

    /// A step without which no later one can run.
    pub(crate) fn required(
        name: &str,
        work: impl FnOnce() -> Result<(), String> + 'static,
    ) -> Self {
        Self { required: true, ..Self::new(name, work) }
    }
}

/// Outcomes in the order in which they came.
pub(crate) struct Report(Vec<(String, Duration, Result<(), String>)>);

impl Report {
    /// Runs all steps.
    pub(crate) fn of(steps: Vec<Step>) -> Self {
        let mut outcomes = Vec::new();
        let mut blocked = None;
        for step in steps {
            let name = step.name;
            if let Some(by) = &blocked {
                let outcome = Err(format!("did not run, since {by} failed"));
                outcomes.push((name, Duration::ZERO, outcome));
                continue;
            }
            println!("\n=== {name}");
            let begin = Instant::now();
            let outcome = (step.work)();
            if let Err(message) = &outcome {
                println!("FAILED {name}: {message}");
                if step.required {
                    blocked = Some(name.clone());
                }
            }
            outcomes.push((name, begin.elapsed(), outcome));
        }
        Self(outcomes)
    }

    /// Prints the outcomes; the last line counts them.
    pub(crate) fn print(&self) -> ExitCode {
        println!();
        for (name, time, outcome) in &self.0 {
            let seconds = time.as_secs_f64();
            match outcome {
                Ok(()) => println!("passed {seconds:7.1} s  {name}"),
                Err(message) => println!("FAILED {seconds:7.1} s  {name}: {message}"),
            }
        }
        let total: f64 = self.0.iter().map(|(_, time, _)| time.as_secs_f64()).sum();
        let failed = self.0.iter().filter(|(_, _, outcome)| outcome.is_err()).count();
        println!("in {total:.0} s");
        println!("{} passed, {failed} failed", self.0.len() - failed);
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(report: &Report) -> Vec<bool> {
        report.0.iter().map(|(_, _, outcome)| outcome.is_ok()).collect()
    }

    #[test]
    fn steps_after_a_failed_one_still_run() {
        let report =
            Report::of(vec![Step::new("a", || Err("bad".into())), Step::new("b", || Ok(()))]);
        assert_eq!(outcomes(&report), [false, true]);
        assert_eq!(report.print(), ExitCode::FAILURE);
    }

    #[test]
    fn steps_after_a_failed_required_one_fail_without_running() {
        let report = Report::of(vec![
            Step::required("a", || Err("bad".into())),
            Step::new("b", || panic!("ran")),
        ]);
        assert_eq!(outcomes(&report), [false, false]);
    }

    #[test]
    fn all_passed_is_success() {
        assert_eq!(Report::of(vec![Step::new("a", || Ok(()))]).print(), ExitCode::SUCCESS);
    }

    #[test]
    fn a_program_that_hangs_fails_at_its_limit() {
        let outcome = program("sleep", Duration::from_secs(1)).args(&["30"]).run();
        assert!(outcome.unwrap_err().contains("took over"));
    }

    #[test]
    fn a_program_that_fails_is_named() {
        assert!(program("false", HOUR).run().unwrap_err().contains("false"));
    }
}
