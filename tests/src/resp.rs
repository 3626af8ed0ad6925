//! A small blocking client that shows replies as they came, for suites that
//! must see more of the wire than an SDK shows.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use crate::server::Server;

/// Deepest nesting of a reply that the client follows.
const DEPTH_MAX: usize = 8;

/// A reply, RESP2 or RESP3.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// `+OK`
    Simple(String),
    /// `-ERR ...`
    Error(String),
    /// `:1`
    Integer(i64),
    /// `$1`, and `=` without its format.
    Bulk(Vec<u8>),
    /// `$-1`, `*-1` and `_`
    Null,
    /// `*`, `~`, `>` and, as keys and values in turn, `%`.
    Array(Vec<Reply>),
    /// `,` and `(` as they came.
    Number(String),
    /// `#`
    Boolean(bool),
}

impl Reply {
    /// `+OK`
    pub fn ok() -> Self {
        Self::Simple("OK".into())
    }

    /// A bulk string.
    pub fn bulk(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Bulk(bytes.into())
    }

    /// The integer.
    ///
    /// # Panics
    /// If it is none.
    pub fn integer(&self) -> i64 {
        match self {
            Self::Integer(number) => *number,
            other => panic!("{other:?} is not an integer"),
        }
    }

    /// Text of a simple or bulk string.
    ///
    /// # Panics
    /// If it is none.
    pub fn text(&self) -> String {
        match self {
            Self::Simple(text) => text.clone(),
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => panic!("{other:?} is not a string"),
        }
    }

    /// Whether it is an error that begins so.
    pub fn is_error(&self, begin: &str) -> bool {
        matches!(self, Self::Error(text) if text.starts_with(begin))
    }
}

/// One connection.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects to a server.
    pub fn connect(server: &Server) -> Self {
        Self::over(server.connect())
    }

    /// Speaks over a connection that is there.
    pub fn over(stream: TcpStream) -> Self {
        Self { stream: BufReader::with_capacity(64 << 10, stream) }
    }

    /// The connection below.
    pub fn stream(&self) -> &TcpStream {
        self.stream.get_ref()
    }

    /// Sends one command and takes its reply.
    ///
    /// # Panics
    /// If the connection breaks.
    pub fn command<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Reply {
        self.try_command(arguments).unwrap_or_else(|error| {
            let name = String::from_utf8_lossy(arguments[0].as_ref()).into_owned();
            panic!("no reply to {name}: {error}")
        })
    }

    /// Sends commands as one pipeline.
    ///
    /// # Panics
    /// If the connection breaks.
    pub fn pipeline(&mut self, commands: &[&[&str]]) -> Vec<Reply> {
        let mut frames = Vec::new();
        for command in commands {
            push_command(&mut frames, command);
        }
        self.send(&frames).expect("a pipeline is sent");
        commands.iter().map(|_| self.receive().expect("each command has a reply")).collect()
    }

    /// [`Self::command`] where the connection may break.
    pub fn try_command<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<Reply> {
        let mut frame = Vec::new();
        push_command(&mut frame, arguments);
        self.send(&frame)?;
        self.receive()
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Takes the next reply.
    pub fn receive(&mut self) -> io::Result<Reply> {
        self.receive_nested(DEPTH_MAX)
    }

    /// Takes the next line as it came, without its end.
    pub fn receive_line(&mut self) -> io::Result<String> {
        self.line()
    }

    /// Whether the server has closed the connection without another byte.
    pub fn is_closed(&mut self) -> bool {
        match self.stream.fill_buf() {
            Ok(rest) => rest.is_empty(),
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }

    fn receive_nested(&mut self, depth: usize) -> io::Result<Reply> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| invalid(&line))?;
        let count = || rest.parse::<i64>().map_err(|_| invalid(&line));
        Ok(match kind {
            "+" => Reply::Simple(rest.into()),
            "-" => Reply::Error(rest.into()),
            ":" => Reply::Integer(count()?),
            "," | "(" => Reply::Number(rest.into()),
            "#" => Reply::Boolean(rest == "t"),
            "_" => Reply::Null,
            "$" | "=" => match usize::try_from(count()?) {
                Ok(length) => {
                    let mut bytes = self.bulk(length)?;
                    if kind == "=" {
                        bytes.drain(..4.min(length));
                    }
                    Reply::Bulk(bytes)
                }
                Err(_) => Reply::Null,
            },
            "*" | "~" | ">" | "%" => match usize::try_from(count()?) {
                Ok(_) if depth == 0 => return Err(invalid("a reply nested too deep")),
                Ok(length) => {
                    let length = if kind == "%" { length * 2 } else { length };
                    let items = (0..length).map(|_| self.receive_nested(depth - 1));
                    Reply::Array(items.collect::<io::Result<_>>()?)
                }
                Err(_) => Reply::Null,
            },
            _ => return Err(invalid(&line)),
        })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let text = line.strip_suffix(b"\r\n").ok_or_else(|| {
            invalid(&format!("a line without its end: {}", String::from_utf8_lossy(&line)))
        })?;
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    fn bulk(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        let mut end = [0; 2];
        self.stream.read_exact(&mut end)?;
        if end == *b"\r\n" { Ok(bytes) } else { Err(invalid("a bulk string without its end")) }
    }
}

/// Appends a command as an array of bulk strings.
pub fn push_command<A: AsRef<[u8]>>(out: &mut Vec<u8>, arguments: &[A]) {
    out.extend_from_slice(format!("*{}\r\n", arguments.len()).as_bytes());
    for argument in arguments {
        let bytes = argument.as_ref();
        out.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
        out.extend_from_slice(bytes);
        out.extend_from_slice(b"\r\n");
    }
}

/// A field of INFO, without its spaces.
pub fn info_field(client: &mut Client, section: &str, field: &str) -> Option<String> {
    let text = client.command(&["INFO", section]).text();
    let prefix = format!("{field}:");
    text.lines().find_map(|line| line.strip_prefix(&prefix)).map(|value| value.trim().to_owned())
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}
