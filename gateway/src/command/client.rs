//! CLIENT: what connections say and learn about themselves and others.

use super::{SYNTAX, integer, is, printed};
use crate::client::{Client, ClientType};
use crate::reply::Reply;
use crate::request::Arguments;
use crate::session::{Flow, Place, Replies, State};
use crate::shared::{Pause, unix_ms};

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
        let Some(kind) = ClientType::parse(arguments.get(3)) else {
            return unknown_type(arguments.get(3), reply);
        };
        clients.retain(|client| client.kind() == kind);
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

fn unknown_type(name: &[u8], reply: &mut Reply) {
    reply.error_bytes(&[b"ERR Unknown client type '", printed(name), b"'"].concat());
}

/// Which connections CLIENT KILL ends: those of which all that was said is true.
#[derive(Default)]
struct Filter<'a> {
    id: Option<u64>,
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    kind: Option<ClientType>,
    user: Option<&'a [u8]>,
    age_min_s: Option<u64>,
    spares_itself: bool,
}

impl<'a> Filter<'a> {
    /// Reads the new form's pairs; `None` after an error reply.
    fn parse(place: &Place, arguments: Arguments<'a>, reply: &mut Reply) -> Option<Self> {
        let mut filter = Self { spares_itself: true, ..Self::default() };
        let mut words = arguments.from(2);
        while let Some(name) = words.next() {
            let Some(value) = words.next() else {
                reply.error(SYNTAX);
                return None;
            };
            if is(name, "id") {
                let Some(id @ 1..) = integer(value) else {
                    reply.error("ERR client-id should be greater than 0");
                    return None;
                };
                filter.id = Some(id as u64);
            } else if is(name, "maxage") {
                let Some(age @ 1..) = integer(value) else {
                    reply.error("ERR maxage is not an integer or out of range");
                    return None;
                };
                filter.age_min_s = Some(age as u64);
            } else if is(name, "type") {
                let Some(kind) = ClientType::parse(value) else {
                    unknown_type(value, reply);
                    return None;
                };
                filter.kind = Some(kind);
            } else if is(name, "addr") {
                filter.address = Some(value);
            } else if is(name, "laddr") {
                filter.local_address = Some(value);
            } else if is(name, "user") {
                if place.shared.acl.user(value).is_none() {
                    let text = [b"ERR No such user '", printed(value), b"'"].concat();
                    reply.error_bytes(&text);
                    return None;
                }
                filter.user = Some(value);
            } else if is(name, "skipme") && ["yes", "no"].iter().any(|word| is(value, word)) {
                filter.spares_itself = is(value, "yes");
            } else {
                reply.error(SYNTAX);
                return None;
            }
        }
        Some(filter)
    }

    fn is_meant(&self, client: &Client, now_ms: u64) -> bool {
        let is =
            |address: std::net::SocketAddr, wanted: &[u8]| address.to_string().as_bytes() == wanted;
        self.id.is_none_or(|id| id == client.id)
            && self.address.is_none_or(|address| is(client.address, address))
            && self.local_address.is_none_or(|address| is(client.local_address, address))
            && self.kind.is_none_or(|kind| kind == client.kind())
            && self.user.is_none_or(|user| client.names().user == user)
            && self.age_min_s.is_none_or(|age| client.age_s(now_ms) >= age)
    }
}

/// CLIENT KILL address, CLIENT KILL name value [name value ...]
pub(super) fn kill(
    state: &State,
    place: &Place,
    arguments: Arguments<'_>,
    reply: &mut Reply,
) -> Flow {
    let is_old = arguments.len() == 3;
    let filter = if is_old {
        Filter { address: Some(arguments.get(2)), ..Filter::default() }
    } else {
        match Filter::parse(place, arguments, reply) {
            Some(filter) => filter,
            None => return Flow::More,
        }
    };
    let now_ms = unix_ms();
    let mut killed = 0;
    let mut flow = Flow::More;
    for client in place.shared.clients.all() {
        let is_itself = client.id == state.client.id;
        if !filter.is_meant(&client, now_ms) || (is_itself && filter.spares_itself) {
            continue;
        }
        killed += 1;
        if is_itself {
            // Its own reply arrives before the connection ends.
            flow = Flow::Close;
        } else {
            client.inbox.kill();
        }
    }
    match (is_old, killed) {
        (true, 0) => reply.error("ERR No such client"),
        (true, _) => reply.ok(),
        (false, killed) => reply.integer(killed),
    }
    flow
}

/// CLIENT PAUSE milliseconds [WRITE | ALL]
pub(super) fn pause(place: &Place, arguments: Arguments<'_>, reply: &mut Reply) {
    let pause = match arguments.from(3).next() {
        None => Pause::All,
        Some(word) if is(word, "all") && arguments.len() == 4 => Pause::All,
        Some(word) if is(word, "write") && arguments.len() == 4 => Pause::Writes,
        Some(_) => return reply.error("ERR CLIENT PAUSE mode must be WRITE or ALL"),
    };
    let now_ms = unix_ms();
    match integer(arguments.get(2)) {
        Some(ms @ 0..) => {
            match now_ms.checked_add(ms as u64).filter(|end| i64::try_from(*end).is_ok()) {
                Some(end_ms) => {
                    place.shared.pause(pause, end_ms);
                    reply.ok();
                }
                None => reply.error("ERR timeout is out of range"),
            }
        }
        Some(_) => reply.error("ERR timeout is negative"),
        None => reply.error("ERR timeout is not an integer or out of range"),
    }
}

/// CLIENT REPLY ON | OFF | SKIP
pub(super) fn reply_mode(state: &mut State, arguments: Arguments<'_>, reply: &mut Reply) {
    let word = arguments.get(2);
    if is(word, "on") {
        state.replies = Replies::All;
        reply.ok();
    } else if is(word, "off") {
        state.replies = Replies::Off;
    } else if is(word, "skip") {
        if state.replies == Replies::All {
            state.replies = Replies::SkipNext;
        }
    } else {
        return reply.error(SYNTAX);
    }
    state.guard();
}
