//! Every frame comes back as it was written, and no bytes make a parser panic.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Made {
    Read(usize),
    Write(Vec<u64>),
    WriteByte(u8),
    Cas(u64, u64),
    Faa(u64),
}

impl Made {
    fn verb(&self) -> FrameVerb<'_> {
        match self {
            Self::Read(words) => FrameVerb::Read { words: *words },
            Self::Write(words) => FrameVerb::Write(words),
            Self::WriteByte(value) => FrameVerb::WriteByte(*value),
            Self::Cas(expected, new) => FrameVerb::Cas { expected: *expected, new: *new },
            Self::Faa(add) => FrameVerb::Faa(*add),
        }
    }
}

/// Verbs with their offsets, and whether each is done.
fn made() -> impl Strategy<Value = Vec<(u64, Made, bool)>> {
    let verb = prop_oneof![
        (0..300usize).prop_map(Made::Read),
        prop::collection::vec(any::<u64>(), 0..300).prop_map(Made::Write),
        any::<u8>().prop_map(Made::WriteByte),
        any::<(u64, u64)>().prop_map(|(expected, new)| Made::Cas(expected, new)),
        any::<u64>().prop_map(Made::Faa),
    ];
    let verb = (any::<u64>(), verb, prop::bool::weighted(0.9)).prop_map(|(offset, verb, done)| {
        let whole = !matches!(verb, Made::WriteByte(_));
        (if whole { offset & !7 } else { offset }, verb, done)
    });
    prop::collection::vec(verb, 0..150)
}

fn request(made: &[(u64, Made, bool)], number: u32) -> Vec<u64> {
    let mut out = vec![1, 2, 3];
    write_request(&mut out, number, made.iter().map(|(offset, verb, _)| (*offset, verb.verb())));
    out.split_off(3)
}

proptest! {
    #[test]
    fn requests_and_replies_come_back(made in made(), number: u32) {
        let frame = request(&made, number);
        prop_assert_eq!(frame_words(frame[0]), Ok(frame.len()));
        let parsed = Request::parse(&frame).unwrap();
        let verbs: Vec<_> = parsed.verbs().collect();
        prop_assert_eq!(verbs.len(), made.len());
        let mut out = vec![9; 5];
        let mut draft = Draft::new(&mut out, &parsed);
        for ((offset, verb), (of, made, done)) in verbs.iter().zip(&made) {
            prop_assert_eq!((offset, verb), (of, &made.verb()));
            draft.add(verb, |room| {
                room.iter_mut().for_each(|word| *word = offset ^ 5);
                done.then_some(offset ^ 5)
            });
        }
        draft.finish();
        prop_assert_eq!(&out[..5], &[9; 5]);
        let frame = &out[5..];
        prop_assert_eq!(frame_words(frame[0]), Ok(frame.len()));
        let mut reply = Reply::parse(frame, number, made.len()).unwrap();
        for (offset, verb, done) in &made {
            let words = verb.verb().result_words();
            let result = reply.next(words).unwrap();
            prop_assert_eq!(result.map(<[u64]>::len), done.then_some(words));
            prop_assert!(result.unwrap_or_default().iter().all(|&word| word == offset ^ 5));
        }
        reply.finish().unwrap();
        prop_assert!(Reply::parse(frame, number.wrapping_add(1), made.len()).is_err());
    }

    #[test]
    fn a_frame_that_is_cut_short_or_has_a_tail_is_refused(made in made(), cut: prop::sample::Index) {
        let frame = request(&made, 7);
        let cut = cut.index(frame.len());
        // Cut between two verbs it is a shorter request: the head tells, not this.
        let _ = Request::parse(&frame[..cut]).map(|request| request.verbs().count());
        let parsed = Request::parse(&frame).unwrap();
        let mut out = Vec::new();
        let mut draft = Draft::new(&mut out, &parsed);
        parsed.verbs().for_each(|(_, verb)| draft.add(&verb, |_| Some(0)));
        draft.finish();
        let read = |frame: &[u64]| {
            let mut reply = Reply::parse(frame, 7, made.len())?;
            for (_, verb) in parsed.verbs() {
                reply.next(verb.result_words())?;
            }
            reply.finish()
        };
        prop_assert_eq!(read(&out), Ok(()));
        for cut in 0..out.len() {
            prop_assert!(read(&out[..cut]).is_err(), "cut to {} of {}", cut, out.len());
        }
        out.push(0);
        prop_assert!(read(&out).is_err());
    }

    #[test]
    fn any_words_are_a_request_or_an_error(words in prop::collection::vec(any::<u64>(), 0..64)) {
        let _ = Request::parse(&words).map(|request| request.verbs().count());
    }

    #[test]
    fn words_near_a_request_are_one_or_an_error(
        made in made(), at: prop::sample::Index, bit in 0..64u32,
    ) {
        let mut frame = request(&made, 7);
        let at = at.index(frame.len());
        frame[at] ^= 1 << bit;
        if let Ok(request) = Request::parse(&frame) {
            prop_assert_eq!(request.verbs().count(), request.verbs);
        }
    }

    #[test]
    fn any_words_are_a_reply_or_an_error(
        words in prop::collection::vec(any::<u64>(), 0..16), verbs in 0..200usize,
        results in prop::collection::vec(0..40usize, 0..220),
    ) {
        let number = words.first().map_or(0, |head| (head >> 32) as u32);
        if let Ok(mut reply) = Reply::parse(&words, number, verbs) {
            for words in results {
                let _ = reply.next(words);
            }
            let _ = reply.finish();
        }
    }

    #[test]
    fn hellos_and_welcomes_come_back(
        version: u32, node: u16, token: [u8; 16], link: u64, verdict in 0..6u32, any: [u64; 5],
    ) {
        let hello = Hello { version, node, token: Token::new(token), link };
        prop_assert_eq!(Hello::parse(&hello.write()), Ok(hello));
        let words = [MAGIC, u64::from(verdict) | u64::from(version) << 32];
        let welcome = Welcome::parse(&words).unwrap();
        prop_assert_eq!((welcome.write(), welcome.version), (words, version));
        prop_assert!(Welcome::parse(&[MAGIC, 6]).is_err());
        prop_assert!(Hello::parse(&any).is_err() || any[0] == MAGIC);
    }
}

#[test]
fn a_request_for_more_than_a_frame_is_refused() {
    let largest = VERB_BYTES_MAX / 8;
    let ask = |words: &[usize]| {
        let mut frame = Vec::new();
        let verbs = words.iter().map(|&words| (0, FrameVerb::Read { words }));
        write_request(&mut frame, 1, verbs);
        Request::parse(&frame).map(|request| request.verbs().count())
    };
    assert_eq!(ask(&[largest]), Ok(1));
    assert!(ask(&[largest + 1]).is_err());
    assert!(ask(&[largest, largest]).is_err());
    assert_eq!(ask(&[1; VERBS_MAX]), Ok(VERBS_MAX));
    assert!(ask(&[1; VERBS_MAX + 1]).is_err());
}

#[test]
fn a_verb_on_a_part_of_a_word_is_refused() {
    for verb in [FrameVerb::Read { words: 1 }, FrameVerb::Write(&[1]), FrameVerb::Faa(1)] {
        let mut frame = Vec::new();
        write_request(&mut frame, 1, [(12, verb)].into_iter());
        assert!(Request::parse(&frame).is_err());
    }
}
