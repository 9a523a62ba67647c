//! What drives any step of a volume's life.
//!
//! | Module | What it does |
//! |---|---|
//! | [`client`] | typed calls to the Kubernetes API; an answer that was lost is a value of its own |
//! | [`cache`] | one watch per kind and process, indexes, and what we wrote ourselves |
//! | [`queue`] | keys to work on: once at a time, with backoff |
//! | [`failed_writes`] | how often a pass looks again at once after a write that failed, and when users hear of it |
//! | [`lease`] | who leads; work stops before somebody else may start |
//! | [`events`] | what happened, told to users without flooding them |
//! | [`csi`] | a driver on a socket that may be absent, slow or restarted |
//! | [`metrics`], [`health`], [`work`] | what operators see: numbers, whether all is well, what a line of the log is about |
//! | [`stop`], [`time`], [`entropy`] | the end, the clock and chance, each as an argument |
//! | [`context`] | all of the above for one process, and the only ways in which its parts write |
//! | [`notices`], [`handoff`] | what the parts of a process tell users, and each other |
//! | [`args`] | the flags that all programs of this kind share |
//!
//! # Invariants
//! 1. Nothing here spawns a task or a thread. Everything that runs is a future the caller polls, so that dropping it is
//!    the same as a crash, and a simulator can do that at any point.
//! 2. Time comes from tokio or from [`time::Clock`], chance from [`entropy::Entropy`]. On a paused runtime with a seed
//!    two runs are the same.
//! 3. Nothing iterates in an order that depends on memory addresses or hashes.
//!
//! # Must never know
//! What a claim or a volume means. Decisions live in `lifecycle`, of which only the shape of a reason is used here; what
//! acts on them is in `control` and `node`.

pub mod args;
pub mod cache;
mod causes;
pub mod client;
pub mod context;
pub mod csi;
pub mod entropy;
pub mod events;
pub mod failed_writes;
#[cfg(test)]
mod fake;
pub mod handoff;
pub mod health;
mod keys;
pub mod lease;
pub mod metrics;
pub mod notices;
pub mod queue;
pub mod stop;
pub mod time;
pub mod watch;
pub mod work;

pub use api::object::{Key, Kind, Meta, Object, Revision, Uid};
pub use cache::{Cache, Caches, Change, Index, Lookup, Subscription, Want};
pub use causes::causes;
pub use client::{Client, Patch};
pub use context::{Context, Live};
pub use entropy::Entropy;
pub use metrics::Metrics;
pub use notices::Notices;
pub use queue::{Queue, Verdict};
pub use stop::{Stop, Stopper};
pub use time::Clock;

#[cfg(test)]
mod tests {
    use super::*;

    fn is_send<T: Send>(_: &T) {}

    /// The program may run these on any thread; a guard held over an await would forbid it.
    #[tokio::test(start_paused = true)]
    async fn everything_that_runs_may_move_between_threads() {
        let fake = fake::Fake::new();
        let (client, entropy, stop) = (fake.client(), Entropy::seeded(1), Stop::never());
        let metrics = Metrics::new(&time::SystemClock);
        let cache = Cache::<fake::Thing>::new(client::Selection::default());
        is_send(&cache.run(&client, &entropy, &stop));
        is_send(&Caches::new(&client, &entropy).run(&stop));
        let queue = Queue::<Key>::new("q", queue::Backoff::default(), &metrics, &entropy);
        is_send(&queue::run(&queue, 1, &stop, async |_| Verdict::Done));
        let clock: std::sync::Arc<dyn Clock> = std::sync::Arc::new(time::SystemClock);
        let (_, writer) = events::channel("c", "i", clock.clone(), &metrics, &entropy);
        is_send(&writer.run(&client, &stop));
        let options = lease::Options::new("n", "l", "i");
        let elector = lease::Elector::new(&client, clock, &entropy, &metrics, options).unwrap();
        is_send(&elector.run(&stop, async |_| {}));
        let endpoint: ::csi::Endpoint = "unix:///nowhere".parse().unwrap();
        let driver = csi::Driver::new(endpoint, csi::Options::default(), &metrics);
        is_send(&driver.run(&stop));
    }
}
