//! The store: one worker's way to the keys of a pool.

use crate::alloc::{Allocator, BlockAudit};
use crate::cache::IndexCache;
use crate::epoch::Epochs;
use crate::index::{Directory, Place, PlaceRead, ReadError, View};
use crate::patrol::Patrol;
use crate::read::Scratch;
use crate::reclaim::Reclaimer;
use crate::recover::Recoverer;
use crate::series::Member;
use crate::stats::Stats;
use crate::sweep::{Expired, Sweep};
use crate::{DATABASES, Env, Error, Key};
use fusee_fabric::{Batch, Fabric, NodeDown};
use fusee_layout::message::{Refusal, Request, Response};
use fusee_layout::{Address, Class, Geometry, KeyHash, KeyHasher, NodeAddress};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// How a store uses its own machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreConfig {
    /// Entries of the index cache, 16 bytes each, up to the next power of two;
    /// 0 turns it off.
    pub index_cache_entries: usize,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self { index_cache_entries: 1 << 22 }
    }
}

/// One worker's way to the keys of a pool.
///
/// Operations take `&self` and may overlap on their thread. Each is
/// linearizable per key; its cost is told in round trips, that is fabric
/// batches, for r replicas without conflict.
pub struct Store<F, E> {
    pub(crate) fabric: F,
    pub(crate) env: E,
    pub(crate) geometry: Arc<Geometry>,
    pub(crate) hasher: KeyHasher,
    pub(crate) client: u32,
    pub(crate) index: u32,
    pub(crate) directory: RefCell<Directory>,
    pub(crate) cache: RefCell<IndexCache>,
    pub(crate) alloc: RefCell<Allocator>,
    pub(crate) reclaimer: RefCell<Reclaimer>,
    pub(crate) epochs: Epochs,
    pub(crate) sweep: Sweep,
    pub(crate) expired: Expired,
    /// Keys added less keys removed, by database.
    pub(crate) keys: [Cell<i64>; DATABASES as usize],
    /// The memory node to ask for the next block.
    pub(crate) next_node: Cell<u16>,
    pub(crate) scratch: RefCell<Vec<Scratch>>,
    pub(crate) members: RefCell<Vec<Vec<Member>>>,
    pub(crate) maintaining: Cell<bool>,
    /// Operations that wait for memory to come back.
    pub(crate) hurrying: Cell<u32>,
    pub(crate) recovery: RefCell<Recoverer>,
    pub(crate) patrol: RefCell<Patrol>,
    pub(crate) stats: Arc<Stats>,
}

/// Why a store could not join a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JoinError {
    /// A memory node does not answer.
    #[error("memory node {node} does not answer: is it running?")]
    NodeDown {
        /// Its number.
        node: u16,
    },
    /// The pool refuses.
    #[error("the pool refuses this client: {0}")]
    Refused(Refusal),
    /// The answer makes no sense.
    #[error("memory node 0 gave an answer that makes no sense")]
    Unexpected,
}

impl<F: Fabric, E: Env> Store<F, E> {
    /// Joins a pool. One control request.
    ///
    /// # Errors
    ///
    /// If the pool cannot be reached or does not take the client.
    pub async fn join(
        fabric: F,
        env: E,
        geometry: Arc<Geometry>,
        config: StoreConfig,
    ) -> Result<Self, JoinError> {
        let request = Request::Join { params: geometry.params };
        let (client, index) = match fabric.call(0, request).await {
            Ok(Response::Joined { client, index }) => (client, index),
            Ok(Response::Refused(refusal)) => return Err(JoinError::Refused(refusal)),
            Ok(_) => return Err(JoinError::Unexpected),
            Err(NodeDown { node }) => return Err(JoinError::NodeDown { node }),
        };
        let store = Self {
            hasher: KeyHasher::new(geometry.params.hash_seed),
            directory: RefCell::new(Directory::initial(&geometry)),
            cache: RefCell::new(IndexCache::new(config.index_cache_entries)),
            alloc: RefCell::new(Allocator::new(geometry.clone())),
            reclaimer: RefCell::default(),
            epochs: Epochs::new(),
            sweep: Sweep::default(),
            expired: Expired::default(),
            keys: Default::default(),
            next_node: Cell::new((client % u32::from(geometry.params.nodes)) as u16),
            scratch: RefCell::default(),
            members: RefCell::default(),
            maintaining: Cell::new(false),
            hurrying: Cell::new(0),
            recovery: RefCell::default(),
            patrol: RefCell::default(),
            stats: Arc::new(Stats { fabric: fabric.counters().clone(), ..Stats::default() }),
            fabric,
            env,
            geometry,
            client,
            index,
        };
        // From here on others wait for this client's counters before they use
        // memory again, so it may hold addresses.
        store
            .publish(store.epochs.now())
            .await
            .map_err(|e| JoinError::NodeDown { node: e.node })?;
        store.refresh_directory().await.map_err(|_| JoinError::Unexpected)?;
        Ok(store)
    }

