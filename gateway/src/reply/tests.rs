use redis_protocol::resp2::{decode::decode as decode2, types::OwnedFrame as Frame2};
use redis_protocol::resp3::{decode::complete::decode as decode3, types::OwnedFrame as Frame3};

use super::*;

fn written(protocol: Protocol, write: impl Fn(&mut Reply)) -> Vec<u8> {
    let mut reply = Reply::new(Vec::new(), protocol);
    write(&mut reply);
    reply.into_bytes()
}

fn resp2(write: impl Fn(&mut Reply)) -> Frame2 {
    let bytes = written(Protocol::Resp2, write);
    let (frame, used) = decode2(&bytes).expect("valid").expect("complete");
    assert_eq!(used, bytes.len());
    frame
}

fn resp3(write: impl Fn(&mut Reply)) -> Frame3 {
    let bytes = written(Protocol::Resp3, write);
    let (frame, used) = decode3(&bytes).expect("valid").expect("complete");
    assert_eq!(used, bytes.len());
    frame
}

#[test]
fn scalars_decode_in_both_versions() {
    assert_eq!(resp2(Reply::ok), Frame2::SimpleString(b"OK".to_vec()));
    assert_eq!(resp2(|r| r.simple("PONG")), Frame2::SimpleString(b"PONG".to_vec()));
    assert_eq!(resp2(|r| r.error("ERR a\r\nb\r\n")), Frame2::Error("ERR a  b".into()));
    for value in [0, 1, -1, i64::MAX, i64::MIN] {
        assert_eq!(resp2(|r| r.integer(value)), Frame2::Integer(value));
        let digits = value.to_string().into_bytes();
        assert_eq!(resp2(|r| r.bulk_integer(value)), Frame2::BulkString(digits));
    }
    assert_eq!(resp2(|r| r.bulk(b"a\r\nb\0")), Frame2::BulkString(b"a\r\nb\0".to_vec()));
    assert_eq!(resp2(Reply::null), Frame2::Null);
    assert_eq!(written(Protocol::Resp2, Reply::null_array), b"*-1\r\n");
    assert_eq!(resp3(Reply::null), Frame3::Null);
    assert_eq!(resp3(Reply::null_array), Frame3::Null);
    assert_eq!(resp2(|r| r.boolean(true)), Frame2::Integer(1));
    assert_eq!(resp3(|r| r.boolean(false)), Frame3::Boolean { data: false, attributes: None });
    assert_eq!(resp2(|r| r.double(1.5)), Frame2::BulkString(b"1.5".to_vec()));
    assert_eq!(resp3(|r| r.double(-0.25)), Frame3::Double { data: -0.25, attributes: None });
    assert_eq!(resp2(|r| r.verbatim(b"hi")), Frame2::BulkString(b"hi".to_vec()));
    let Frame3::VerbatimString { data, .. } = resp3(|r| r.verbatim(b"hi")) else {
        panic!("not verbatim");
    };
    assert_eq!(data, b"hi");
}

#[test]
fn aggregates_decode_in_both_versions() {
    let pair = |r: &mut Reply| {
        r.map(1);
        r.bulk(b"k");
        r.integer(1);
    };
    assert_eq!(
        resp2(pair),
        Frame2::Array(vec![Frame2::BulkString(b"k".to_vec()), Frame2::Integer(1)])
    );
    let Frame3::Map { data, .. } = resp3(pair) else { panic!("not a map") };
    assert_eq!(data.len(), 1);
    let one = |header: fn(&mut Reply, usize)| {
        move |r: &mut Reply| {
            header(r, 1);
            r.integer(7);
        }
    };
    for header in [Reply::array, Reply::set, Reply::push] {
        assert_eq!(resp2(one(header)), Frame2::Array(vec![Frame2::Integer(7)]));
    }
    assert!(matches!(resp3(one(Reply::array)), Frame3::Array { data, .. } if data.len() == 1));
    assert!(matches!(resp3(one(Reply::set)), Frame3::Set { data, .. } if data.len() == 1));
    assert!(matches!(resp3(one(Reply::push)), Frame3::Push { data, .. } if data.len() == 1));
}

#[test]
fn errors_are_counted_by_kind() {
    let mut reply = Reply::default();
    reply.error("OOM command not allowed when used memory > 'maxmemory'.");
    reply.error_fmt(format_args!("ERR {}", 1));
    reply.error("EXECABORT Transaction discarded because of previous errors.");
    reply.error("nocode");
    reply.error("MADE up");
    let mark = reply.mark();
    reply.error("MADE again");
    reply.known_error(b"MADE before");
    let count = |reply: &Reply, kind: ErrorKind| reply.errors().kinds[kind as usize];
    assert_eq!(count(&reply, ErrorKind::Oom), 1);
    assert_eq!(count(&reply, ErrorKind::Err), 2);
    assert_eq!(count(&reply, ErrorKind::ExecAbort), 1);
    assert_eq!((count(&reply, ErrorKind::Other), reply.failures()), (2, 7));
    reply.rewind(mark);
    assert_eq!((count(&reply, ErrorKind::Other), reply.failures()), (1, 5));
    assert_eq!(reply.other_codes(), [Box::from(&b"MADE"[..])]);
    let mut outer = Reply::default();
    outer.count_errors_of(&reply);
    assert_eq!((count(&outer, ErrorKind::Err), outer.failures()), (2, 0));
    assert_eq!(outer.other_codes().len(), 1);
}

#[test]
fn truncating_takes_a_reply_back() {
    let mut reply = Reply::default();
    reply.ok();
    let mark = reply.len();
    reply.bulk(b"wrong");
    reply.truncate(mark);
    reply.integer(1);
    assert_eq!(reply.into_bytes(), b"+OK\r\n:1\r\n");
}
