//! Sockets through io_uring, against the kernel's own. A machine without io_uring
//! fails these by name.
#![expect(clippy::disallowed_methods, reason = "these wait for the kernel on threads of their own")]

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use fusee_fabric::ring::{Completion, RECEIVE_BYTES, SocketRing};

type Ring = SocketRing<Rc<UnixStream>>;

/// What came of an operation, owned.
#[derive(PartialEq, Debug)]
enum Came {
    Received(Vec<u8>),
    NotReceived,
    ReceiveFailed(Option<i32>),
    Sent { bytes: Vec<u8>, from: usize, count: usize },
    SendFailed(Option<i32>),
}

fn ring() -> Ring {
    SocketRing::new().expect("this machine has io_uring, Linux 6.1 or newer")
}

fn pair() -> (Rc<UnixStream>, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("there are sockets");
    theirs.set_read_timeout(Some(Duration::from_secs(10))).expect("a time is set");
    (Rc::new(ours), theirs)
}

/// One turn after the other until `count` operations have completed.
fn turns(ring: &mut Ring, count: usize) -> Vec<(Rc<UnixStream>, Came)> {
    let end = Instant::now() + Duration::from_secs(10);
    let mut all = Vec::new();
    while all.len() < count {
        assert!(Instant::now() < end, "{} of {count} operations completed", all.len());
        ring.submit().expect("the kernel takes it");
        while let Some(came) = ring.complete(|socket, completion| (socket, owned(completion))) {
            all.push(came);
        }
    }
    all
}

fn owned(completion: Completion<'_>) -> Came {
    match completion {
        Completion::Received(Ok(bytes)) => Came::Received(bytes.to_vec()),
        Completion::Received(Err(error)) => Came::ReceiveFailed(error.raw_os_error()),
        Completion::NotReceived => Came::NotReceived,
        Completion::Sent { bytes, from, result: Ok(count) } => Came::Sent { bytes, from, count },
        Completion::Sent { result: Err(error), .. } => Came::SendFailed(error.raw_os_error()),
    }
}

fn one(ring: &mut Ring) -> Came {
    turns(ring, 1).remove(0).1
}

#[test]
fn what_is_sent_arrives_and_what_arrives_is_received() {
    let mut ring = ring();
    let (ours, mut theirs) = pair();
    ring.receive(ours.clone()).expect("there is room");
    ring.submit().expect("the kernel takes it");
    assert!(ring.complete(|_, _| ()).is_none(), "nothing has been sent yet");
    theirs.write_all(b"ping").expect("it is sent");
    assert_eq!(one(&mut ring), Came::Received(b"ping".to_vec()));

    ring.send(ours, b"+pong".to_vec(), 1).expect("there is room");
    assert_eq!(one(&mut ring), Came::Sent { bytes: b"+pong".to_vec(), from: 1, count: 4 });
    let mut reply = [0; 4];
    theirs.read_exact(&mut reply).expect("it arrives");
    assert_eq!(&reply, b"pong");
}

#[test]
fn a_large_input_comes_in_parts_of_a_buffer() {
    let mut ring = ring();
    let (ours, mut theirs) = pair();
    let sent: Vec<u8> = (0..5 * RECEIVE_BYTES / 2).map(|at| at as u8).collect();
    theirs.write_all(&sent).expect("the kernel holds so much");
    let mut received = Vec::new();
    while received.len() < sent.len() {
        ring.receive(ours.clone()).expect("there is room");
        let Came::Received(bytes) = one(&mut ring) else { panic!("it is received") };
        assert!(!bytes.is_empty() && bytes.len() <= RECEIVE_BYTES);
        received.extend_from_slice(&bytes);
    }
    assert!(received == sent);
}

#[test]
fn who_sends_no_more_is_received_from_as_nothing() {
    let mut ring = ring();
    let (ours, theirs) = pair();
    theirs.shutdown(Shutdown::Write).expect("it ends");
    ring.receive(ours).expect("there is room");
    assert_eq!(one(&mut ring), Came::Received(Vec::new()));
}

#[test]
fn sending_to_who_is_gone_is_an_error_and_no_signal() {
    let mut ring = ring();
    let (ours, theirs) = pair();
    drop(theirs);
    ring.send(ours, b"hello".to_vec(), 0).expect("there is room");
    assert_eq!(one(&mut ring), Came::SendFailed(Some(libc::EPIPE)));
}

#[test]
fn who_does_not_read_is_sent_a_part_and_the_rest_when_it_does() {
    let mut ring = ring();
    let (ours, mut theirs) = pair();
    let all: Vec<u8> = (0..4 << 20).map(|at: usize| (at / 7) as u8).collect();
    let reader = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        let mut read = Vec::new();
        theirs.read_to_end(&mut read).expect("all arrives");
        read
    });
    let (mut bytes, mut at, mut sends) = (all.clone(), 0, 0);
    while at < all.len() {
        ring.send(ours.clone(), bytes, at).expect("there is room");
        let Came::Sent { bytes: back, from, count } = one(&mut ring) else { panic!("it is sent") };
        assert!(from == at && count > 0);
        (bytes, at, sends) = (back, at + count, sends + 1);
    }
    assert!(sends > 1, "the socket holds less than that at a time");
    drop((ours, bytes));
    assert!(reader.join().expect("it reads") == all);
}

