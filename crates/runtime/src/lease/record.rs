//! The lease as it is on the wire, and the pure rules over it.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

/// What we last saw of the lease, and when that was by our own clock. The times inside it are for people: another
/// machine's clock decides nothing.
#[derive(Debug, Clone)]
pub(super) struct Observed {
    pub(super) lease: Lease,
    pub(super) at: Instant,
}

/// Whether we may try to take the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claimable {
    /// It is ours already.
    Ours,
    /// Nobody holds it, or nobody has renewed it for its whole duration.
    Free,
    /// Somebody holds it.
    Held,
}

impl Observed {
    /// Takes over a newer look at the lease. Only a change of its content restarts its time.
    pub(super) fn update(known: Option<Observed>, lease: Lease, now: Instant) -> Observed {
        match known {
            Some(known) if known.lease.spec == lease.spec => Observed { lease, at: known.at },
            _ => Observed { lease, at: now },
        }
    }

    pub(super) fn holder(&self) -> &str {
        self.lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
    }

    pub(super) fn claimable(&self, identity: &str, now: Instant) -> Claimable {
        let holder = self.holder();
        let seconds = self.lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or(0);
        let lasts = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        if holder == identity {
            Claimable::Ours
        } else if holder.is_empty() || self.at + lasts <= now {
            Claimable::Free
        } else {
            Claimable::Held
        }
    }

    pub(super) fn transitions(&self) -> i32 {
        self.lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or(0)
    }
}

/// What we write into the lease.
pub(super) struct Wish<'a> {
    pub(super) identity: &'a str,
    pub(super) duration: Duration,
    pub(super) labels: &'a BTreeMap<String, String>,
    pub(super) now: Timestamp,
}

impl Wish<'_> {
    /// A lease where there was none.
    pub(super) fn first(&self, namespace: &str, name: &str) -> Lease {
        let metadata = ObjectMeta {
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            labels: (!self.labels.is_empty()).then(|| self.labels.clone()),
            ..ObjectMeta::default()
        };
        Lease { metadata, spec: Some(self.spec(Some(self.now), 0)) }
    }

    /// The same lease, renewed or taken over.
    pub(super) fn over(&self, observed: &Observed) -> Lease {
        let mut lease = observed.lease.clone();
        let old = lease.spec.take().unwrap_or_default();
        let mut spec = if observed.holder() == self.identity {
            let acquired = old.acquire_time.map(|time| time.0);
            self.spec(acquired.or(Some(self.now)), observed.transitions())
        } else {
            self.spec(Some(self.now), observed.transitions().saturating_add(1))
        };
        spec.strategy = old.strategy;
        spec.preferred_holder = old.preferred_holder;
        lease.spec = Some(spec);
        let labels = self.labels.iter().map(|(key, value)| (key.clone(), value.clone()));
        lease.metadata.labels.get_or_insert_default().extend(labels);
        lease
    }

    /// The same lease without a holder: whoever comes next need not wait.
    pub(super) fn released(&self, observed: &Observed) -> Lease {
        let mut lease = self.over(observed);
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime(self.now));
            spec.acquire_time = Some(MicroTime(self.now));
        }
        lease
    }

    fn spec(&self, acquired: Option<Timestamp>, transitions: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.identity.to_owned()),
            lease_duration_seconds: Some(i32::try_from(self.duration.as_secs()).unwrap_or(i32::MAX)),
            acquire_time: acquired.map(MicroTime),
            renew_time: Some(MicroTime(self.now)),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }
}

/// A lock's name as the sidecars make it: what a name may not hold becomes `-`, and it does not end in one.
pub fn sanitise(name: &str) -> String {
    let mut name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' }).collect();
    if name.ends_with('-') {
        name.push('X');
    }
    name
}
