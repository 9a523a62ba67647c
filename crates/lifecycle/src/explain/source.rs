//! Where a new volume's content comes from: a claim to clone or a snapshot to restore.

use std::fmt;

use api::{Amount, Claim, ClaimPhase, DataSource, Grant, Key, Kind, Snapshot};

use super::{Finding, Subject, Trail};
use crate::decision::{Lookup, Standing};

/// What is wrong with a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    Missing,
    Going,
    /// A claim without a volume has no content.
    Unbound,
    /// A snapshot that was not taken yet, and what its driver said.
    NotReady {
        error: Option<Box<str>>,
    },
    /// It holds more than the claim asks for.
    Larger {
        size: Amount,
    },
    /// The claim has another class or mode than its source.
    Unlike {
        what: &'static str,
    },
    /// It is in another namespace, and no grant lets the claim use it.
    Ungranted {
        namespace: Box<str>,
    },
    /// Neither a claim nor a snapshot: a populator has to fill the volume.
    Foreign,
}

impl Problem {
    pub(super) fn standing(&self) -> Standing {
        match self {
            Self::Missing | Self::Larger { .. } | Self::Unlike { .. } | Self::Ungranted { .. } | Self::Going => {
                Standing::Stuck
            }
            Self::Unbound | Self::NotReady { .. } | Self::Foreign => Standing::Waiting,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => write!(f, "which does not exist"),
            Self::Going => write!(f, "which is being deleted"),
            Self::Unbound => write!(f, "which has no volume itself yet"),
            Self::NotReady { error: None } => write!(f, "which is not ready to use yet"),
            Self::NotReady { error: Some(error) } => write!(f, "which is not ready to use: {error}"),
            Self::Larger { size } => write!(f, "which holds {size}, more than the claim asks for"),
            Self::Unlike { what } => write!(f, "whose {what} is not the claim's"),
            Self::Ungranted { namespace } => {
                write!(f, "in namespace {namespace:?}, where no ReferenceGrant lets this claim use it")
            }
            Self::Foreign => write!(f, "which no provisioner reads: a volume populator has to fill the volume"),
        }
    }
}

/// Adds what is wrong with the claim's source, if anything is.
pub(super) fn look(trail: &mut Trail<'_>, claim: &Claim) {
    let Some(source) = &claim.source else { return };
    let namespace = source.namespace.as_deref().unwrap_or(claim.namespace());
    let key = Key::namespaced(namespace, &source.name);
    let Some((kind, problem, evidence)) = problem(trail, claim, source, &key) else { return };
    let finding = Finding::Source { kind: source.kind.clone(), name: source.name.clone(), problem };
    trail.find(Subject::of(kind, &key), &finding, evidence);
}

/// Whether the content comes from something that no provisioner reads.
pub(super) fn is_foreign(claim: &Claim) -> bool {
    let read = [Kind::CLAIM, Kind::SNAPSHOT].map(|kind| (kind.group, kind.kind));
    claim.source.as_ref().is_some_and(|source| !read.contains(&(&*source.group, &*source.kind)))
}

type Found = (&'static str, Problem, Vec<String>);

fn problem(trail: &Trail<'_>, claim: &Claim, source: &DataSource, key: &Key) -> Option<Found> {
    let picture = trail.picture;
    let kind = match (&*source.group, &*source.kind) {
        (group, kind) if (group, kind) == (Kind::CLAIM.group, Kind::CLAIM.kind) => Kind::CLAIM,
        (group, kind) if (group, kind) == (Kind::SNAPSHOT.group, Kind::SNAPSHOT.kind) => Kind::SNAPSHOT,
        (group, _) => {
            let evidence = vec![format!("the source is of group {group:?} and kind {:?}", source.kind)];
            return Some(("DataSource", Problem::Foreign, evidence));
        }
    };
    let crosses = source.namespace.as_deref().is_some_and(|namespace| namespace != claim.namespace());
    if crosses && picture.grants.is_seen() && !picture.grants.items().iter().any(|grant| grants(grant, claim, source)) {
        let problem = Problem::Ungranted { namespace: key.namespace().unwrap_or_default().into() };
        return Some((kind.kind, problem, Vec::new()));
    }
    if kind == Kind::CLAIM {
        let found = picture.claim(key);
        let evidence = found.found().map(|held| format!("it is {} and of {}", held.phase.name(), size(held)));
        cloned(claim, found).map(|problem| (kind.kind, problem, evidence.into_iter().collect()))
    } else {
        let found = picture.snapshots.lookup(|snapshot| snapshot.meta.key == *key);
        let content = found.found().and_then(|snapshot| snapshot.content.as_ref());
        let evidence = content.map(|content| format!("it is bound to VolumeSnapshotContent {content:?}"));
        restored(claim, found).map(|problem| (kind.kind, problem, evidence.into_iter().collect()))
    }
}

fn size(claim: &Claim) -> &str {
    claim.status.capacity.as_ref().or(claim.request.as_ref()).map_or("unknown size", Amount::text)
}

/// What upstream refuses to clone (PROVISION-2.8).
fn cloned(claim: &Claim, source: Lookup<'_, Claim>) -> Option<Problem> {
    let source = match source {
        Lookup::Found(source) => source,
        Lookup::Absent => return Some(Problem::Missing),
        Lookup::NotCached => return None,
    };
    if source.meta.is_deleting() {
        return Some(Problem::Going);
    }
    if source.phase != ClaimPhase::Bound {
        return Some(Problem::Unbound);
    }
    if source.mode != claim.mode {
        return Some(Problem::Unlike { what: "volumeMode" });
    }
    let held = source.status.capacity.as_ref().or(source.request.as_ref());
    held.filter(|held| **held > claim.size()).map(|held| Problem::Larger { size: held.clone() })
}

fn restored(claim: &Claim, source: Lookup<'_, Snapshot>) -> Option<Problem> {
    let source = match source {
        Lookup::Found(source) => source,
        Lookup::Absent => return Some(Problem::Missing),
        Lookup::NotCached => return None,
    };
    if source.meta.is_deleting() {
        return Some(Problem::Going);
    }
    if !source.ready {
        return Some(Problem::NotReady { error: source.error.clone() });
    }
    let held = source.restore_size.as_ref();
    held.filter(|held| **held > claim.size()).map(|held| Problem::Larger { size: held.clone() })
}

/// Whether a grant lets a claim of another namespace use a source.
fn grants(grant: &Grant, claim: &Claim, source: &DataSource) -> bool {
    let from =
        grant.spec.from.iter().any(|from| {
            from.group.is_empty() && &*from.kind == Kind::CLAIM.kind && *from.namespace == *claim.namespace()
        });
    let to = grant.spec.to.iter().any(|to| {
        let named = to.name.as_deref().is_none_or(|name| name.is_empty() || name == &*source.name);
        to.group == source.group && to.kind == source.kind && named
    });
    from && to && grant.meta.key.namespace() == source.namespace.as_deref()
}
