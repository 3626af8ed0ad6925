//! What goes over a link: first who may come in, then messages.
//!
//! ```text
//! greeting: | "FUSEEMSG" | secret: 16 |
//! message:  | way: 1 | channel bytes: u32, LE | payload bytes: u32, LE | channel | payload |
//! ```

use crate::channels::Way;
use crate::request::BULK_BYTES_MAX;

pub(super) const GREETING: &[u8; 8] = b"FUSEEMSG";
pub(super) const HEADER_BYTES: usize = 9;

/// Writes a message.
pub(super) fn encode(way: Way, channel: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEADER_BYTES + channel.len() + payload.len());
    frame.push(way as u8);
    // A request's argument has 512 MB at most.
    frame.extend_from_slice(&(channel.len() as u32).to_le_bytes());
    frame.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    frame.extend_from_slice(channel);
    frame.extend_from_slice(payload);
    frame
}

/// What a header announces: the way, and the bytes of channel and payload. `None` if
/// nobody who keeps to this sent it.
pub(super) fn parse(header: [u8; HEADER_BYTES]) -> Option<(Way, usize, usize)> {
    let [way, c0, c1, c2, c3, p0, p1, p2, p3] = header;
    let way = Way::ALL.into_iter().find(|known| *known as u8 == way && *known != Way::Pattern)?;
    let [channel, payload] =
        [[c0, c1, c2, c3], [p0, p1, p2, p3]].map(|bytes| u32::from_le_bytes(bytes) as usize);
    let most = BULK_BYTES_MAX as usize;
    (channel <= most && payload <= most).then_some((way, channel, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_and_what_is_none_is_refused() {
        for way in [Way::Channel, Way::Shard] {
            let frame = encode(way, b"news", b"hello!");
            let header = *frame.first_chunk().unwrap();
            assert_eq!(parse(header), Some((way, 4, 6)));
            assert_eq!(&frame[HEADER_BYTES..], b"newshello!");
        }
        assert_eq!(
            parse([Way::Pattern as u8, 0, 0, 0, 0, 0, 0, 0, 0]),
            None,
            "nobody publishes so"
        );
        assert_eq!(parse([9, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(parse([0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]), None);
    }
}
