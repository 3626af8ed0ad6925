//! What consecutive requests of a pipeline do together: reads share round trips,
//! plain SETs prepare in one, and other writes announce their keys.

use std::pin::{Pin, pin};
use std::task::Poll;

use fusee::{Key, Setting};

use super::{Job, Place, Session};
use crate::command::read::{Answers, Source, gather};
use crate::command::string::setting;
use crate::command::table::COMMANDS;
use crate::command::{Run, Write, guard, refuse};
use crate::keyspace::Keyspace;
use crate::phase::Spent;
use crate::reply::Reply;
use crate::request::Arguments;

/// Keys in one read of the keyspace, which bounds what it holds at once.
pub(super) const KEYS_PER_READ: usize = 512;
/// Room for keys that a connection keeps; an MGET may have needed more.
const KEYS_KEPT: usize = 2 * KEYS_PER_READ;
/// Writes whose keys are announced to the keyspace together: enough to hide a
/// cache miss behind the others, few enough to stay in the cache.
const KEYS_PER_PREFETCH: usize = 16;

impl Session {
    /// How many of the next requests its user may make, up to the first that is
    /// refused; 0 also at the end.
    #[cold]
    pub(super) fn allowed(&self, input: &[u8]) -> usize {
        let is_allowed = |job: &&Job| {
            let Some(id) = job.command else { return true };
            let arguments = self.requests.arguments(input, job.frame);
            let id = guard::resolved_id(id, arguments);
            // The wrong number of arguments is told first.
            !COMMANDS[usize::from(id)].takes(arguments.len())
                || self.state.user.check(id, arguments).is_ok()
        };
        // A command may make the connection another user's.
        let changes_user = |job: &&Job| {
            job.command.is_some_and(|id| {
                matches!(COMMANDS[usize::from(id)].run, Run::Local(_) | Run::Container)
            })
        };
        let jobs = &self.jobs[self.next..];
        if jobs.first().is_some_and(|job| changes_user(&job)) {
            return usize::from(is_allowed(&&jobs[0]));
        }
        jobs.iter().take_while(|job| is_allowed(job) && !changes_user(job)).count()
    }

    /// Runs reads, up to the first request that is none.
    pub(super) async fn reads<K: Keyspace>(
        &mut self,
        keyspace: &K,
        place: &Place,
        input: &[u8],
        reply: &mut Reply,
        gathered_max: usize,
    ) {
        let first = self.next;
        let mut keys: Vec<Key<'_>> = std::mem::take(&mut self.keys);
        self.gathered.clear();
        for job in &self.jobs[first..] {
            let Some(id) = job.command else { break };
            let command = &COMMANDS[usize::from(id)];
            let arguments = self.requests.arguments(input, job.frame);
            let Run::Read(read) = command.run else { break };
            if !command.takes(arguments.len())
                || keys.len() >= self.keys_per_read
                || self.gathered.len() >= gathered_max
            {
                break;
            }
            let database = self.state.database;
            self.gathered.push(gather(read, command, job.frame, arguments, database, &mut keys));
        }
        let failures = reply.failures();
        let source = Source { requests: &self.requests, input };
        let random = place.random();
        let mut answers = Answers::new(&self.gathered, source, reply, random, || keyspace.now_ms());
        let mut round_trips = 0;
        for keys in keys.chunks(KEYS_PER_READ) {
            if answers.is_full() {
                break;
            }
            let read = keyspace.read(keys, |_, entry| answers.take(entry));
            round_trips += counted(keyspace, &place.clock, &self.spent, pin!(read)).await;
        }
        let (lookups, left) = answers.end();
        place.stats.hits.add(lookups.hits);
        place.stats.misses.add(lookups.misses);
        let answered = self.gathered.len() - left;
        // Whose values are large gets fewer read at once: the rest would be read
        // again after these have been sent.
        self.keys_per_read =
            if left > 0 { answered.max(1) } else { (2 * self.keys_per_read).min(KEYS_PER_READ) };
        self.next = first + answered;
        for job in &mut self.jobs[first..self.next] {
            job.round_trips = round_trips;
        }
        let failed = reply.failures() - failures;
        if failed > 0
            && let Some(id) = self.jobs[first].command
        {
            place.stats.commands[usize::from(id)].failed.add(u64::from(failed));
        }
        self.keys = recycle(keys);
    }

