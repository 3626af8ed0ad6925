//! Strings that hold numbers.

use fusee::{Decision, Kind};

use super::float::LongDouble;
use super::{Call, NOT_INTEGER, integer, replace};
use crate::keyspace::Keyspace;

/// INCRBY key increment
pub(super) async fn incrby<K: Keyspace>(call: &mut Call<'_, K>) {
    if let Some(by) = call.integer(2) {
        add(call, by).await;
    }
}

/// DECRBY key decrement
pub(super) async fn decrby<K: Keyspace>(call: &mut Call<'_, K>) {
    let Some(by) = call.integer(2) else { return };
    match by.checked_neg() {
        Some(by) => add(call, by).await,
        None => call.reply.error("ERR decrement would overflow"),
    }
}

/// INCR key, DECR key
pub(super) async fn add<K: Keyspace>(call: &mut Call<'_, K>, by: i64) {
    call.update_as(Kind::String, call.key(1), |entry, value, reply| {
        let Some(old) = entry.map_or(Some(0), |entry| integer(entry.value)) else {
            reply.error(NOT_INTEGER);
            return Decision::Keep;
        };
        let Some(new) = old.checked_add(by) else {
            reply.error("ERR increment or decrement would overflow");
            return Decision::Keep;
        };
        reply.integer(new);
        let mut digits = itoa::Buffer::new();
        value.extend_from_slice(digits.format(new).as_bytes());
        replace(entry.and_then(|entry| entry.expires_at_ms))
    })
    .await;
}

/// INCRBYFLOAT key increment
pub(super) async fn incrbyfloat<K: Keyspace>(call: &mut Call<'_, K>) {
    let by = LongDouble::parse(call.arguments.get(2));
    call.update_as(Kind::String, call.key(1), |entry, value, reply| {
        let old = entry.map_or(Some(LongDouble::ZERO), |entry| LongDouble::parse(entry.value));
        let (Some(old), Some(by)) = (old, by) else {
            reply.error("ERR value is not a valid float");
            return Decision::Keep;
        };
        let Some(text) = old.add(by).to_decimal() else {
            reply.error("ERR increment would produce NaN or Infinity");
            return Decision::Keep;
        };
        reply.bulk(text.as_bytes());
        value.extend_from_slice(text.as_bytes());
        replace(entry.and_then(|entry| entry.expires_at_ms))
    })
    .await;
}
