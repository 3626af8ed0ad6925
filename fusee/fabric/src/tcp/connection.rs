//! One connection at the memory node: frames in, verbs executed, replies out.

use super::frame::{
    Draft, FRAME_WORDS, FrameVerb, Hello, Malformed, Request, VERSION, Verdict, Welcome,
};
use super::server::{Accepted, Shared};
use super::session::Gate;
use super::socket::{Socket, distrust};
use super::stream::{Inbox, Outbox};
use crate::Memory;
use crate::execute::{Executor, Tally, approach};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Who connects has so long to say who it is.
const HELLO_LIMIT: Duration = Duration::from_secs(5);
/// Who does not read its replies for so long is closed; a client gives up a
/// batch much sooner.
const STALLED_MAX: Duration = Duration::from_secs(10);

/// Where a connection is served.
pub(crate) struct Place {
    pub(crate) index: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) executor: Rc<Executor>,
}

/// Why a connection ends.
#[derive(Debug, Error)]
enum End {
    #[error("its client closed it")]
    Closed,
    #[error("{0}")]
    System(io::Error),
    #[error("there is no trust between the two: {0}")]
    Untrusted(rustls::Error),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("no hello within {HELLO_LIMIT:?}")]
    Silent,
    #[error("not let in: {0:?}")]
    Refused(Verdict),
    #[error("its client does not read the replies")]
    Stalled,
    #[error("its session was ended")]
    Revoked,
}

/// Serves a connection to its end.
pub(crate) async fn serve(place: Place, accepted: Accepted) {
    let shared = place.shared.clone();
    let Accepted { stream, open: _open } = accepted;
    // It keeps the socket open until the end is counted, so that who sees the one sees
    // the other.
    let gate = match stream.try_clone() {
        Ok(socket) => Arc::new(Gate::new(socket)),
        Err(error) => {
            tracing::warn!(%error, "a connection for verbs is not served; raise the limit of open files if this repeats");
            return;
        }
    };
    let served = async {
        let accepted = Connection::accept(place, stream, gate.clone());
        let accepted = timeout(HELLO_LIMIT, accepted).await;
        accepted.unwrap_or(Err(End::Silent))?.serve().await
    };
    let end = match served.await {
        Err(end) => end,
        Ok(never) => match never {},
    };
    let counter = match end {
        End::Closed | End::System(_) | End::Revoked => None,
        End::Malformed(_) => Some(&shared.malformed),
        End::Silent | End::Untrusted(_) | End::Refused(_) => Some(&shared.refused),
        End::Stalled => Some(&shared.stalled),
    };
    if let Some(counter) = counter {
        counter.fetch_add(1, Relaxed);
        tracing::warn!("closing a connection for verbs: {end}");
    } else {
        tracing::debug!("a connection for verbs ended: {end}");
    }
    drop(gate);
}

/// Of what does not happen.
enum Never {}

struct Connection {
    place: Place,
    socket: Socket,
    gate: Arc<Gate>,
    inbox: Inbox,
    outbox: Outbox,
}

impl Connection {
    async fn accept(
        place: Place,
        stream: std::net::TcpStream,
        gate: Arc<Gate>,
    ) -> Result<Self, End> {
        let stream = TcpStream::from_std(stream)?;
        let socket = Socket::accept(stream, place.shared.tls.as_ref()).await?;
        Ok(Self { place, socket, gate, inbox: Inbox::default(), outbox: Outbox::default() })
    }

    async fn serve(mut self) -> Result<Never, End> {
        let hello = timeout(HELLO_LIMIT, self.hello()).await.unwrap_or(Err(End::Silent))?;
        let verdict = self.judge(&hello);
        let welcome = Welcome { verdict, version: VERSION };
        self.outbox.words().extend(welcome.write());
        let end = match self.send().await {
            Err(end) => Err(end),
            Ok(()) if verdict == Verdict::Welcome => self.exchange().await,
            Ok(()) => Err(End::Refused(verdict)),
        };
        self.place.shared.sessions.leave(&hello.token, hello.link, &self.gate);
        end
    }

