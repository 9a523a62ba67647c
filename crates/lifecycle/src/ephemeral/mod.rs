//! Ephemeral volumes: claims that are made for a pod and go with it (PROTECT-9).

use std::fmt;

use api::{Claim, Pod, PodSource, PodVolume};

use crate::decision::{Decision, Lookup, Notice, Reason, Standing};

/// What to do for one volume of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Ask the server for the claim, then decide again. No write.
    ReadClaim { name: Box<str> },
    /// Make the claim from the pod's template, owned by the pod.
    Create { name: Box<str> },
}

/// Why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Because {
    /// PROTECT-EV1: the pod goes, and its claims with it.
    PodGoing,
    /// PROTECT-EV2.
    Exists {
        claim: Box<str>,
    },
    /// PROTECT-EV3: a claim of that name is somebody else's.
    NotOwned {
        claim: Box<str>,
        volume: Box<str>,
        pod: Box<str>,
        namespace: Box<str>,
    },
    /// PROTECT-EV4.
    Missing {
        claim: Box<str>,
    },
    CacheMayLag {
        claim: Box<str>,
    },
    /// Not an ephemeral volume at all.
    NotEphemeral,
}

pub type Verdict = Decision<Action, Because>;

/// Says what to do for one volume of a pod. One bad volume does not hold up its siblings (CTRL-14.56).
pub fn decide(pod: &Pod, volume: &PodVolume, claim: Lookup<'_, Claim>) -> Verdict {
    if !matches!(volume.source, PodSource::Ephemeral { .. }) {
        return Decision::rest(Because::NotEphemeral);
    }
    if pod.meta.is_deleting() {
        return Decision::rest(Because::PodGoing);
    }
    let name = pod.ephemeral_claim(volume);
    match claim {
        Lookup::Found(claim) if owned(claim, pod) => Decision::rest(Because::Exists { claim: name }),
        Lookup::Found(_) => Decision::rest(Because::NotOwned {
            claim: name,
            volume: volume.name.clone(),
            pod: pod.name().into(),
            namespace: pod.namespace().into(),
        }),
        Lookup::NotCached => Decision::act(Because::CacheMayLag { claim: name.clone() }, Action::ReadClaim { name }),
        Lookup::Absent => Decision::act(Because::Missing { claim: name.clone() }, Action::Create { name }),
    }
}

/// Whether a claim was made for this very pod. Everybody who uses one has to ask.
pub fn owned(claim: &Claim, pod: &Pod) -> bool {
    claim.namespace() == pod.namespace() && claim.meta.controller().is_some_and(|owner| owner.uid == pod.meta.uid)
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PodGoing => write!(f, "the pod is being deleted"),
            Self::Exists { claim } => write!(f, "claim {claim:?} was made for the pod"),
            Self::NotOwned { claim, volume, pod, namespace } => write!(
                f,
                "ephemeral volume {volume}: PVC {namespace}/{claim} was not created for pod {namespace}/{pod} (pod is not owner)"
            ),
            Self::Missing { claim } => write!(f, "claim {claim:?} has to be made for the pod"),
            Self::CacheMayLag { claim } => write!(f, "claim {claim:?} is not in the cache, which may lag"),
            Self::NotEphemeral => write!(f, "the volume is not made for the pod"),
        }
    }
}

impl Reason for Because {
    fn code(&self) -> &'static str {
        match self {
            Self::PodGoing => "pod_going",
            Self::Exists { .. } => "exists",
            Self::NotOwned { .. } => "not_owned",
            Self::Missing { .. } => "missing",
            Self::CacheMayLag { .. } => "cache_may_lag",
            Self::NotEphemeral => "not_ephemeral",
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Self::PodGoing | Self::Exists { .. } | Self::NotEphemeral => Standing::Settled,
            Self::Missing { .. } | Self::CacheMayLag { .. } => Standing::Moving,
            Self::NotOwned { .. } => Standing::Stuck,
        }
    }

    fn notice(&self) -> Option<Notice> {
        match self {
            Self::NotOwned { .. } => Some(Notice::warning("FailedBinding", self.to_string())),
            Self::PodGoing
            | Self::Exists { .. }
            | Self::Missing { .. }
            | Self::CacheMayLag { .. }
            | Self::NotEphemeral => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(deleting: bool) -> Pod {
        let mut meta = json!({"name": "p", "namespace": "n", "uid": "pod"});
        if deleting {
            meta["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
        }
        let volumes = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]);
        serde_json::from_value(json!({"metadata": meta, "spec": {"volumes": volumes}})).unwrap()
    }

    fn claim(owner: &str) -> Claim {
        let owners = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": true}]);
        let meta = json!({"name": "p-scratch", "namespace": "n", "ownerReferences": owners});
        serde_json::from_value(json!({"metadata": meta})).unwrap()
    }

    fn decided(pod: &Pod, claim: Lookup<'_, Claim>) -> Verdict {
        decide(pod, &pod.volumes[0], claim)
    }

    /// Rule: PROTECT-EV4
    #[test]
    fn a_missing_claim_is_made_once_the_server_said_so() {
        let pod = pod(false);
        assert_eq!(decided(&pod, Lookup::NotCached).actions, [Action::ReadClaim { name: "p-scratch".into() }]);
        assert_eq!(decided(&pod, Lookup::Absent).actions, [Action::Create { name: "p-scratch".into() }]);
    }

    /// Rule: PROTECT-EV2
    #[test]
    fn a_claim_of_the_pod_is_left_alone() {
        assert!(decided(&pod(false), Lookup::Found(&claim("pod"))).is_rest());
    }

    /// Rule: PROTECT-EV3
    #[test]
    fn a_claim_of_somebody_else_is_never_adopted_and_the_pod_is_told() {
        let verdict = decided(&pod(false), Lookup::Found(&claim("other")));
        let notice = verdict.because.notice().unwrap();
        assert_eq!(notice.reason, "FailedBinding");
        let expected = "ephemeral volume scratch: PVC n/p-scratch was not created for pod n/p (pod is not owner)";
        assert_eq!(notice.message, expected);
    }

    /// Rule: PROTECT-EV1
    #[test]
    fn a_pod_that_goes_gets_no_claims() {
        assert!(decided(&pod(true), Lookup::Absent).is_rest());
    }
}
