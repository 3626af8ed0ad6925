//! What CONFIG GET tells and CONFIG SET changes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Settings that take effect when they change. Relaxed: each stands for itself.
#[derive(Debug)]
pub(crate) struct Settings {
    max_clients: AtomicUsize,
    /// Seconds after which a silent connection is closed; 0 is never.
    timeout_s: AtomicU64,
    values: Mutex<BTreeMap<&'static str, String>>,
}

/// What may be done with a setting.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    /// Changes something.
    Live,
    /// Is remembered and told; what it would change is not there.
    Remembered,
    /// Is what it is.
    Fixed,
}

use Access::{Fixed, Live, Remembered};

/// Names, what may be done, and what they are at first. Those that clients and
/// dashboards ask for.
const SETTINGS: &[(&str, Access, &str)] = &[
    ("activedefrag", Remembered, "no"),
    ("appendfsync", Remembered, "everysec"),
    ("appendonly", Fixed, "no"),
    ("bind", Fixed, ""),
    (
        "client-output-buffer-limit",
        Remembered,
        "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
    ),
    ("client-query-buffer-limit", Fixed, "1073741824"),
    ("cluster-enabled", Fixed, "no"),
    ("daemonize", Fixed, "no"),
    ("databases", Fixed, "16"),
    ("dbfilename", Fixed, ""),
    ("dir", Fixed, ""),
    ("dynamic-hz", Remembered, "yes"),
    ("enable-debug-command", Fixed, "no"),
    ("hash-max-listpack-entries", Remembered, "512"),
    ("hash-max-listpack-value", Remembered, "64"),
    ("hz", Remembered, "10"),
    ("io-threads", Fixed, "1"),
    ("latency-monitor-threshold", Remembered, "0"),
    ("latency-tracking", Remembered, "yes"),
    ("lazyfree-lazy-expire", Remembered, "no"),
    ("lfu-decay-time", Remembered, "1"),
    ("lfu-log-factor", Remembered, "10"),
    ("list-max-listpack-size", Remembered, "-2"),
    ("loglevel", Remembered, "notice"),
    ("lua-time-limit", Remembered, "5000"),
    ("maxclients", Live, "10000"),
    ("maxmemory", Fixed, "0"),
    ("maxmemory-policy", Remembered, "noeviction"),
    ("maxmemory-samples", Remembered, "5"),
    ("min-replicas-to-write", Remembered, "0"),
    ("notify-keyspace-events", Fixed, ""),
    ("port", Fixed, "6379"),
    ("proto-max-bulk-len", Fixed, "536870912"),
    ("repl-backlog-size", Remembered, "1048576"),
    ("replica-read-only", Fixed, "yes"),
    ("replica-serve-stale-data", Remembered, "yes"),
    ("requirepass", Fixed, ""),
    ("save", Remembered, ""),
    ("set-max-intset-entries", Remembered, "512"),
    ("slave-read-only", Fixed, "yes"),
    ("slowlog-log-slower-than", Remembered, "10000"),
    ("slowlog-max-len", Remembered, "128"),
    ("tcp-keepalive", Remembered, "300"),
    ("timeout", Live, "0"),
    ("tls-port", Fixed, "0"),
    ("unixsocket", Fixed, ""),
    ("zset-max-listpack-entries", Remembered, "128"),
];

/// Why a setting was not changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// There is none of that name.
    Unknown,
    /// It cannot be changed while the server runs.
    Immutable,
    /// The value is not one that it can have.
    Value(&'static str),
}

impl Settings {
    pub(crate) fn new(max_clients: usize, timeout_s: u64) -> Self {
        let values = SETTINGS.iter().map(|(name, _, value)| (*name, (*value).to_owned())).collect();
        let settings = Self {
            max_clients: AtomicUsize::new(max_clients),
            timeout_s: AtomicU64::new(timeout_s),
            values: Mutex::new(values),
        };
        settings.tell("maxclients", max_clients.to_string());
        settings.tell("timeout", timeout_s.to_string());
        settings
    }

    /// Says what a fixed setting is.
    ///
    /// # Panics
    /// When there is no such setting.
    pub(crate) fn tell(&self, name: &str, value: String) {
        *self.values().get_mut(name).expect("a setting of that name") = value;
    }

    fn values(&self) -> MutexGuard<'_, BTreeMap<&'static str, String>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn max_clients(&self) -> usize {
        self.max_clients.load(Ordering::Relaxed)
    }

    pub(crate) fn timeout_s(&self) -> u64 {
        self.timeout_s.load(Ordering::Relaxed)
    }

    /// All settings by name.
    pub(crate) fn all(&self) -> Vec<(&'static str, String)> {
        self.values().iter().map(|(name, value)| (*name, value.clone())).collect()
    }

    /// Changes all of `changes`, or none and tells which could not be.
    pub(crate) fn change<'a>(
        &self,
        changes: &[(&'a [u8], &[u8])],
    ) -> Result<(), (&'a [u8], Refused)> {
        let mut checked = Vec::new();
        for (name, value) in changes {
            let refuse = |refused| Err((*name, refused));
            let Some((known, access, _)) =
                SETTINGS.iter().find(|(known, ..)| name.eq_ignore_ascii_case(known.as_bytes()))
            else {
                return refuse(Refused::Unknown);
            };
            let Ok(value) = std::str::from_utf8(value) else {
                return refuse(Refused::Value("not text"));
            };
            match access {
                // What it is already may be set: scripts do so.
                Fixed if self.values()[known] == value => {}
                Fixed => return refuse(Refused::Immutable),
                Live if value.parse::<u32>().is_err() => {
                    return refuse(Refused::Value("argument couldn't be parsed into an integer"));
                }
                Live if *known == "maxclients" && value == "0" => {
                    return refuse(Refused::Value(
                        "argument must be between 1 and 4294967295 inclusive",
                    ));
                }
                Live | Remembered => {}
            }
            checked.push((*known, value));
        }
        for (name, value) in checked {
            let number = value.parse().unwrap_or(0);
            match name {
                "maxclients" => self.max_clients.store(number, Ordering::Relaxed),
                "timeout" => self.timeout_s.store(number as u64, Ordering::Relaxed),
                _ => {}
            }
            self.tell(name, value.to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_change_undoes_all() {
        let settings = Settings::new(100, 0);
        let changes: [(&[u8], &[u8]); 2] = [(b"timeout", b"5"), (b"port", b"1")];
        assert_eq!(settings.change(&changes), Err((&b"port"[..], Refused::Immutable)));
        assert_eq!(settings.timeout_s(), 0);
        assert_eq!(settings.change(&changes[..1]), Ok(()));
        assert_eq!(settings.timeout_s(), 5);
        assert!(settings.all().contains(&("timeout", "5".to_owned())));
    }

    #[test]
    fn settings_are_in_order() {
        assert!(SETTINGS.is_sorted_by_key(|(name, ..)| *name));
    }
}
