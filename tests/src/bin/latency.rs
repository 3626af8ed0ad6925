//! Times commands of one connection to a server, one at a time: what a client waits for.
//!
//! `latency --port 6379` prints, for each kind of command, the least, the middle and the
//! 99th of a hundred. PING takes all of the way but the keyspace, so that the difference to
//! it is what the keyspace costs.

use std::io::{self, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use clap::Parser;
use tests::resp::{Client, Reply};

#[derive(Parser)]
#[command(about = "Times commands of one connection, one at a time.")]
struct Flags {
    /// The server's port, on this machine.
    #[arg(long)]
    port: u16,
    /// Bytes of a value.
    #[arg(long, default_value_t = 64)]
    value_bytes: usize,
    /// How often each command is sent.
    #[arg(long, default_value_t = 2000)]
    rounds: usize,
}

/// The words of a command, by the number of its round.
type Command<'a> = &'a dyn Fn(usize) -> Vec<String>;

fn main() -> io::Result<()> {
    let flags = Flags::parse();
    let stream = TcpStream::connect(("127.0.0.1", flags.port))?;
    stream.set_nodelay(true)?;
    let mut client = Client::over(stream);
    let value = "v".repeat(flags.value_bytes);
    let other = "w".repeat(flags.value_bytes);
    let key = |number: usize| format!("latency:{number}");
    let all: [(&str, Command<'_>); 7] = [
        ("PING", &|_| vec!["PING".into()]),
        ("insert", &|number| vec!["SET".into(), key(number), value.clone()]),
        ("GET", &|_| vec!["GET".into(), key(0)]),
        ("GET of many", &|number| vec!["GET".into(), key(number)]),
        ("update", &|number| vec!["SET".into(), key(number), other.clone()]),
        ("INCR", &|_| vec!["INCR".into(), "latency:counter".into()]),
        ("DEL", &|number| vec!["DEL".into(), key(number)]),
    ];
    let mut out = io::stdout();
    writeln!(out, "{:<16} {:>8} {:>8} {:>8}", "us", "min", "p50", "p99")?;
    for (name, command) in all {
        let mut took = Vec::with_capacity(flags.rounds);
        for number in 0..flags.rounds {
            let words = command(number);
            let begin = Instant::now();
            let reply = client.try_command(&words)?;
            took.push(begin.elapsed().as_nanos() as f64 / 1000.0);
            if let Reply::Error(error) = reply {
                return Err(io::Error::other(error));
            }
        }
        took.sort_by(f64::total_cmp);
        let (p50, p99) = (took[took.len() / 2], took[took.len() * 99 / 100]);
        writeln!(out, "{name:<16} {:>8.1} {p50:>8.1} {p99:>8.1}", took[0])?;
    }
    Ok(())
}
