//! Commands about the connection itself, and what is answered to those that
//! are none.

use fusee::DATABASES;

use super::{
    Command, Local, NOT_INTEGER, Run, acl, client, config, docs, eval, integer, is, printed,
    pubsub, server, slowlog,
};
use crate::acl::{Context, DEFAULT, Reason};
use crate::channels::Way;
use crate::reply::{Protocol, Reply};
use crate::request::Arguments;
use crate::session::{Flow, Place, Replies, State};
use crate::shared::REDIS_VERSION;

/// How much of a client's words an error quotes.
const QUOTE_BYTES_MAX: usize = 128;

/// Runs a command that needs no keyspace.
pub(crate) fn local(
    local: Local,
    state: &mut State,
    place: &Place,
    arguments: Arguments<'_>,
    reply: &mut Reply,
) -> Flow {
    match local {
        Local::AclCat => acl::cat(arguments, reply),
        Local::AclDelUser => acl::deluser(place, arguments, reply),
        Local::AclDryRun => acl::dryrun(place, arguments, reply),
        Local::AclGenPass => acl::genpass(arguments, reply),
        Local::AclGetUser => acl::getuser(place, arguments, reply),
        Local::AclHelp => server::help("ACL", reply),
        Local::AclList => acl::list(place, reply),
        Local::AclLoad => {
            acl::load(place, reply);
            state.look_up_user(place);
        }
        Local::AclLog => acl::log(place, arguments, reply),
        Local::AclSave => acl::save(place, reply),
        Local::AclSetUser => {
            acl::setuser(place, arguments, reply);
            state.look_up_user(place);
        }
        Local::AclUsers => acl::users(place, reply),
        Local::AclWhoAmI => reply.bulk(&state.user.name),
        Local::Ping => ping(state, arguments, reply),
        Local::Echo => reply.bulk(arguments.get(1)),
        Local::Quit => {
            reply.ok();
            return Flow::Close;
        }
        Local::Select => select(state, arguments, reply),
        Local::Auth => auth(state, place, arguments, reply),
        Local::Hello => hello(state, place, arguments, reply),
        Local::Reset => reset(state, place, reply),
        Local::Time => server::time(reply),
        Local::ClientId => reply.integer(state.client.id as i64),
        Local::ClientGetName => client::getname(state, reply),
        Local::ClientSetName => client::setname(state, arguments, reply),
        Local::ClientSetInfo => client::setinfo(state, arguments, reply),
        Local::ClientInfo => client::info(state, reply),
        Local::ClientList => client::list(place, arguments, reply),
        Local::ClientNoEvict | Local::ClientNoTouch => client::switch(arguments, reply),
        Local::ClientKill => return client::kill(state, place, arguments, reply),
        Local::ClientPause => client::pause(place, arguments, reply),
        Local::ClientUnpause => {
            place.shared.unpause();
            reply.ok();
        }
        Local::ClientReply => client::reply_mode(state, arguments, reply),
        Local::ClientHelp => server::help("CLIENT", reply),
        Local::Command => docs::all(reply),
        Local::CommandCount => docs::count(reply),
        Local::CommandDocs => docs::docs(arguments, reply),
        Local::CommandInfo => docs::info(arguments, reply),
        Local::CommandList => docs::list(arguments, reply),
        Local::CommandGetKeys => docs::getkeys(arguments, reply),
        Local::CommandGetKeysAndFlags => docs::getkeysandflags(arguments, reply),
        Local::CommandHelp => server::help("COMMAND", reply),
        Local::ConfigGet => config::get(place, arguments, reply),
        Local::ConfigSet => config::set(place, arguments, reply),
        Local::ConfigResetStat => config::resetstat(place, reply),
        Local::ConfigRewrite => config::rewrite(reply),
        Local::ConfigHelp => server::help("CONFIG", reply),
        Local::ObjectHelp => server::help("OBJECT", reply),
        Local::MemoryHelp => server::help("MEMORY", reply),
        Local::Monitor => monitor(state, place, reply),
        Local::SlowlogGet => slowlog::get(place, arguments, reply),
        Local::SlowlogLen => reply.integer(place.shared.slow.commands_len() as i64),
        Local::SlowlogReset => {
            place.shared.slow.reset_commands();
            reply.ok();
        }
        Local::SlowlogHelp => server::help("SLOWLOG", reply),
        Local::LatencyDoctor => slowlog::doctor(place, reply),
        Local::LatencyHistogram => slowlog::histogram(place, arguments, reply),
        Local::LatencyHistory => slowlog::history(place, arguments, reply),
        Local::LatencyLatest => slowlog::latest(place, reply),
        Local::LatencyReset => slowlog::reset(place, arguments, reply),
        Local::LatencyHelp => server::help("LATENCY", reply),
        Local::Publish(way) => pubsub::publish(way, place, arguments, reply),
        Local::Subscribe(way) => pubsub::subscribe(way, state, place, arguments, reply),
        Local::Unsubscribe(way) => pubsub::unsubscribe(way, state, place, arguments, reply),
        Local::PubSubChannels(way) => pubsub::channels(way, place, arguments, reply),
        Local::PubSubNumSub(way) => pubsub::numsub(way, place, arguments, reply),
        Local::PubSubNumPat => {
            reply.integer(place.shared.channels.count(Way::Pattern) as i64);
        }
        Local::PubSubHelp => server::help("PUBSUB", reply),
        Local::ScriptExists => eval::exists(place, arguments, reply),
        Local::ScriptFlush => eval::flush(place, arguments, reply),
        Local::FunctionHelp => server::help("FUNCTION", reply),
        Local::ScriptHelp => server::help("SCRIPT", reply),
        Local::ScriptKill => eval::kill(place, arguments, reply),
        Local::ScriptLoad => eval::load(place, arguments, reply),
    }
    Flow::More
}

