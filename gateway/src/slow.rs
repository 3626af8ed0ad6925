//! Commands that took long: what SLOWLOG and LATENCY tell.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::client::Client;
use crate::phase::{Phase, Phases};
use crate::request::Arguments;
use crate::shared::unix_us;

/// Arguments of a command that are kept, and bytes of each.
const ARGUMENTS_MAX: usize = 32;
const ARGUMENT_BYTES_MAX: usize = 128;
/// Times of one event that are kept.
const SAMPLES_MAX: usize = 160;

/// A command that took long.
#[derive(Clone, Debug)]
pub(crate) struct SlowCommand {
    pub(crate) id: u64,
    pub(crate) unix_s: u64,
    pub(crate) elapsed_us: u64,
    pub(crate) arguments: Vec<Vec<u8>>,
    pub(crate) address: String,
    pub(crate) name: Vec<u8>,
    pub(crate) phases: Phases,
}

/// A time that was long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sample {
    pub(crate) unix_s: u64,
    pub(crate) ms: u64,
}

/// The times of one event.
#[derive(Clone, Default, Debug)]
pub(crate) struct Event {
    pub(crate) samples: VecDeque<Sample>,
    pub(crate) max_ms: u64,
}

/// All that took long, of all workers.
#[derive(Debug, Default)]
pub(crate) struct Slow(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    commands: VecDeque<SlowCommand>,
    next_id: u64,
    events: BTreeMap<&'static str, Event>,
    /// The second in which the log last told of one, and how many it left out since.
    told_s: u64,
    untold: u64,
}

impl Slow {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a command for SLOWLOG, and forgets the oldest beyond `entries_max`.
    pub(crate) fn command(
        &self,
        client: &Client,
        arguments: Arguments<'_>,
        elapsed_us: u64,
        phases: Phases,
        entries_max: usize,
    ) {
        let mut kept = self.lock();
        let id = kept.next_id;
        kept.next_id += 1;
        kept.commands.push_front(SlowCommand {
            id,
            unix_s: unix_us() / 1_000_000,
            elapsed_us,
            arguments: shortened(arguments),
            address: client.address.to_string(),
            name: client.names().name.clone(),
            phases,
        });
        kept.commands.truncate(entries_max);
    }

    /// Tells the log of a command and its slow phase, once a second at most: whoever has many
    /// slow commands does not want a log of them.
    pub(crate) fn tell(&self, command: &str, elapsed_us: u64, phases: &Phases) {
        let untold = {
            let mut kept = self.lock();
            let unix_s = unix_us() / 1_000_000;
            if kept.told_s == unix_s {
                kept.untold += 1;
                return;
            }
            kept.told_s = unix_s;
            std::mem::take(&mut kept.untold)
        };
        tracing::info!(
            command,
            phase = phases.slowest().name(),
            elapsed_us,
            queue_us = phases.us(Phase::Queue),
            run_us = phases.us(Phase::Run),
            fabric_us = phases.us(Phase::Fabric),
            conflict_us = phases.us(Phase::Conflict),
            untold,
            "a slow command"
        );
    }

    /// Notes a time of an event for LATENCY.
    pub(crate) fn event(&self, name: &'static str, ms: u64) {
        let mut kept = self.lock();
        let event = kept.events.entry(name).or_default();
        event.max_ms = event.max_ms.max(ms);
        let unix_s = unix_us() / 1_000_000;
        // As in Redis, the longest of a second stands for it.
        match event.samples.back_mut() {
            Some(last) if last.unix_s == unix_s => last.ms = last.ms.max(ms),
            _ => event.samples.push_back(Sample { unix_s, ms }),
        }
        if event.samples.len() > SAMPLES_MAX {
            event.samples.pop_front();
        }
    }

    /// The newest commands, `count` at most.
    pub(crate) fn commands(&self, count: usize) -> Vec<SlowCommand> {
        self.lock().commands.iter().take(count).cloned().collect()
    }

    pub(crate) fn commands_len(&self) -> usize {
        self.lock().commands.len()
    }

    pub(crate) fn reset_commands(&self) {
        self.lock().commands.clear();
    }

    pub(crate) fn events(&self) -> BTreeMap<&'static str, Event> {
        self.lock().events.clone()
    }

    /// Forgets the events of these names, or all; how many there were.
    pub(crate) fn reset_events(&self, is_meant: impl Fn(&str) -> bool) -> usize {
        let mut kept = self.lock();
        let before = kept.events.len();
        kept.events.retain(|name, _| !is_meant(name));
        before - kept.events.len()
    }
}

/// A command's arguments as they are kept.
fn shortened(arguments: Arguments<'_>) -> Vec<Vec<u8>> {
    let whole = arguments.len() <= ARGUMENTS_MAX;
    let kept = if whole { arguments.len() } else { ARGUMENTS_MAX - 1 };
    let mut short: Vec<Vec<u8>> = arguments
        .from(0)
        .take(kept)
        .map(|argument| match argument.get(ARGUMENT_BYTES_MAX..) {
            Some(rest @ [_, ..]) => {
                let more = format!("... ({} more bytes)", rest.len());
                [&argument[..ARGUMENT_BYTES_MAX], more.as_bytes()].concat()
            }
            _ => argument.to_vec(),
        })
        .collect();
    if !whole {
        short.push(format!("... ({} more arguments)", arguments.len() - kept).into_bytes());
    }
    short
}
