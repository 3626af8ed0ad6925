//! ACL: users, told and changed.

use ring::rand::{SecureRandom as _, SystemRandom};

use super::table;
use super::{Command, connection, docs, integer, is, printed};
use crate::acl::{self, Acl, Context, Denied, Reason, Selector, User};
use crate::channels::Way;
use crate::client::Client;
use crate::reply::Reply;
use crate::request::Arguments;
use crate::session::{By, Place};
use crate::shared::{Shared, unix_ms};

const NO_FILE: &str = "ERR This Redis instance is not configured to use an ACL file. You may want \
    to specify users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you \
    have a Redis configuration file set) in order to store users in the Redis configuration.";
const GENPASS_BITS: &str = "ERR ACL GENPASS argument must be the number of bits for the output \
    password, a positive number up to 4096";
/// The most bits of ACL GENPASS, and how many there are if none are asked for.
const GENPASS_BITS_MAX: i64 = 4096;
const GENPASS_BITS_DEFAULT: i64 = 256;
/// Entries of ACL LOG that are told unless more are asked for.
const LOG_ENTRIES_TOLD: usize = 10;

/// Why a user may not do what was asked, if so; it is noted in ACL LOG.
pub(crate) fn denial(
    command: &'static Command,
    arguments: Arguments<'_>,
    by: By<'_>,
    shared: &Shared,
) -> Option<String> {
    let denied = denied(command, arguments, by.user)?;
    note_denied(denied, Context::TopLevel, command, arguments, by, shared);
    Some(match denied {
        Denied::Command => format!("NOPERM {}", explain(denied, by.user, command, arguments)),
        Denied::Key(_) => "NOPERM No permissions to access a key".to_owned(),
        Denied::Channel(_) => "NOPERM No permissions to access a channel".to_owned(),
    })
}

/// Why a user may no longer do what MULTI has kept, if so; it is noted in ACL LOG.
pub(super) fn denial_at_exec(
    command: &'static Command,
    arguments: Arguments<'_>,
    by: By<'_>,
    shared: &Shared,
) -> Option<String> {
    let denied = denied(command, arguments, by.user)?;
    note_denied(denied, Context::Multi, command, arguments, by, shared);
    let reason = match denied {
        Denied::Command => "no permission to execute the command or subcommand",
        Denied::Key(_) => "no permission to touch the specified keys",
        Denied::Channel(_) => "no permission to access one of the channels used as arguments",
    };
    Some(format!(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the \
         EXEC call. This command is no longer allowed for the following reason: {reason}"
    ))
}

/// What a script is told whose user may not do something.
pub(crate) fn script_denial(denied: Denied) -> &'static str {
    match denied {
        Denied::Command => "ERR The user executing the script can't run this command or subcommand",
        Denied::Key(_) => {
            "ERR The user executing the script can't access at least one of the keys mentioned in \
             the command arguments"
        }
        Denied::Channel(_) => {
            "ERR The user executing the script can't publish to the channel mentioned in the \
             command"
        }
    }
}

/// What of a command its user may not do.
#[inline]
pub(crate) fn denied(
    command: &'static Command,
    arguments: Arguments<'_>,
    user: &User,
) -> Option<Denied> {
    if user.is_unlimited() { None } else { user.check(command.id(), arguments).err() }
}

/// Notes in ACL LOG what a user may not do.
pub(crate) fn note_denied(
    denied: Denied,
    context: Context,
    command: &Command,
    arguments: Arguments<'_>,
    by: By<'_>,
    shared: &Shared,
) {
    let (reason, object) = match denied {
        Denied::Command => (Reason::Command, command.name.as_bytes()),
        Denied::Key(at) => (Reason::Key, arguments.get(at)),
        Denied::Channel(at) => (Reason::Channel, arguments.get(at)),
    };
    note((reason, context), object, &by.user.name, by.client, shared);
}

/// Notes a refusal in ACL LOG.
pub(super) fn note(
    why: (Reason, Context),
    object: &[u8],
    user: &[u8],
    client: &Client,
    shared: &Shared,
) {
    let now_ms = unix_ms();
    let mut line = Vec::new();
    client.describe(now_ms, &mut line);
    line.truncate(line.trim_ascii_end().len());
    let most = shared.settings.acl_log_entries_max();
    shared.acl.log().note(why, object, user, line, now_ms, most);
}