/// PING [message]
fn ping(state: &State, arguments: Arguments<'_>, reply: &mut Reply) {
    match arguments.len() {
        1 | 2 if state.is_listening_in_resp2() => {
            // All that comes is a message then.
            reply.array(2);
            reply.bulk(b"pong");
            reply.bulk(arguments.from(1).next().unwrap_or_default());
        }
        1 => reply.simple("PONG"),
        2 => reply.bulk(arguments.get(1)),
        _ => reply.error("ERR wrong number of arguments for 'ping' command"),
    }
}

/// MONITOR
fn monitor(state: &mut State, place: &Place, reply: &mut Reply) {
    if !state.is_monitor {
        state.is_monitor = true;
        state.client.monitors(true);
        place.shared.monitor(&state.client);
    }
    reply.ok();
}

/// Ends what a connection gets without asking: messages and lines of MONITOR.
pub(crate) fn forget(state: &mut State, place: &Place) {
    pubsub::forget(state, place);
    if state.is_monitor {
        state.is_monitor = false;
        state.client.monitors(false);
        place.shared.monitor_no_more(&state.client);
    }
}

/// SELECT index
fn select(state: &mut State, arguments: Arguments<'_>, reply: &mut Reply) {
    match integer(arguments.get(1)) {
        None => reply.error(NOT_INTEGER),
        Some(index) if i32::try_from(index).is_err() => reply.error_fmt(format_args!(
            "ERR value is out of range, value must between {} and {}",
            i32::MIN,
            i32::MAX
        )),
        Some(_) => match database_of(arguments.get(1)) {
            Some(database) => {
                state.database = database;
                tell(state);
                reply.ok();
            }
            None => reply.error(NO_DATABASE),
        },
    }
}

pub(crate) const NO_DATABASE: &str = "ERR DB index is out of range";

/// The database of this number, if there is one.
pub(crate) fn database_of(number: &[u8]) -> Option<u8> {
    integer(number).and_then(|n| u8::try_from(n).ok()).filter(|number| *number < DATABASES)
}

/// AUTH [user] password
fn auth(state: &mut State, place: &Place, arguments: Arguments<'_>, reply: &mut Reply) {
    match arguments.len() {
        2 if place.shared.acl.default_user().takes_any_password => reply.error(
            "ERR AUTH <password> called without any password configured for the default user. \
             Are you sure your configuration is correct?",
        ),
        2 if authenticate(state, place, DEFAULT, arguments.get(1)) => reply.ok(),
        3 if authenticate(state, place, arguments.get(1), arguments.get(2)) => reply.ok(),
        2 | 3 => wrong_password(reply),
        _ => reply.error(super::SYNTAX),
    }
}

/// The user and the password that a command gives, if it makes the connection a user's.
pub(super) fn credentials<'a>(
    command: &Command,
    arguments: Arguments<'a>,
) -> Option<(&'a [u8], &'a [u8])> {
    match (command.run, arguments.len()) {
        (Run::Local(Local::Auth), 2) => Some((DEFAULT, arguments.get(1))),
        (Run::Local(Local::Auth), 3) => Some((arguments.get(1), arguments.get(2))),
        (Run::Local(Local::Hello), _) => {
            let mut words = arguments.from(1);
            words.find(|word| is(word, "auth"))?;
            words.next().zip(words.next())
        }
        _ => None,
    }
}

/// Whether these are the words of a user; the connection is then that user's.
fn authenticate(state: &mut State, place: &Place, user: &[u8], password: &[u8]) -> bool {
    match place.shared.acl.authenticate(user, password) {
        Some(user) => {
            state.authenticated = true;
            state.becomes(user);
            true
        }
        None => {
            let why = (Reason::Auth, Context::TopLevel);
            acl::note(why, b"auth", user, &state.client, &place.shared);
            false
        }
    }
}

