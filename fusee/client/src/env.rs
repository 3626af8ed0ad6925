//! What the client asks of its surroundings besides memory: time and chance.

/// Clock, timer and randomness of one worker. The simulator has its own.
#[expect(
    async_fn_in_trait,
    reason = "an environment serves one thread, so futures need not be Send"
)]
pub trait Env {
    /// Milliseconds since the Unix epoch. May be cached for about a millisecond.
    fn now_ms(&self) -> u64;

    /// Waits about so long, letting others go on.
    async fn sleep_us(&self, us: u64);

    /// A random number, for back-off.
    fn random(&self) -> u64;
}
