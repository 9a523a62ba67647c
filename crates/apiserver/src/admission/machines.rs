//! What the provisioner and the attacher of a machine that joined may write: what is about volumes of that machine, and
//! nothing else. Their role says which kinds and verbs; this says which objects, and which fields of them.
//!
//! A volume is a machine's own if it is of the local driver, and can be reached from there and from nowhere else. It names no
//! Secret: a node may read those of the volumes of its pods, and would choose itself which. And it is made of something that
//! no other volume is made of: the end of one would be the end of the other.

use api::intents;
use api::keys::{annotation, finalizer, label};
use serde_json::Value;

use super::references::names_secret;
use super::{Lookup, Operation, Request};
use crate::keys::{MACHINE_DRIVER, MACHINE_TOPOLOGY};
use crate::kinds::read::{self, list, pairs, text, texts, unchanged};
use crate::status::ApiError;

/// A write of a machine.
struct Asked<'a> {
    request: &'a Request<'a>,
    /// As it is to be; none if it is to go.
    object: Option<&'a Value>,
    machine: &'a str,
}

/// Refuses what is not the machine's to write.
pub(super) fn restrict(
    request: &Request<'_>,
    object: Option<&Value>,
    machine: &str,
    lookup: &dyn Lookup,
) -> Result<(), ApiError> {
    let asked = Asked { request, object, machine };
    match (request.resource.group, request.resource.name) {
        ("", "persistentvolumes") => asked.volume(lookup),
        ("", "persistentvolumeclaims") => asked.claim(lookup),
        ("", "configmaps") => asked.page(),
        ("storage.k8s.io", "volumeattachments") => asked.attachment(),
        ("storage.k8s.io", "csistoragecapacities") => asked.capacity(),
        ("snapshot.storage.k8s.io", "volumesnapshots") => asked.snapshot(lookup),
        _ => Ok(()),
    }
}

const NO_TWIN: &str = "make volumes with a handle that no other volume has";

/// The refusal of a volume while another one with the same handle is being created.
pub(super) fn refuse_twin(request: &Request<'_>, machine: &str) -> Result<(), ApiError> {
    Asked { request, object: None, machine }.refused(NO_TWIN)
}

