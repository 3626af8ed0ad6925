//! What CONFIG GET tells and CONFIG SET changes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::notify::Classes;

mod table;
mod value;

use table::{Access, SETTINGS, Setting};

/// Bytes that may wait for a subscriber, at once and for a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SubscriberLimit {
    pub(crate) hard_bytes: usize,
    pub(crate) soft_bytes: usize,
    pub(crate) soft_s: u64,
}

/// All settings. Those that take effect when they change have a place of their
/// own, and Relaxed is enough for it: each stands for itself.
#[derive(Debug)]
pub(crate) struct Settings {
    max_clients: AtomicUsize,
    /// Seconds after which a silent connection is closed; 0 is never.
    timeout_s: AtomicU64,
    /// Commands that take longer are logged; below 0 none is.
    slow_us: AtomicI64,
    slow_entries_max: AtomicUsize,
    /// Commands that take longer are events for LATENCY; 0 is none.
    latency_ms: AtomicU64,
    /// Milliseconds after which a script is ended; 0 is never.
    script_ms: AtomicU64,
    /// Milliseconds after which a script keeps others from running; 0 is never.
    busy_ms: AtomicU64,
    protected: AtomicBool,
    /// Bytes of messages that may wait for a subscriber; 0 is any number.
    subscriber_bytes: AtomicUsize,
    /// In bytes of the pool; 0 is as many as there are.
    max_memory: AtomicU64,
    /// What keyspace notifications are about.
    notified: AtomicU16,
    debug: AtomicBool,
    /// Whether what has ended is looked for; DEBUG's only.
    sweeps: AtomicBool,
    /// Whether scripts may run what is kept from them; DEBUG's only.
    opens_scripts: AtomicBool,
    values: Mutex<BTreeMap<&'static str, String>>,
}

/// Why a setting was not changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// There is none of that name.
    Unknown,
    /// It cannot be changed, or not to this, and why.
    Value(String),
}

fn find(name: &[u8]) -> Option<&'static Setting> {
    SETTINGS
        .iter()
        .find(|setting| setting.names().any(|known| name.eq_ignore_ascii_case(known.as_bytes())))
}

impl Settings {
    pub(crate) fn new(max_clients: usize, timeout_s: u64) -> Self {
        let values = SETTINGS.iter().map(|setting| (setting.name, setting.default.to_owned()));
        let settings = Self {
            max_clients: AtomicUsize::new(0),
            timeout_s: AtomicU64::new(0),
            slow_us: AtomicI64::new(0),
            slow_entries_max: AtomicUsize::new(0),
            latency_ms: AtomicU64::new(0),
            script_ms: AtomicU64::new(0),
            busy_ms: AtomicU64::new(0),
            protected: AtomicBool::new(true),
            subscriber_bytes: AtomicUsize::new(0),
            max_memory: AtomicU64::new(0),
            notified: AtomicU16::new(0),
            debug: AtomicBool::new(false),
            sweeps: AtomicBool::new(true),
            opens_scripts: AtomicBool::new(false),
            values: Mutex::new(values.collect()),
        };
        settings.tell("maxclients", max_clients.to_string());
        settings.tell("timeout", timeout_s.to_string());
        for setting in SETTINGS {
            settings.apply(setting.name);
        }
        settings
    }

    /// Says what a setting is, by who started the server.
    ///
    /// # Panics
    /// When there is no such setting.
    pub(crate) fn tell(&self, name: &'static str, value: String) {
        *self.values().get_mut(name).expect("a setting of that name") = value;
        self.apply(name);
    }

