//! What a service manager is told: systemd's notification protocol (sd_notify(3)), one
//! datagram for each message.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The service manager, if one waits to hear.
#[derive(Debug, Default)]
pub struct Supervisor {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
    /// What it was told last, but for signs of life.
    told: RefCell<String>,
}

/// How often it is told how things stand.
const INTERVAL: Duration = Duration::from_secs(1);

impl Supervisor {
    /// The one that the environment names. Without one, nobody is told anything.
    pub fn from_environment() -> Self {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return Self::default() };
        let watchdog_us = std::env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse().ok());
        let watched =
            std::env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string());
        let watchdog = watchdog_us.filter(|_| watched).map(Duration::from_micros);
        Self::new(&name, watchdog).unwrap_or_else(|error| {
            tracing::warn!(%error, "NOTIFY_SOCKET is set, and nobody listens there");
            Self::default()
        })
    }

    /// At a socket's path, or at its abstract name behind an `@`; it restarts who gives no
    /// sign of life for as long as `watchdog`.
    ///
    /// # Errors
    ///
    /// If nobody listens there.
    pub fn new(name: &OsStr, watchdog: Option<Duration>) -> io::Result<Self> {
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(name)?,
        };
        let socket = UnixDatagram::unbound()?;
        // A manager that does not read must not hold up the service.
        socket.set_nonblocking(true)?;
        socket.connect_addr(&address)?;
        Ok(Self { socket: Some(socket), watchdog, told: RefCell::default() })
    }

    /// How long to wait between two signs of life.
    pub fn interval(&self) -> Duration {
        self.watchdog.map_or(INTERVAL, |watchdog| INTERVAL.min(watchdog / 3))
    }

    /// The service does what it is for.
    pub fn ready(&self, status: &str) {
        self.tell(format!("READY=1\nSTATUS={status}"));
    }

    /// The service waits for something, or shall be known to do something.
    pub fn status(&self, status: &str) {
        self.tell(format!("STATUS={status}"));
    }

    /// The service is about to end.
    pub fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=stopping".to_owned());
    }

    /// A sign of life.
    pub fn alive(&self) {
        if self.watchdog.is_some() {
            self.send("WATCHDOG=1");
        }
    }

    fn tell(&self, message: String) {
        if *self.told.borrow() != message {
            self.send(&message);
            self.told.replace(message);
        }
    }

    fn send(&self, message: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(message.as_bytes())
        {
            tracing::debug!(%error, "the service manager was not told");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(manager: &UnixDatagram) -> Option<String> {
        let mut bytes = [0; 256];
        let count = manager.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..count]).into_owned())
    }

    #[test]
    fn each_state_is_told_once_and_each_sign_of_life() {
        let name = format!("@fusee-supervisor-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name[1..]).expect("it is short");
        let manager = UnixDatagram::bind_addr(&address).expect("the name is free");
        manager.set_nonblocking(true).expect("it is a socket");
        let watchdog = Duration::from_millis(900);
        let supervisor =
            Supervisor::new(OsStr::new(&name), Some(watchdog)).expect("somebody listens");
        assert_eq!(supervisor.interval(), Duration::from_millis(300));
        supervisor.status("waiting");
        supervisor.ready("serving");
        supervisor.ready("serving");
        supervisor.alive();
        supervisor.alive();
        supervisor.stopping();
        let heard: Vec<_> = std::iter::from_fn(|| hear(&manager)).collect();
        assert_eq!(
            heard,
            [
                "STATUS=waiting",
                "READY=1\nSTATUS=serving",
                "WATCHDOG=1",
                "WATCHDOG=1",
                "STOPPING=1\nSTATUS=stopping"
            ]
        );
    }

    #[test]
    fn without_a_manager_nothing_is_told_and_nothing_fails() {
        let supervisor = Supervisor::default();
        supervisor.ready("serving");
        supervisor.alive();
        assert_eq!(supervisor.interval(), INTERVAL);
        assert!(Supervisor::new(OsStr::new("/nowhere/at/all"), None).is_err());
    }
}
