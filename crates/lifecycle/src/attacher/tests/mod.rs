//! The rules of ATTACHER-3, one sentence each.

mod attaching;
mod detaching;
mod volumes;

use std::collections::BTreeMap;

use api::keys::annotation;
use api::{Attachment, CsiNode, Volume};
use serde_json::{Value, json};

use super::Attacher;
use super::attachment::{Action, Forced, Progress, SecretSeen, Seen, Verdict, decide};
use crate::decision::Lookup;
use crate::provision::csi::secrets::Reference;
use crate::provision::csi::{Abilities, Ability};

const DRIVER: &str = "disk.example.com";
const FINALIZER: &str = "external-attacher/disk-example-com";

/// A cluster in which one attachment is looked at.
struct World {
    attacher: Attacher,
    has: Abilities,
    attachment: Value,
    /// `Ok(None)` is a volume that the server says is not there.
    volume: Result<Option<Value>, NotRead>,
    /// What a cache holds of it.
    cached: Option<Value>,
    node: Result<Option<Value>, NotRead>,
    listed: Result<Option<String>, NotRead>,
    secret: Option<(Reference, &'static str)>,
    forced: Forced,
    progress: Progress,
}

struct NotRead;

fn keys() -> Reference {
    Reference { namespace: "ns".to_owned(), name: "keys".to_owned() }
}

/// An attachment whose node and volume are known, before anything was done.
fn world() -> World {
    World {
        attacher: Attacher::new(DRIVER, ""),
        has: [Ability::ControllerService, Ability::Publish, Ability::PublishReadOnly].into(),
        attachment: json!({
            "metadata": {"name": "csi-1", "uid": "u"},
            "spec": {"attacher": DRIVER, "nodeName": "n", "source": {"persistentVolumeName": "v"}},
        }),
        volume: Ok(Some(json!({
            "metadata": {"name": "v", "uid": "vu", "finalizers": [FINALIZER]},
            "spec": {"accessModes": ["ReadWriteOnce"], "csi": {"driver": DRIVER, "volumeHandle": "h"}},
        }))),
        cached: None,
        node: Ok(Some(json!({"metadata": {"name": "n"}, "spec": {"drivers": [{"name": DRIVER, "nodeID": "id"}]}}))),
        listed: Err(NotRead),
        secret: None,
        forced: Forced::No,
        progress: Progress::Nothing,
    }
}

impl World {
    fn with(mut self, change: impl FnOnce(&mut World)) -> Self {
        change(&mut self);
        self
    }

    /// As it is once the coming publication is written down.
    fn recorded(self) -> Self {
        self.with(|world| {
            world.attachment["metadata"]["finalizers"] = json!([FINALIZER]);
            world.attachment["metadata"]["annotations"] =
                json!({annotation::NODE_ID.text(): "id", annotation::PUBLISHED_HANDLE.text(): "h"});
        })
    }

    fn attached(self) -> Self {
        self.recorded().with(|world| world.attachment["status"] = json!({"attached": true}))
    }

    fn deleted(self) -> Self {
        self.with(|world| world.attachment["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z"))
    }

    /// The volume names a secret.
    fn secretive(self) -> Self {
        self.with(|world| {
            if let Ok(Some(volume)) = &mut world.volume {
                volume["spec"]["csi"]["controllerPublishSecretRef"] = json!({"name": "keys", "namespace": "ns"});
            }
        })
    }

    fn decide(&self) -> Verdict {
        let attachment: Attachment = serde_json::from_value(self.attachment.clone()).unwrap();
        let read = |node: &Value| serde_json::from_value::<CsiNode>(node.clone()).unwrap();
        let node = match &self.node {
            Ok(node) => Ok(node.as_ref().map(read)),
            Err(NotRead) => Err(()),
        };
        let volume = match &self.volume {
            Ok(Some(volume)) => Lookup::Found(volume),
            Ok(None) => Lookup::Absent,
            Err(NotRead) => Lookup::NotCached,
        };
        let secret = self.secret.as_ref().map(|(reference, missing)| match *missing {
            "" => (reference, SecretSeen::Held),
            why => (reference, SecretSeen::Unusable(why)),
        });
        let cached = self.cached.clone().map(|volume| serde_json::from_value::<Volume>(volume).unwrap());
        decide(&Seen {
            attachment: &attachment,
            cached: cached.as_ref(),
            attacher: &self.attacher,
            has: &self.has,
            volume,
            node: match &node {
                Ok(Some(node)) => Lookup::Found(node),
                Ok(None) => Lookup::Absent,
                Err(()) => Lookup::NotCached,
            },
            listed: match &self.listed {
                Ok(Some(handle)) => Lookup::Found(handle),
                Ok(None) => Lookup::Absent,
                Err(NotRead) => Lookup::NotCached,
            },
            secret,
            forced: self.forced,
            restored: Lookup::NotCached,
            progress: &self.progress,
        })
    }

    /// The one action, if there is any.
    fn action(&self) -> Option<Action> {
        self.decide().actions.into_iter().next()
    }

    /// Why it is not carried out.
    fn refusal(&self) -> String {
        let verdict = self.decide();
        assert!(matches!(verdict.actions.as_slice(), [Action::Complain(_)]), "{verdict:?}");
        verdict.because.to_string()
    }
}

fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}