    /// Puts a changed value into effect.
    fn apply(&self, name: &str) {
        let value = self.get(name);
        let number = || value.parse::<u64>().unwrap_or(0);
        match name {
            "maxclients" => self.max_clients.store(number() as usize, Ordering::Relaxed),
            "timeout" => self.timeout_s.store(number(), Ordering::Relaxed),
            "slowlog-log-slower-than" => {
                self.slow_us.store(value.parse().unwrap_or(-1), Ordering::Relaxed);
            }
            "slowlog-max-len" => self.slow_entries_max.store(number() as usize, Ordering::Relaxed),
            "latency-monitor-threshold" => self.latency_ms.store(number(), Ordering::Relaxed),
            "script-time-limit" => self.script_ms.store(number(), Ordering::Relaxed),
            "busy-reply-threshold" => self.busy_ms.store(number(), Ordering::Relaxed),
            "protected-mode" => self.protected.store(value == "yes", Ordering::Relaxed),
            "client-output-buffer-limit" => {
                self.subscriber_bytes.store(self.subscriber_limit().hard_bytes, Ordering::Relaxed);
            }
            "notify-keyspace-events" => {
                let classes = Classes::parse(&value).unwrap_or_default();
                self.notified.store(classes.bits(), Ordering::Relaxed);
            }
            "enable-debug-command" => self.debug.store(value == "yes", Ordering::Relaxed),
            "maxmemory" => self.max_memory.store(number(), Ordering::Relaxed),
            _ => {}
        }
    }

