//! Whom capacity objects belong to: they go away with it (`--capacity-ownerref-level`, PROVISION-2.12).

use api::object::Owner as Reference;
use api::{Key, Kind, Meta, Scope};
use lifecycle::capacity::OwnedBy;
use runtime::client::Error;
use runtime::queue::Backoff;
use runtime::{Client, Stop};
use serde::Deserialize;

/// How far up from our pod the owner is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerLevel {
    /// Nobody owns the objects.
    None,
    /// There is no pod: the Node of this name, whose room is told.
    Node(String),
    /// The pod, or so many controllers above it.
    Above(u32),
}

/// Where to look for the owner.
#[derive(Debug, Clone)]
pub struct Owner {
    pub level: OwnerLevel,
    /// Our pod: namespace and name.
    pub pod: Key,
}

/// Any object, as far as its owners go.
#[derive(Debug, Deserialize)]
struct Owned {
    metadata: Meta,
}

#[derive(Debug, thiserror::Error)]
enum NoOwner {
    #[error("{what} cannot be read: {error}")]
    Unread { what: String, error: Error },
    #[error("{what} has no controller; give a lower --capacity-ownerref-level")]
    NoController { what: String },
    #[error(
        "the owner of {what} is a {kind}, above which this program does not look; give a lower --capacity-ownerref-level"
    )]
    Strange { what: String, kind: String },
}

impl Owner {
    /// The owner, asked for until there is an answer; `None` if we are told to stop first.
    pub(super) async fn find(&self, client: &Client, backoff: Backoff, stop: &Stop) -> Option<OwnedBy> {
        let mut pause = backoff.start;
        loop {
            let found = match &self.level {
                OwnerLevel::None => return Some(OwnedBy(None)),
                OwnerLevel::Node(name) => {
                    let read = read(client, Kind::NODE, &Key::cluster(name)).await;
                    read.map(|meta| reference(Kind::NODE, &meta))
                }
                OwnerLevel::Above(level) => self.climb(client, *level).await,
            };
            match found {
                Ok(owner) => return Some(OwnedBy(Some(owner))),
                Err(error) => tracing::error!(%error, "no owner for capacity objects; trying again"),
            }
            tokio::select! {
                biased;
                () = stop.stopped() => return None,
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(backoff.max),
            }
        }
    }

    async fn climb(&self, client: &Client, level: u32) -> Result<Reference, NoOwner> {
        let mut kind = Kind::POD;
        let mut meta = read(client, kind, &self.pod).await?;
        let mut reference = reference(kind, &meta);
        for step in 1..=level {
            let what = format!("{} {}", kind.kind, meta.key);
            reference = meta.controller().cloned().ok_or_else(|| NoOwner::NoController { what: what.clone() })?;
            // The last step is taken from the reference itself, which needs no right to read the owner.
            if step < level {
                let strange = || NoOwner::Strange { what, kind: reference.kind.to_string() };
                kind = kind_of(&reference).ok_or_else(strange)?;
                meta = read(client, kind, &self.pod.sibling(&reference.name)).await?;
            }
        }
        Ok(reference)
    }
}

async fn read(client: &Client, kind: Kind, key: &Key) -> Result<Meta, NoOwner> {
    let read = client.get::<Owned>(kind, key).await;
    read.map(|owned| owned.metadata).map_err(|error| NoOwner::Unread { what: format!("{} {key}", kind.kind), error })
}

fn reference(kind: Kind, meta: &Meta) -> Reference {
    Reference {
        api_version: kind.api_version().as_str().into(),
        kind: kind.kind.into(),
        name: meta.key.name().into(),
        uid: meta.uid.clone(),
        controller: true,
    }
}

/// The kinds that own pods and are owned in turn.
fn kind_of(owner: &Reference) -> Option<Kind> {
    let apps = |plural, kind| Kind::of("apps", "v1", plural, kind, Scope::Namespaced);
    let known = [
        apps("replicasets", "ReplicaSet"),
        apps("statefulsets", "StatefulSet"),
        apps("daemonsets", "DaemonSet"),
        apps("deployments", "Deployment"),
    ];
    known.into_iter().find(|kind| owner.kind == kind.kind && owner.api_version == kind.api_version().as_str())
}
