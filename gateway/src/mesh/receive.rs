//! What another gateway brings.

use std::io;
use std::time::Duration;

use fusee_control::Token;
use ring::digest::{SHA256, digest};
use tokio::io::{AsyncRead, AsyncReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

use super::frame::{self, GREETING, HEADER_BYTES};
use crate::shared::Shared;

/// How long a gateway may take to say who it is.
const GREETING_TIME_MAX: Duration = Duration::from_secs(5);

/// Hands messages to who listens here, until the connection ends.
/// `stranger` is given back once it is known who it is.
pub(super) async fn run(
    stream: TcpStream,
    secret: Token,
    stranger: OwnedSemaphorePermit,
    shared: &Shared,
) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let greeted = tokio::time::timeout(GREETING_TIME_MAX, is_greeting(&mut stream, secret));
    if !greeted.await.unwrap_or(Err(io::ErrorKind::TimedOut.into()))? {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    drop(stranger);
    let (mut channel, mut payload) = (Vec::new(), Vec::new());
    loop {
        let mut header = [0; HEADER_BYTES];
        stream.read_exact(&mut header).await?;
        let Some((way, channel_bytes, payload_bytes)) = frame::parse(header) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        fill(&mut stream, &mut channel, channel_bytes).await?;
        fill(&mut stream, &mut payload, payload_bytes).await?;
        let limit = shared.settings.subscriber_bytes();
        shared.channels.publish(way, &channel, &payload, limit);
    }
}

/// Whether it is a gateway of the pool. Hashes are compared, so that the time it
/// takes tells nothing of the secret.
async fn is_greeting(stream: &mut (impl AsyncRead + Unpin), secret: Token) -> io::Result<bool> {
    let mut greeting = [0; GREETING.len() + Token::BYTES];
    stream.read_exact(&mut greeting).await?;
    let wanted = [&GREETING[..], secret.bytes()].concat();
    Ok(digest(&SHA256, &greeting).as_ref() == digest(&SHA256, &wanted).as_ref())
}

/// Reads so many bytes; memory grows with what has come, not with what is announced.
async fn fill(
    stream: &mut (impl AsyncRead + Unpin),
    bytes: &mut Vec<u8>,
    count: usize,
) -> io::Result<()> {
    bytes.clear();
    let read = stream.take(count as u64).read_to_end(bytes).await?;
    if read < count { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}
