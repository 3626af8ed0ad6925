//! What a mutation takes away from the protocol.

/// The protocol, or the protocol without one of its parts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Policy {
    /// The part that is missing.
    pub without: Option<Departure>,
}

impl Policy {
    /// The protocol as it is.
    pub const WHOLE: Self = Self { without: None };

    /// The protocol without this part.
    pub fn without(departure: Departure) -> Self {
        Self { without: Some(departure) }
    }
}

/// Parts of the protocol that the paper lacks or that look as if they could be
/// left out. (Versioned slots are the scenario's: its pool has few generations.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Departure {
    /// A loser finishes the winner's write.
    Helping,
    /// DELETE writes a tombstone; without, 0.
    Tombstones,
    /// An insert looks for its key in the other slot.
    DuplicateCheck,
    /// That look also minds tombstones that the primary does not hold yet.
    TombstonesInProgress,
    /// An insert's loser succeeds only if its key is what it lost to.
    InsertLoserLooks,
    /// That look is fenced behind the vote on the first backup.
    FencedCheck,
    /// A helper makes the duplicate check too.
    HelperChecks,
    /// Voters repair backups that lag behind an abandonment.
    LaggingBackups,
    /// After an abandonment the owner brings the backups along.
    BackupsFollow,
    /// Only the owner abandons an insert.
    OnlyOwnerAbandons,
    /// Rule 2 reads the primary before it adopts.
    PrimaryBeforeAdoption,
    /// A loser with a vote reads its own commit record.
    OwnRecord,
    /// It does so also when another word had a majority.
    OwnRecordDespiteMajority,
    /// The record is written before the primary moves.
    RecordFirst,
    /// The own record is read after the primary was seen to have moved.
    RecordsAfterPrimary,
    /// A loser judges by a winner only if that won its very round.
    WinnerOfMyRound,
    /// A tombstone that won an insert's round is an abandonment.
    AbandonmentIsNoWin,
    /// A delete that lost to a SET starts again.
    DeleteAfterSet,
    /// A conditional loser starts again.
    ConditionalLoser,
    /// A blind loser starts again if the winner was conditional.
    ConditionalWinner,
    /// A helper that may not commit starts again; without, it waits.
    HelperGivesWay,
    /// After a duplicate, an insert goes for the slot where that was.
    InsertWhereTheDuplicateWas,
    /// Freed memory is reused only after every operation under way has ended.
    GracePeriod,
    /// A tombstone's object is freed when the tombstone is replaced; without,
    /// when it is written.
    TombstonesKeepTheirObjects,
    /// One replica: an insert is tentative until it has looked for duplicates.
    TentativeMark,
}
