//! CLIENT: what connections say and learn about themselves and others.

use super::{SYNTAX, integer, is, printed};
use crate::reply::Reply;
use crate::request::Arguments;
use crate::session::{Place, State};
use crate::shared::unix_ms;

pub(super) const BAD_NAME: &str =
    "ERR Client names cannot contain spaces, newlines or special characters.";

/// Whether a client may be called so: nothing that would break a line of
/// CLIENT LIST.
pub(super) fn is_name(name: &[u8]) -> bool {
    name.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

pub(super) fn getname(state: &State, reply: &mut Reply) {
    match &state.client.names().name[..] {
        [] => reply.null(),
        name => reply.bulk(name),
    }
}

pub(super) fn setname(state: &State, arguments: Arguments<'_>, reply: &mut Reply) {
    let name = arguments.get(2);
    if !is_name(name) {
        return reply.error(BAD_NAME);
    }
    state.client.names().name = name.to_vec();
    reply.ok();
}

pub(super) fn setinfo(state: &State, arguments: Arguments<'_>, reply: &mut Reply) {
    let (option, value) = (arguments.get(2), arguments.get(3));
    let mut names = state.client.names();
    let (field, name) = if is(option, "lib-name") {
        (&mut names.library, "lib-name")
    } else if is(option, "lib-ver") {
        (&mut names.library_version, "lib-ver")
    } else {
        let text = [b"ERR Unrecognized option '", printed(option), b"'"].concat();
        return reply.error_bytes(&text);
    };
    if !is_name(value) {
        return reply.error_fmt(format_args!(
            "ERR {name} cannot contain spaces, newlines or special characters."
        ));
    }
    *field = value.to_vec();
    reply.ok();
}

pub(super) fn info(state: &State, reply: &mut Reply) {
    let mut text = Vec::new();
    state.client.describe(unix_ms(), &mut text);
    reply.verbatim(&text);
}

/// CLIENT LIST [TYPE type] [ID id [id ...]]
pub(super) fn list(place: &Place, arguments: Arguments<'_>, reply: &mut Reply) {
    let mut clients = place.shared.clients.all();
    if arguments.len() == 4 && is(arguments.get(2), "type") {
        let kind = arguments.get(3);
        if ["master", "replica", "slave", "pubsub"].iter().any(|name| is(kind, name)) {
            clients.clear();
        } else if !is(kind, "normal") {
            let text = [b"ERR Unknown client type '", printed(kind), b"'"].concat();
            return reply.error_bytes(&text);
        }
    } else if arguments.len() > 3 && is(arguments.get(2), "id") {
        let ids: Option<Vec<i64>> = arguments.from(3).map(integer).collect();
        let Some(ids) = ids else { return reply.error("ERR Invalid client ID") };
        clients.retain(|client| ids.contains(&(client.id as i64)));
    } else if arguments.len() != 2 {
        return reply.error(SYNTAX);
    }
    let now_ms = unix_ms();
    let mut text = Vec::new();
    for client in clients {
        client.describe(now_ms, &mut text);
    }
    reply.verbatim(&text);
}

/// CLIENT NO-EVICT, CLIENT NO-TOUCH: nothing is evicted or touched as it is.
pub(super) fn switch(arguments: Arguments<'_>, reply: &mut Reply) {
    if ["on", "off"].iter().any(|word| is(arguments.get(2), word)) {
        reply.ok();
    } else {
        reply.error(SYNTAX);
    }
}
