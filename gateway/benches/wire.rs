//! What parsing a request and writing a reply cost, against redis-protocol.
//! `cargo bench -p gateway` prints the medians of several runs in ns.

use std::hint::black_box;
use std::time::Instant;

use gateway::command::table;
use gateway::reply::{Protocol, Reply};
use gateway::request::{Limits, Next, Requests};
use redis_protocol::resp2::decode::decode;
use redis_protocol::resp2::encode::encode_borrowed;
use redis_protocol::resp2::types::BorrowedFrame;

const RUNS: usize = 21;
const TIMES: usize = 20_000;

#[expect(clippy::disallowed_methods, clippy::print_stdout, reason = "a benchmark")]
fn measure(name: &str, operations: usize, mut run: impl FnMut()) {
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let begin = Instant::now();
            run();
            begin.elapsed().as_nanos() as f64 / operations as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{name:44} {:8.1} ns", times[RUNS / 2]);
}

fn main() {
    let value = [b'v'; 64];
    let mut get = Vec::new();
    let mut set = Vec::new();
    for index in 0..64 {
        let key = format!("key:{index:012}");
        get.extend(format!("*2\r\n$3\r\nGET\r\n$16\r\n{key}\r\n").bytes());
        set.extend(format!("*3\r\n$3\r\nSET\r\n$16\r\n{key}\r\n$64\r\n").bytes());
        set.extend(value);
        set.extend(b"\r\n");
    }
    for (name, pipeline) in [("GET", get), ("SET", set)] {
        let mut requests = Requests::default();
        measure(&format!("parse {name} and find its command"), TIMES * 64, || {
            for _ in 0..TIMES {
                let mut buffer = pipeline.clone();
                while let Ok(Next::Frame(frame)) = requests.next(&mut buffer, Limits::new(true)) {
                    let arguments = requests.arguments(&buffer, frame);
                    black_box((table::find(arguments.get(0)), arguments.get(1)));
                }
                requests.compact(&mut buffer);
            }
        });
        measure(&format!("parse {name}, redis-protocol"), TIMES * 64 / 10, || {
            for _ in 0..TIMES / 10 {
                let mut rest = &pipeline[..];
                while let Ok(Some((frame, used))) = decode(rest) {
                    black_box(frame);
                    rest = &rest[used..];
                }
            }
        });
    }
    let mut out = Vec::with_capacity(64 * 100);
    measure("reply of 64 bytes", TIMES * 64, || {
        for _ in 0..TIMES {
            out.clear();
            let mut reply = Reply::new(std::mem::take(&mut out), Protocol::Resp2);
            for _ in 0..64 {
                reply.bulk(black_box(&value));
            }
            out = reply.into_bytes();
        }
    });
    let mut out = vec![0; 64 * 100];
    measure("reply of 64 bytes, redis-protocol", TIMES * 64, || {
        for _ in 0..TIMES {
            let mut at = 0;
            for _ in 0..64 {
                let frame = BorrowedFrame::BulkString(black_box(&value));
                at += encode_borrowed(&mut out[at..], &frame, false).expect("there is room");
            }
            black_box(at);
        }
    });
    let mut out = Vec::with_capacity(64 * 30);
    measure("integer", TIMES * 64, || {
        for _ in 0..TIMES {
            out.clear();
            let mut reply = Reply::new(std::mem::take(&mut out), Protocol::Resp2);
            for number in 0..64 {
                reply.integer(black_box(number * 1_000_003));
            }
            out = reply.into_bytes();
        }
    });
    let mut out = vec![0; 64 * 30];
    measure("integer, redis-protocol", TIMES * 64, || {
        for _ in 0..TIMES {
            let mut at = 0;
            for number in 0..64 {
                let frame = BorrowedFrame::Integer(black_box(number * 1_000_003));
                at += encode_borrowed(&mut out[at..], &frame, false).expect("there is room");
            }
            black_box(at);
        }
    });
}
