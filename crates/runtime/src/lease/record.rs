//! The lease as it is on the wire, and the pure rules over it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use api::keys::annotation::LEASE_RENEWAL;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;

/// What we last saw of the lease, and when that was by our own clock of boot time. The times inside it are for people:
/// another machine's clock decides nothing.
#[derive(Debug, Clone)]
pub(super) struct Observed {
    pub(super) lease: Lease,
    pub(super) at: Duration,
}

/// More unanswered renewals than this are not remembered; a lease that is renewed as often without an answer has ended.
const UNANSWERED: usize = 1024;

/// The renewals that this process wrote, by their marks. The identity alone does not prove that a renewal is ours: a copy
/// of this running machine has the same one.
#[derive(Debug, Default)]
pub(super) struct OwnRenewals {
    answered: Option<String>,
    /// Sent after the answered one; any of them may be the lease's last.
    unanswered: VecDeque<String>,
}

impl OwnRenewals {
    pub(super) fn sending(&mut self, mark: String) {
        if self.unanswered.len() == UNANSWERED {
            self.unanswered.pop_front();
        }
        self.unanswered.push_back(mark);
    }

    /// The server has stored the last one that was sent.
    pub(super) fn stored(&mut self) {
        self.answered = self.unanswered.pop_back();
        self.unanswered.clear();
    }

    fn wrote(&self, mark: &str) -> bool {
        self.answered.as_deref() == Some(mark) || self.unanswered.iter().any(|sent| sent == mark)
    }
}

/// Whether we may try to take the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claimable {
    /// It is ours already.
    Ours,
    /// Nobody holds it, or nobody has renewed it for its whole duration.
    Free,
    /// Another identity holds it.
    Held,
    /// Our identity holds it, and its last renewal is not ours: a copy of this machine runs elsewhere.
    HeldByCopy,
}

impl Observed {
    /// Takes over a newer look at the lease. Only a change of its content restarts its time.
    pub(super) fn update(known: Option<Observed>, lease: Lease, now: Duration) -> Observed {
        let seen = Observed { lease, at: now };
        match known {
            Some(known) if known.lease.spec == seen.lease.spec && known.mark() == seen.mark() => {
                Observed { at: known.at, ..seen }
            }
            _ => seen,
        }
    }

    fn mark(&self) -> &str {
        let annotations = self.lease.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get(LEASE_RENEWAL.text())).map(String::as_str).unwrap_or_default()
    }

    /// Whether we hold the lease: our identity is in it, and its last renewal is one that we wrote.
    pub(super) fn is_ours(&self, identity: &str, own: &OwnRenewals) -> bool {
        self.holder() == identity && own.wrote(self.mark())
    }

    pub(super) fn holder(&self) -> &str {
        self.lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
    }

    pub(super) fn claimable(&self, identity: &str, own: &OwnRenewals, now: Duration) -> Claimable {
        let holder = self.holder();
        let seconds = self.lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or(0);
        let lasts = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        if self.is_ours(identity, own) {
            Claimable::Ours
        } else if holder.is_empty() || self.at + lasts <= now {
            Claimable::Free
        } else if holder == identity {
            Claimable::HeldByCopy
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
    /// The mark of this write.
    pub(super) mark: &'a str,
}

/// Whether a write goes on holding the lease, or takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taking {
    Renewal,
    Takeover,
}

impl Wish<'_> {
    /// A lease where there was none.
    pub(super) fn first(&self, namespace: &str, name: &str) -> Lease {
        let metadata = ObjectMeta {
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            labels: (!self.labels.is_empty()).then(|| self.labels.clone()),
            annotations: Some(BTreeMap::from([self.annotation()])),
            ..ObjectMeta::default()
        };
        Lease { metadata, spec: Some(self.spec(Some(self.now), 0)) }
    }

    /// The same lease, renewed or taken over.
    pub(super) fn over(&self, observed: &Observed, taking: Taking) -> Lease {
        let mut lease = observed.lease.clone();
        let old = lease.spec.take().unwrap_or_default();
        let mut spec = match taking {
            Taking::Renewal => {
                let acquired = old.acquire_time.map(|time| time.0);
                self.spec(acquired.or(Some(self.now)), observed.transitions())
            }
            Taking::Takeover => self.spec(Some(self.now), observed.transitions().saturating_add(1)),
        };
        spec.strategy = old.strategy;
        spec.preferred_holder = old.preferred_holder;
        lease.spec = Some(spec);
        let labels = self.labels.iter().map(|(key, value)| (key.clone(), value.clone()));
        lease.metadata.labels.get_or_insert_default().extend(labels);
        lease.metadata.annotations.get_or_insert_default().extend([self.annotation()]);
        lease
    }

    /// The same lease without a holder: whoever comes next need not wait.
    pub(super) fn released(&self, observed: &Observed) -> Lease {
        let mut lease = self.over(observed, Taking::Renewal);
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime(self.now));
            spec.acquire_time = Some(MicroTime(self.now));
        }
        lease
    }

    fn annotation(&self) -> (String, String) {
        (LEASE_RENEWAL.text().to_owned(), self.mark.to_owned())
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
