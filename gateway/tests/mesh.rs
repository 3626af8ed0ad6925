//! Several gateways: what is published at one reaches who listens at another.

mod common;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::redis::pause;
use common::{Client, config};
use fusee_control::{GatewayId, GatewayPeer};
use gateway::Server;
use gateway::mesh::Directory;
use gateway::testing::MemoryKeyspace;

/// A directory in this process.
#[derive(Clone, Default)]
struct Meeting(Arc<Mutex<BTreeMap<GatewayId, GatewayPeer>>>);

impl Meeting {
    fn directory(&self) -> (GatewayId, Directory) {
        let (gateway, peers) = (GatewayId::random(), self.0.clone());
        let directory: Directory = Box::new(move |address, secret| {
            let mut peers = peers.lock().unwrap();
            peers.insert(gateway, GatewayPeer { gateway, address, secret });
            let others = peers.values().filter(|peer| peer.gateway != gateway).cloned().collect();
            Box::pin(std::future::ready(others))
        });
        (gateway, directory)
    }

    fn start(&self) -> (GatewayId, Server) {
        let (gateway, directory) = self.directory();
        let keyspace = MemoryKeyspace::default();
        let server =
            gateway::start_among(&config(), Vec::new(), Some(directory), async move |_| {
                Ok(keyspace.clone())
            });
        (gateway, server.expect("the server starts"))
    }
}

fn stop(server: Server) {
    server.stop();
    server.join();
}

/// Publishes until the message has arrived: links are made within a second or so.
fn reaches(publisher: &mut Client, listener: &mut Client) {
    listener.stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    for _ in 0..300 {
        publisher.ask("PUBLISH warm up");
        let mut got = [0; 1];
        if listener.stream.read(&mut got).is_ok_and(|read| read == 1) {
            // All that has come so far.
            pause(Duration::from_millis(200));
            let mut rest = [0; 64 * 1024];
            let _ = listener.stream.read(&mut rest);
            listener.stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            return;
        }
    }
    panic!("no message in 30 s");
}

fn subscribed(server: &Server) -> Client {
    let mut listener = Client::connect(server.addresses()[0]);
    assert!(listener.ask("SUBSCRIBE warm").contains("subscribe"));
    listener
}

#[test]
fn messages_reach_listeners_of_other_gateways_in_order() {
    let meeting = Meeting::default();
    let servers = [meeting.start().1, meeting.start().1, meeting.start().1];
    let mut publisher = Client::connect(servers[0].addresses()[0]);
    for server in &servers[1..] {
        reaches(&mut publisher, &mut subscribed(server));
    }
    let mut listener = Client::connect(servers[1].addresses()[0]);
    for words in ["SUBSCRIBE news", "PSUBSCRIBE n?ws", "SSUBSCRIBE shard"] {
        assert!(listener.ask(words).contains("subscribe"));
    }
    for number in 0..1000 {
        // Counted are those who listen here.
        assert_eq!(publisher.ask(&format!("PUBLISH news {number}")), ":0\\r\\n");
    }
    assert_eq!(publisher.ask("SPUBLISH shard s"), ":0\\r\\n");
    for number in 0..1000 {
        assert!(
            listener.reply().escape_ascii().to_string().contains(&format!("\\r\\n{number}\\r\\n"))
        );
        assert!(listener.reply().starts_with(b"*4\r\n$8\r\npmessage"));
    }
    assert!(listener.reply().starts_with(b"*3\r\n$8\r\nsmessage"));
    // A large one comes through whole.
    let large = vec![b'x'; 3 << 20];
    assert_eq!(publisher.call(&[&b"PUBLISH"[..], b"news", &large]), b":0\r\n");
    for _ in ["message", "pmessage"] {
        assert!(listener.reply().ends_with(&[&large[..], b"\r\n"].concat()));
    }
    // Keyspace notifications are messages as others are.
    publisher.ask("CONFIG SET notify-keyspace-events E$");
    assert!(listener.ask("SUBSCRIBE __keyevent@0__:set").contains("subscribe"));
    publisher.ask("SET told v");
    assert!(listener.reply().ends_with(b"\r\ntold\r\n"));
    servers.into_iter().for_each(stop);
}

#[test]
fn a_gateway_that_goes_takes_nothing_along_and_a_new_one_is_found() {
    let meeting = Meeting::default();
    let ((_, first), (gone, second)) = (meeting.start(), meeting.start());
    let mut publisher = Client::connect(first.addresses()[0]);
    reaches(&mut publisher, &mut subscribed(&second));
    stop(second);
    meeting.0.lock().unwrap().remove(&gone);
    for _ in 0..100 {
        assert_eq!(publisher.ask("PUBLISH warm nobody"), ":0\\r\\n");
    }
    let (_, third) = meeting.start();
    reaches(&mut publisher, &mut subscribed(&third));
    stop(first);
    stop(third);
}

#[test]
fn who_does_not_know_the_secret_is_not_let_in() {
    let meeting = Meeting::default();
    let (gateway, server) = meeting.start();
    let peer = loop {
        if let Some(peer) = meeting.0.lock().unwrap().get(&gateway) {
            break peer.clone();
        }
        pause(Duration::from_millis(10));
    };
    let mut listener = subscribed(&server);
    let message = b"\0\x04\0\0\0\x02\0\0\0warmhi";
    let say = |greeting: &[u8]| {
        let mut stream = TcpStream::connect(&peer.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let _ = stream.write_all(&[greeting, message].concat());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert_eq!(rest, b"");
    };
    let right = [&b"FUSEEMSG"[..], peer.secret.bytes()].concat();
    let mut wrong = right.clone();
    wrong[20] ^= 1;
    say(&wrong);
    say(b"GET / HTTP/1.1\r\n\r\n0000000");
    say(&right);
    // Only what came with the secret arrives.
    assert!(listener.reply().ends_with(b"$2\r\nhi\r\n"));
    assert_eq!(listener.ask("PING"), "*2\\r\\n$4\\r\\npong\\r\\n$0\\r\\n\\r\\n");
    stop(server);
}