impl Asked<'_> {
    fn refused(&self, why: &str) -> Result<(), ApiError> {
        Err(self.request.forbidden(&format!("machine {} can only {why}", crate::status::quote(self.machine))))
    }

    /// The object as it is and as it is to be, whichever there are. What does not exist is for who deletes to say.
    fn versions(&self) -> impl Iterator<Item = &Value> {
        self.request.old.into_iter().chain(self.object)
    }

    fn volume(&self, lookup: &dyn Lookup) -> Result<(), ApiError> {
        if !self.versions().all(|volume| is_only_on(volume, self.machine)) {
            let why = "write volumes of its own local driver that can be reached from it and from nowhere else";
            return self.refused(why);
        }
        match (self.request.operation, self.request.old, self.object) {
            (Operation::Create, _, Some(volume)) if names_secret(volume) => {
                self.refused("make volumes that name no secrets")
            }
            (Operation::Create, _, Some(volume)) if !is_asked_for(volume, self.machine, lookup) => {
                self.refused("make volumes for claims that chose it")
            }
            (Operation::Create, _, Some(volume)) if has_twin(volume, lookup) => self.refused(NO_TWIN),
            (Operation::Update, Some(old), Some(volume)) if !unchanged(volume, old, "/spec") => {
                self.refused("change the metadata of volumes")
            }
            _ => Ok(()),
        }
    }

    /// A claim whose machine has no room is given back, and one that is copied is held on to.
    fn claim(&self, lookup: &dyn Lookup) -> Result<(), ApiError> {
        let (Operation::Update, Some(old), Some(claim)) = (self.request.operation, self.request.old, self.object)
        else {
            return self.refused("change claims");
        };
        let selected = annotation::SELECTED_NODE.text();
        let chosen = read::annotation(old, selected) == Some(self.machine);
        let given_back = chosen && read::annotation(claim, selected).is_none();
        let kept = |claim: &Value| {
            let all = pairs(claim, "/metadata/annotations").into_iter();
            all.filter(|(key, _)| !given_back || *key != selected).map(owned).collect::<Vec<_>>()
        };
        match kept(old) == kept(claim) {
            true => self.only_guard(("PersistentVolumeClaim", finalizer::CLONING_PROTECTION.text()), lookup),
            false => self.refused("take itself off a claim that chose it"),
        }
    }

    fn snapshot(&self, lookup: &dyn Lookup) -> Result<(), ApiError> {
        let annotations =
            |object: &Value| pairs(object, "/metadata/annotations").into_iter().map(owned).collect::<Vec<_>>();
        match (self.request.old, self.object) {
            (Some(old), Some(object)) if annotations(old) != annotations(object) => {
                self.refused("change the finalizers of snapshots")
            }
            _ => self.only_guard(("VolumeSnapshot", finalizer::SNAPSHOT_SOURCE_PROTECTION.text()), lookup),
        }
    }

    /// Nothing of the object but the guard of what is copied and annotations changes; the latter are looked at by who asks.
    /// While a claim of another machine waits for its copy, the guard stays.
    fn only_guard(&self, (kind, finalizer): (&str, &str), lookup: &dyn Lookup) -> Result<(), ApiError> {
        let (Some(old), Some(object)) = (self.request.old, self.object) else {
            return self.refused("change what is there");
        };
        let others = |object: &Value| {
            let all = texts(object, "/metadata/finalizers").into_iter().map(str::to_owned);
            all.filter(|held| held != finalizer).collect::<Vec<_>>()
        };
        let fixed = ["/metadata/labels", "/metadata/ownerReferences", "/spec", "/status"];
        let has_guard = |object: &Value| texts(object, "/metadata/finalizers").contains(&finalizer);
        let source = (kind, self.request.namespace, self.request.name);
        if has_guard(old) && !has_guard(object) && lookup.is_copied_elsewhere(source, self.machine) {
            return self.refused("take the guard off what no claim of another machine waits to be a copy of");
        }
        match others(old) == others(object) && fixed.iter().all(|pointer| unchanged(object, old, pointer)) {
            true => Ok(()),
            false => self.refused(&format!("put on or take off the finalizer {finalizer}")),
        }
    }

    /// What it has begun is noted on pages with its own mark.
    fn page(&self) -> Result<(), ApiError> {
        let instance = intents::instance(self.machine);
        let label = label::INTENTS_INSTANCE.text();
        let marked = |page: &Value| pairs(page, "/metadata/labels").contains(&(label, instance.as_str()));
        let named = self.request.name.contains(&format!("-{instance}-"));
        match named && self.versions().all(marked) {
            true => Ok(()),
            false => self.refused("write intents of its own"),
        }
    }

    /// Those of other drivers are their attachers' to write: without its finalizer, an attachment is gone while the volume
    /// may still be written to from the machine.
    fn attachment(&self) -> Result<(), ApiError> {
        let own = |attachment: &Value| {
            text(attachment, "/spec/nodeName") == self.machine && text(attachment, "/spec/attacher") == MACHINE_DRIVER
        };
        match self.versions().all(own) {
            true => Ok(()),
            false => self.refused("write attachments of its own local driver to itself"),
        }
    }

    fn capacity(&self) -> Result<(), ApiError> {
        let own = |capacity: &Value| {
            let place = pairs(capacity, "/nodeTopology/matchLabels");
            !place.is_empty() && place.iter().all(|(_, value)| *value == self.machine)
        };
        match self.versions().all(own) {
            true => Ok(()),
            false => self.refused("tell how much room there is on itself"),
        }
    }
}

fn owned((key, value): (&str, &str)) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

/// Whether a volume is of the local driver, and every way to fulfil its affinity leads to one machine.
fn is_only_on(volume: &Value, machine: &str) -> bool {
    let leads = |term: &Value| {
        let mut demands = list(term, "/matchExpressions").iter();
        demands.any(|demand| {
            let is = |field: &str, wanted: &str| text(demand, field) == wanted;
            is("/key", MACHINE_TOPOLOGY) && is("/operator", "In") && texts(demand, "/values") == [machine]
        })
    };
    let terms = list(volume, "/spec/nodeAffinity/required/nodeSelectorTerms");
    text(volume, "/spec/csi/driver") == MACHINE_DRIVER && !terms.is_empty() && terms.iter().all(leads)
}

