//! Runs in a machine of the rig: serves what the test asks for over a virtio port.
//! Ends, and the machine with it, when the test does or the time is over.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::Parser;
use rustix::process::{Pid, Signal, kill_process_group};
use tests::rig::wire::{Frame, Kind};

/// The first port of a virtio serial device, behind the one for a console.
const PORT: &str = "/dev/vport0p1";
const PIECE_BYTES: usize = 32 << 10;

#[derive(Parser)]
struct Flags {
    /// Seconds after which it ends whatever runs.
    #[arg(long)]
    lifetime: u64,
}

fn main() {
    let flags = Flags::parse();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(flags.lifetime));
        eprintln!("rig_agent: {} s are over", flags.lifetime);
        std::process::exit(1);
    });
    if let Err(error) = serve() {
        eprintln!("rig_agent: {error}");
    }
}

/// What runs, by ticket.
type Running = Arc<Mutex<HashMap<u32, Pid>>>;

/// Serves until the test closes its end.
fn serve() -> io::Result<()> {
    let mut port = File::options().read(true).write(true).open(PORT)?;
    let replies = Replies(Arc::new(Mutex::new(port.try_clone()?)));
    let running = Running::default();
    replies.say(Kind::Ready, 0, &[]);
    loop {
        let frame = match Frame::read(&mut port) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        };
        let ticket = frame.ticket;
        let outcome = match frame.kind {
            Kind::Run => run(&frame, &replies, &running),
            Kind::Kill => {
                if let Some(&group) = lock(&running).get(&ticket) {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                Ok(())
            }
            Kind::Put => put(&frame).map(|()| replies.say(Kind::Done, ticket, &[])),
            Kind::Get => fs::read(&*String::from_utf8_lossy(&frame.body))
                .map(|bytes| replies.say(Kind::Done, ticket, &bytes)),
            other => Err(io::Error::other(format!("{other:?} is not for the agent"))),
        };
        if let Err(error) = outcome {
            replies.say(Kind::Refused, ticket, error.to_string().as_bytes());
        }
    }
}

/// Starts a command; threads say what it does.
fn run(frame: &Frame, replies: &Replies, running: &Running) -> io::Result<()> {
    let mut child = Command::new("/bin/sh")
        .arg("-c")
        .arg(&*String::from_utf8_lossy(&frame.body))
        .current_dir("/root")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (ticket, group) = (frame.ticket, Pid::from_child(&child));
    lock(running).insert(ticket, group);
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let (replies, running) = (replies.clone(), Arc::clone(running));
    std::thread::spawn(move || {
        let readers = [
            output.map(|pipe| replies.follow(pipe, Kind::Output, ticket)),
            errors.map(|pipe| replies.follow(pipe, Kind::Errors, ticket)),
        ];
        let status = child.wait();
        // Whatever the command left behind would keep its pipes open.
        let _ = kill_process_group(group, Signal::KILL);
        lock(&running).remove(&ticket);
        for reader in readers.into_iter().flatten() {
            let _ = reader.join();
        }
        let code = status.map_or(-1, code_of);
        replies.say(Kind::Ended, ticket, &code.to_le_bytes());
    });
    Ok(())
}

/// As shells count: 128 and the signal's number for an end by a signal.
fn code_of(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

fn put(frame: &Frame) -> io::Result<()> {
    let (path, bytes) = frame.file()?;
    if let Some(folder) = Path::new(path).parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, bytes)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

/// The way back to the test.
#[derive(Clone)]
struct Replies(Arc<Mutex<File>>);

impl Replies {
    /// If the test is gone, so is whoever would hear of an error here.
    fn say(&self, kind: Kind, ticket: u32, body: &[u8]) {
        let _ = Frame::write(&mut *lock(&self.0), kind, ticket, body);
    }

    fn follow(
        &self,
        mut pipe: impl Read + Send + 'static,
        kind: Kind,
        ticket: u32,
    ) -> std::thread::JoinHandle<()> {
        let this = self.clone();
        std::thread::spawn(move || {
            let mut piece = vec![0; PIECE_BYTES];
            while let Ok(count @ 1..) = pipe.read(&mut piece) {
                this.say(kind, ticket, &piece[..count]);
            }
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
