//! What was found, as text: a line for each thing, with the remedy below it.

use std::fmt;

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    /// What.
    pub name: String,
    /// How it is.
    pub verdict: Verdict,
}

/// How a thing is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// As it should be.
    Good(String),
    /// It works, but something is slower or not there.
    Lacking {
        /// How it is.
        found: String,
        /// What to do.
        remedy: String,
    },
    /// It does not work.
    Broken {
        /// How it is.
        found: String,
        /// What to do.
        remedy: String,
    },
}

impl Check {
    /// It is as it should be.
    pub fn good(name: impl Into<String>, found: impl Into<String>) -> Self {
        Self { name: name.into(), verdict: Verdict::Good(found.into()) }
    }

    /// It works, but something is slower or not there.
    pub fn lacking(
        name: impl Into<String>,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let verdict = Verdict::Lacking { found: found.into(), remedy: remedy.into() };
        Self { name: name.into(), verdict }
    }

    /// It does not work.
    pub fn broken(
        name: impl Into<String>,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let verdict = Verdict::Broken { found: found.into(), remedy: remedy.into() };
        Self { name: name.into(), verdict }
    }

    /// The same where it is needed: what is not there is broken then.
    pub fn needed(self, needed: bool) -> Self {
        match self.verdict {
            Verdict::Lacking { found, remedy } if needed => {
                Self { name: self.name, verdict: Verdict::Broken { found, remedy } }
            }
            verdict => Self { name: self.name, verdict },
        }
    }
}

/// All that was looked at, by section.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Report {
    sections: Vec<(String, Vec<Check>)>,
}

impl Report {
    /// Adds a section.
    pub fn section(&mut self, title: impl Into<String>, checks: Vec<Check>) {
        self.sections.push((title.into(), checks));
    }

    /// Does something not work?
    pub fn is_broken(&self) -> bool {
        self.count(|verdict| matches!(verdict, Verdict::Broken { .. })) > 0
    }

    fn count(&self, which: impl Fn(&Verdict) -> bool) -> usize {
        self.sections.iter().flat_map(|(_, checks)| checks).filter(|c| which(&c.verdict)).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.sections.iter().flat_map(|(_, checks)| checks).map(|c| c.name.len());
        let width = names.max().unwrap_or(0);
        for (title, checks) in &self.sections {
            writeln!(out, "{title}")?;
            for Check { name, verdict } in checks {
                let (mark, found, remedy) = match verdict {
                    Verdict::Good(found) => ("ok  ", found, None),
                    Verdict::Lacking { found, remedy } => ("note", found, Some(remedy)),
                    Verdict::Broken { found, remedy } => ("FAIL", found, Some(remedy)),
                };
                writeln!(out, "  {mark}  {name:width$}  {found}")?;
                if let Some(remedy) = remedy {
                    writeln!(out, "        {:width$}  -> {remedy}", "")?;
                }
            }
        }
        let broken = self.count(|verdict| matches!(verdict, Verdict::Broken { .. }));
        let lacking = self.count(|verdict| matches!(verdict, Verdict::Lacking { .. }));
        match (broken, lacking) {
            (0, 0) => writeln!(out, "All is well."),
            (0, _) => writeln!(out, "It works; {lacking} could be better."),
            _ => writeln!(out, "{broken} broken, {lacking} could be better."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_the_remedy_below_what_is_amiss() {
        let mut report = Report::default();
        report.section("here", vec![Check::good("one", "1"), Check::lacking("three", "2", "buy")]);
        assert_eq!(
            report.to_string(),
            "here\n  ok    one    1\n  note  three  2\n               -> buy\n\
             It works; 1 could be better.\n"
        );
        assert!(!report.is_broken());
        report.section("there", vec![Check::lacking("four", "0", "go").needed(true)]);
        assert!(report.is_broken());
        assert!(report.to_string().ends_with("1 broken, 1 could be better.\n"));
    }
}
