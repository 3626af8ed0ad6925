//! Every interleaving of a few verbs, by loom.

use crate::word::Port;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

type Words = Arc<[AtomicU64; 3]>;

fn check(test: fn(Words)) {
    loom::model(move || test(Arc::new([0, 0, 0].map(AtomicU64::new))));
}

fn read(port: &Port, words: &[AtomicU64]) -> u64 {
    let mut seen = [0];
    port.read(words, &mut seen);
    seen[0]
}

fn spawn<T: 'static>(words: &Words, run: fn(&Port, &Words) -> T) -> thread::JoinHandle<T> {
    let words = words.clone();
    thread::spawn(move || run(&Port::default(), &words))
}

#[test]
fn loom_bytes_of_a_word_do_not_disturb_each_other() {
    check(|words| {
        let one = spawn(&words, |port, words| port.write_byte(&words[0], 0, 0x11));
        let two = spawn(&words, |port, words| port.write_byte(&words[0], 7, 0x22));
        let seen = read(&Port::default(), &words[..1]);
        assert!(matches!(seen >> 56, 0 | 0x22) && matches!(seen & 0xff, 0 | 0x11));
        assert_eq!(seen & 0x00ff_ffff_ffff_ff00, 0);
        one.join().unwrap();
        two.join().unwrap();
        assert_eq!(read(&Port::default(), &words[..1]), 0x22 << 56 | 0x11);
    });
}

#[test]
fn loom_a_byte_and_an_atomic_on_one_word_lose_neither() {
    check(|words| {
        let byte = spawn(&words, |port, words| port.write_byte(&words[0], 1, 0xff));
        let faa = spawn(&words, |port, words| port.faa(&words[0], 1));
        byte.join().unwrap();
        faa.join().unwrap();
        assert_eq!(read(&Port::default(), &words[..1]), 0xff01);
    });
}

#[test]
fn loom_who_reads_a_slot_sees_the_object_before_its_cas() {
    check(|words| {
        let writer = spawn(&words, |port, words| {
            port.write(&words[1..], &[7, 8]);
            port.cas(&words[0], 0, 1)
        });
        let port = Port::default();
        if read(&port, &words[..1]) == 1 {
            let mut object = [0; 2];
            port.read(&words[1..], &mut object);
            assert_eq!(object, [7, 8]);
        }
        writer.join().unwrap();
    });
}

#[test]
fn loom_who_reads_a_slot_sees_the_object_before_its_write() {
    check(|words| {
        let writer = spawn(&words, |port, words| {
            port.write(&words[1..2], &[7]);
            port.write(&words[..1], &[1]);
        });
        let port = Port::default();
        if read(&port, &words[..1]) == 1 {
            assert_eq!(read(&port, &words[1..2]), 7);
        }
        writer.join().unwrap();
    });
}

#[test]
fn loom_whose_cas_finds_a_slot_sees_the_object_before_it() {
    check(|words| {
        let writer = spawn(&words, |port, words| {
            port.write(&words[1..2], &[7]);
            port.cas(&words[0], 0, 1);
        });
        let port = Port::default();
        // It fails or succeeds; what counts is what it found.
        if port.cas(&words[0], 5, 6) == 1 {
            assert_eq!(read(&port, &words[1..2]), 7);
        }
        writer.join().unwrap();
    });
}

#[test]
fn loom_what_was_read_before_a_store_is_older_than_what_follows_it() {
    check(|words| {
        // The reader tells that it has read; only then the writer writes.
        let reader = spawn(&words, |port, words| {
            let seen = read(port, &words[1..2]);
            port.write(&words[..1], &[1]);
            seen
        });
        let port = Port::default();
        if read(&port, &words[..1]) == 1 {
            port.write(&words[1..2], &[9]);
        }
        assert_eq!(reader.join().unwrap(), 0);
    });
}

#[test]
fn loom_of_two_that_write_and_then_read_one_sees_the_other() {
    check(|words| {
        let other = spawn(&words, |port, words| {
            port.write(&words[..1], &[1]);
            read(port, &words[1..2])
        });
        let port = Port::default();
        port.write(&words[1..2], &[1]);
        let mine = read(&port, &words[..1]);
        assert!(mine == 1 || other.join().unwrap() == 1);
    });
}

#[test]
fn loom_of_two_that_vote_and_then_read_one_sees_the_other() {
    check(|words| {
        let other = spawn(&words, |port, words| {
            port.cas(&words[0], 0, 1);
            read(port, &words[1..2])
        });
        let port = Port::default();
        port.cas(&words[1], 0, 1);
        let mine = read(&port, &words[..1]);
        assert!(mine == 1 || other.join().unwrap() == 1);
    });
}

#[test]
fn loom_of_one_that_writes_and_one_that_votes_one_sees_the_other() {
    check(|words| {
        let other = spawn(&words, |port, words| {
            port.faa(&words[0], 1);
            read(port, &words[1..2])
        });
        let port = Port::default();
        port.write(&words[1..2], &[1]);
        // An atomic that stores nothing is a load.
        let mine = port.cas(&words[0], 5, 6);
        assert!(mine == 1 || other.join().unwrap() == 1);
    });
}
