//! A command that runs in a machine.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::machine::Machine;
use super::wire::{Frame, Kind};

/// How a command ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The command.
    pub command: String,
    /// Its exit code; 128 and the signal's number if a signal ended it.
    pub status: i32,
    /// Its standard output.
    pub output: String,
    /// Its standard error.
    pub errors: String,
}

impl Outcome {
    /// Its standard output.
    ///
    /// # Panics
    /// If it did not exit with 0; the message has all that it said.
    pub fn success(self) -> String {
        assert_eq!(self.status, 0, "{self}");
        self.output
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { command, status, output, errors } = self;
        writeln!(out, "{command:?} ended with {status}")?;
        for (name, text) in [("output", output), ("errors", errors)] {
            if !text.is_empty() {
                writeln!(out, "{name}:\n{text}")?;
            }
        }
        Ok(())
    }
}

/// A command under way. Dropping it leaves the command running.
#[derive(Debug)]
pub struct Job<'a> {
    machine: &'a Machine,
    ticket: u32,
    events: Receiver<Frame>,
    command: String,
    output: Vec<u8>,
    errors: Vec<u8>,
    status: Option<i32>,
}

impl<'a> Job<'a> {
    pub(super) fn new(
        machine: &'a Machine,
        ticket: u32,
        events: Receiver<Frame>,
        command: &str,
    ) -> Self {
        let command = command.to_owned();
        let (output, errors) = (Vec::new(), Vec::new());
        Self { machine, ticket, events, command, output, errors, status: None }
    }

    /// Waits for the command's end; at `limit` it is killed, and that is an error.
    pub fn wait(mut self, limit: Duration) -> Result<Outcome, String> {
        let waited = self.follow(limit, |job| job.status.is_some());
        let outcome = Outcome {
            status: self.status.unwrap_or(-1),
            output: String::from_utf8_lossy(&self.output).into_owned(),
            errors: String::from_utf8_lossy(&self.errors).into_owned(),
            command: self.command,
        };
        match waited {
            Ok(()) => Ok(outcome),
            Err(reason) => {
                self.machine.send(Kind::Kill, self.ticket, &[]);
                Err(format!("{reason}\n{outcome}{}", self.machine.last_words()))
            }
        }
    }

    /// Waits until its standard output has this text, and returns all output so far.
    ///
    /// # Panics
    /// If it ends before, or the text does not come in time.
    pub fn wait_for(&mut self, text: &str, limit: Duration) -> String {
        let shown = |job: &Self| String::from_utf8_lossy(&job.output).into_owned();
        let outcome = self.follow(limit, |job| shown(job).contains(text) || job.status.is_some());
        let output = shown(self);
        if outcome.is_err() || !output.contains(text) {
            let (command, status) = (&self.command, self.status);
            let errors = String::from_utf8_lossy(&self.errors);
            panic!(
                "{command:?} (status {status:?}) did not say {text:?}: {outcome:?}\n{output}\n{errors}{}",
                self.machine.last_words()
            );
        }
        output
    }

    /// Ends it, with all that it started, by SIGKILL.
    pub fn kill(&self) {
        self.machine.send(Kind::Kill, self.ticket, &[]);
    }

    /// Takes what the command says until `done`.
    fn follow(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) -> Result<(), String> {
        let deadline = Instant::now() + limit;
        while !done(self) {
            let left = deadline.saturating_duration_since(Instant::now());
            let frame = match self.events.recv_timeout(left) {
                Ok(frame) => frame,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("{:?} took over {limit:?}", self.command));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("{:?}: the machine is gone", self.command));
                }
            };
            match frame.kind {
                Kind::Output => self.output.extend_from_slice(&frame.body),
                Kind::Errors => self.errors.extend_from_slice(&frame.body),
                Kind::Ended => {
                    let status = frame.body.try_into().map(i32::from_le_bytes);
                    self.status = Some(status.map_err(|_| "an end without a status")?);
                }
                Kind::Refused => {
                    let reason = String::from_utf8_lossy(&frame.body);
                    return Err(format!("{:?}: {reason}", self.command));
                }
                other => return Err(format!("{:?}: {other:?} from the agent", self.command)),
            }
        }
        Ok(())
    }
}