    /// Leaves the pool: the store's blocks become orphans for others to adopt.
    /// Operations and maintenance must have ended for good.
    ///
    /// # Errors
    ///
    /// If a memory node is down or memory is corrupt; trying again goes on.
    pub async fn leave(&self) -> Result<(), Error> {
        while self.maintaining.get() {
            self.env.sleep_us(1000).await;
        }
        let _alone = self.alone();
        self.flush_frees().await?;
        // The memory nodes go by the key counts that are published.
        self.publish(self.epochs.now()).await?;
        self.offer_blocks().await?;
        for node in (0..self.geometry.params.nodes).rev() {
            self.fabric.call(node, Request::Leave { client: self.client }).await?;
        }
        Ok(())
    }

    /// What the store has done so far.
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// The fabric, for its counters.
    pub fn fabric(&self) -> &F {
        &self.fabric
    }

    /// The environment.
    pub fn env(&self) -> &E {
        &self.env
    }

    /// The pool's geometry.
    pub fn geometry(&self) -> &Arc<Geometry> {
        &self.geometry
    }

    /// The store's client id in the pool, from 1.
    pub fn client(&self) -> u32 {
        self.client
    }

    /// The store's blocks with the state of every object.
    pub fn audit(&self) -> Vec<BlockAudit> {
        let mut audit = self.alloc.borrow().audit();
        audit.extend(self.reclaimer.borrow().retiring().map(BlockAudit::of));
        audit
    }

    /// Words that were freed but not yet marked so in memory.
    pub fn audit_pending(&self) -> Vec<fusee_layout::Slot> {
        self.reclaimer.borrow().pending().collect()
    }

    pub(crate) fn replicas(&self) -> usize {
        self.geometry.placement.replicas()
    }

    pub(crate) fn primary(&self, address: Address) -> NodeAddress {
        self.geometry.placement.locate(address, 0)
    }

    pub(crate) fn hash(&self, key: Key<'_>) -> KeyHash {
        self.hasher.hash(key.database, key.name)
    }

    pub(crate) fn place(&self, hash: KeyHash) -> Place {
        self.directory.borrow().place(&self.geometry, hash)
    }

    /// READs the two combined buckets of a place in the primary, in a batch
    /// that may hold other verbs already.
    pub(crate) fn read_place(&self, batch: &mut Batch, place: &Place) -> PlaceRead {
        place.read(batch, |address| self.primary(address), false)
    }

    /// The view of a place whose READ is in `batch`. 1 more round trip, or a
    /// few, if the directory had to be read again.
    pub(crate) async fn view(
        &self,
        batch: &Batch,
        place: &mut Place,
        read: PlaceRead,
    ) -> Result<Box<View>, Error> {
        match place.view(batch, read) {
            Ok(view) => return Ok(view),
            Err(ReadError::Failed(error)) => return Err(error),
            Err(ReadError::Stale) => {}
        }
        for _ in 0..DIRECTORY_READS_MAX {
            self.refresh_directory().await?;
            *place = self.place(place.hash);
            let mut batch = self.fabric.batch();
            let read = self.read_place(&mut batch, place);
            let batch = self.fabric.run(batch).await;
            let view = place.view(&batch, read);
            self.fabric.recycle(batch);
            match view {
                Ok(view) => return Ok(view),
                Err(ReadError::Failed(error)) => return Err(error),
                Err(ReadError::Stale) => {}
            }
        }
        Err(Error::Corrupt { what: "buckets that no directory entry leads to" })
    }

    /// Reads the directory again. 1 round trip.
    pub(crate) async fn refresh_directory(&self) -> Result<(), Error> {
        let mut batch = self.fabric.batch();
        let at = NodeAddress { node: 0, offset: Geometry::directory_at(&self.geometry.params) };
        let read = batch.read(at, self.geometry.params.subtables as usize * 8);
        let batch = self.fabric.run(batch).await;
        let updated = match batch.words(read) {
            Ok(words) => self.directory.borrow_mut().update(&self.geometry, words),
            Err(down) => Err(down.into()),
        };
        self.fabric.recycle(batch);
        updated
    }

    /// Gets a block of a class from some memory node, starting with another
    /// one each time. 1 control request per node asked; an adopted block costs
    /// a round trip more.
    pub(crate) async fn acquire_block(
        &self,
        class: Class,
        reserve: bool,
        fresh: bool,
    ) -> Result<(), Error> {
        let nodes = self.geometry.params.nodes;
        let first = self.next_node.get();
        self.next_node.set((first + 1) % nodes);
        for node in (0..nodes).map(|n| (first + n) % nodes) {
            let request = Request::Allocate { client: self.client, class, reserve, fresh };
            match self.fabric.call(node, request).await {
                Ok(Response::Allocated { block, adopted }) => {
                    return self.take_block(block, class, adopted).await;
                }
                Ok(Response::Refused(Refusal::Full)) => {}
                // Another node may still serve; a full answer from none is an error.
                Err(NodeDown { node }) if nodes == 1 => return Err(Error::NodeDown { node }),
                Err(_) => {}
                Ok(_) => return Err(Error::Corrupt { what: "an answer to ALLOC" }),
            }
        }
        self.stats.full.add(1);
        Err(Error::Full)
    }
}

/// A directory changes rarely: more stale readings in a row than this mean
/// that buckets and directory contradict each other.
const DIRECTORY_READS_MAX: u32 = 8;

impl From<NodeDown> for Error {
    fn from(down: NodeDown) -> Self {
        Self::NodeDown { node: down.node }
    }
}
