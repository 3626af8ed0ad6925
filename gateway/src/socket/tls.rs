//! TLS between a client's socket and its session. Whatever the connection has to
//! say of itself (the handshake, alerts) waits here as replies wait in the socket.

use std::io::{self, Read, Write};

use rustls::ServerConnection;
use tokio::net::TcpStream;

/// The most that is taken from the session at a time.
const RECORD_BYTES: usize = 16 * 1024;

/// A connection's end of TLS.
#[derive(Debug)]
pub(super) struct Tls {
    connection: ServerConnection,
    is_closed: bool,
}

/// A socket that does not wait.
struct Wire<'a>(&'a TcpStream);

impl Read for Wire<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Tls {
    pub(super) fn new(connection: ServerConnection) -> Self {
        Self { connection, is_closed: false }
    }

    /// Whether something waits to be sent.
    pub(super) fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Whether the client sends no more.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Takes as much of `bytes` as fits and tells how much; sends what the socket
    /// takes. Less than all means that the socket is full.
    pub(super) fn write(&mut self, stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
        let mut taken = 0;
        loop {
            if self.flush(stream)? || taken == bytes.len() {
                return Ok(taken);
            }
            let part = &bytes[taken..bytes.len().min(taken + RECORD_BYTES)];
            taken += self.connection.writer().write(part)?;
        }
    }

    /// Sends what waits; true if the socket is full before that.
    fn flush(&mut self, stream: &TcpStream) -> io::Result<bool> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Wire(stream)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Appends what has arrived to `input`; 0 bytes mean that no more will, and
    /// `WouldBlock` that there is nothing yet.
    pub(super) fn read(&mut self, stream: &TcpStream, input: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            let read = self.decrypted(input)?;
            if read > 0 || self.is_closed {
                return Ok(read);
            }
            match self.connection.read_tls(&mut Wire(stream)) {
                Ok(0) => self.is_closed = true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            let processed = self.connection.process_new_packets();
            // The handshake goes on, or the client learns what it did wrong.
            self.flush(stream)?;
            processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }

    /// Appends what has been decrypted.
    fn decrypted(&mut self, input: &mut Vec<u8>) -> io::Result<usize> {
        let before = input.len();
        match self.connection.reader().read_to_end(input) {
            // The client has said that it will send no more.
            Ok(_) => self.is_closed = true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // It has gone without saying so; what it sent is whole or no request.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => self.is_closed = true,
            Err(error) => return Err(error),
        }
        Ok(input.len() - before)
    }

    /// Tells the client that nothing more will be sent.
    pub(super) fn close(&mut self, stream: &TcpStream) -> io::Result<()> {
        self.connection.send_close_notify();
        self.flush(stream).map(|_| ())
    }
}
