//! Who listens to which channel, for all workers of this process.
//!
//! [`Channels::publish`] hands a message to every subscriber here, also what was
//! published at another gateway; [`crate::mesh`] takes it to those.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::client::Client;
use crate::command::glob;
use crate::inbox::Message;

/// The three ways to listen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// SUBSCRIBE: a channel by its name.
    Channel,
    /// PSUBSCRIBE: all channels that a pattern matches.
    Pattern,
    /// SSUBSCRIBE: a channel of another name space.
    Shard,
}

impl Way {
    pub(crate) const ALL: [Self; 3] = [Self::Channel, Self::Pattern, Self::Shard];
}

type Listeners = HashMap<Arc<[u8]>, Vec<Arc<Client>>>;

/// Subscribers by channel.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    listeners: [RwLock<Listeners>; 3],
    /// Patterns there are, so that nobody looks for them in vain. Relaxed: it is
    /// written under the lock, and who sees it late published before.
    patterns: AtomicUsize,
}

impl Channels {
    fn read(&self, way: Way) -> RwLockReadGuard<'_, Listeners> {
        self.listeners[way as usize].read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, way: Way) -> RwLockWriteGuard<'_, Listeners> {
        self.listeners[way as usize].write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a client listen, who does not yet.
    pub(crate) fn join(&self, way: Way, name: &[u8], client: &Arc<Client>) {
        let mut listeners = self.write(way);
        match listeners.get_mut(name) {
            Some(clients) => clients.push(client.clone()),
            None => drop(listeners.insert(name.into(), vec![client.clone()])),
        }
        self.count_patterns(way, &listeners);
    }

    pub(crate) fn leave(&self, way: Way, name: &[u8], client: &Client) {
        let mut listeners = self.write(way);
        if let Some(clients) = listeners.get_mut(name) {
            clients.retain(|other| other.id != client.id);
            if clients.is_empty() {
                listeners.remove(name);
            }
        }
        self.count_patterns(way, &listeners);
    }

    fn count_patterns(&self, way: Way, listeners: &Listeners) {
        if way == Way::Pattern {
            self.patterns.store(listeners.len(), Ordering::Relaxed);
        }
    }

    /// Hands a message to all who listen, and tells how many. More than
    /// `bytes_max` waiting for one of them ends that one.
    pub(crate) fn publish(
        &self,
        way: Way,
        channel: &[u8],
        payload: &[u8],
        bytes_max: usize,
    ) -> usize {
        let mut message = None;
        let mut received = 0;
        let mut hand =
            |kind: &'static str, pattern: Option<&Arc<[u8]>>, clients: &[Arc<Client>]| {
                let (channel, payload): &(Arc<[u8]>, Arc<[u8]>) =
                    message.get_or_insert_with(|| (channel.into(), payload.into()));
                for client in clients {
                    let message = Message::Published {
                        kind,
                        pattern: pattern.cloned(),
                        channel: channel.clone(),
                        payload: payload.clone(),
                    };
                    client.inbox.put(message, bytes_max);
                    received += 1;
                }
            };
        if let Some(clients) = self.read(way).get(channel) {
            hand(if way == Way::Shard { "smessage" } else { "message" }, None, clients);
        }
        if way == Way::Channel && self.patterns.load(Ordering::Relaxed) > 0 {
            for (pattern, clients) in &*self.read(Way::Pattern) {
                if glob::matches(pattern, channel) {
                    hand("pmessage", Some(pattern), clients);
                }
            }
        }
        received
    }

    /// How many would get a message.
    pub(crate) fn receivers(&self, way: Way, channel: &[u8]) -> usize {
        let mut receivers = self.listeners(way, channel);
        if way == Way::Channel && self.patterns.load(Ordering::Relaxed) > 0 {
            let patterns = self.read(Way::Pattern);
            let listen = patterns.iter().filter(|(pattern, _)| glob::matches(pattern, channel));
            receivers += listen.map(|(_, clients)| clients.len()).sum::<usize>();
        }
        receivers
    }

    /// Shows everybody who listens, and to what.
    pub(crate) fn each(&self, mut show: impl FnMut(Way, &[u8], &Client)) {
        for way in Way::ALL {
            for (name, clients) in &*self.read(way) {
                clients.iter().for_each(|client| show(way, name, client));
            }
        }
    }

    /// The names that somebody listens to.
    pub(crate) fn names(&self, way: Way) -> Vec<Arc<[u8]>> {
        self.read(way).keys().cloned().collect()
    }

    /// How many names somebody listens to.
    pub(crate) fn count(&self, way: Way) -> usize {
        self.read(way).len()
    }

    /// How many listen to a name.
    pub(crate) fn listeners(&self, way: Way, name: &[u8]) -> usize {
        self.read(way).get(name).map_or(0, Vec::len)
    }
}
