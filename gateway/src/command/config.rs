//! CONFIG: settings, told and changed.

use super::{glob, printed};
use crate::reply::Reply;
use crate::request::Arguments;
use crate::session::Place;
use crate::settings::Refused;

/// CONFIG GET pattern [pattern ...]
pub(super) fn get(place: &Place, arguments: Arguments<'_>, reply: &mut Reply) {
    let patterns: Vec<Vec<u8>> = arguments.from(2).map(<[u8]>::to_ascii_lowercase).collect();
    let is_match =
        |name: &str| patterns.iter().any(|pattern| glob::matches(pattern, name.as_bytes()));
    let settings = place.shared.settings.matching(is_match, &patterns);
    reply.map(settings.len());
    for (name, value) in settings {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
}

/// CONFIG SET name value [name value ...]
pub(super) fn set(place: &Place, arguments: Arguments<'_>, reply: &mut Reply) {
    if !arguments.len().is_multiple_of(2) {
        return reply.error("ERR wrong number of arguments for 'config|set' command");
    }
    let mut changes = Vec::new();
    for index in (2..arguments.len()).step_by(2) {
        let name = arguments.get(index);
        if changes.iter().any(|(other, _): &(&[u8], _)| other.eq_ignore_ascii_case(name)) {
            let text = [
                b"ERR CONFIG SET failed (possibly related to argument '",
                name,
                b"') - duplicate parameter",
            ];
            return reply.error_bytes(&text.concat());
        }
        changes.push((name, arguments.get(index + 1)));
    }
    let failed = |name: &[u8], why: &str| {
        let head = &b"ERR CONFIG SET failed (possibly related to argument '"[..];
        [head, printed(name), b"') - ", why.as_bytes()].concat()
    };
    match place.shared.settings.change(&changes) {
        Ok(()) => {
            place.shared.settings_changed();
            if changes.iter().any(|(name, _)| name.eq_ignore_ascii_case(b"requirepass")) {
                place.shared.acl.set_default_password(&place.shared.settings.password());
            }
            reply.ok();
        }
        Err((name, Refused::Unknown)) => {
            let head = &b"ERR Unknown option or number of arguments for CONFIG SET - '"[..];
            reply.error_bytes(&[head, printed(name), b"'"].concat());
        }
        Err((name, Refused::Value(why))) => reply.error_bytes(&failed(name, &why)),
    }
}

/// CONFIG RESETSTAT. Workers' counts go on; INFO counts from here.
pub(super) fn resetstat(place: &Place, reply: &mut Reply) {
    place.shared.reset_counts();
    reply.ok();
}

/// CONFIG REWRITE
pub(super) fn rewrite(reply: &mut Reply) {
    reply.error("ERR The server is running without a config file");
}