/// Whether another volume is made of the same thing.
fn has_twin(volume: &Value, lookup: &dyn Lookup) -> bool {
    let made_of = (text(volume, "/spec/csi/driver"), text(volume, "/spec/csi/volumeHandle"));
    lookup.is_handle_of_another(made_of, read::name(volume))
}

/// Whether a new volume is for a claim that chose the machine. For a claim that is gone it harms nobody.
fn is_asked_for(volume: &Value, machine: &str, lookup: &dyn Lookup) -> bool {
    let [namespace, name, uid] =
        ["namespace", "name", "uid"].map(|field| text(volume, &format!("/spec/claimRef/{field}")));
    if namespace.is_empty() || name.is_empty() || uid.is_empty() {
        return false;
    }
    let claim = lookup.get("PersistentVolumeClaim", namespace, name);
    let claim = claim.filter(|claim| text(claim, "/metadata/uid") == uid);
    claim.is_none_or(|claim| read::annotation(&claim, annotation::SELECTED_NODE.text()) == Some(machine))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::status::Resource;

    /// One claim that chose `m1`, and one that chose another machine.
    struct World;

    impl Lookup for World {
        fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
            assert_eq!((kind, namespace), ("PersistentVolumeClaim", "shop"));
            match name {
                "mine" => Some(claim("m1")),
                "other" => Some(claim("m2")),
                _ => None,
            }
        }

        fn list(&self, kind: &str, _: &str) -> Vec<Value> {
            if kind == "PersistentVolumeClaim" {
                let copy = |node: &str, source: &str, kind: &str| {
                    let group = if kind == "VolumeSnapshot" { "snapshot.storage.k8s.io" } else { "" };
                    with(
                        with(claim(node), "/metadata/namespace", json!("")),
                        "/spec/dataSource",
                        json!({"apiGroup": group, "kind": kind, "name": source}),
                    )
                };
                return vec![
                    copy("m1", "for-m1", "PersistentVolumeClaim"),
                    copy("m2", "for-m2", "PersistentVolumeClaim"),
                    copy("m2", "snap-for-m2", "VolumeSnapshot"),
                ];
            }
            assert_eq!(kind, "PersistentVolume");
            let of = |name: &str, driver: &str, handle: &str| {
                json!({"metadata": {"name": name},
                "spec": {"csi": {"driver": driver, "volumeHandle": handle}}})
            };
            vec![
                of("theirs", MACHINE_DRIVER, "taken"),
                of("elsewhere", "other.driver", "h"),
                of("v", MACHINE_DRIVER, "h"),
            ]
        }
    }

    fn claim(node: &str) -> Value {
        json!({"metadata": {"name": "c", "namespace": "shop", "uid": "u", "finalizers": ["a"],
                "annotations": {annotation::SELECTED_NODE.text(): node, "note": "x"}},
            "spec": {"storageClassName": "local"}})
    }

    fn volume(node: &str, claim: &str) -> Value {
        let demand = json!({"key": MACHINE_TOPOLOGY, "operator": "In", "values": [node]});
        json!({"metadata": {"name": "v"}, "spec": {
            "csi": {"driver": MACHINE_DRIVER, "volumeHandle": "h"},
            "claimRef": {"namespace": "shop", "name": claim, "uid": "u"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [demand]}]}}}})
    }

    fn with(mut object: Value, pointer: &str, value: Value) -> Value {
        read::set(&mut object, pointer, value);
        object
    }

    fn asks(place: (&str, &str, &str), old: Option<&Value>, object: Option<&Value>) -> Result<(), String> {
        let (group, resource, name) = place;
        let operation = match (old, object) {
            (None, _) => Operation::Create,
            (Some(_), Some(_)) => Operation::Update,
            (Some(_), None) => Operation::Delete,
        };
        let resource = Resource::new(group, resource);
        let request = Request { operation, resource, subresource: "", namespace: "", name, old };
        restrict(&request, object, "m1", &World).map_err(|error| error.message)
    }

    const VOLUMES: (&str, &str, &str) = ("", "persistentvolumes", "v");

    #[test]
    fn a_machine_makes_volumes_of_its_own_for_claims_that_chose_it() {
        let cases = [
            (volume("m1", "mine"), None),
            (volume("m1", "gone"), None),
            (volume("m2", "mine"), Some("from nowhere else")),
            (with(volume("m1", "mine"), "/spec/nodeAffinity", Value::Null), Some("from nowhere else")),
            (volume("m1", "other"), Some("claims that chose it")),
            (with(volume("m1", "mine"), "/spec/claimRef", Value::Null), Some("claims that chose it")),
            (with(volume("m1", "other"), "/spec/claimRef/uid", json!("")), Some("claims that chose it")),
            (with(volume("m1", "mine"), "/spec/csi/driver", json!("nfs.csi.k8s.io")), Some("its own local driver")),
            (with(volume("m1", "mine"), "/spec/csi", Value::Null), Some("its own local driver")),
            (
                with(with(volume("m1", "mine"), "/spec/csi", Value::Null), "/spec/hostPath", json!({"path": "/etc"})),
                Some("its own local driver"),
            ),
            (
                with(
                    volume("m1", "mine"),
                    "/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/key",
                    json!("rack"),
                ),
                Some("from nowhere else"),
            ),
            (with(volume("m1", "mine"), "/spec/csi/volumeHandle", json!("taken")), Some("no other volume has")),
            (with(volume("m1", "gone"), "/spec/csi/volumeHandle", json!("taken")), Some("no other volume has")),
        ];
        for (volume, refusal) in cases {
            match (asks(VOLUMES, None, Some(&volume)), refusal) {
                (Ok(()), None) => {}
                (Err(said), Some(refusal)) => assert!(said.contains(refusal), "{said}"),
                (answer, _) => panic!("{volume}: {answer:?}"),
            }
        }
    }

    #[test]
    fn a_machine_makes_no_volume_that_names_a_secret() {
        let places = ["nodeStage", "nodePublish", "nodeExpand", "controllerPublish", "controllerExpand"];
        for place in places {
            let secret = json!({"namespace": "kube-system", "name": "any"});
            let volume = with(volume("m1", "mine"), &format!("/spec/csi/{place}SecretRef"), secret);
            let refused = asks(VOLUMES, None, Some(&volume)).expect_err(place);
            assert!(refused.contains("name no secrets"), "{refused}");
        }
    }

    #[test]
    fn a_machine_touches_no_volume_or_attachment_of_another() {
        let (own, other) = (volume("m1", "mine"), volume("m2", "other"));
        let finalizers = |volume: &Value| with(volume.clone(), "/metadata/finalizers", json!(["x"]));
        assert_eq!(asks(VOLUMES, Some(&own), Some(&finalizers(&own))), Ok(()));
        assert_eq!(asks(VOLUMES, Some(&own), None), Ok(()));
        assert!(asks(VOLUMES, Some(&own), Some(&with(own.clone(), "/spec/claimRef/uid", json!("w")))).is_err());
        assert!(asks(VOLUMES, Some(&other), Some(&finalizers(&other))).is_err());
        assert!(asks(VOLUMES, Some(&other), None).is_err());
        let attachments = ("storage.k8s.io", "volumeattachments", "a");
        let attachment = |node: &str, attacher: &str| {
            json!({"metadata": {"finalizers": [format!("external-attacher/{attacher}")]},
                "spec": {"nodeName": node, "attacher": attacher}, "status": {"attached": true}})
        };
        let let_go = |attachment: &Value| with(attachment.clone(), "/metadata/finalizers", json!([]));
        let own = attachment("m1", MACHINE_DRIVER);
        assert_eq!(asks(attachments, Some(&own), Some(&let_go(&own))), Ok(()));
        let (elsewhere, network) = (attachment("m2", MACHINE_DRIVER), attachment("m1", "nfs.csi.k8s.io"));
        for foreign in [elsewhere, network] {
            let refused = asks(attachments, Some(&foreign), Some(&let_go(&foreign))).expect_err("it is not its own");
            assert!(refused.contains("attachments of its own local driver to itself"), "{refused}");
            assert!(asks(attachments, Some(&foreign), None).is_err());
        }
    }

    #[test]
    fn a_machine_gives_back_a_claim_that_chose_it_and_guards_what_it_copies() {
        let claims = ("", "persistentvolumeclaims", "c");
        let selected = annotation::SELECTED_NODE.text();
        let without = |claim: &Value| with(claim.clone(), "/metadata/annotations", json!({"note": "x"}));
        let (own, other) = (claim("m1"), claim("m2"));
        let moved = with(own.clone(), "/metadata/annotations", json!({selected: "m2", "note": "x"}));
        let noted = with(own.clone(), "/metadata/annotations", json!({selected: "m1", "note": "y"}));
        let held = json!(["a", finalizer::CLONING_PROTECTION.text()]);
        assert_eq!(asks(claims, Some(&own), Some(&without(&own))), Ok(()));
        assert_eq!(asks(claims, Some(&other), Some(&with(other.clone(), "/metadata/finalizers", held))), Ok(()));
        let refused = [
            (&other, without(&other)),
            (&own, moved),
            (&own, noted),
            (&own, with(own.clone(), "/metadata/finalizers", json!([]))),
            (&own, with(own.clone(), "/spec/volumeName", json!("v"))),
            (&own, with(own.clone(), "/metadata/labels", json!({"a": "b"}))),
        ];
        for (old, new) in refused {
            assert!(asks(claims, Some(old), Some(&new)).is_err(), "{new}");
        }
    }

    #[test]
    fn a_machine_takes_no_guard_off_that_another_machine_needs() {
        let guarded = |finalizer: &str| with(json!({"metadata": {}}), "/metadata/finalizers", json!(["a", finalizer]));
        let free = with(json!({"metadata": {}}), "/metadata/finalizers", json!(["a"]));
        let take_off = |group: &str, resource: &str, name: &str, finalizer: &str| {
            asks((group, resource, name), Some(&guarded(finalizer)), Some(&free))
        };
        let claim = |name: &str| take_off("", "persistentvolumeclaims", name, finalizer::CLONING_PROTECTION.text());
        let snapshot = |name: &str| {
            let guard = finalizer::SNAPSHOT_SOURCE_PROTECTION.text();
            take_off("snapshot.storage.k8s.io", "volumesnapshots", name, guard)
        };
        assert_eq!((claim("for-m1"), claim("for-nobody"), snapshot("for-m2")), (Ok(()), Ok(()), Ok(())));
        for refused in [claim("for-m2"), snapshot("snap-for-m2")] {
            assert!(refused.is_err_and(|said| said.contains("take the guard off what no claim of another machine")));
        }
    }

    #[test]
    fn a_machine_notes_and_tells_only_about_itself() {
        let page =
            |node: &str| json!({"metadata": {"labels": {label::INTENTS_INSTANCE.text(): intents::instance(node)}}});
        let name = |node: &str| format!("orlop-intents-local-{}-0", intents::instance(node));
        assert_eq!(asks(("", "configmaps", &name("m1")), None, Some(&page("m1"))), Ok(()));
        assert!(asks(("", "configmaps", &name("m2")), None, Some(&page("m1"))).is_err(), "the name is another's");
        assert!(asks(("", "configmaps", &name("m1")), Some(&page("m2")), Some(&page("m1"))).is_err());
        let room = |node: &str| json!({"nodeTopology": {"matchLabels": {"place": node}}});
        let capacities = ("storage.k8s.io", "csistoragecapacities", "r");
        assert_eq!(asks(capacities, None, Some(&room("m1"))), Ok(()));
        assert!(asks(capacities, Some(&room("m2")), None).is_err());
        assert!(asks(capacities, None, Some(&json!({}))).is_err(), "everywhere");
        assert_eq!(asks(("", "events", "e"), None, Some(&json!({}))), Ok(()));
    }
}
