//! The beginning of objects, as recovery reads them: what a write was and of
//! which key, without knowing whether it was ever done.

use crate::store::Store;
use crate::{Env, Error, Key};
use fusee_fabric::Fabric;
use fusee_layout::{CHUNK_KEY_BYTES, KeyHash, LogEntry, Opcode, RECORD_BYTES, Slot, Unverified};

/// The log entry, the header and a key of usual length.
const HEAD_BYTES: usize = 128;
/// The log entry and the generation.
const ENTRY_BYTES: usize = 32;

/// What an object in use says of its write.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// Its live word; the fingerprint is that of the key.
    pub(crate) word: Slot,
    pub(crate) opcode: Opcode,
    pub(crate) hash: KeyHash,
    pub(crate) database: u8,
    /// Empty for a delete, which knows only the hash.
    pub(crate) name: Vec<u8>,
    pub(crate) chunked: bool,
    /// Its first bytes, for its commit record.
    pub(crate) first: [u8; RECORD_BYTES],
}

impl Head {
    /// The word that stays in the slot once the write is done.
    pub(crate) fn new_word(&self) -> Slot {
        if self.opcode.is_delete() { self.word.tombstone() } else { self.word }
    }

    /// The word that the write's round is about.
    pub(crate) fn offered_word(&self) -> Slot {
        if self.opcode.is_intent() { self.word.prepared() } else { self.new_word() }
    }

    pub(crate) fn is_transaction(&self) -> bool {
        self.opcode == Opcode::Transaction
    }

    pub(crate) fn key(&self) -> Key<'_> {
        Key { database: self.database, name: &self.name }
    }

    pub(crate) fn is_chunk(&self) -> bool {
        self.opcode == Opcode::Chunk
    }
}

impl<F: Fabric, E: Env> Store<F, E> {
    /// The heads of these objects, whatever the fingerprint in their words; `None`
    /// for one of another generation, or that was never written whole as far as
    /// can be seen. 1 round trip; 2 if there are long keys.
    pub(crate) async fn read_heads(&self, words: &[Slot]) -> Result<Vec<Option<Head>>, Error> {
        let mut heads = vec![None; words.len()];
        let mut numbers: Vec<usize> = (0..words.len()).collect();
        let mut most = HEAD_BYTES;
        while !numbers.is_empty() {
            let mut batch = self.fabric.batch();
            for &number in &numbers {
                let word = words[number];
                batch.read(self.primary(word.address()), word.class().bytes().min(most));
            }
            let batch = self.fabric.run(batch).await;
            let mut longer = Vec::new();
            for (ticket, &number) in batch.tickets().zip(&numbers) {
                let bytes = batch.bytes(ticket)?;
                heads[number] = self.parse_head(bytes, words[number]);
                if heads[number].is_none() && bytes.len() < words[number].class().bytes() {
                    longer.push(number);
                }
            }
            self.fabric.recycle(batch);
            numbers = longer;
            most = usize::MAX;
        }
        Ok(heads)
    }

    fn parse_head(&self, bytes: &[u8], word: Slot) -> Option<Head> {
        let prefix = Unverified::new(bytes).prefix(word)?;
        let opcode = LogEntry::parse(bytes)?.opcode;
        let (hash, name) = match opcode {
            Opcode::Delete | Opcode::Take => {
                let record = Unverified::new(bytes).verify(word)?;
                (KeyHash::from_word(u64::from_le_bytes(record.body.try_into().ok()?)), &[][..])
            }
            Opcode::Chunk => {
                let hash: [u8; CHUNK_KEY_BYTES] = prefix.key.try_into().ok()?;
                (KeyHash::from_word(u64::from_le_bytes(hash)), &[][..])
            }
            Opcode::Transaction => (KeyHash::from_word(0), &[][..]),
            Opcode::Set | Opcode::Update | Opcode::Prepare | Opcode::Keep | Opcode::Remove => {
                (self.hasher.hash(prefix.meta.database, prefix.key), prefix.key)
            }
        };
        // Chunks are in no slot, so they have no fingerprint.
        let fingerprint = if opcode == Opcode::Chunk { 0 } else { hash.fingerprint() };
        Some(Head {
            word: Slot::live(fingerprint, word.class(), word.generation(), word.address()),
            opcode,
            hash,
            database: prefix.meta.database,
            name: name.to_vec(),
            chunked: prefix.meta.chunked,
            first: bytes[..RECORD_BYTES].try_into().ok()?,
        })
    }

    /// The live words that these objects say they have replaced, or were about to
    /// (r = 1); none for one that says nothing. 1 round trip.
    pub(crate) async fn read_replaced(&self, words: &[Slot]) -> Result<Vec<Slot>, Error> {
        let mut batch = self.fabric.batch();
        for word in words {
            batch.read(self.primary(word.address()), ENTRY_BYTES);
        }
        if batch.is_empty() {
            self.fabric.recycle(batch);
            return Ok(Vec::new());
        }
        let batch = self.fabric.run(batch).await;
        let mut replaced = Vec::new();
        for (ticket, &word) in batch.tickets().zip(words) {
            let record = Unverified::new(batch.bytes(ticket)?).record(word);
            let old = record.and_then(|(old, _)| Slot::from_word(old));
            replaced.extend(old.filter(|old| old.leads()).map(Slot::alive));
        }
        self.fabric.recycle(batch);
        Ok(replaced)
    }
}
