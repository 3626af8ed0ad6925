//! redis-server to compare with. `REDIS_SERVER` names the program; otherwise it is
//! looked for on PATH. It is in Debian's package redis-server; any 7.0 or 7.2 will do.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running redis-server; stopped when dropped.
pub struct Redis {
    child: Child,
    pub address: SocketAddr,
}

impl Redis {
    pub fn start() -> Self {
        // Another test may have taken a port that was free a moment ago.
        (0..10).find_map(|_| Self::start_on_free_port()).expect("redis-server listens")
    }

    fn start_on_free_port() -> Option<Self> {
        let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = free.local_addr().expect("it is bound");
        drop(free);
        let child = Command::new(&program)
            .args(["--port", &address.port().to_string(), "--save", "", "--appendonly", "no"])
            .args(["--bind", "127.0.0.1", "--dir", "/tmp"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!(
                    "redis-server is missing ({program}: {error}): install Debian's package \
                     redis-server, or name the program in REDIS_SERVER"
                )
            });
        let mut redis = Self { child, address };
        for _ in 0..500 {
            let answers = redis.answers();
            if redis.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return None;
            }
            if answers {
                return Some(redis);
            }
            pause(Duration::from_millis(20));
        }
        None
    }

    /// Whether it is this process that listens there.
    fn answers(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(self.address) else { return false };
        let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
        let mut told = Vec::new();
        let _ = stream.write_all(b"INFO server\r\nQUIT\r\n");
        let _ = stream.read_to_end(&mut told);
        String::from_utf8_lossy(&told).contains(&format!("process_id:{}\r\n", self.child.id()))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "waits for another process")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}
