//! Orphans that are not what they were when the walk saw them.

use super::*;
use crate::Key;
use crate::testing::{pool, rest, run, store};

const SMALL: Key<'_> = Key { database: 0, name: b"small" };
const LARGE: Key<'_> = Key { database: 0, name: b"large" };

#[test]
fn an_orphan_that_became_another_class_meanwhile_keeps_what_is_in_it() {
    run(async {
        let pool = pool();
        let (first, walker) = (store(&pool).await, store(&pool).await);
        first.set(SMALL, b"1", None).await.unwrap();
        first.delete(SMALL).await.unwrap();
        rest(&[&first, &walker]).await;
        first.leave().await.unwrap();
        let mut patrol = Patrol::default();
        while patrol.orphans.is_empty() {
            walker.patrol_step(&mut patrol).await.unwrap();
        }
        let (block, seen) = *patrol.orphans.last().unwrap();
        // Somebody is faster: it goes back and holds a large value, which looks empty
        // to who takes it for small ones.
        let second = store(&pool).await;
        second.adopt_orphan(block).await.unwrap();
        rest(&[&second, &walker]).await;
        second.set(LARGE, &[0; 3000], None).await.unwrap();
        second.leave().await.unwrap();
        let entry = walker.class_of(block).await;
        assert!(entry.is_err(), "it is an orphan of another client");
        while !patrol.orphans.is_empty() {
            walker.patrol_step(&mut patrol).await.unwrap();
        }
        rest(&[&walker]).await;
        assert_ne!(walker.class_of(block).await.unwrap(), seen.class, "it was adopted as it is");
        let mut value = Vec::new();
        walker.read(&[LARGE], |_, entry| value = entry.unwrap().unwrap().value.to_vec()).await;
        assert_eq!(value, [0; 3000]);
    });
}
