//! What a mutation takes away from the protocol.

/// Parts of the protocol that look as if they could be left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// A commitment counts only when all copies hold it.
    AllCopies,
    /// A backup of a decision is brought along by a CAS of which the outcome counts.
    BackupByCas,
    /// Keys that are only read get intents too; without, they are read again
    /// before the decision.
    IntentsOfReads,
    /// An abortion puts a fresh copy of the old value; without, its own word.
    AbortCopies,
    /// A blind write that lost to a prepared word starts again.
    AgainAfterPrepared,
    /// The owner frees what it replaced after its intents are finished.
    FinishBeforeFree,
    /// A transaction that only reads looks again at decisions, not only at words.
    DecisionsAgain,
    /// A writer has the transaction aborted before it puts the old value back.
    DecideBeforeFinish,
    /// Recovery finishes the prepared words that it comes across before it takes
    /// an object for garbage.
    RecoveryFinishes,
    /// Recovery frees what nothing leads to after a grace period.
    RecoveryWaits,
}