    /// Runs plain SETs, up to the first request that is none. False if there are
    /// not two of them: one alone gains nothing.
    pub(super) async fn sets<K: Keyspace>(
        &mut self,
        keyspace: &K,
        place: &Place,
        input: &[u8],
        reply: &mut Reply,
        gathered_max: usize,
    ) -> bool {
        if place.shared.settings.notified().tell_something() {
            // Whoever listens learns of each what it found.
            return false;
        }
        let first = self.next;
        let database = self.state.database;
        let mut sets: Vec<Setting<'_>> = std::mem::take(&mut self.sets);
        for job in &self.jobs[first..] {
            let Some(id) = job.command else { break };
            let command = &COMMANDS[usize::from(id)];
            let arguments = self.requests.arguments(input, job.frame);
            let is_plain = command.run == Run::Write(Write::Set) && command.takes(arguments.len());
            if !is_plain || sets.len() >= gathered_max {
                break;
            }
            let Some(set) = setting(arguments, database, || keyspace.now_ms()) else { break };
            sets.push(set);
        }
        let count = sets.len();
        if count > 1 {
            let mut failed = 0;
            let set = keyspace.set_each(&sets, |_, done| match done {
                Ok(()) => reply.ok(),
                Err(error) => {
                    failed += 1;
                    refuse(reply, error);
                }
            });
            let round_trips = counted(keyspace, &place.clock, &self.spent, pin!(set)).await;
            self.next += count;
            for job in &mut self.jobs[first..self.next] {
                job.round_trips = round_trips;
            }
            if failed > 0
                && let Some(id) = self.jobs[first].command
            {
                place.stats.commands[usize::from(id)].failed.add(failed);
            }
        }
        sets.clear();
        let none = Setting { key: Key { database: 0, name: &[] }, value: &[], expires_at_ms: None };
        self.sets = sets.into_iter().map(|_| none).collect();
        count > 1
    }

    /// Announces the keys of the writes that follow.
    pub(super) fn prefetch<K: Keyspace>(&mut self, keyspace: &K, input: &[u8]) {
        let database = self.state.database;
        let mut keys: Vec<Key<'_>> = std::mem::take(&mut self.keys);
        let mut end = self.next;
        for job in &self.jobs[self.next..] {
            let Some(id) = job.command else { break };
            let command = &COMMANDS[usize::from(id)];
            let Run::Write(_) = command.run else { break };
            let arguments: Arguments<'_> = self.requests.arguments(input, job.frame);
            if keys.len() >= KEYS_PER_PREFETCH {
                break;
            }
            let room = KEYS_PER_PREFETCH - keys.len();
            let places = command.key_places(arguments.len()).take(room);
            keys.extend(places.map(|place| Key { database, name: arguments.get(place) }));
            end += 1;
        }
        if !keys.is_empty() {
            keyspace.prefetch(&keys);
        }
        self.prefetched = end.max(self.next + 1);
        self.keys = recycle(keys);
    }
}

/// Waits for an operation and counts the round trips that it made, and what it waited for:
/// between the beginning and the end of a poll nothing else runs on this thread. Who never
/// waits, as on shared memory, does not look at the clock.
#[inline]
pub(super) async fn counted<K: Keyspace>(
    keyspace: &K,
    clock: &quanta::Clock,
    spent: &Spent,
    mut operation: Pin<&mut impl Future<Output = ()>>,
) -> u32 {
    let (mut round_trips, mut waits_since) = (0, None);
    std::future::poll_fn(|context| {
        if let Some(since) = waits_since.take() {
            spent.wait(clock.delta_as_nanos(since, clock.raw()));
        }
        let before = keyspace.round_trips();
        let conflicts_us = keyspace.conflict_wait_us();
        let poll = operation.as_mut().poll(context);
        round_trips += keyspace.round_trips().wrapping_sub(before);
        spent.conflict(keyspace.conflict_wait_us().wrapping_sub(conflicts_us));
        match poll {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => {
                waits_since = Some(clock.raw());
                Poll::Pending
            }
        }
    })
    .await;
    u32::try_from(round_trips).unwrap_or(u32::MAX)
}

/// Empties a list of keys and keeps its memory: collecting an empty iterator
/// over a list into a list of elements of one size happens in place.
#[inline]
fn recycle(mut keys: Vec<Key<'_>>) -> Vec<Key<'static>> {
    keys.clear();
    if keys.capacity() > KEYS_KEPT {
        return Vec::new();
    }
    keys.into_iter().map(|_| Key { database: 0, name: &[] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recycling_keeps_the_memory() {
        let name = vec![1, 2, 3];
        let keys: Vec<Key<'_>> = vec![Key { database: 0, name: &name }; 100];
        let capacity = keys.capacity();
        let recycled = recycle(keys);
        assert!(recycled.is_empty());
        assert_eq!(recycled.capacity(), capacity);
    }
}
