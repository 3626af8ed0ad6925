//! SLOWLOG and LATENCY: commands that took long.

use std::collections::BTreeMap;

use super::table::COMMANDS;
use super::{Command, NOT_INTEGER, integer, is};
use crate::reply::Reply;
use crate::request::Arguments;
use crate::session::Place;
use crate::slow::{Event, SlowCommand};
use crate::stats::LATENCY_NS;

/// What SLOWLOG GET shows if nothing is said.
const COUNT: usize = 10;

/// SLOWLOG GET [count]
pub(super) fn get(place: &Place, arguments: Arguments<'_>, reply: &mut Reply) {
    let count = match arguments.from(2).next().map(integer) {
        None => COUNT,
        Some(Some(-1)) => usize::MAX,
        Some(Some(count @ 0..)) => count as usize,
        Some(Some(_)) => {
            return reply.error("ERR count should be greater than or equal to -1");
        }
        Some(None) => return reply.error(NOT_INTEGER),
    };
    let commands = place.shared.slow.commands(count);
    reply.array(commands.len());
    for SlowCommand { id, unix_s, elapsed_us, arguments, address, name, .. } in commands {
        reply.array(6);
        reply.integer(id as i64);
        reply.integer(unix_s as i64);
        reply.integer(elapsed_us as i64);
        reply.array(arguments.len());
        arguments.iter().for_each(|argument| reply.bulk(argument));
        reply.bulk(address.as_bytes());
        reply.bulk(&name);
    }
}

/// LATENCY LATEST
pub(super) fn latest(place: &Place, reply: &mut Reply) {
    let events = place.shared.slow.events();
    reply.array(events.len());
    for (name, Event { samples, max_ms }) in events {
        let last = samples.back().copied();
        reply.array(4);
        reply.bulk(name.as_bytes());
        reply.integer(last.map_or(0, |last| last.unix_s) as i64);
        reply.integer(last.map_or(0, |last| last.ms) as i64);
        reply.integer(max_ms as i64);
    }
}

/// LATENCY HISTORY event
pub(super) fn history(place: &Place, arguments: Arguments<'_>, reply: &mut Reply) {
    let events = place.shared.slow.events();
    let event = events.into_iter().find(|(name, _)| is(arguments.get(2), name));
    let samples = event.map(|(_, event)| event.samples).unwrap_or_default();
    reply.array(samples.len());
    for sample in samples {
        reply.array(2);
        reply.integer(sample.unix_s as i64);
        reply.integer(sample.ms as i64);
    }
}

/// LATENCY RESET [event ...]
pub(super) fn reset(place: &Place, arguments: Arguments<'_>, reply: &mut Reply) {
    let mut names = arguments.from(2);
    let all = names.len() == 0;
    let is_meant = |event: &str| all || names.clone().any(|name| is(name, event));
    reply.integer(place.shared.slow.reset_events(is_meant) as i64);
    names.by_ref().for_each(drop);
}

/// LATENCY DOCTOR
pub(super) fn doctor(place: &Place, reply: &mut Reply) {
    let events = place.shared.slow.events();
    let mut text = String::new();
    if events.is_empty() {
        text.push_str(
            "No command took longer than latency-monitor-threshold milliseconds, or it is 0: \
             choose one by CONFIG SET latency-monitor-threshold. /metrics has the times of all \
             commands.\n",
        );
    }
    for (name, Event { samples, max_ms }) in events {
        let sum: u64 = samples.iter().map(|sample| sample.ms).sum();
        let mean = sum / (samples.len() as u64).max(1);
        text.push_str(&format!(
            "{name}: {} in the last seconds that had one, {mean} ms on average, {max_ms} ms at most. \
             SLOWLOG GET tells which commands they were.\n",
            samples.len()
        ));
    }
    reply.verbatim(text.as_bytes());
}

/// LATENCY HISTOGRAM [command ...]
pub(super) fn histogram(place: &Place, arguments: Arguments<'_>, reply: &mut Reply) {
    let counts = place.shared.totals();
    let called = |command: &&Command| counts.calls(command.id()) > 0;
    let mut chosen: Vec<&Command> = Vec::new();
    if arguments.len() == 2 {
        chosen.extend(COMMANDS.iter().filter(called));
    }
    for name in arguments.from(2) {
        let Some(command) = super::docs::named(name) else { continue };
        // A container stands for its subcommands.
        chosen.extend([command].into_iter().chain(command.subcommands()).filter(called));
    }
    reply.map(chosen.len());
    for command in chosen {
        reply.bulk(command.name.as_bytes());
        reply.map(2);
        reply.bulk(b"calls");
        reply.integer(counts.calls(command.id()) as i64);
        reply.bulk(b"histogram_usec");
        let mut so_far = 0;
        // The upper ends of the buckets in whole microseconds, and how many calls
        // took no longer.
        let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
        for (bucket, count) in counts.latency(command.id()).iter().enumerate() {
            so_far += count;
            if *count > 0 {
                let end_ns = LATENCY_NS
                    .get(bucket)
                    .copied()
                    .unwrap_or(10 * LATENCY_NS[LATENCY_NS.len() - 1]);
                ends.insert(end_ns.div_ceil(1000), so_far);
            }
        }
        reply.map(ends.len());
        for (end_us, calls) in ends {
            reply.integer(end_us as i64);
            reply.integer(calls as i64);
        }
    }
}
