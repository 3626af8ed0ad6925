//! A worker's connection to one memory node, and those that replace it.

use super::client::TcpPeer;
use super::flight::Part;
use super::frame::{FRAME_WORDS, Hello, Malformed, VERSION, Verdict, Welcome};
use super::socket::{Socket, distrust};
use super::stream::{Inbox, Outbox};
use crate::batch::as_bytes;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// The pause before connecting again, doubled with each failure.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The way to one memory node.
#[derive(Debug)]
pub(crate) struct Link {
    node: u16,
    peer: TcpPeer,
    /// Tells the memory node which connection this one replaces.
    number: u64,
    deadline: Duration,
    is_up: Cell<bool>,
    attempted: Cell<bool>,
    attempt: Notify,
    /// Parts that wait to be sent.
    queued: RefCell<VecDeque<Part>>,
    /// Parts that wait for their replies, with when they were sent.
    awaited: RefCell<VecDeque<(Part, Instant)>>,
    posted: Notify,
}

/// Why there is no connection.
#[derive(Debug, Error)]
enum Lost {
    #[error("{0}")]
    System(io::Error),
    #[error(
        "there is no trust between the two: {0}; check that the pool file's certificates are of \
         one authority, name the host, and have not ended"
    )]
    Untrusted(rustls::Error),
    #[error("it closed the connection")]
    Closed,
    #[error("it did not answer within {0:?}")]
    Late(Duration),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error(
        "it speaks version {0} of the data path and this client {VERSION}: run the same release on both"
    )]
    OtherVersion(u32),
    #[error(
        "it is another memory node of the pool: correct the addresses in the pool's description"
    )]
    OtherNode,
    #[error("it does not know this session: it was restarted, or has expelled this client")]
    NotAdmitted,
    #[error("it has its most connections: run fewer gateways or workers")]
    TooMany,
    #[error("it has been taken from its clients")]
    Down,
}

impl Link {
    pub(crate) fn new(node: u16, peer: TcpPeer, number: u64, deadline: Duration) -> Self {
        Self {
            node,
            peer,
            number,
            deadline,
            is_up: Cell::new(false),
            attempted: Cell::new(false),
            attempt: Notify::new(),
            queued: RefCell::default(),
            awaited: RefCell::default(),
            posted: Notify::new(),
        }
    }

    /// Sends a part of a batch, behind those of this turn of the worker's loop.
    pub(crate) fn post(&self, part: Part) {
        if !self.is_up.get() {
            part.fail();
            return;
        }
        self.queued.borrow_mut().push_back(part);
        self.posted.notify_one();
    }

    pub(crate) fn is_up(&self) -> bool {
        self.is_up.get()
    }

    /// Waits until it has been tried to connect once.
    pub(crate) async fn attempted(&self) {
        while !self.attempted.get() {
            self.attempt.notified().await;
        }
    }

