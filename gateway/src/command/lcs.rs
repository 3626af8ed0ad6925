//! LCS: what two strings have in common.

use fusee::Kind;

use super::{Call, NOT_INTEGER, SYNTAX, integer, is};
use crate::keyspace::Keyspace;
use crate::request::BULK_BYTES_MAX;

/// Bytes of the table of lengths; Redis bounds it alike.
const TABLE_BYTES_MAX: usize = BULK_BYTES_MAX as usize;

/// A run that both strings have: where it begins in each, and its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    a: usize,
    b: usize,
    length: usize,
}

/// LCS key1 key2 [LEN] [IDX] [MINMATCHLEN length] [WITHMATCHLEN]
pub(super) async fn lcs<K: Keyspace>(call: &mut Call<'_, K>) {
    let keys = [call.key(1), call.key(2)];
    let Some(sources) = call.read_all(&keys).await else { return };
    if sources.iter().flatten().any(|source| source.kind != Kind::String) {
        return call.reply.error("ERR The specified keys must contain string values");
    }
    let (mut only_length, mut runs_wanted, mut with_lengths, mut shortest) =
        (false, false, false, 0);
    let mut options = call.arguments.from(3);
    while let Some(option) = options.next() {
        if is(option, "len") {
            only_length = true;
        } else if is(option, "idx") {
            runs_wanted = true;
        } else if is(option, "withmatchlen") {
            with_lengths = true;
        } else if is(option, "minmatchlen") {
            let Some(given) = options.next() else { return call.reply.error(SYNTAX) };
            let Some(given) = integer(given) else { return call.reply.error(NOT_INTEGER) };
            shortest = given.max(0) as usize;
        } else {
            return call.reply.error(SYNTAX);
        }
    }
    if only_length && runs_wanted {
        return call
            .reply
            .error("ERR If you want both the length and indexes, please just use IDX.");
    }
    let [a, b] = [0, 1].map(|at| sources[at].as_ref().map_or(&[][..], |source| &source.value));
    let cells = (a.len() + 1).checked_mul(b.len() + 1);
    if cells.is_none_or(|cells| cells > TABLE_BYTES_MAX / 4) {
        return call
            .reply
            .error("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len");
    }
    let (text, mut runs) = common(a, b);
    if only_length {
        return call.reply.integer(text.len() as i64);
    }
    if !runs_wanted {
        return call.reply.bulk(&text);
    }
    runs.retain(|run| run.length >= shortest);
    let reply = &mut *call.reply;
    reply.map(2);
    reply.bulk(b"matches");
    reply.array(runs.len());
    for Run { a, b, length } in runs {
        reply.array(if with_lengths { 3 } else { 2 });
        for start in [a, b] {
            reply.array(2);
            reply.integer(start as i64);
            reply.integer((start + length - 1) as i64);
        }
        if with_lengths {
            reply.integer(length as i64);
        }
    }
    reply.bulk(b"len");
    reply.integer(text.len() as i64);
}

/// The longest common subsequence and its runs, the last one first.
fn common(a: &[u8], b: &[u8]) -> (Vec<u8>, Vec<Run>) {
    let width = b.len() + 1;
    let mut lengths = vec![0_u32; (a.len() + 1) * width];
    for (i, x) in a.iter().enumerate() {
        for (j, y) in b.iter().enumerate() {
            let (above, left) = (lengths[i * width + j + 1], lengths[(i + 1) * width + j]);
            lengths[(i + 1) * width + j + 1] =
                if x == y { lengths[i * width + j] + 1 } else { above.max(left) };
        }
    }
    let (mut i, mut j) = (a.len(), b.len());
    let mut text = Vec::new();
    let mut runs: Vec<Run> = Vec::new();
    while i > 0 && j > 0 {
        if a[i - 1] == b[j - 1] {
            (i, j) = (i - 1, j - 1);
            text.push(a[i]);
            match runs.last_mut() {
                Some(run) if (run.a, run.b) == (i + 1, j + 1) => {
                    *run = Run { a: i, b: j, length: run.length + 1 };
                }
                _ => runs.push(Run { a: i, b: j, length: 1 }),
            }
        } else if lengths[(i - 1) * width + j] > lengths[i * width + j - 1] {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    text.reverse();
    (text, runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_told_from_the_end() {
        let (text, runs) = common(b"ohmytext", b"mynewtext");
        assert_eq!(text, b"mytext");
        let run = |a, b, length| Run { a, b, length };
        assert_eq!(runs, [run(4, 5, 4), run(2, 0, 2)]);
        assert_eq!(common(b"", b"x"), (Vec::new(), Vec::new()));
    }
}
