//! What clients can make a server hold. The process is measured, so these tests
//! take turns and live in a process of their own.

mod common;

use std::io::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use common::{Gateway, config, encode};
use gateway::config::Config;
use gateway::testing::MemoryKeyspace;

static TURN: Mutex<()> = Mutex::new(());

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = statm.split(' ').nth(1).expect("a field").parse().expect("a number");
    pages * 4096
}

#[test]
fn announcements_cost_no_memory() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let gateway = Gateway::start();
    let before = resident_bytes();
    let mut clients: Vec<_> = (0..50).map(|_| gateway.client()).collect();
    for client in &mut clients {
        client.send(b"*1048576\r\n$536870912\r\nstart");
    }
    assert_eq!(gateway.client().ask("PING"), "+PONG\\r\\n");
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes for announcements");
}

#[test]
fn a_slow_reader_stalls_itself_alone() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = 4 << 20;
    let config = Config { output_limit_bytes: limit, ..config() };
    let gateway = Gateway::with(&config, MemoryKeyspace::default());
    let mut other = gateway.client();
    other.call(&["SET".as_bytes(), b"k", &vec![b'v'; 100_000]]);
    let before = resident_bytes();
    let mut slow = gateway.client();
    // 300 MB of replies are asked for and none is read.
    let asked = 3_000;
    let request = encode(&["GET", "k"]).repeat(asked);
    slow.stream.set_write_timeout(Some(Duration::from_millis(500))).expect("open");
    let sent = slow.stream.write_all(&request);
    assert_eq!(other.ask("PING"), "+PONG\\r\\n");
    pause(Duration::from_millis(300));
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 8 * limit as u64, "{grown} bytes are held for a slow reader");
    // It gets everything once it reads.
    if sent.is_ok() {
        for _ in 0..asked {
            assert_eq!(slow.reply().len(), 100_000 + "$100000\r\n\r\n".len());
        }
        assert_eq!(slow.ask("PING"), "+PONG\\r\\n");
    }
}

#[expect(clippy::disallowed_methods, reason = "this thread has nothing else to do")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