/// What Redis says of a denial when it may name names.
fn explain(denied: Denied, user: &User, command: &Command, arguments: Arguments<'_>) -> String {
    let user = String::from_utf8_lossy(&user.name);
    let named = |at| String::from_utf8_lossy(arguments.get(at)).into_owned();
    match denied {
        Denied::Command => {
            format!("User {user} has no permissions to run the '{}' command", command.name)
        }
        Denied::Key(at) => {
            format!("User {user} has no permissions to access the '{}' key", named(at))
        }
        Denied::Channel(at) => {
            format!("User {user} has no permissions to access the '{}' channel", named(at))
        }
    }
}

/// ACL CAT [category]
pub(super) fn cat(arguments: Arguments<'_>, reply: &mut Reply) {
    match arguments.from(2).next() {
        None => {
            reply.array(docs::CATEGORIES.len());
            docs::CATEGORIES.iter().for_each(|category| reply.bulk(category.as_bytes()));
        }
        Some(_) if arguments.len() > 3 => subcommand_syntax("CAT", reply),
        Some(category) => match acl::commands_of(category) {
            Some(names) => {
                reply.array(names.len());
                names.iter().for_each(|name| reply.bulk(name.as_bytes()));
            }
            None => {
                reply.error_bytes(&[b"ERR Unknown category '", printed(category), b"'"].concat());
            }
        },
    }
}

/// ACL DELUSER name [name ...]
pub(super) fn deluser(place: &Place, arguments: Arguments<'_>, reply: &mut Reply) {
    if arguments.from(2).any(|name| name == acl::DEFAULT) {
        return reply.error("ERR The 'default' user cannot be removed");
    }
    let mut removed = 0;
    for name in arguments.from(2) {
        if place.shared.acl.remove(name) {
            removed += 1;
            end_connections(place, |user| user == name);
        }
    }
    reply.integer(removed);
}

/// Ends the connections of users who are no more.
fn end_connections(place: &Place, is_gone: impl Fn(&[u8]) -> bool) {
    for client in place.shared.clients.all() {
        if is_gone(&client.names().user) {
            client.inbox.kill();
        }
    }
}

/// Ends the connections that listen to what their users may no longer listen to.
fn end_listeners(place: &Place) {
    place.shared.channels.each(|way, name, client| {
        let user = place.shared.acl.user(&client.names().user);
        if !user.is_some_and(|user| user.may_listen(name, way == Way::Pattern)) {
            client.inbox.kill();
        }
    });
}

/// ACL DRYRUN user command [argument ...]
pub(super) fn dryrun(place: &Place, arguments: Arguments<'_>, reply: &mut Reply) {
    let Some(user) = place.shared.acl.user(arguments.get(2)) else {
        let name = printed(arguments.get(2));
        return reply.error_bytes(&[b"ERR User '", name, b"' not found"].concat());
    };
    let asked = arguments.skip(3);
    let Some(id) = table::find(asked.get(0)) else {
        let name = printed(asked.get(0));
        return reply.error_bytes(&[b"ERR Command '", name, b"' not found"].concat());
    };
    let command = super::guard::resolved(id, asked);
    if !command.takes(asked.len()) {
        return connection::wrong_arity(command, reply);
    }
    match user.check(command.id(), asked) {
        Ok(()) => reply.ok(),
        Err(denied) => reply.bulk(explain(denied, &user, command, asked).as_bytes()),
    }
}

/// ACL GENPASS [bits]
pub(super) fn genpass(arguments: Arguments<'_>, reply: &mut Reply) {
    let bits = match arguments.from(2).next() {
        None => Some(GENPASS_BITS_DEFAULT),
        Some(_) if arguments.len() > 3 => return subcommand_syntax("GENPASS", reply),
        Some(bits) => integer(bits).filter(|bits| (1..=GENPASS_BITS_MAX).contains(bits)),
    };
    let Some(bits) = bits else { return reply.error(GENPASS_BITS) };
    let digits = (bits as usize).div_ceil(4);
    let mut random = vec![0; digits.div_ceil(2)];
    if SystemRandom::new().fill(&mut random).is_err() {
        return reply.error("ERR the system gives no random bytes: look at its log");
    }
    let text: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    reply.bulk(&text.as_bytes()[..digits]);
}

/// ACL GETUSER name
pub(super) fn getuser(place: &Place, arguments: Arguments<'_>, reply: &mut Reply) {
    let Some(user) = place.shared.acl.user(arguments.get(2)) else {
        return reply.null();
    };
    let mut flags = vec![if user.is_enabled { "on" } else { "off" }];
    if user.takes_any_password {
        flags.push("nopass");
    }
    reply.map(6);
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    let hashes = user.password_hashes();
    reply.array(hashes.len());
    hashes.for_each(|hash| reply.bulk(hash.as_bytes()));
    tell_selector(&user.root, reply);
    reply.bulk(b"selectors");
    reply.array(user.selectors.len());
    for selector in &user.selectors {
        reply.map(3);
        tell_selector(selector, reply);
    }
}

