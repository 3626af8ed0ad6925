//! What must hold of the request parser for any bytes. Used by the fuzz target
//! and by the loop in `tests/fuzz.rs`, which needs no nightly toolchain.

use gateway::request::{Limits, Next, Requests};
use redis_protocol::resp2::decode::decode;
use redis_protocol::resp2::types::OwnedFrame;

type Frames = Vec<Vec<Vec<u8>>>;

/// Parses `input`, which arrives in pieces of the sizes that `pieces` repeats.
fn parse(input: &[u8], pieces: &[u8], limits: Limits) -> (Frames, Option<String>) {
    let mut requests = Requests::default();
    let mut buffer = Vec::new();
    let mut frames = Vec::new();
    let mut rest = input;
    for piece in pieces.iter().cycle() {
        let (head, tail) = rest.split_at(rest.len().min(usize::from(*piece) + 1));
        buffer.extend_from_slice(head);
        rest = tail;
        loop {
            match requests.next(&mut buffer, limits) {
                Ok(Next::Frame(frame)) => {
                    let arguments = requests.arguments(&buffer, frame);
                    assert!(!arguments.is_empty());
                    frames.push(arguments.from(0).map(<[u8]>::to_vec).collect());
                }
                Ok(Next::Incomplete) => break,
                Err(error) => return (frames, Some(error.to_string())),
            }
        }
        requests.compact(&mut buffer);
        assert!(requests.wanted(&buffer) <= (512 << 20) + 2);
        if rest.is_empty() {
            return (frames, None);
        }
    }
    unreachable!("there is at least one piece")
}

/// The requests that redis-protocol finds, if it takes all of `input` and each
/// is an array of bulk strings. It is never given what nests, on which it
/// overflows the stack.
fn reference(mut input: &[u8]) -> Option<Frames> {
    let mut frames = Vec::new();
    while !input.is_empty() {
        let (frame, used) = decode(input).ok()??;
        let OwnedFrame::Array(items) = frame else { return None };
        let items: Option<Vec<Vec<u8>>> = items
            .into_iter()
            .map(|item| match item {
                OwnedFrame::BulkString(bytes) => Some(bytes),
                _ => None,
            })
            .collect();
        frames.push(items?);
        input = &input[used..];
    }
    Some(frames)
}

/// Panics when the parser does not do what it should on `input`.
pub(crate) fn check(input: &[u8], pieces: &[u8]) {
    let limits = Limits::new(true);
    let whole = parse(input, &[255], limits);
    assert_eq!(whole, parse(input, &[0], limits), "byte by byte");
    if !pieces.is_empty() {
        assert_eq!(whole, parse(input, pieces, limits), "in pieces");
    }
    parse(input, &[255], Limits::new(false));
    let nests = input.windows(3).filter(|window| *window == b"\n*1").count() > 16;
    if input.starts_with(b"*")
        && !nests
        && let Some(mut frames) = reference(input)
        && whole.1.is_none()
    {
        // Redis takes an empty array for nothing at all.
        frames.retain(|frame| !frame.is_empty());
        assert_eq!(whole.0, frames, "as the reference");
    }
}
