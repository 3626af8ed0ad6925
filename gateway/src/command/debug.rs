//! DEBUG, as far as programs use it to test a server. It is refused unless whoever
//! started the gateway allows it by `--enable-debug-command`.

use std::time::Duration;

use fusee::{Key, Kind};
use sha1::{Digest as _, Sha1};

use super::{Call, NOT_INTEGER, glob, integer, is, object, printed};
use crate::keyspace::Keyspace;
use crate::reply::Reply;
use crate::session::Place;

const NOT_ALLOWED: &str = "ERR DEBUG command not allowed. If the enable-debug-command option is \
    set to \"yes\", you can run it, otherwise you need to set this option in the configuration \
    file, and then restart the server.";
/// The longest that DEBUG SLEEP waits: it would hold a transaction open.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// The longest text that DEBUG STRINGMATCH-LEN makes.
const TEXT_BYTES_MAX: i64 = 64 << 20;

/// DEBUG subcommand [argument ...]
pub(super) async fn debug<K: Keyspace>(call: &mut Call<'_, K>, place: &Place) {
    if !place.shared.settings.allows_debug() {
        return call.reply.error(NOT_ALLOWED);
    }
    let arguments = call.arguments;
    let name = arguments.get(1);
    let asks = |known: &str, count: usize| is(name, known) && arguments.len() == count;
    if asks("sleep", 3) {
        sleep(call).await;
    } else if asks("object", 3) {
        describe(call).await;
    } else if is(name, "digest-value") {
        digests(call).await;
    } else if asks("set-active-expire", 3) {
        let Some(does) = call.integer(2) else { return };
        place.shared.settings.sweep(does != 0);
        call.reply.ok();
    } else if asks("set-disable-deny-scripts", 3) {
        let Some(does) = call.integer(2) else { return };
        place.shared.settings.open_scripts(does != 0);
        call.reply.ok();
    } else if asks("stringmatch-len", 4) {
        match_text(call);
    } else if asks("protocol", 3) {
        show_protocol(arguments.get(2), call.reply);
    } else if asks("log", 3) {
        tracing::info!(text = %String::from_utf8_lossy(arguments.get(2)), "DEBUG LOG");
        call.reply.ok();
    } else {
        let text = [
            b"ERR DEBUG: unknown subcommand or wrong number of arguments for '",
            printed(name),
            b"'. SLEEP, OBJECT, DIGEST-VALUE, SET-ACTIVE-EXPIRE, SET-DISABLE-DENY-SCRIPTS, \
              STRINGMATCH-LEN, PROTOCOL and LOG are there.",
        ];
        call.reply.error_bytes(&text.concat());
    }
}

/// DEBUG SLEEP seconds: only who asks for it waits.
async fn sleep<K: Keyspace>(call: &mut Call<'_, K>) {
    let text = std::str::from_utf8(call.arguments.get(2)).unwrap_or_default();
    let time = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    tokio::time::sleep(time.unwrap_or_default().min(SLEEP_MAX)).await;
    call.reply.ok();
}

/// DEBUG OBJECT key
async fn describe<K: Keyspace>(call: &mut Call<'_, K>) {
    let Some(mut found) = call.read_all(&[call.key(2)]).await else { return };
    let Some(value) = found.pop().flatten() else {
        return call.reply.error("ERR no such key");
    };
    let encoding = object::encoding(value.kind, &value.value).unwrap_or("unknown");
    // Where it is, no client may know; what else Redis tells is not tracked.
    call.reply.simple(&format!(
        "Value at:0x0 refcount:1 encoding:{encoding} serializedlength:{} lru:0 \
         lru_seconds_idle:0",
        value.value.len()
    ));
}

/// DEBUG DIGEST-VALUE key [key ...]: the same for the same values.
async fn digests<K: Keyspace>(call: &mut Call<'_, K>) {
    let keys: Vec<Key<'_>> = (2..call.arguments.len()).map(|place| call.key(place)).collect();
    let Some(found) = call.read_all(&keys).await else { return };
    call.reply.array(found.len());
    for value in found {
        let digest = value.map_or([0; 20], |value| {
            let mut sha = Sha1::new();
            sha.update([u8::from(value.kind == Kind::Hash)]);
            sha.update(&value.value);
            sha.update([u8::from(value.expires_at_ms.is_some())]);
            sha.finalize().into()
        });
        let text: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        call.reply.simple(&text);
    }
}

/// DEBUG STRINGMATCH-LEN length pattern
fn match_text<K>(call: &mut Call<'_, K>) {
    let Some(length) =
        integer(call.arguments.get(2)).filter(|&n| (0..=TEXT_BYTES_MAX).contains(&n))
    else {
        return call.reply.error(NOT_INTEGER);
    };
    let text = vec![b'a'; length as usize];
    call.reply.integer(i64::from(glob::matches(call.arguments.get(3), &text)));
}

/// DEBUG PROTOCOL type: a reply of that type.
#[expect(clippy::approx_constant, reason = "the double that Redis answers")]
fn show_protocol(name: &[u8], reply: &mut Reply) {
    let numbers = |reply: &mut Reply| (0..3).for_each(|number| reply.integer(number));
    match &name.to_ascii_lowercase()[..] {
        b"string" => reply.bulk(b"Hello World"),
        b"integer" => reply.integer(12345),
        b"double" => reply.double(3.141),
        b"bignum" => reply.big_number(b"1234567999999999999999999999999999999"),
        b"null" => reply.null(),
        b"array" => {
            reply.array(3);
            numbers(reply);
        }
        b"set" => {
            reply.set(3);
            numbers(reply);
        }
        b"map" => {
            reply.map(3);
            for number in 0..3 {
                reply.integer(number);
                reply.boolean(number == 1);
            }
        }
        b"attrib" => {
            if reply.is_resp3() {
                reply.raw(b"|1\r\n");
                reply.bulk(b"key-popularity");
                reply.array(2);
                reply.bulk(b"key:123");
                reply.integer(90);
            }
            reply.bulk(b"Some real reply following the attribute");
        }
        b"push" if reply.is_resp3() => {
            reply.push(2);
            reply.bulk(b"server-cpu-usage");
            reply.integer(42);
            reply.bulk(b"Some real reply following the push reply");
        }
        b"push" => reply.error("ERR RESP2 is not supported by this command"),
        b"true" => reply.boolean(true),
        b"false" => reply.boolean(false),
        b"verbatim" => reply.verbatim(b"This is a verbatim\nstring"),
        _ => reply.error(
            "ERR Wrong protocol type name. Please use one of the following: string|integer|double|\
             bignum|null|array|set|map|attrib|push|verbatim|true|false",
        ),
    }
}