fn tell_selector(selector: &Selector, reply: &mut Reply) {
    reply.bulk(b"commands");
    reply.bulk(selector.command_rules().as_bytes());
    reply.bulk(b"keys");
    reply.bulk(&selector.key_rules());
    reply.bulk(b"channels");
    reply.bulk(&selector.channel_rules());
}

/// ACL LIST
pub(super) fn list(place: &Place, reply: &mut Reply) {
    let users = place.shared.acl.all();
    reply.array(users.len());
    for user in users {
        let mut line = Vec::new();
        user.describe(&mut line);
        reply.bulk(&line);
    }
}

/// ACL LOAD
pub(super) fn load(place: &Place, reply: &mut Reply) {
    with_file(place, reply, |acl| {
        acl.load()?;
        end_connections(place, |user| acl.user(user).is_none());
        end_listeners(place);
        Ok(())
    });
}

/// ACL SAVE
pub(super) fn save(place: &Place, reply: &mut Reply) {
    with_file(place, reply, Acl::save);
}

fn with_file(place: &Place, reply: &mut Reply, run: impl Fn(&Acl) -> Result<(), String>) {
    let acl = &place.shared.acl;
    if !acl.has_file() {
        return reply.error(NO_FILE);
    }
    match run(acl) {
        Ok(()) => reply.ok(),
        Err(why) => reply.error_fmt(format_args!("ERR {why}")),
    }
}

/// ACL LOG [count | RESET]
pub(super) fn log(place: &Place, arguments: Arguments<'_>, reply: &mut Reply) {
    let mut log = place.shared.acl.log();
    let most = match arguments.from(2).next() {
        None => LOG_ENTRIES_TOLD,
        Some(_) if arguments.len() > 3 => return subcommand_syntax("LOG", reply),
        Some(word) if is(word, "reset") => {
            log.reset();
            return reply.ok();
        }
        Some(count) => match integer(count) {
            Some(count) => usize::try_from(count).unwrap_or(0),
            None => return reply.error(super::NOT_INTEGER),
        },
    };
    let now_ms = unix_ms();
    reply.array(most.min(log.entries().len()));
    for entry in log.entries().take(most) {
        reply.map(10);
        reply.bulk(b"count");
        reply.integer(entry.count as i64);
        let texts: [(&str, &[u8]); 4] = [
            ("reason", entry.reason.name().as_bytes()),
            ("context", entry.context.name().as_bytes()),
            ("object", &entry.object),
            ("username", &entry.user),
        ];
        for (name, text) in texts {
            reply.bulk(name.as_bytes());
            reply.bulk(text);
        }
        reply.bulk(b"age-seconds");
        reply.double(now_ms.saturating_sub(entry.updated_ms) as f64 / 1000.0);
        reply.bulk(b"client-info");
        reply.bulk(&entry.client);
        for (name, number) in [
            ("entry-id", entry.id),
            ("timestamp-created", entry.created_ms),
            ("timestamp-last-updated", entry.updated_ms),
        ] {
            reply.bulk(name.as_bytes());
            reply.integer(number as i64);
        }
    }
}

/// ACL SETUSER name [rule ...]
pub(super) fn setuser(place: &Place, arguments: Arguments<'_>, reply: &mut Reply) {
    let name = arguments.get(2);
    if !acl::is_user_name(name) {
        return reply.error("ERR Usernames can't contain spaces or null characters");
    }
    let words: Vec<&[u8]> = arguments.from(3).collect();
    let changed = acl::merged(&words).and_then(|rules| place.shared.acl.change(name, &rules));
    match changed {
        Ok(()) => {
            end_listeners(place);
            reply.ok();
        }
        Err(why) => reply.error_fmt(format_args!("ERR {why}")),
    }
}

/// ACL USERS
pub(super) fn users(place: &Place, reply: &mut Reply) {
    let users = place.shared.acl.all();
    reply.array(users.len());
    users.iter().for_each(|user| reply.bulk(&user.name));
}

fn subcommand_syntax(name: &str, reply: &mut Reply) {
    reply.error_fmt(format_args!(
        "ERR unknown subcommand or wrong number of arguments for '{name}'. Try ACL HELP."
    ));
}
