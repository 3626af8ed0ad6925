//! Scripts that take long: they run on a thread of their own, and the worker goes on
//! serving others between their commands. Not for ever: as long as a transaction runs
//! no client of the pool can use memory again that was freed meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use mlua::{Lua, MultiValue, Value};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::STACK_BYTES;
use super::call::{Calls, command_of};
use super::engine::{Ended, Outcome, Run, ended};
use super::store::{Program, Running};
use super::value::{one, take};
use super::world::World;
use crate::acl::User;
use crate::command::multi::Queue;
use crate::keyspace::InTransaction;
use crate::reply::{Protocol, Reply};
use crate::shared::Shared;

/// What the script's thread asks of its worker.
enum Asked {
    /// Run a command and send its reply.
    Call(Queue, Sender<Vec<u8>>),
    /// From now on replies are of this version.
    Resp3(bool),
    /// The script has ended.
    End(Box<Ended>),
}

/// Ends the script's thread along with whoever waits for it.
struct Abandons(Arc<AtomicBool>);

impl Drop for Abandons {
    fn drop(&mut self) {
        // Relaxed: it ends a little later, if not at once.
        self.0.store(true, Relaxed);
    }
}

/// Runs a script to its end.
pub(crate) async fn run<K: InTransaction>(run: &Run<'_, K>) -> Outcome {
    let (ask, mut asked) = unbounded_channel();
    let owned = |texts: &[&[u8]]| texts.iter().map(|text| text.to_vec()).collect::<Vec<_>>();
    let (keys, arguments) = (owned(run.keys), owned(run.arguments));
    let (shared, program, protocol) = (run.place.shared.clone(), run.program.clone(), run.protocol);
    let _noted = run.place.shared.note_slow(Running {
        command: command_line(run),
        name: run.program.name().to_vec(),
        kind: run.program.kind(),
        since: run.place.clock.now(),
    });
    let user = run.by.user.clone();
    let abandoned = Abandons(Arc::default());
    let is_abandoned = abandoned.0.clone();
    let thread = std::thread::Builder::new().name("script".into()).stack_size(STACK_BYTES);
    let begun = thread.spawn(move || {
        let words = (&keys[..], &arguments[..]);
        let ended = on_thread((&shared, is_abandoned), &user, &program, words, protocol, &ask);
        // Nobody waits for it if the connection has ended.
        let _ = ask.send(Asked::End(Box::new(ended)));
    });
    let calls = Calls::new(run);
    if let Ok(_thread) = begun {
        while let Some(next) = asked.recv().await {
            match next {
                Asked::Call(queue, reply) => {
                    // It ends by itself if nobody takes the reply.
                    let _ = reply.send(calls.answer(&queue).await);
                }
                Asked::Resp3(resp3) => calls.set_resp3(resp3),
                Asked::End(ended) => {
                    return match *ended {
                        Ended::Killed(reply) => Outcome::Killed(reply),
                        Ended::Reply(reply) => calls.end(reply),
                        Ended::TooSlow => Outcome::Slow,
                    };
                }
            }
        }
    }
    let mut reply = Reply::new(Vec::new(), protocol);
    reply.error("ERR there is no thread for a script that takes long; try again later");
    Outcome::Killed(reply)
}

/// The command that has begun a run.
fn command_line<K>(run: &Run<'_, K>) -> Vec<Vec<u8>> {
    let command = if matches!(run.program, Program::Script(_)) { "evalsha" } else { "fcall" };
    let mut line = vec![command.as_bytes().to_vec(), run.program.name().to_vec()];
    line.push(run.keys.len().to_string().into_bytes());
    line.extend(run.keys.iter().chain(run.arguments).map(|text| text.to_vec()));
    line
}

fn on_thread(
    (shared, abandoned): (&Arc<Shared>, Arc<AtomicBool>),
    user: &User,
    program: &Program,
    (keys, arguments): (&[Vec<u8>], &[Vec<u8>]),
    protocol: Protocol,
    ask: &UnboundedSender<Asked>,
) -> Ended {
    let resp3 = std::cell::Cell::new(false);
    let raw = |lua: &Lua, words: &MultiValue| -> mlua::Result<Value> {
        let queue = match command_of(words) {
            Ok(queue) => queue,
            Err(refusal) => return one(lua, "err", refusal.as_bytes()),
        };
        let (send, receive) = channel();
        let gone = || mlua::Error::runtime("the connection has ended");
        ask.send(Asked::Call(queue, send)).map_err(|_| gone())?;
        let bytes = receive.recv().map_err(|_| gone())?;
        take(lua, &mut bytes.as_slice(), resp3.get())
    };
    let set_resp3 = |version: bool| {
        resp3.set(version);
        let _ = ask.send(Asked::Resp3(version));
    };
    let limit_ms = shared.settings.script_ms();
    // Kept until the reply is written: values die with their world.
    let world = match World::new(shared.clone(), abandoned) {
        Ok(world) => world,
        Err(error) => return ended(Err(error), program, (protocol, false)),
    };
    shared.scripts.begin(program.kind());
    let result = world.function_of(program).and_then(|function| {
        if limit_ms > 0 {
            world.end_after(Duration::from_millis(limit_ms));
        }
        let texts = |texts: &[Vec<u8>]| world.texts(texts.iter().map(Vec::as_slice));
        world.run(&function, texts(keys)?, texts(arguments)?, user, &raw, &set_resp3)
    });
    shared.scripts.end(program.kind());
    match ended(result, program, (protocol, resp3.get())) {
        Ended::TooSlow => {
            let mut reply = Reply::new(Vec::new(), protocol);
            reply.error_fmt(format_args!(
                "ERR the script was ended after {limit_ms} ms and has written nothing; CONFIG SET \
                 script-time-limit lets scripts run longer"
            ));
            Ended::Killed(reply)
        }
        ended => ended,
    }
}
