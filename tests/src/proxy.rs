//! A way between two processes that can be cut.

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Passes bytes on between whoever connects and a server, until it is cut.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    ways: Arc<Mutex<Ways>>,
}

#[derive(Debug)]
struct Ways {
    server: SocketAddr,
    is_open: bool,
    /// Of the ways that there are, or were.
    ends: Vec<TcpStream>,
}

impl Proxy {
    /// Begins to pass bytes on to `server`, which need not be there yet.
    ///
    /// # Panics
    /// If there is no free port.
    pub fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
        let address = listener.local_addr().expect("it listens");
        let ways = Arc::new(Mutex::new(Ways { server, is_open: true, ends: Vec::new() }));
        let accepted = ways.clone();
        // Lives as long as the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // Whoever is not passed on finds its connection closed.
                let _ = accepted.lock().expect("nobody panics with it").pass_on(stream);
            }
        });
        Self { address, ways }
    }

    /// Where to connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes all ways; new ones are open.
    pub fn cut(&self) {
        let mut ways = self.ways.lock().expect("nobody panics with it");
        for end in ways.ends.drain(..) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    /// Lets new ways be, or closes them at once.
    pub fn set_open(&self, is_open: bool) {
        self.ways.lock().expect("nobody panics with it").is_open = is_open;
        if !is_open {
            self.cut();
        }
    }
}

impl Ways {
    fn pass_on(&mut self, client: TcpStream) -> io::Result<()> {
        if !self.is_open {
            return Ok(());
        }
        let server = TcpStream::connect(self.server)?;
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
            self.ends.push(stream.try_clone()?);
        }
        for (from, to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
            std::thread::spawn(move || {
                let _ = io::copy(&mut &from, &mut &to);
                let _ = to.shutdown(Shutdown::Both);
            });
        }
        Ok(())
    }
}
