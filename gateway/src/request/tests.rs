use proptest::prelude::*;

use super::*;

/// All requests in `input`, fed as the pieces that `cuts` make of it.
fn parse(
    input: &[u8],
    cuts: &[usize],
    limits: Limits,
) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    let mut requests = Requests::default();
    let mut buffer = Vec::new();
    let mut out = Vec::new();
    let mut at = 0;
    for cut in cuts.iter().copied().chain([input.len()]) {
        let cut = cut.clamp(at, input.len());
        buffer.extend_from_slice(&input[at..cut]);
        at = cut;
        loop {
            match requests.next(&mut buffer, limits) {
                Ok(Next::Frame(frame)) => out
                    .push(requests.arguments(&buffer, frame).from(0).map(<[u8]>::to_vec).collect()),
                Ok(Next::Incomplete) => break,
                Err(error) => return (out, Some(error)),
            }
        }
        requests.compact(&mut buffer);
    }
    (out, None)
}

fn parse_whole(input: &[u8]) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    let whole = parse(input, &[], Limits::new(true));
    let bytewise: Vec<usize> = (0..input.len()).collect();
    assert_eq!(whole, parse(input, &bytewise, Limits::new(true)), "byte by byte");
    whole
}

fn words(list: &[&str]) -> Vec<Vec<u8>> {
    list.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn error_of(input: &[u8]) -> String {
    parse_whole(input).1.expect("an error").to_string()
}

#[test]
fn arrays_become_arguments() {
    let (frames, error) =
        parse_whole(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n*1\r\n$4\r\nPING\r\n");
    assert_eq!(error, None);
    assert_eq!(frames, [words(&["SET", "k", ""]), words(&["PING"])]);
}

#[test]
fn empty_and_negative_arrays_are_ignored() {
    let (frames, error) = parse_whole(b"*0\r\n*-10\r\n*-1\r\n\r\n*1\r\n$4\r\nPING\r\n");
    assert_eq!(error, None);
    assert_eq!(frames, [words(&["PING"])]);
}

#[test]
fn errors_have_redis_texts() {
    let cases: [(&[u8], &str); 15] = [
        (b"*3000000000\r\n", "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*9223372036854775807\r\n", "invalid multibulk length"),
        (b"*blabla\r\n", "invalid multibulk length"),
        (b"*\r\n", "invalid multibulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$2000000000\r\n", "invalid bulk length"),
        (b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$9223372036854775807\r\n", "invalid bulk length"),
        (b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$blabla\r\n", "invalid bulk length"),
        (b"*1\r\n*1\r\n*1\r\n", "expected '$', got '*'"),
        (b"*1\r\nfoo\r\n", "expected '$', got 'f'"),
        (b"*2\r\n\r\n", "expected '$', got '\r'"),
        (b"set \"a b\n", "unbalanced quotes in request"),
        (b"set 'a b\r\n", "unbalanced quotes in request"),
        (b"set \"a\"b\r\n", "unbalanced quotes in request"),
    ];
    for (input, text) in cases {
        assert_eq!(error_of(input), format!("Protocol error: {text}"));
    }
}

#[test]
fn endless_lines_are_errors() {
    for (first, text) in [
        (&b"*"[..], "too big mbulk count string"),
        (b"*1\r\n$", "too big bulk count string"),
        (b"x", "too big inline request"),
    ] {
        let mut input = first.to_vec();
        input.extend(std::iter::repeat_n(b'1', LINE_BYTES_MAX));
        assert_eq!(
            parse(&input, &[1, 100, 40_000], Limits::new(true)).1.map(|error| error.to_string()),
            Some(format!("Protocol error: {text}"))
        );
    }
}

#[test]
fn unauthenticated_clients_are_kept_short() {
    let limits = Limits::new(false);
    for (input, text) in [
        (&b"*11\r\n"[..], "unauthenticated multibulk length"),
        (b"*2\r\n$4\r\nAUTH\r\n$16385\r\n", "unauthenticated bulk length"),
    ] {
        let error = parse(input, &[], limits).1.expect("an error");
        assert_eq!(error.to_string(), format!("Protocol error: {text}"));
    }
    assert_eq!(parse(b"*10\r\n$16384\r\n", &[], limits).1, None);
}

#[test]
fn inline_words_take_quotes_and_escapes() {
    let (frames, error) = parse_whole(
        b"PING\nset  k\t\"a b\\x41\\n\\\"\\q\" 'it\\'s \\n' \r\n\n   \r\nGET a\"b c\" \r\n",
    );
    assert_eq!(error, None);
    assert_eq!(
        frames,
        [words(&["PING"]), words(&["set", "k", "a bA\n\"q", "it's \\n"]), words(&["GET", "ab c"])]
    );
}

#[test]
fn huge_announcements_allocate_nothing() {
    let mut requests = Requests::default();
    let mut buffer = b"*1048576\r\n$536870912\r\n".to_vec();
    assert_eq!(requests.next(&mut buffer, Limits::new(true)), Ok(Next::Incomplete));
    assert_eq!(requests.spans.capacity(), 0);
    assert_eq!(requests.wanted(&buffer), (512 << 20) + 2);
}

#[test]
fn spans_are_given_back_after_a_wide_request() {
    let mut requests = Requests::default();
    let mut buffer = b"*100000\r\n".to_vec();
    for _ in 0..100_000 {
        buffer.extend_from_slice(b"$1\r\nx\r\n");
    }
    assert!(matches!(requests.next(&mut buffer, Limits::new(true)), Ok(Next::Frame(_))));
    requests.compact(&mut buffer);
    assert!(buffer.is_empty());
    assert!(requests.spans.capacity() <= SPANS_KEPT);
}

fn encode(frames: &[Vec<Vec<u8>>]) -> Vec<u8> {
    encode_with(frames, b'\n', b"\r\n")
}

/// With bytes in the places that are skipped unseen: after the `\r` of a header, and the two
/// after an argument.
fn encode_with(frames: &[Vec<Vec<u8>>], header_end: u8, argument_end: &[u8; 2]) -> Vec<u8> {
    let mut out = Vec::new();
    let header = |out: &mut Vec<u8>, kind: char, count: usize| {
        out.extend_from_slice(format!("{kind}{count}\r").as_bytes());
        out.push(header_end);
    };
    for frame in frames {
        header(&mut out, '*', frame.len());
        for argument in frame {
            header(&mut out, '$', argument.len());
            out.extend_from_slice(argument);
            out.extend_from_slice(argument_end);
        }
    }
    out
}

/// The same requests as redis-protocol's decoder sees them.
fn reference(mut input: &[u8]) -> Vec<Vec<Vec<u8>>> {
    use redis_protocol::resp2::{decode::decode, types::OwnedFrame};
    let mut out = Vec::new();
    while let Some((frame, used)) = decode(input).expect("a valid frame") {
        let OwnedFrame::Array(items) = frame else { panic!("not an array: {frame:?}") };
        let bulk = |item| match item {
            OwnedFrame::BulkString(bytes) => bytes,
            other => panic!("not a bulk string: {other:?}"),
        };
        out.push(items.into_iter().map(bulk).collect());
        input = &input[used..];
    }
    assert!(input.is_empty());
    out
}

fn frames() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
    let argument = prop_oneof![
        4 => proptest::collection::vec(any::<u8>(), 0..12),
        1 => proptest::collection::vec(any::<u8>(), 0..300),
        1 => Just(b"$1\r\nx\r\n*2\r\n".to_vec()),
    ];
    proptest::collection::vec(proptest::collection::vec(argument, 1..6), 0..8)
}

proptest! {
    #[test]
    fn frames_parse_as_the_reference_decodes_them(frames in frames(), cuts in proptest::collection::vec(0_usize..2000, 0..8)) {
        let input = encode(&frames);
        let mut cuts = cuts;
        cuts.sort_unstable();
        prop_assert_eq!(&parse(&input, &cuts, Limits::new(true)), &(frames.clone(), None));
        prop_assert_eq!(reference(&input), frames);
    }

    #[test]
    fn every_split_in_two_parses_alike(frames in frames()) {
        let input = encode(&frames);
        for cut in 0..=input.len() {
            prop_assert_eq!(&parse(&input, &[cut], Limits::new(true)), &(frames.clone(), None));
        }
    }

    #[test]
    fn what_is_skipped_unseen_may_be_anything(frames in frames(), header_end: u8, argument_end: [u8; 2]) {
        let input = encode_with(&frames, header_end, &argument_end);
        prop_assert_eq!(&parse_whole(&input), &(frames, None));
    }

    #[test]
    fn any_bytes_parse_alike_whole_and_bytewise(input in proptest::collection::vec(prop_oneof![
        Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), Just(b'"'), Just(b'\''), Just(b'\\'),
        Just(b'x'), b'0'..=b'9', any::<u8>(),
    ], 0..80)) {
        let bytewise: Vec<usize> = (0..input.len()).collect();
        prop_assert_eq!(
            parse(&input, &[], Limits::new(true)),
            parse(&input, &bytewise, Limits::new(true))
        );
    }
}
