//! What a store does between operations.

use crate::store::Store;
use crate::{Env, Error};
use fusee_fabric::Fabric;
use std::time::Duration;

/// Between two ticks while memory is on its way to reuse.
const BUSY: Duration = Duration::from_millis(1);
/// Between two ticks of a store at rest. Others' memory waits for its counter,
/// so it has to tick all the same.
const IDLE: Duration = Duration::from_millis(10);
/// Objects with an end that one tick looks at.
const SWEEP_PER_TICK: usize = 64;

impl<F: Fabric, E: Env> Store<F, E> {
    /// Does what is due in the background: frees, the quiescent counter,
    /// reclamation, expiry, the memory of those who died. Returns when to call again. Some round trips, none
    /// of which an operation waits for.
    ///
    /// # Errors
    ///
    /// If a memory node is down or memory is corrupt; calling again goes on.
    pub async fn maintain(&self) -> Result<Duration, Error> {
        if self.maintaining.get() || self.hurrying.get() > 0 {
            return Ok(BUSY);
        }
        {
            let _alone = self.alone();
            self.reclaim().await?;
        }
        // Not alone: in a full pool a removal may have to reclaim by itself.
        let expired = self.sweep(SWEEP_PER_TICK).await?;
        let recovers = self.recover().await?;
        self.patrol().await?;
        let busy = expired > 0 || recovers || self.reclaimer.borrow().is_busy();
        Ok(if busy { BUSY } else { IDLE })
    }
}
