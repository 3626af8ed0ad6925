//! PUBLISH, SUBSCRIBE and their relatives.

use std::collections::HashSet;

use super::glob;
use crate::channels::Way;
use crate::reply::Reply;
use crate::request::Arguments;
use crate::session::{Place, State};

/// What a connection listens to, by [`Way`].
#[derive(Debug, Default)]
pub(crate) struct Subscriptions([HashSet<Vec<u8>>; 3]);

impl Subscriptions {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(HashSet::is_empty)
    }

    /// How many count together with those of this way: channels and patterns.
    fn count(&self, way: Way) -> i64 {
        let [channels, patterns, shards] = [0, 1, 2].map(|way: usize| self.0[way].len() as i64);
        if way == Way::Shard { shards } else { channels + patterns }
    }
}

/// The words that tell of a subscription and of its end.
fn names(way: Way) -> [&'static str; 2] {
    match way {
        Way::Channel => ["subscribe", "unsubscribe"],
        Way::Pattern => ["psubscribe", "punsubscribe"],
        Way::Shard => ["ssubscribe", "sunsubscribe"],
    }
}

fn tell(state: &mut State, way: Way) {
    state.client.listens(way, state.subscriptions.0[way as usize].len());
    state.guard();
}

/// SUBSCRIBE channel [channel ...], PSUBSCRIBE, SSUBSCRIBE
pub(super) fn subscribe(
    way: Way,
    state: &mut State,
    place: &Place,
    arguments: Arguments<'_>,
    reply: &mut Reply,
) {
    for name in arguments.from(1) {
        if state.subscriptions.0[way as usize].insert(name.to_vec()) {
            place.shared.channels.join(way, name, &state.client);
        }
        reply.push(3);
        reply.bulk(names(way)[0].as_bytes());
        reply.bulk(name);
        reply.integer(state.subscriptions.count(way));
    }
    tell(state, way);
}

/// UNSUBSCRIBE [channel ...], PUNSUBSCRIBE, SUNSUBSCRIBE
pub(super) fn unsubscribe(
    way: Way,
    state: &mut State,
    place: &Place,
    arguments: Arguments<'_>,
    reply: &mut Reply,
) {
    let named: Vec<Vec<u8>> = if arguments.len() > 1 {
        arguments.from(1).map(<[u8]>::to_vec).collect()
    } else {
        state.subscriptions.0[way as usize].iter().cloned().collect()
    };
    if named.is_empty() {
        reply.push(3);
        reply.bulk(names(way)[1].as_bytes());
        reply.null();
        reply.integer(state.subscriptions.count(way));
    }
    for name in named {
        if state.subscriptions.0[way as usize].remove(&name) {
            place.shared.channels.leave(way, &name, &state.client);
        }
        reply.push(3);
        reply.bulk(names(way)[1].as_bytes());
        reply.bulk(&name);
        reply.integer(state.subscriptions.count(way));
    }
    tell(state, way);
}

/// Ends all subscriptions without a word.
pub(crate) fn forget(state: &mut State, place: &Place) {
    for way in Way::ALL {
        for name in state.subscriptions.0[way as usize].drain() {
            place.shared.channels.leave(way, &name, &state.client);
        }
        tell(state, way);
    }
}

/// PUBLISH channel message, SPUBLISH
pub(super) fn publish(way: Way, place: &Place, arguments: Arguments<'_>, reply: &mut Reply) {
    let received = place.shared.publish(way, arguments.get(1), arguments.get(2));
    reply.integer(received as i64);
}

/// PUBSUB CHANNELS [pattern], PUBSUB SHARDCHANNELS [pattern]
pub(super) fn channels(way: Way, place: &Place, arguments: Arguments<'_>, reply: &mut Reply) {
    if arguments.len() > 3 {
        return reply.error_fmt(format_args!(
            "ERR wrong number of arguments for 'pubsub|{}' command",
            if way == Way::Shard { "shardchannels" } else { "channels" }
        ));
    }
    let pattern = arguments.from(2).next();
    let mut names = place.shared.channels.names(way);
    names.retain(|name| pattern.is_none_or(|pattern| glob::matches(pattern, name)));
    reply.array(names.len());
    names.iter().for_each(|name| reply.bulk(name));
}

/// PUBSUB NUMSUB [channel ...], PUBSUB SHARDNUMSUB [channel ...]
pub(super) fn numsub(way: Way, place: &Place, arguments: Arguments<'_>, reply: &mut Reply) {
    reply.array(2 * (arguments.len() - 2));
    for name in arguments.from(2) {
        reply.bulk(name);
        reply.integer(place.shared.channels.listeners(way, name) as i64);
    }
}