    fn judge(&self, hello: &Hello) -> Verdict {
        let shared = &self.place.shared;
        if hello.version != VERSION {
            return Verdict::OtherVersion;
        }
        if hello.node != shared.number {
            return Verdict::OtherNode;
        }
        if shared.node.is_down() {
            return Verdict::NodeDown;
        }
        match shared.sessions.enter(hello.token, hello.link, &self.gate) {
            Ok(()) => Verdict::Welcome,
            Err(verdict) => verdict,
        }
    }

    async fn hello(&mut self) -> Result<Hello, End> {
        loop {
            if let Some(words) = self.inbox.next_words(Hello::WORDS) {
                let words = words.try_into().expect("so many were asked for");
                return Ok(Hello::parse(words)?);
            }
            self.receive().await?;
        }
    }

    /// Executes what has arrived, replies, and only then receives more: who does
    /// not read its replies is not read from either.
    async fn exchange(&mut self) -> Result<Never, End> {
        loop {
            while let Some(frame) = self.inbox.next_frame()? {
                let request = Request::parse(frame)?;
                if self.place.shared.node.is_down() {
                    return Err(End::Refused(Verdict::NodeDown));
                }
                let out = self.outbox.words();
                self.gate.pass(|| self.place.execute(&request, out)).ok_or(End::Revoked)?;
                // A short frame may ask for a long reply.
                if out.len() > FRAME_WORDS {
                    send(&self.socket, &mut self.outbox).await?;
                }
            }
            self.send().await?;
            // A busy connection lets the others of the thread in.
            tokio::task::consume_budget().await;
            self.receive().await?;
        }
    }

    async fn receive(&mut self) -> Result<(), End> {
        match self.socket.receive(&mut self.inbox).await? {
            0 => Err(End::Closed),
            _ => Ok(()),
        }
    }

    async fn send(&mut self) -> Result<(), End> {
        send(&self.socket, &mut self.outbox).await
    }
}

async fn send(socket: &Socket, outbox: &mut Outbox) -> Result<(), End> {
    while !outbox.is_empty() {
        let sent = timeout(STALLED_MAX, socket.send(outbox.unsent())).await;
        outbox.sent(sent.map_err(|_| End::Stalled)??);
    }
    timeout(STALLED_MAX, socket.flush()).await.map_err(|_| End::Stalled)??;
    Ok(())
}

impl Place {
    /// All targets are asked for before the first verb is executed, so that their
    /// cache misses overlap.
    fn execute(&self, request: &Request<'_>, out: &mut Vec<u64>) {
        let memory = self.shared.node.memory();
        for (offset, verb) in request.verbs() {
            match verb {
                FrameVerb::Read { words } => approach(memory, offset, words, true),
                FrameVerb::Write(words) => approach(memory, offset, words.len(), false),
                FrameVerb::WriteByte(_) | FrameVerb::Cas { .. } | FrameVerb::Faa(_) => {
                    approach(memory, offset, 1, false);
                }
            }
        }
        let mut tally = Tally::default();
        let mut draft = Draft::new(out, request);
        for (offset, verb) in request.verbs() {
            draft.add(&verb, |room| self.perform(memory, offset, &verb, room, &mut tally));
        }
        draft.finish();
        tally.add_to(&self.shared.counters[self.index]);
    }

    fn perform(
        &self,
        memory: &Memory,
        offset: u64,
        verb: &FrameVerb<'_>,
        room: &mut [u64],
        tally: &mut Tally,
    ) -> Option<u64> {
        let executor = &self.executor;
        let found = match *verb {
            FrameVerb::Read { .. } => executor.read(memory, offset, room, tally),
            FrameVerb::Write(words) => executor.write(memory, offset, words, tally),
            FrameVerb::WriteByte(value) => executor.write_byte(memory, offset, value, tally),
            FrameVerb::Cas { expected, new } => executor.cas(memory, offset, expected, new, tally),
            FrameVerb::Faa(add) => executor.faa(memory, offset, add, tally),
        };
        tally.out_of_range += u64::from(found.is_none());
        found
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        match distrust(&error) {
            Some(why) => Self::Untrusted(why.clone()),
            None => Self::System(error),
        }
    }
}
