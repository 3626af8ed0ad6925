//! The request parser under mutated bytes, on the stable toolchain.
//!
//! Runs a bounded number of cases, or for as long as `FUZZ_SECONDS` says; then
//! it prints how many. `FUZZ_SEED` begins elsewhere.

#[path = "../fuzz/check.rs"]
mod check;

use std::time::{Duration, Instant};

const CASES: u64 = 20_000;
const INPUT_BYTES_MAX: usize = 4096;

const SEEDS: &[&[u8]] = &[
    b"*1\r\n$4\r\nPING\r\n",
    b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nv\r\nlu\r\n",
    b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n",
    b"set key \"a b\\x41\\n\" 'it\\'s'\r\n",
    b"PING\n",
    b"*0\r\n*-10\r\n\r\n",
    b"*9223372036854775807\r\n",
    b"*1\r\n$9223372036854775807\r\n",
    b"*1\r\n$536870912\r\nhalf",
    b"*2\r\n$-1\r\n",
    b"*1048576\r\n$1\r\na\r\n$1\r\nb\r\n",
    b"*1\r\n*1\r\n*1\r\n",
];
const WORDS: &[&[u8]] = &[
    b"\r\n",
    b"\r",
    b"\n",
    b"*",
    b"$",
    b"-1",
    b"0",
    b"1",
    b"00",
    b"+1",
    b"9223372036854775807",
    b"9223372036854775808",
    b"1048577",
    b"536870913",
    b"\"",
    b"'",
    b"\\",
    b"\\x",
    b" ",
    b"\0",
    b"*1\r\n",
    b"$1\r\n",
];

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

fn mutate(random: &mut Random, input: &mut Vec<u8>) {
    let at = random.below(input.len() + 1);
    match random.below(7) {
        0 if at < input.len() => input[at] = random.below(256) as u8,
        1 if at < input.len() => input[at] ^= 1 << random.below(8),
        2 if at < input.len() => drop(input.remove(at)),
        3 => input.truncate(at),
        4 => {
            let seed = SEEDS[random.below(SEEDS.len())];
            input.splice(at..at, seed.iter().copied());
        }
        5 => {
            let end = (at + random.below(40)).min(input.len());
            let copy = input[at..end].to_vec();
            let to = random.below(input.len() + 1);
            input.splice(to..to, copy);
        }
        _ => {
            let word = WORDS[random.below(WORDS.len())];
            input.splice(at..at, word.iter().copied());
        }
    }
    input.truncate(INPUT_BYTES_MAX);
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}, not a number")))
}

#[test]
#[expect(clippy::disallowed_methods, reason = "bounds the test itself")]
fn any_bytes_parse_alike_however_they_arrive() {
    let seed = number("FUZZ_SEED").unwrap_or(1);
    let seconds = number("FUZZ_SECONDS");
    let begin = Instant::now();
    let mut random = Random(seed);
    let mut corpus: Vec<Vec<u8>> = SEEDS.iter().map(|seed| seed.to_vec()).collect();
    let mut cases = 0;
    let goes_on = |cases| match seconds {
        Some(seconds) => begin.elapsed() < Duration::from_secs(seconds),
        None => cases < CASES,
    };
    while goes_on(cases) {
        let mut input = corpus[random.below(corpus.len())].clone();
        for _ in 0..=random.below(6) {
            mutate(&mut random, &mut input);
        }
        let pieces: Vec<u8> = (0..random.below(4)).map(|_| random.below(40) as u8).collect();
        let result = std::panic::catch_unwind(|| check::check(&input, &pieces));
        assert!(result.is_ok(), "seed {seed}: {} in pieces {pieces:?}", input.escape_ascii());
        // Some of what was made is changed further, so that inputs grow.
        if random.below(16) == 0 {
            let place = random.below(400);
            match corpus.get_mut(place) {
                Some(old) if place >= SEEDS.len() => *old = input,
                Some(_) => {}
                None => corpus.push(input),
            }
        }
        cases += 1;
    }
    assert!(cases > 0);
    eprintln!("{cases} cases from seed {seed}");
}
