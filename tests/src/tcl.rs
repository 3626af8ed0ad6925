//! Redis's own Tcl suite: what it printed, and what we expect of it.
//!
//! The suite is not ours; two lists in `tests/redis-tcl` hold the names of its
//! tests. `passes.txt` has a line `file: name` for each that passes, and such a
//! test may never fail again. `reasons.txt` has all others under the reason why
//! each does not pass: a reason stands at the beginning of a line, its tests are
//! indented below it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// A reason that begins so is of tests that are not even started: each would
/// keep those behind it from running.
pub const NOT_STARTED: &str = "not started: ";
/// Where a failure goes that nobody has explained yet; the suite fails until
/// somebody does.
const UNEXPLAINED: &str = "unexplained";

/// How a test came out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// As it should.
    Passed,
    /// With what the suite said about it.
    Failed(String),
}

/// A test: the file that it is in, and its name. Names may repeat in a file;
/// such tests pass together.
pub type Test = (String, String);

/// Adds to `outcomes` what a run of `file` printed, which the suite calls `run`.
pub fn read_output(file: &str, run: &str, output: &str, outcomes: &mut BTreeMap<Test, Outcome>) {
    let mut lines = output.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(rest) = line.strip_prefix("[ok]: ") {
            // The time that it took follows the name.
            let name = rest.rsplit_once(" (").map_or(rest, |(name, _)| name);
            outcomes.entry((file.into(), name.trim().into())).or_insert(Outcome::Passed);
        } else if let Some(rest) = line.strip_prefix("[err]: ") {
            let end = format!(" in tests/{run}.tcl");
            let name = rest.strip_suffix(&end).unwrap_or(rest);
            let about = lines.peek().copied().unwrap_or_default();
            let failed = Outcome::Failed(about.into());
            outcomes.insert((file.into(), name.trim().into()), failed);
        } else if line.starts_with("!!! WARNING") {
            // All failures again.
            return;
        }
    }
}

/// Why a file did not run to its end, if it did not: the suite's own words.
pub fn broke_off(output: &str) -> Option<String> {
    let mut lines = output.lines();
    lines.find(|line| line.starts_with("[exception]") || line.starts_with("[TIMEOUT]")).map(
        |line| {
            let next = lines.next().unwrap_or_default();
            format!("{line} {next}")
        },
    )
}

/// What is expected of every test.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Expectations {
    passes: BTreeSet<Test>,
    /// Tests by reason.
    reasons: BTreeMap<String, BTreeSet<Test>>,
}

/// What differs from the expectations.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Verdict {
    /// Why the suite fails, a line each.
    pub faults: Vec<String>,
    /// Tests that pass now.
    pub news: Vec<String>,
}

impl Expectations {
    /// Reads both lists.
    ///
    /// # Errors
    /// With the line that is neither a test nor a reason.
    pub fn parse(passes: &str, reasons: &str) -> Result<Self, String> {
        let mut this = Self::default();
        let test = |line: &str| -> Result<Test, String> {
            let (file, name) =
                line.split_once(": ").ok_or_else(|| format!("{line:?} is not `file: name`"))?;
            Ok((file.trim().to_owned(), name.to_owned()))
        };
        for line in passes.lines().filter(|line| !line.is_empty()) {
            this.passes.insert(test(line)?);
        }
        let mut reason = None;
        for line in reasons.lines().filter(|line| !line.is_empty()) {
            match (line.strip_prefix("    "), &reason) {
                (None, _) => reason = Some(line.to_owned()),
                (Some(line), Some(reason)) => {
                    let tests = this.reasons.entry(reason.clone()).or_default();
                    tests.insert(test(line)?);
                }
                (Some(line), None) => return Err(format!("no reason stands above {line:?}")),
            }
        }
        Ok(this)
    }

    /// Both lists as [`Self::parse`] reads them.
    pub fn print(&self) -> (String, String) {
        let mut passes = String::new();
        for (file, name) in &self.passes {
            writeln!(passes, "{file}: {name}").expect("a String takes all");
        }
        let mut reasons = String::new();
        for (reason, tests) in self.reasons.iter().filter(|(_, tests)| !tests.is_empty()) {
            writeln!(reasons, "{reason}").expect("a String takes all");
            for (file, name) in tests {
                writeln!(reasons, "    {file}: {name}").expect("a String takes all");
            }
        }
        (passes, reasons)
    }

    /// Tests of a file that are not to be started.
    pub fn not_started(&self, file: &str) -> impl Iterator<Item = &str> {
        let reasons = self.reasons.iter().filter(|(reason, _)| reason.starts_with(NOT_STARTED));
        let tests = reasons.flat_map(|(_, tests)| tests);
        tests.filter(move |(of, _)| of == file).map(|(_, name)| name.as_str())
    }

    /// How many tests pass, and how many do not.
    pub fn counts(&self) -> (usize, usize) {
        (self.passes.len(), self.reasons.values().map(BTreeSet::len).sum())
    }

