//! Protect: puts protecting finalizers on claims, volumes and attributes classes, and takes them off when nobody uses the
//! object any more (PROTECT-8). What "uses" means is decided in [`lifecycle::protect`].
//!
//! # Invariants
//! 1. A claim is let go only after a list of pods from the server that was asked for after the claim's deletion had been
//!    seen (CTRL-I20). Claims of one namespace that wait share a list, and none of them was seen deleted after the list
//!    was asked for (CTRL-14.52).
//! 2. A finalizer is put on or taken off at the revision that was decided about (CTRL-I21), so that whatever happens
//!    meanwhile makes the write fail, and the decision is made again. A finalizer is therefore never put on an object
//!    that is on its way out.
//! 3. Whoever a list from the server shows as a user is in the cache afterwards, so that his end is heard of, even if it
//!    falls into a gap of the watch.
//!
//! The three parts wait for their own caches only: a cluster that does not serve attributes classes still protects claims.

mod claims;
mod classes;
mod finalizer;
mod live;
mod volumes;

use std::time::Duration;

use futures_util::future::join3;
use runtime::Stop;
use runtime::queue::Backoff;

use crate::Context;
use claims::Claims;
use classes::Classes;
use volumes::Volumes;

/// How often one object is decided about in a row before others get their turn.
const ROUNDS: usize = 16;
/// When to ask the server again about users that it showed and the cache does not have.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const BACKOFF: Backoff = Backoff { start: Duration::from_millis(500), max: Duration::from_secs(120) };

/// How protection works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How many objects of a kind are worked on at once.
    pub workers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { workers: 16 }
    }
}

/// The three protection controllers.
#[derive(Debug)]
pub struct Protector {
    claims: Claims,
    volumes: Volumes,
    classes: Classes,
}

impl Protector {
    pub fn new(context: &Context, options: Options) -> Self {
        Self {
            claims: Claims::new(context, options),
            volumes: Volumes::new(context, options),
            classes: Classes::new(context, options),
        }
    }

    /// Protects until `stop`.
    pub async fn run(&self, stop: &Stop) {
        join3(self.claims.run(stop), self.volumes.run(stop), self.classes.run(stop)).await;
    }
}