    fn values(&self) -> MutexGuard<'_, BTreeMap<&'static str, String>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, name: &str) -> String {
        self.values().get(name).cloned().unwrap_or_default()
    }

    pub(crate) fn max_clients(&self) -> usize {
        self.max_clients.load(Ordering::Relaxed)
    }

    pub(crate) fn timeout_s(&self) -> u64 {
        self.timeout_s.load(Ordering::Relaxed)
    }

    pub(crate) fn script_ms(&self) -> u64 {
        self.script_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn busy_ms(&self) -> u64 {
        self.busy_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn allows_debug(&self) -> bool {
        self.debug.load(Ordering::Relaxed)
    }

    /// Whether what has ended is looked for.
    pub(crate) fn sweeps(&self) -> bool {
        self.sweeps.load(Ordering::Relaxed)
    }

    pub(crate) fn sweep(&self, does: bool) {
        self.sweeps.store(does, Ordering::Relaxed);
    }

    /// Whether scripts may run what is kept from them.
    pub(crate) fn opens_scripts(&self) -> bool {
        self.opens_scripts.load(Ordering::Relaxed)
    }

    pub(crate) fn open_scripts(&self, does: bool) {
        self.opens_scripts.store(does, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn notified(&self) -> Classes {
        Classes::from_bits(self.notified.load(Ordering::Relaxed))
    }

    pub(crate) fn slow_us(&self) -> i64 {
        self.slow_us.load(Ordering::Relaxed)
    }

    pub(crate) fn slow_entries_max(&self) -> usize {
        self.slow_entries_max.load(Ordering::Relaxed)
    }

    pub(crate) fn latency_ms(&self) -> u64 {
        self.latency_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn max_memory(&self) -> u64 {
        self.max_memory.load(Ordering::Relaxed)
    }

    /// The password that was asked for by configuration, if any.
    pub(crate) fn password(&self) -> String {
        self.get("requirepass")
    }

    /// Whether only this machine is served while anybody may come in.
    pub(crate) fn is_protected(&self) -> bool {
        self.protected.load(Ordering::Relaxed)
    }

    pub(crate) fn acl_log_entries_max(&self) -> usize {
        self.get("acllog-max-len").parse().unwrap_or(0)
    }

    pub(crate) fn subscriber_bytes(&self) -> usize {
        self.subscriber_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn subscriber_limit(&self) -> SubscriberLimit {
        let classes = self.get("client-output-buffer-limit");
        let mut words = classes.split(' ').skip_while(|word| *word != "pubsub").skip(1);
        let mut number = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        SubscriberLimit { hard_bytes: number(), soft_bytes: number(), soft_s: number() as u64 }
    }

    /// The settings whose names, or other names, a pattern matches. Hidden ones
    /// are told only to who names them.
    pub(crate) fn matching(
        &self,
        is_match: impl Fn(&str) -> bool,
        names: &[Vec<u8>],
    ) -> Vec<(&'static str, String)> {
        let values = self.values();
        let mut found = Vec::new();
        for setting in SETTINGS {
            for name in setting.names() {
                let named = names.iter().any(|given| given == name.as_bytes());
                if named || (!setting.is_hidden() && is_match(name)) {
                    found.push((name, values[setting.name].clone()));
                }
            }
        }
        found
    }

    /// Changes all of `changes`, or none and tells which could not be.
    pub(crate) fn change<'a>(
        &self,
        changes: &[(&'a [u8], &[u8])],
    ) -> Result<(), (&'a [u8], Refused)> {
        let mut checked = Vec::new();
        for (name, value) in changes {
            let Some(setting) = find(name) else { return Err((*name, Refused::Unknown)) };
            let text = std::str::from_utf8(value).ok();
            let value = match text.ok_or_else(|| "argument is not text".to_owned()) {
                // What it is already may be set: scripts do so.
                Ok(text) if setting.access == Access::Fixed && self.get(setting.name) == text => {
                    Ok(text.to_owned())
                }
                Ok(_) if setting.access == Access::Fixed => {
                    Err("can't set immutable config".to_owned())
                }
                Ok(text) => setting.value.check(text, &self.get(setting.name)),
                Err(why) => Err(why),
            };
            match value {
                Ok(value) => checked.push((*name, setting, value)),
                Err(why) => return Err((*name, Refused::Value(why))),
            }
        }
        // Redis finds out only when all values are well formed.
        for (name, setting, value) in &checked {
            if setting.access == Access::Bound && *value != self.get(setting.name) {
                let mut why = String::new();
                let _ = write!(why, "Unable to listen on this {}", setting.name);
                why.push_str(": it is chosen when the server starts");
                return Err((name, Refused::Value(why)));
            }
        }
        for (_, setting, value) in checked {
            self.tell(setting.name, value);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(settings: &Settings, name: &str, value: &str) -> Result<(), Refused> {
        settings.change(&[(name.as_bytes(), value.as_bytes())]).map_err(|(_, refused)| refused)
    }

    #[test]
    fn one_wrong_change_undoes_all() {
        let settings = Settings::new(100, 0);
        let changes: [(&[u8], &[u8]); 2] = [(b"timeout", b"5"), (b"databases", b"1")];
        let why = Refused::Value("can't set immutable config".to_owned());
        assert_eq!(settings.change(&changes), Err((&b"databases"[..], why)));
        assert_eq!(settings.timeout_s(), 0);
        assert_eq!(settings.change(&changes[..1]), Ok(()));
        assert_eq!(settings.timeout_s(), 5);
        let told = settings.matching(|name| name == "timeout", &[]);
        assert_eq!(told, [("timeout", "5".to_owned())]);
    }

    #[test]
    fn every_setting_may_be_set_to_what_it_is() {
        let settings = Settings::new(100, 0);
        for (name, value) in settings.matching(|_| true, &[]) {
            assert_eq!(change(&settings, name, &value), Ok(()), "{name} {value}");
        }
        assert!(SETTINGS.is_sorted_by_key(|setting| setting.name));
    }

    #[test]
    fn another_name_changes_the_same_setting() {
        let settings = Settings::new(100, 0);
        assert_eq!(change(&settings, "hash-max-ziplist-value", "5"), Ok(()));
        assert_eq!(settings.get("hash-max-listpack-value"), "5");
        assert_eq!(change(&settings, "no-such-thing", "5"), Err(Refused::Unknown));
    }

    #[test]
    fn limits_of_subscribers_are_read_from_their_class() {
        let settings = Settings::new(100, 0);
        let limit = settings.subscriber_limit();
        assert_eq!((limit.hard_bytes, limit.soft_bytes, limit.soft_s), (32 << 20, 8 << 20, 60));
        assert_eq!(change(&settings, "client-output-buffer-limit", "pubsub 1mb 0 0"), Ok(()));
        assert_eq!(settings.subscriber_limit().hard_bytes, 1 << 20);
        assert!(settings.get("client-output-buffer-limit").starts_with("normal 0 0 0 slave"));
        assert!(change(&settings, "client-output-buffer-limit", "nobody 1 1 1").is_err());
    }
}
