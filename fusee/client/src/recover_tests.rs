//! What recovery takes for garbage, object by object.

use super::*;
use crate::Key;
use crate::draft::{Content, Draft};
use crate::testing::{TestStore, pool, rest, run, store};
use fusee_layout::Opcode;

const KEY: Key<'_> = Key { database: 0, name: b"key" };

/// An object that is written and that nothing leads to.
async fn unnamed(store: &TestStore) -> Draft {
    let content = Content {
        opcode: Opcode::Set,
        key: KEY,
        body: b"value",
        kind: crate::Kind::String,
        expires_at_ms: None,
        chunked: false,
        over: None,
        transaction: None,
    };
    let mut batch = store.fabric.batch();
    let (draft, span) = store.draft(&mut batch, store.hash(KEY), &content).await.unwrap();
    store.post_draft(&mut batch, &draft, span);
    let batch = store.fabric.run(batch).await;
    batch.writes_done().unwrap();
    draft
}

async fn is_in_use(store: &TestStore, word: Slot) -> bool {
    !store.unnamed(&[word]).await.unwrap().is_empty()
}

async fn watched(store: &TestStore, word: Slot) -> Recovery {
    let mut recovery = store.recovery_of(1);
    recovery.suspects.push(word);
    store.watch_suspects(&mut recovery).await.unwrap();
    assert_eq!(recovery.watched.len(), 1);
    recovery
}

#[test]
fn what_was_unnamed_twice_is_freed() {
    run(async {
        let pool = pool();
        let (writer, recoverer) = (store(&pool).await, store(&pool).await);
        let word = unnamed(&writer).await.word;
        let mut recovery = watched(&recoverer, word).await;
        recoverer.free_suspects(&mut recovery).await.unwrap();
        assert!(!is_in_use(&recoverer, word).await);
    });
}

#[test]
fn what_is_written_in_another_turn_of_the_block_is_another_object() {
    run(async {
        let pool = pool();
        let (writer, recoverer) = (store(&pool).await, store(&pool).await);
        let first = unnamed(&writer).await;
        let mut recovery = watched(&recoverer, first.word).await;
        writer.release_lost(&first);
        rest(&[&writer, &recoverer]).await;
        writer.return_blocks(true).await.unwrap();
        let next = store(&pool).await;
        let second = unnamed(&next).await;
        assert_eq!(second.word, first.word, "the block went back, and generations begin anew");
        recoverer.free_suspects(&mut recovery).await.unwrap();
        assert!(is_in_use(&recoverer, second.word).await);
    });
}
