//! One cache per kind and process, whoever asks for it.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use api::object::Object;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::mpsc;

use super::Cache;
use crate::client::{Client, Selection};
use crate::entropy::Entropy;
use crate::stop::Stop;

type Runner = Box<dyn FnOnce(Client, Entropy, Stop) -> BoxFuture<'static, ()> + Send>;
type Waiter = Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// All caches of a process. Clones are the same.
#[derive(Clone)]
pub struct Caches {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    entropy: Entropy,
    /// Only ever looked up, so that the order of type ids does not matter.
    held: Mutex<BTreeMap<(TypeId, Selection), Box<dyn Any + Send + Sync>>>,
    /// What of a kind this process looks at at all.
    narrowed: Mutex<BTreeMap<TypeId, Selection>>,
    waiters: Mutex<Vec<Waiter>>,
    new: mpsc::UnboundedSender<Runner>,
    /// Taken by [`Caches::run`].
    runners: tokio::sync::Mutex<mpsc::UnboundedReceiver<Runner>>,
}

impl fmt::Debug for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caches").field("client", &self.inner.client).finish_non_exhaustive()
    }
}

impl Caches {
    /// No caches yet.
    pub fn new(client: &Client, entropy: &Entropy) -> Caches {
        let (new, runners) = mpsc::unbounded_channel();
        Caches {
            inner: Arc::new(Inner {
                client: client.clone(),
                entropy: entropy.fork(),
                held: Mutex::default(),
                narrowed: Mutex::default(),
                waiters: Mutex::default(),
                new,
                runners: tokio::sync::Mutex::new(runners),
            }),
        }
    }

    /// The cache of all objects of a kind, or of what it was narrowed to; its watch starts with the first who asks.
    pub fn of<T: Object>(&self) -> Cache<T> {
        let narrowed = self.inner.narrowed.lock().unwrap_or_else(PoisonError::into_inner);
        let selection = narrowed.get(&TypeId::of::<T>()).cloned().unwrap_or_default();
        drop(narrowed);
        self.selected(selection)
    }

    /// From now on [`Caches::of`] gives only these objects of a kind: a process on one node of thousands has no use for the
    /// others. Say so before anybody asks for the kind.
    pub fn narrow<T: Object>(&self, selection: Selection) {
        let mut narrowed = self.inner.narrowed.lock().unwrap_or_else(PoisonError::into_inner);
        narrowed.insert(TypeId::of::<T>(), selection);
    }

    /// The cache of some objects of a kind.
    pub fn selected<T: Object>(&self, selection: Selection) -> Cache<T> {
        let mut held = self.inner.held.lock().unwrap_or_else(PoisonError::into_inner);
        let id = (TypeId::of::<T>(), selection.clone());
        if let Some(cache) = held.get(&id).and_then(|cache| cache.downcast_ref::<Cache<T>>()) {
            return cache.clone();
        }
        let cache = Cache::<T>::new(selection);
        held.insert(id, Box::new(cache.clone()));
        let waiter = cache.clone();
        let wait: Waiter = Box::new(move || {
            let cache = waiter.clone();
            Box::pin(async move { cache.synced().await })
        });
        self.inner.waiters.lock().unwrap_or_else(PoisonError::into_inner).push(wait);
        let runner = cache.clone();
        let run: Runner =
            Box::new(move |client, entropy, stop| Box::pin(async move { runner.run(&client, &entropy, &stop).await }));
        // The receiver lives in `self`.
        let _ = self.inner.new.send(run);
        cache
    }

    /// Waits until every cache that was asked for has been complete once.
    pub async fn synced(&self) {
        let waits: Vec<_> = {
            let waiters = self.inner.waiters.lock().unwrap_or_else(PoisonError::into_inner);
            waiters.iter().map(|wait| wait()).collect()
        };
        for wait in waits {
            wait.await;
        }
    }

    /// Runs all caches, also those asked for later, until `stop`. Call it once.
    pub async fn run(&self, stop: &Stop) {
        let Inner { client, entropy, runners, .. } = &*self.inner;
        let mut runners = runners.lock().await;
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                () = stop.stopped() => break,
                Some(run) = runners.recv() => running.push(run(client.clone(), entropy.fork(), stop.clone())),
                Some(()) = running.next(), if !running.is_empty() => {}
            }
        }
        while running.next().await.is_some() {}
    }
}