    /// Compares with what came out of a run of `files`.
    pub fn judge(&self, files: &[&str], outcomes: &BTreeMap<Test, Outcome>) -> Verdict {
        let mut verdict = Verdict::default();
        for test in self.passes.iter().filter(|(file, _)| files.contains(&file.as_str())) {
            let (file, name) = test;
            match outcomes.get(test) {
                Some(Outcome::Passed) => {}
                Some(Outcome::Failed(about)) => {
                    verdict.faults.push(format!("{file}: {name}: passed before; now {about}"));
                }
                None => verdict.faults.push(format!("{file}: {name}: passed before; did not run")),
            }
        }
        for (test @ (file, name), outcome) in outcomes {
            match outcome {
                _ if self.passes.contains(test) => {}
                Outcome::Passed => verdict.news.push(format!("{file}: {name}")),
                Outcome::Failed(about) if !self.has_reason(test) => {
                    verdict.faults.push(format!(
                        "{file}: {name}: fails without a reason in reasons.txt: {about}"
                    ));
                }
                Outcome::Failed(_) => {}
            }
        }
        if self.reasons.get(UNEXPLAINED).is_some_and(|tests| !tests.is_empty()) {
            verdict.faults.push(format!("tests under {UNEXPLAINED:?} in reasons.txt"));
        }
        verdict
    }

    fn has_reason(&self, test: &Test) -> bool {
        self.reasons.values().any(|tests| tests.contains(test))
    }

    /// Takes in that these tests pass now, and what is new among the others.
    pub fn bless(&mut self, outcomes: &BTreeMap<Test, Outcome>) {
        for (test, outcome) in outcomes {
            if *outcome == Outcome::Passed {
                self.passes.insert(test.clone());
                self.reasons.values_mut().for_each(|tests| {
                    tests.remove(test);
                });
            } else if !self.passes.contains(test) && !self.has_reason(test) {
                self.reasons.entry(UNEXPLAINED.into()).or_default().insert(test.clone());
            }
        }
    }

    /// Takes in names of tests of which nothing is known.
    pub fn know(&mut self, names: impl Iterator<Item = Test>) {
        for test in names {
            if !self.passes.contains(&test) && !self.has_reason(&test) {
                self.reasons.entry(UNEXPLAINED.into()).or_default().insert(test);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
[ready]: 1234
Testing unit/a
[ok]: SET and GET (big) (3 ms)
[ok]: twice (0 ms)
[err]: twice in tests/unit/a.tcl
Expected '1' to be equal to '2'
[err]: bad in tests/unit/a.tcl
ERR unknown command
    while executing
[exception]: Executing test client: I/O error.
I/O error

!!! WARNING The following tests failed:

*** [err]: later in tests/unit/a.tcl
";

    fn test(name: &str) -> Test {
        ("unit/a".into(), name.into())
    }

    fn outcomes() -> BTreeMap<Test, Outcome> {
        let mut outcomes = BTreeMap::new();
        read_output("unit/a", "unit/a", OUTPUT, &mut outcomes);
        outcomes
    }

    #[test]
    fn outcomes_are_read_by_name() {
        let outcomes = outcomes();
        assert_eq!(outcomes.len(), 3);
        assert_eq!(outcomes[&test("SET and GET (big)")], Outcome::Passed);
        let about = "Expected '1' to be equal to '2'".to_owned();
        assert_eq!(outcomes[&test("twice")], Outcome::Failed(about));
        assert_eq!(outcomes[&test("bad")], Outcome::Failed("ERR unknown command".into()));
        assert!(broke_off(OUTPUT).unwrap().contains("Executing test client"));
        assert_eq!(broke_off("[ok]: a (1 ms)"), None);
    }

    #[test]
    fn who_passed_may_not_fail_again_or_stay_away() {
        let expected =
            Expectations::parse("unit/a: twice\nunit/a: gone\nunit/b: other\n", "").unwrap();
        let verdict = expected.judge(&["unit/a"], &outcomes());
        assert_eq!(verdict.faults.len(), 3, "{:?}", verdict.faults);
        assert!(verdict.faults[0].contains("gone: passed before; did not run"));
        assert!(verdict.faults[1].contains("twice: passed before; now Expected"));
        assert!(verdict.faults[2].contains("bad: fails without a reason"));
        assert_eq!(verdict.news, ["unit/a: SET and GET (big)"]);
    }

    #[test]
    fn a_reason_covers_a_failure_until_it_passes() {
        let reasons = "no EVAL yet\n    unit/a: bad\n    unit/a: SET and GET (big)\nnot started: it hangs\n    unit/a: twice\n";
        let mut expected = Expectations::parse("", reasons).unwrap();
        assert_eq!(expected.not_started("unit/a").collect::<Vec<_>>(), ["twice"]);
        assert_eq!(expected.counts(), (0, 3));
        let verdict = expected.judge(&["unit/a"], &outcomes());
        assert_eq!(verdict.faults, [""; 0]);
        assert_eq!(verdict.news.len(), 1);
        expected.bless(&outcomes());
        let (passes, reasons) = expected.print();
        assert_eq!(passes, "unit/a: SET and GET (big)\n");
        assert!(!reasons.contains("SET and GET"));
        assert_eq!(Expectations::parse(&passes, &reasons), Ok(expected));
    }

    #[test]
    fn what_nobody_has_explained_is_a_fault() {
        let mut expected = Expectations::default();
        expected.bless(&outcomes());
        let verdict = expected.judge(&["unit/a"], &outcomes());
        assert_eq!(verdict.faults.len(), 1, "{:?}", verdict.faults);
        assert!(verdict.faults[0].contains("unexplained"));
    }
}