    /// Connects, serves and connects again, for ever.
    pub(crate) async fn run(self: Rc<Self>) {
        let mut pause = PAUSE_MIN;
        let mut told = String::new();
        loop {
            let attempt = timeout(self.deadline, self.connect()).await;
            let connected = attempt.unwrap_or(Err(Lost::Late(self.deadline)));
            self.is_up.set(connected.is_ok());
            self.attempted.set(true);
            self.attempt.notify_one();
            let lost = match connected {
                Ok(socket) => {
                    let begin = Instant::now();
                    tracing::debug!(node = self.node, address = %self.peer.address, "connected");
                    let lost = self.serve(&socket).await;
                    // What comes and goes is not connected to faster than what never comes.
                    if begin.elapsed() > PAUSE_MAX {
                        pause = PAUSE_MIN;
                    }
                    lost
                }
                Err(lost) => lost,
            };
            self.is_up.set(false);
            self.fail_all();
            let reason = lost.to_string();
            if reason != told {
                tracing::warn!(
                    node = self.node,
                    address = %self.peer.address,
                    "no connection to a memory node: {reason}; connecting again"
                );
                told = reason;
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn connect(&self) -> Result<Socket, Lost> {
        let stream = TcpStream::connect(self.peer.address).await?;
        let socket = Socket::connect(stream, self.peer.tls.as_ref()).await?;
        let hello =
            Hello { version: VERSION, node: self.node, token: self.peer.token, link: self.number };
        let words = hello.write();
        let mut unsent = as_bytes(&words);
        while !unsent.is_empty() {
            unsent = &unsent[socket.send(unsent).await?..];
        }
        socket.flush().await?;
        let mut inbox = Inbox::default();
        let words = loop {
            if let Some(words) = inbox.next_words(Welcome::WORDS) {
                break words.try_into().expect("so many were asked for");
            }
            if socket.receive(&mut inbox).await? == 0 {
                return Err(Lost::Closed);
            }
        };
        let welcome = Welcome::parse(words)?;
        match welcome.verdict {
            Verdict::Welcome => Ok(socket),
            Verdict::OtherVersion => Err(Lost::OtherVersion(welcome.version)),
            Verdict::OtherNode => Err(Lost::OtherNode),
            Verdict::NotAdmitted => Err(Lost::NotAdmitted),
            Verdict::TooMany => Err(Lost::TooMany),
            Verdict::NodeDown => Err(Lost::Down),
        }
    }

    /// Until the connection is lost.
    async fn serve(&self, socket: &Socket) -> Lost {
        // First what has arrived: a worker that was held up must not take its own
        // delay for the node's.
        let end = tokio::select! {
            biased;
            end = self.receive(socket) => end,
            end = self.send(socket) => end,
            end = self.watch() => end,
        };
        match end {
            Err(lost) => lost,
            Ok(never) => match never {},
        }
    }

    async fn receive(&self, socket: &Socket) -> Result<Never, Lost> {
        let mut inbox = Inbox::default();
        let mut number = 0;
        loop {
            if socket.receive(&mut inbox).await? == 0 {
                return Err(Lost::Closed);
            }
            while let Some(frame) = inbox.next_frame()? {
                let first = self.awaited.borrow_mut().pop_front();
                let (part, _) = first.ok_or(Malformed("a reply to no request"))?;
                part.land(number, frame)?;
                number = number.wrapping_add(1);
            }
        }
    }

    async fn send(&self, socket: &Socket) -> Result<Never, Lost> {
        let mut outbox = Outbox::default();
        let mut number = 0;
        loop {
            let now = Instant::now();
            while outbox.words().len() < FRAME_WORDS {
                let Some(part) = self.queued.borrow_mut().pop_front() else { break };
                part.write(number, outbox.words());
                number = number.wrapping_add(1);
                self.awaited.borrow_mut().push_back((part, now));
            }
            if outbox.is_empty() {
                socket.flush().await?;
                self.posted.notified().await;
                continue;
            }
            let bytes = socket.send(outbox.unsent()).await?;
            outbox.sent(bytes);
        }
    }

    /// Ends when a part has waited for too long. Those that are still queued have
    /// been held up by us, or by parts that are awaited.
    async fn watch(&self) -> Result<Never, Lost> {
        loop {
            let now = Instant::now();
            let oldest = self.awaited.borrow().front().map_or(now, |&(_, sent_at)| sent_at);
            let end = oldest + self.deadline;
            if end <= now {
                return Err(Lost::Late(self.deadline));
            }
            sleep_until(end).await;
        }
    }

    fn fail_all(&self) {
        // What a part wakes may post again; that fails at once.
        let awaited = std::mem::take(&mut *self.awaited.borrow_mut());
        let queued = std::mem::take(&mut *self.queued.borrow_mut());
        awaited.into_iter().map(|(part, _)| part).chain(queued).for_each(Part::fail);
    }
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        match distrust(&error) {
            Some(why) => Self::Untrusted(why.clone()),
            None => Self::System(error),
        }
    }
}

/// Of what does not happen.
enum Never {}
