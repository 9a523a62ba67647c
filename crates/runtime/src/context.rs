//! What all controllers of a process share, and the only ways in which they write.

use std::sync::Arc;

use crate::client::{Deleted, Error, Preconditions};
use crate::events::{Recorder, Severity};
use crate::failed_writes::{WRITE_FAILED, may_look_again};
use crate::{Cache, Caches, Client, Clock, Entropy, Metrics, Patch, causes};
use api::{Key, Kind, Meta, Object};
use serde::Serialize;

use crate::handoff::Handoff;

/// What all controllers of a process share. Clones are the same.
#[derive(Debug, Clone)]
pub struct Context {
    pub client: Client,
    pub caches: Caches,
    /// Under the process's name; a controller takes its own with [`Recorder::named`].
    pub recorder: Recorder,
    pub metrics: Metrics,
    pub entropy: Entropy,
    pub clock: Arc<dyn Clock>,
    /// What the controllers of this process tell each other directly.
    pub handoff: Handoff,
}

/// What the server itself says about an object.
#[derive(Debug, Clone)]
pub enum Live<T> {
    Found(Arc<T>),
    Absent,
}

impl<T> Live<T> {
    /// The same, as decisions take it.
    pub fn lookup(&self) -> lifecycle::Lookup<'_, T> {
        match self {
            Live::Found(object) => lifecycle::Lookup::Found(object),
            Live::Absent => lifecycle::Lookup::Absent,
        }
    }
}

impl Context {
    /// The shared cache of a kind.
    pub fn cache<T: Object>(&self) -> Cache<T> {
        self.caches.of::<T>()
    }

    /// Asks the server for an object, past the cache, and lets the cache know the answer.
    pub async fn read<T: Object + Clone>(&self, key: &Key) -> Result<Live<T>, Error> {
        // What is known before the question: the answer may be older than what the cache learns while it is on its way.
        let before = self.cache::<T>().get(key);
        match self.client.get::<T>(T::KIND, key).await {
            Ok(object) => {
                let asked = object.clone();
                // The cache may know something newer; both are true answers, the newer one is better.
                let held = self.cache::<T>().wrote(object);
                let newer = held.filter(|held| held.meta().uid == asked.meta().uid);
                Ok(Live::Found(newer.unwrap_or_else(|| Arc::new(asked))))
            }
            Err(error) if error.is_not_found() => {
                if let Some(before) = before {
                    self.gone::<T>(before.meta());
                }
                Ok(Live::Absent)
            }
            Err(error) => Err(error),
        }
    }

    /// Changes an object and lets the cache know.
    pub async fn patch<T: Object>(&self, key: &Key, patch: &Patch) -> Result<Option<Arc<T>>, Error> {
        let object = self.client.patch::<T>(T::KIND, key, patch).await?;
        Ok(self.answered(object))
    }

    /// Changes an object's status and lets the cache know.
    pub async fn patch_status<T: Object>(&self, key: &Key, patch: &Patch) -> Result<Option<Arc<T>>, Error> {
        let object = self.client.patch_status::<T>(T::KIND, key, patch).await?;
        Ok(self.answered(object))
    }

    /// Takes the answer to a write. Whoever takes off the last finalizer of an object that is going ends it, and the answer
    /// is its last state; only a pod has time left after that.
    fn answered<T: Object>(&self, object: T) -> Option<Arc<T>> {
        let meta = object.meta();
        self.client.told().settled(&meta.uid);
        if meta.is_deleting() && meta.finalizers.is_empty() && T::KIND != Kind::POD {
            self.gone::<T>(meta);
            return None;
        }
        self.cache::<T>().wrote(object)
    }

    /// Stores a new object and lets the cache know.
    pub async fn create<T: Object>(
        &self,
        namespace: Option<&str>,
        body: &impl Serialize,
    ) -> Result<Option<Arc<T>>, Error> {
        let object = self.client.create::<T>(T::KIND, namespace, body).await?;
        Ok(self.cache::<T>().wrote(object))
    }

    /// Asks for an object's end and lets the cache know. That it was gone already is a success.
    pub async fn delete<T: Object>(&self, meta: &Meta) -> Result<(), Error> {
        match self.client.delete::<T>(&meta.key, &Preconditions::same(meta)).await {
            Ok(Deleted::Gone) => self.gone::<T>(meta),
            Ok(Deleted::Pending(object)) => drop(self.cache::<T>().wrote(object)),
            Err(error) if error.is_not_found() => self.gone::<T>(meta),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The object is surely gone: nothing late brings it back into the cache.
    pub fn gone<T: Object>(&self, meta: &Meta) {
        self.cache::<T>().deleted(&meta.key, &meta.uid);
    }

    /// After a write that failed: whatever the error leaves open is read, so that the next decision is about the truth.
    ///
    /// `Ok` means "decide again now", which a pass gets at most [`LOOKS`](crate::failed_writes::LOOKS) times per object. An
    /// error means that the pass has to end, and that users were told on the object itself if it is there.
    pub async fn reconsider<T: Object + Clone>(&self, key: &Key, error: Error) -> Result<(), Error> {
        if !error.is_unsettled() || !may_look_again(T::KIND, key) {
            if let Some(object) = self.cache::<T>().get(key) {
                self.tell_failed_write(&*object, &error);
            }
            return Err(error);
        }
        self.read::<T>(key).await.map(drop)
    }

    /// Records the event about a write that failed on the object that it was for. A server that cannot be reached, or asks us to
    /// slow down, takes no events either.
    pub fn tell_failed_write<T: Object>(&self, object: &T, error: &Error) {
        if matches!(error, Error::Unavailable { .. } | Error::TooMany { .. }) {
            return;
        }
        let message = format!("Writing it fails and is repeated with growing pauses: {}", causes(error));
        if self.client.told().is_news(&object.meta().uid, &message) {
            self.recorder.record(object, Severity::Warning, WRITE_FAILED, &message);
        }
    }
}
