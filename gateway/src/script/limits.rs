//! When a run ends, whatever its script does.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use mlua::{HookTriggers, Lua, VmState};

use super::store::ProgramKind;
use crate::shared::Shared;

/// Instructions after which it is looked whether a script shall end.
pub(super) const INSTRUCTIONS_PER_LOOK: u32 = 20_000;
/// What ends a run that has to begin anew.
pub(super) const GIVEN_UP: &str = "the script is run again";
pub(super) const KILLED: &str = "Script killed by user with SCRIPT KILL.";

/// When the run that is under way ends, whatever the script does.
pub(super) struct Limits {
    pub(super) shared: Arc<Shared>,
    pub(super) clock: quanta::Clock,
    /// Does nobody wait for it any more?
    pub(super) abandoned: Arc<AtomicBool>,
    /// Does it begin anew?
    pub(super) given_up: Cell<bool>,
    /// When it is too slow for where it runs.
    pub(super) until: Cell<Option<quanta::Instant>>,
    pub(super) too_slow: Cell<bool>,
    pub(super) killed: Cell<bool>,
    /// What runs.
    pub(super) kind: Cell<ProgramKind>,
    /// Does every instruction fail? Then no `pcall` keeps it alive.
    pub(super) ending: Cell<bool>,
}

impl Limits {
    /// Why the run ends.
    fn reason(&self) -> Option<&'static str> {
        if self.until.get().is_some_and(|until| self.clock.now() > until) {
            self.too_slow.set(true);
        }
        if self.given_up.get() || self.too_slow.get() {
            return Some(GIVEN_UP);
        }
        if self.abandoned.load(Relaxed) {
            return Some(GIVEN_UP);
        }
        if self.shared.scripts.is_killed(self.kind.get()) {
            self.killed.set(true);
        }
        self.killed.get().then_some(KILLED)
    }
}

/// Looks now and then whether a run shall end.
pub(super) fn watch(lua: &Lua, limits: &Rc<Limits>, instructions: u32) -> mlua::Result<()> {
    let triggers = HookTriggers::new().every_nth_instruction(instructions);
    let limits = limits.clone();
    lua.set_global_hook(triggers, move |lua, _| {
        let Some(reason) = limits.reason() else { return Ok(VmState::Continue) };
        if !limits.ending.replace(true) {
            watch(lua, &limits, 1)?;
        }
        Err(mlua::Error::runtime(reason))
    })
}
