//! When keys end.

use fusee::Decision;

use super::{Call, is, printed};
use crate::keyspace::Keyspace;

/// Under which condition EXPIRE and its relatives change a key's end.
#[derive(Clone, Copy, Default, Debug)]
struct Condition {
    without_end: bool,
    with_end: bool,
    later: bool,
    earlier: bool,
}

impl Condition {
    /// Whether the end `new` may take the place of `old`. A key without an end
    /// counts as ending at infinity.
    fn holds(self, old: Option<u64>, new: i64) -> bool {
        let later = old.is_some_and(|old| i128::from(new) > i128::from(old));
        let earlier = old.is_none_or(|old| i128::from(new) < i128::from(old));
        (!self.without_end || old.is_none())
            && (!self.with_end || old.is_some())
            && (!self.later || later)
            && (!self.earlier || earlier)
    }
}

/// EXPIRE key seconds [NX | XX | GT | LT], PEXPIRE, EXPIREAT, PEXPIREAT
pub(super) async fn expire<K: Keyspace>(call: &mut Call<'_, K>, unit_ms: i64, relative: bool) {
    let mut condition = Condition::default();
    for option in call.arguments.from(3) {
        match option {
            option if is(option, "nx") => condition.without_end = true,
            option if is(option, "xx") => condition.with_end = true,
            option if is(option, "gt") => condition.later = true,
            option if is(option, "lt") => condition.earlier = true,
            option => {
                let text = [b"ERR Unsupported option ", printed(option)].concat();
                return call.reply.error_bytes(&text);
            }
        }
    }
    let Condition { without_end, with_end, later, earlier } = condition;
    if without_end && (with_end || later || earlier) {
        return call
            .reply
            .error("ERR NX and XX, GT or LT options at the same time are not compatible");
    }
    if later && earlier {
        return call.reply.error("ERR GT and LT options at the same time are not compatible");
    }
    let Some(value) = call.integer(2) else { return };
    let now_ms = call.keyspace.now_ms();
    let base = if relative { now_ms as i64 } else { 0 };
    let Some(end) = value.checked_mul(unit_ms).and_then(|ms| ms.checked_add(base)) else {
        return call.invalid_expire_time();
    };
    call.update(call.key(1), |entry, buffer, reply| {
        let Some(entry) = entry.filter(|entry| condition.holds(entry.expires_at_ms, end)) else {
            reply.integer(0);
            return Decision::Keep;
        };
        reply.integer(1);
        if end <= now_ms as i64 {
            return Decision::Delete;
        }
        buffer.extend_from_slice(entry.value);
        Decision::Replace { kind: entry.kind, expires_at_ms: Some(end as u64) }
    })
    .await;
}

/// PERSIST key
pub(super) async fn persist<K: Keyspace>(call: &mut Call<'_, K>) {
    call.update(call.key(1), |entry, buffer, reply| {
        let Some(entry) = entry.filter(|entry| entry.expires_at_ms.is_some()) else {
            reply.integer(0);
            return Decision::Keep;
        };
        reply.integer(1);
        buffer.extend_from_slice(entry.value);
        Decision::Replace { kind: entry.kind, expires_at_ms: None }
    })
    .await;
}
