//! One virtual machine: a QEMU process and the channel to the agent in it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::hub;
use super::initramfs::Image;
use super::job::{Job, Outcome};
use super::wire::{Frame, Kind};
use super::{Options, address};

/// From QEMU's start to the agent's word; 4 s when nothing else runs.
const BOOT_LIMIT: Duration = Duration::from_secs(300);
/// For a file on its way in or out, some 100 MB at most.
const FILE_LIMIT: Duration = Duration::from_secs(60);
/// Ticket of the agent's first word.
const READY: u32 = 0;

/// A running machine. Dropping it ends it.
#[derive(Debug)]
pub struct Machine {
    name: String,
    qemu: Mutex<Child>,
    channel: Mutex<UnixStream>,
    listeners: Arc<Mutex<Listeners>>,
    ready: Mutex<Receiver<Frame>>,
    tickets: AtomicU32,
    console: PathBuf,
}

/// Who waits for what the agent says about a ticket. Closed when the machine is gone.
#[derive(Debug, Default)]
struct Listeners {
    by_ticket: HashMap<u32, Sender<Frame>>,
    closed: bool,
}

impl Machine {
    /// Starts QEMU. `network` is the machine's number and its port of the hub.
    pub(super) fn boot(
        name: &str,
        image: &Image,
        options: &Options,
        network: Option<(usize, UnixStream)>,
    ) -> Result<Self, String> {
        let logs = crate::server::scratch("logs");
        let console = logs.join(format!("console-{name}-{}.log", std::process::id()));
        let errors = logs.join(format!("qemu-{name}-{}.log", std::process::id()));
        let failed = |error| format!("{}: {error}", errors.display());
        let (channel, theirs) = UnixStream::pair().map_err(failed)?;

        let number = network.as_ref().map_or(1, |(number, _)| *number);
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "qemu-system-x86_64"]);
        command.args(arguments(name, number, image, options, &console, network.is_some()));
        command.stdin(OwnedFd::from(theirs));
        command.stdout(network.map_or_else(Stdio::null, |(_, port)| OwnedFd::from(port).into()));
        command.stderr(File::create(&errors).map_err(failed)?);
        let qemu = command.spawn().map_err(|error| format!("setpriv (util-linux): {error}"))?;
        // Holds the other ends of both sockets, which must be QEMU's alone.
        drop(command);

        let listeners = Arc::new(Mutex::new(Listeners::default()));
        let (sender, ready) = std::sync::mpsc::channel();
        lock(&listeners).by_ticket.insert(READY, sender);
        let reader = channel.try_clone().map_err(failed)?;
        std::thread::spawn({
            let listeners = Arc::clone(&listeners);
            move || listen(reader, &listeners)
        });
        Ok(Self {
            name: name.to_owned(),
            qemu: Mutex::new(qemu),
            channel: Mutex::new(channel),
            listeners,
            ready: Mutex::new(ready),
            tickets: AtomicU32::new(READY + 1),
            console,
        })
    }

    pub(super) fn wait_until_ready(&self) {
        let word = lock(&self.ready).recv_timeout(BOOT_LIMIT);
        if word.is_err() {
            panic!("{} does not come up: {word:?}{}", self.name, self.last_words());
        }
    }

    /// Runs a command in a shell of the machine and waits for its end.
    ///
    /// # Panics
    /// If it takes longer than `limit`, or the machine ends.
    pub fn run(&self, command: &str, limit: Duration) -> Outcome {
        self.start(command).wait(limit).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// Starts a command in a shell of the machine.
    pub fn start(&self, command: &str) -> Job<'_> {
        let (ticket, events) = self.request(Kind::Run, command.as_bytes());
        Job::new(self, ticket, events, command)
    }

    /// Writes a file in the machine; folders above it are made, and it may be run.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn put(&self, path: &str, bytes: &[u8]) {
        let mut body = Vec::with_capacity(path.len() + 1 + bytes.len());
        body.extend_from_slice(path.as_bytes());
        body.push(0);
        body.extend_from_slice(bytes);
        self.file(Kind::Put, path, &body);
    }

    /// The bytes of a file in the machine.
    ///
    /// # Panics
    /// If it cannot be read.
    pub fn get(&self, path: &str) -> Vec<u8> {
        self.file(Kind::Get, path, path.as_bytes())
    }

    /// Ends the machine as a power failure would: nobody is told.
    pub fn kill(&self) {
        let mut qemu = lock(&self.qemu);
        let _ = qemu.kill();
        let _ = qemu.wait();
    }

    /// What its kernel and init said last, as lines behind a headline.
    pub fn last_words(&self) -> String {
        let text = fs::read(&self.console).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let end = lines[lines.len().saturating_sub(30)..].join("\n");
        format!("\n{}'s console ends with:\n{end}", self.name)
    }

    fn file(&self, kind: Kind, path: &str, body: &[u8]) -> Vec<u8> {
        let (_, events) = self.request(kind, body);
        match events.recv_timeout(FILE_LIMIT) {
            Ok(Frame { kind: Kind::Done, body, .. }) => body,
            Ok(frame) => {
                let reason = String::from_utf8_lossy(&frame.body);
                panic!("{}: {path}: {:?}: {reason}", self.name, frame.kind)
            }
            Err(error) => panic!("{}: {path}: {error}{}", self.name, self.last_words()),
        }
    }

    /// Asks the agent for something; what it says about that comes out of the receiver.
    fn request(&self, kind: Kind, body: &[u8]) -> (u32, Receiver<Frame>) {
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        let (sender, events) = channel();
        let mut listeners = lock(&self.listeners);
        if !listeners.closed {
            listeners.by_ticket.insert(ticket, sender);
        }
        drop(listeners);
        self.send(kind, ticket, body);
        (ticket, events)
    }

    /// A machine that is gone takes nothing; who waits for its answer hears of that.
    pub(super) fn send(&self, kind: Kind, ticket: u32, body: &[u8]) {
        let _ = Frame::write(&mut *lock(&self.channel), kind, ticket, body);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
    }
}

