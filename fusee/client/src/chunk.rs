//! Values too large for one object: chunks, each an ordinary object under the
//! key's hash, written before the root that lists them and freed before it, so
//! that whoever finds a root that is not freed can still free its chunks.
//!
//! ```text
//! root body:  | length of the value, 8 bytes | word of chunk 0 | word of chunk 1 | ...
//! ```

use crate::draft::Content;
use crate::store::Store;
use crate::{Env, Error, Key, Kind};
use fusee_fabric::Fabric;
use fusee_layout::{
    CHUNK_KEY_BYTES, KeyHash, Opcode, Slot, Unverified, VALUE_BYTES_MAX, object_bytes,
};

/// Chunks that one batch carries: a few MB at a time, so that a large value
/// needs no second copy of itself.
const CHUNKS_PER_BATCH: usize = 32;

impl<F: Fabric, E: Env> Store<F, E> {
    /// Does one object hold the value?
    pub(crate) fn fits_object(&self, key: Key<'_>, value: usize, expires: bool) -> bool {
        self.geometry.class_for(object_bytes(key.name.len(), value, expires)).is_some()
    }

    /// Writes the chunks of a value that no single object can hold and returns
    /// the body of their root; `None` for a value that needs none. The operation
    /// is pinned, and stays so while it has chunks that no slot leads to. 1 round
    /// trip per few MB.
    pub(crate) async fn write_chunks(
        &self,
        key: Key<'_>,
        value: &[u8],
        expires: bool,
    ) -> Result<Option<Vec<u8>>, Error> {
        if self.fits_object(key, value.len(), expires) {
            return Ok(None);
        }
        let chunk_bytes = self.geometry.chunk_value_bytes();
        let mut body = Vec::with_capacity(8 + value.len().div_ceil(chunk_bytes) * 8);
        body.extend_from_slice(&(value.len() as u64).to_le_bytes());
        let chunks: Vec<&[u8]> = value.chunks(chunk_bytes).collect();
        for group in chunks.chunks(CHUNKS_PER_BATCH) {
            if let Err(error) = self.write_group(key, group, &mut body).await {
                self.drop_chunks(Some(&body));
                return Err(error);
            }
        }
        Ok(Some(body))
    }

    async fn write_group(
        &self,
        key: Key<'_>,
        group: &[&[u8]],
        body: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let mut batch = self.fabric.batch();
        let name = self.hash(key).word().to_le_bytes();
        const _: () = assert!(CHUNK_KEY_BYTES == size_of::<u64>());
        for chunk in group {
            let content = Content {
                opcode: Opcode::Chunk,
                key: Key { database: key.database, name: &name },
                body: chunk,
                kind: Kind::String,
                expires_at_ms: None,
                chunked: false,
                over: None,
                transaction: None,
            };
            let made = self.draft(&mut batch, KeyHash::from_word(0), &content).await;
            let (draft, span) = match made {
                Ok(made) => made,
                Err(error) => {
                    // Those before it are going to be freed under generations
                    // that have to be in memory, too.
                    let batch = self.fabric.run(batch).await;
                    self.fabric.recycle(batch);
                    return Err(error);
                }
            };
            self.post_draft(&mut batch, &draft, span);
            body.extend_from_slice(&draft.word.word().to_le_bytes());
        }
        let batch = self.fabric.run(batch).await;
        for ticket in batch.tickets() {
            batch.done(ticket)?;
        }
        self.fabric.recycle(batch);
        Ok(())
    }

    /// Reads the value whose root has this body. 1 round trip per few MB.
    pub(crate) async fn read_chunks(&self, body: &[u8]) -> Result<Vec<u8>, Error> {
        const CORRUPT: Error = Error::Corrupt { what: "a list of chunks" };
        let (length, words) = parse(body).ok_or(CORRUPT)?;
        let mut value = Vec::with_capacity(length);
        let words: Vec<Slot> = words.collect::<Option<_>>().ok_or(CORRUPT)?;
        for group in words.chunks(CHUNKS_PER_BATCH) {
            let mut batch = self.fabric.batch();
            for word in group {
                batch.read(self.primary(word.address()), word.class().bytes());
            }
            let batch = self.fabric.run(batch).await;
            for (ticket, word) in batch.tickets().zip(group) {
                let chunk = Unverified::new(batch.bytes(ticket)?).verify(*word).ok_or(CORRUPT)?;
                value.extend_from_slice(chunk.body);
            }
            self.fabric.recycle(batch);
        }
        if value.len() == length { Ok(value) } else { Err(CORRUPT) }
    }

    /// Frees the chunks of a root that will not be used.
    pub(crate) fn drop_chunks(&self, body: Option<&[u8]>) {
        let Some((_, words)) = body.and_then(parse) else { return };
        for word in words.flatten() {
            self.release(word, false);
        }
    }
}

/// The length of a value and the words of its chunks.
pub(crate) fn parse(body: &[u8]) -> Option<(usize, impl Iterator<Item = Option<Slot>> + '_)> {
    let (length, words) = body.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    if length > VALUE_BYTES_MAX || !words.len().is_multiple_of(8) {
        return None;
    }
    let words = words.chunks_exact(8).map(|word| {
        let word = u64::from_le_bytes(word.try_into().expect("chunks of 8 bytes are 8 bytes"));
        Slot::from_word(word).filter(|slot| slot.is_live())
    });
    Some((length, words))
}