fn wrong_password(reply: &mut Reply) {
    reply.error("WRONGPASS invalid username-password pair or user is disabled.");
}

/// HELLO [version [AUTH user password] [SETNAME name]]
fn hello(state: &mut State, place: &Place, arguments: Arguments<'_>, reply: &mut Reply) {
    let mut protocol = None;
    if arguments.len() > 1 {
        protocol = match integer(arguments.get(1)) {
            Some(2) => Some(Protocol::Resp2),
            Some(3) => Some(Protocol::Resp3),
            Some(_) => return reply.error("NOPROTO unsupported protocol version"),
            None => {
                return reply.error("ERR Protocol version is not an integer or out of range");
            }
        };
    }
    let mut user = None;
    let mut name = None;
    let mut options = arguments.from(arguments.len().min(2));
    while let Some(option) = options.next() {
        if is(option, "auth") && options.len() >= 2 {
            user = options.next().zip(options.next());
        } else if is(option, "setname") && options.len() >= 1 {
            name = options.next();
            if !name.is_some_and(client::is_name) {
                return reply.error(client::BAD_NAME);
            }
        } else {
            let text = [b"ERR Syntax error in HELLO option '", printed(option), b"'"].concat();
            return reply.error_bytes(&text);
        }
    }
    if let Some((user, password)) = user
        && !authenticate(state, place, user, password)
    {
        return wrong_password(reply);
    }
    if !state.authenticated {
        return reply.error(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        );
    }
    if let Some(name) = name {
        state.client.names().name = name.to_vec();
    }
    if let Some(protocol) = protocol {
        state.protocol = protocol;
        reply.protocol = protocol;
        state.guard();
        tell(state);
    }
    reply.map(7);
    reply.bulk(b"server");
    reply.bulk(b"redis");
    reply.bulk(b"version");
    reply.bulk(REDIS_VERSION.as_bytes());
    reply.bulk(b"proto");
    reply.integer(protocol_number(state.protocol).into());
    reply.bulk(b"id");
    reply.integer(state.client.id as i64);
    reply.bulk(b"mode");
    reply.bulk(b"standalone");
    reply.bulk(b"role");
    reply.bulk(b"master");
    reply.bulk(b"modules");
    reply.array(0);
}

/// RESET
fn reset(state: &mut State, place: &Place, reply: &mut Reply) {
    forget(state, place);
    state.forget_transaction();
    let user = place.shared.acl.default_user();
    state.authenticated = user.is_open();
    state.becomes(user);
    state.replies = Replies::All;
    state.database = 0;
    state.protocol = Protocol::Resp2;
    reply.protocol = Protocol::Resp2;
    state.client.names().name.clear();
    state.guard();
    tell(state);
    reply.simple("RESET");
}

fn protocol_number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Resp2 => 2,
        Protocol::Resp3 => 3,
    }
}

fn tell(state: &State) {
    state.client.speaks(state.database, protocol_number(state.protocol));
}

/// What Redis answers to a command that it does not know.
#[cold]
pub(crate) fn unknown(arguments: Arguments<'_>, reply: &mut Reply) {
    let quote = |bytes: &[u8], room: usize| {
        let text = printed(bytes);
        text[..text.len().min(room)].to_vec()
    };
    let mut quoted = Vec::new();
    for argument in arguments.from(1) {
        if quoted.len() >= QUOTE_BYTES_MAX {
            break;
        }
        let text = quote(argument, QUOTE_BYTES_MAX - quoted.len());
        quoted.push(b'\'');
        quoted.extend(text);
        quoted.extend_from_slice(b"' ");
    }
    let name = quote(arguments.get(0), QUOTE_BYTES_MAX);
    reply.error_bytes(
        &[b"ERR unknown command '", &name[..], b"', with args beginning with: ", &quoted].concat(),
    );
}

/// What Redis answers to a subcommand that it does not know.
#[cold]
pub(crate) fn unknown_subcommand(container: &Command, name: &[u8], reply: &mut Reply) {
    let name = printed(name);
    let name = &name[..name.len().min(QUOTE_BYTES_MAX)];
    let container = container.name.to_uppercase();
    reply.error_bytes(
        &[b"ERR unknown subcommand '", name, b"'. Try ", container.as_bytes(), b" HELP."].concat(),
    );
}

#[cold]
pub(crate) fn wrong_arity(command: &Command, reply: &mut Reply) {
    let name = command.name;
    reply.error_fmt(format_args!("ERR wrong number of arguments for '{name}' command"));
}