#[test]
fn more_sockets_than_buffers_are_all_received_from() {
    let mut ring = ring();
    let pairs: Vec<_> = (0..200).map(|_| pair()).collect();
    for (number, (ours, theirs)) in pairs.iter().enumerate() {
        (&mut &*theirs).write_all(&[number as u8]).expect("it is sent");
        ring.receive(ours.clone()).expect("there is room");
    }
    let (mut received, mut missed) = (Vec::new(), 0);
    while received.len() < pairs.len() {
        // Looked at only after all have had their turn in the kernel, which takes a few
        // at a time.
        for _ in 0..pairs.len() {
            ring.submit().expect("the kernel takes it");
        }
        let mut again = Vec::new();
        while let Some((socket, came)) = ring.complete(|socket, came| (socket, owned(came))) {
            match came {
                Came::Received(bytes) => received.extend(bytes),
                Came::NotReceived => again.push(socket),
                other => panic!("{other:?}"),
            }
        }
        missed += again.len();
        for socket in again {
            ring.receive(socket).expect("there is room");
        }
    }
    received.sort_unstable();
    assert!(received == (0..200).collect::<Vec<u8>>());
    assert!(missed > 0, "there are fewer buffers than sockets");
}

#[test]
fn more_operations_than_the_queue_holds_are_handed_over_in_between() {
    let mut ring = ring();
    let pairs: Vec<_> = (0..700).map(|_| pair()).collect();
    for (ours, _) in &pairs {
        ring.send(ours.clone(), b"x".to_vec(), 0).expect("there is room");
    }
    let sent = turns(&mut ring, pairs.len());
    assert!(sent.iter().all(|(_, came)| matches!(came, Came::Sent { count: 1, .. })));
}

#[test]
fn completions_beyond_the_queue_are_kept() {
    let mut ring = ring();
    let (ours, theirs) = pair();
    drop(theirs);
    let count = 10_000;
    for _ in 0..count {
        ring.send(ours.clone(), b"x".to_vec(), 0).expect("there is room");
    }
    let all = turns(&mut ring, count);
    assert!(all.iter().all(|(_, came)| *came == Came::SendFailed(Some(libc::EPIPE))));
    assert_eq!(Rc::strong_count(&ours), 1 + all.len());
}

#[test]
fn a_cancelled_receive_lets_go_of_its_socket() {
    let mut ring = ring();
    let (ours, mut theirs) = pair();
    let id = ring.receive(ours.clone()).expect("there is room");
    ring.submit().expect("the kernel takes it");
    ring.cancel(id).expect("there is room");
    assert_eq!(one(&mut ring), Came::ReceiveFailed(Some(libc::ECANCELED)));
    drop(ours);
    assert_eq!(theirs.read(&mut [0]).expect("the end is told"), 0);
}

#[test]
fn a_ring_that_ends_lets_go_of_sockets_and_bytes_in_flight() {
    let mut ring = ring();
    let (receiving, mut theirs) = pair();
    let (sending, mut other) = pair();
    ring.receive(receiving).expect("there is room");
    ring.send(sending.clone(), vec![7; 8 << 20], 0).expect("there is room");
    ring.submit().expect("the kernel takes it");
    // The first part is sent; what comes after it waits for room.
    while let Some((bytes, at)) = ring.complete(|_, came| match owned(came) {
        Came::Sent { bytes, from, count } => (bytes, from + count),
        other => panic!("{other:?}"),
    }) {
        ring.send(sending.clone(), bytes, at).expect("there is room");
        ring.submit().expect("the kernel takes it");
    }
    assert_eq!(Rc::strong_count(&sending), 2, "a send waits");
    drop(ring);
    assert_eq!(Rc::strong_count(&sending), 1);
    assert_eq!(theirs.read(&mut [0]).expect("the end is told"), 0);
    drop(sending);
    let mut read = Vec::new();
    other.read_to_end(&mut read).expect("what was sent arrives");
    assert!(!read.is_empty() && read.iter().all(|&byte| byte == 7));
}

#[tokio::test]
async fn the_signal_tells_of_what_has_come() {
    let mut ring = ring();
    let signal = ring.signal().expect("the runtime takes it");
    let (ours, mut theirs) = pair();
    ring.receive(ours.clone()).expect("there is room");
    ring.submit().expect("the kernel takes it");
    for round in 0..3 {
        let quiet = tokio::time::timeout(Duration::from_millis(30), async {
            // What an earlier round raised is over once nothing has completed since.
            loop {
                signal.raised().await.expect("the runtime lives");
                ring.submit().expect("the kernel takes it");
                assert!(ring.complete(|_, _| ()).is_none(), "nothing was sent in round {round}");
            }
        });
        assert!(quiet.await.is_err());
        theirs.write_all(&[round]).expect("it is sent");
        tokio::time::timeout(Duration::from_secs(10), signal.raised())
            .await
            .expect("it is told")
            .expect("the runtime lives");
        ring.submit().expect("the kernel takes it");
        let came = ring.complete(|_, came| owned(came));
        assert_eq!(came, Some(Came::Received(vec![round])));
        ring.receive(ours.clone()).expect("there is room");
        ring.submit().expect("the kernel takes it");
    }
}