/// QEMU's command line. Standard input is the agent's channel, standard output the
/// port of the hub.
fn arguments(
    name: &str,
    number: usize,
    image: &Image,
    options: &Options,
    console: &Path,
    in_network: bool,
) -> Vec<String> {
    let interface = if in_network { "eth0" } else { "dummy0" };
    // On a host without processor time to spare, ticks come too late for the kernel's check
    // of its timer, and it panics.
    let kernel_line = format!(
        "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check net.ifnames=0 \
         rig.name={name} rig.interface={interface} rig.address={} rig.lifetime={}",
        address(number - 1),
        options.lifetime.as_secs(),
    );
    let mut all = Vec::new();
    let mut add = |words: &[&str]| all.extend(words.iter().map(|&word| word.to_owned()));
    // Emulation everywhere: what runs on one machine then runs on all.
    add(&["-accel", "tcg,thread=multi", "-cpu", "max"]);
    add(&["-m", &options.memory_mib.to_string(), "-smp", &options.processors.to_string()]);
    add(&["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    add(&["-serial", &format!("file:{}", console.display())]);
    add(&["-kernel", &image.kernel.to_string_lossy()]);
    add(&["-initrd", &image.initramfs().to_string_lossy()]);
    add(&["-append", &kernel_line]);
    add(&["-chardev", "socket,id=agent,fd=0", "-device", "virtio-serial-pci"]);
    add(&["-device", "virtserialport,chardev=agent,name=agent"]);
    if in_network {
        let card = format!("virtio-net-pci,netdev=hub,mac={}", hub::mac(number));
        add(&["-netdev", "stream,id=hub,server=off,addr.type=fd,addr.str=1", "-device", &card]);
    }
    all
}

/// Hands what the agent says to whom it concerns, until the machine is gone.
fn listen(mut from: UnixStream, listeners: &Mutex<Listeners>) {
    while let Ok(frame) = Frame::read(&mut from) {
        let mut listeners = lock(listeners);
        let last = !matches!(frame.kind, Kind::Output | Kind::Errors);
        let ticket = frame.ticket;
        if let Some(listener) = listeners.by_ticket.get(&ticket) {
            // Whoever dropped the receiver does not want to know.
            let _ = listener.send(frame);
        }
        if last {
            listeners.by_ticket.remove(&ticket);
        }
    }
    let mut listeners = lock(listeners);
    listeners.by_ticket.clear();
    listeners.closed = true;
}

/// A panic elsewhere leaves nothing half done under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
