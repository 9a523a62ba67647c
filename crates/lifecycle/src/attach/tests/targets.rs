//! What a pod's volume leads to: ATTACH-6.2, ATTACH-6.5, MIGRATE-10.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{Claim, CsiDriver, Key, Volume, Word};
use serde_json::{Value, json};

use super::super::target::{Around, Origin, Sharing, Unattachable, resolve, targets};
use super::super::wish::{Because, Users};
use super::super::{Evidence, Hold, Sight, Target, unique_name};
use super::{DRIVER, State, attachment, node, pod, read, rules, volume};
use crate::{Reason as _, Standing};

#[derive(Default)]
struct World {
    claims: BTreeMap<Key, Arc<Claim>>,
    volumes: BTreeMap<Box<str>, Arc<Volume>>,
    drivers: BTreeMap<Word, Arc<CsiDriver>>,
}

impl Around for World {
    fn claim(&self, key: &Key) -> Option<Arc<Claim>> {
        self.claims.get(key).cloned()
    }
    fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        self.volumes.get(name).cloned()
    }
    fn driver(&self, name: &str) -> Option<Arc<CsiDriver>> {
        self.drivers.get(&Word::new(name)).cloned()
    }
}

impl World {
    fn bound() -> Self {
        let mut world = Self::default();
        world.put_claim("c", json!({"phase": "Bound"}), json!([]));
        world.volumes.insert("pv-v".into(), Arc::new(volume("v", &["ReadWriteOnce"])));
        world
    }

    fn put_claim(&mut self, name: &str, status: Value, owners: Value) {
        let claim: Claim = read(json!({
            "metadata": {"namespace": "n", "name": name, "uid": "claim", "ownerReferences": owners},
            "spec": {"volumeName": "pv-v"}, "status": status,
        }));
        self.claims.insert(claim.meta.key.clone(), Arc::new(claim));
    }

    fn put_driver(&mut self, attach_required: Value) {
        let driver: CsiDriver =
            read(json!({"metadata": {"name": DRIVER}, "spec": {"attachRequired": attach_required}}));
        self.drivers.insert(DRIVER.into(), Arc::new(driver));
    }

    fn ask(&self) -> Result<Target, Unattachable> {
        let pod = pod(json!([{"name": "x", "persistentVolumeClaim": {"claimName": "c"}}]));
        resolve(&pod, &pod.volumes[0], self)
    }
}

#[test]
fn a_bound_claim_leads_to_its_volume() {
    let target = World::bound().ask().unwrap();
    assert_eq!((target.unique(), target.name(), target.sharing), (unique_name(DRIVER, "v"), "pv-v", Sharing::OneNode));
}

/// Rule: ATTACH-6.2
#[test]
fn a_claim_without_volume_and_a_volume_of_another_claim_lead_nowhere() {
    let mut world = World::bound();
    world.put_claim("c", json!({"phase": "Pending"}), json!([]));
    assert_eq!(world.ask(), Err(Unattachable::ClaimUnbound { claim: "c".into() }));
    world.claims.clear();
    assert_eq!(world.ask(), Err(Unattachable::ClaimMissing { claim: "c".into() }));
    let mut world = World::bound();
    let mut other = volume("v", &[]);
    other.claim.as_mut().unwrap().uid = Some("another".into());
    world.volumes.insert("pv-v".into(), Arc::new(other));
    assert_eq!(world.ask(), Err(Unattachable::VolumeOfAnother { volume: "pv-v".into() }));
    world.volumes.clear();
    assert_eq!(world.ask(), Err(Unattachable::VolumeMissing { volume: "pv-v".into() }));
}

/// Rules: ATTACH-6.2, CTRL-13.41
#[test]
fn a_driver_that_needs_no_attaching_is_not_attached_and_one_that_nobody_knows_is() {
    let mut world = World::bound();
    world.put_driver(json!(true));
    assert!(world.ask().is_ok());
    world.put_driver(json!(null));
    assert!(world.ask().is_ok());
    world.put_driver(json!(false));
    assert_eq!(world.ask(), Err(Unattachable::NotRequired { driver: DRIVER.into() }));
}

/// Rule: ATTACH-6.2
#[test]
fn a_claim_made_for_a_pod_has_to_be_that_pods() {
    let mut world = World::bound();
    let pod = pod(json!([{"name": "x", "ephemeral": {"volumeClaimTemplate": {}}}]));
    world.put_claim("p-x", json!({"phase": "Bound"}), json!([]));
    assert_eq!(resolve(&pod, &pod.volumes[0], &world), Err(Unattachable::ClaimOfAnother { claim: "p-x".into() }));
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod", "controller": true}]);
    world.put_claim("p-x", json!({"phase": "Bound"}), owner);
    assert!(resolve(&pod, &pod.volumes[0], &world).is_ok());
}

/// Rule: MIGRATE-10.2
#[test]
fn a_volume_inside_the_pods_life_is_not_attached_and_an_in_tree_one_is_translated() {
    let world = World::default();
    let inside = pod(json!([{"name": "x", "csi": {"driver": DRIVER}}]));
    assert_eq!(resolve(&inside, &inside.volumes[0], &world), Err(Unattachable::NotAttached));
    let in_tree = pod(json!([{"name": "x", "awsElasticBlockStore": {"volumeID": "vol-1"}}]));
    let target = resolve(&in_tree, &in_tree.volumes[0], &world).unwrap();
    assert_eq!((&*target.driver, &*target.handle, target.sharing), ("ebs.csi.aws.com", "vol-1", Sharing::ManyNodes));
    let Origin::Inline { spec, .. } = target.origin else { panic!("{target:?}") };
    assert_eq!(Target::inline("any", &spec).unwrap().handle, "vol-1".into(), "read back from an attachment");
}

/// Rule: CTRL-14.37
#[test]
fn a_claim_that_a_pod_names_twice_is_one_volume() {
    let twice = json!([{"name": "x", "persistentVolumeClaim": {"claimName": "c"}},
                       {"name": "y", "persistentVolumeClaim": {"claimName": "c"}}]);
    assert_eq!(targets(&pod(twice), &World::bound()).len(), 1);
}

#[test]
fn whoever_only_looks_gets_the_reason_the_controller_acts_on() {
    let world = World::bound();
    let mut waiting = pod(json!([{"name": "x", "persistentVolumeClaim": {"claimName": "c"}}]));
    waiting.node = "b".into();
    let nodes = [node("a", "Unknown", &["v"], &["v"]), node("b", "True", &["v"], &[])];
    let attachments = [attachment("v", "a", State::Attached)];
    let pods = [waiting];
    let sight = Sight { around: &world, nodes: &nodes, attachments: &attachments, pods: &pods, rules: rules() };
    let because = sight.of(&pods[0], &pods[0].volumes[0]).unwrap();
    let Because::Held { holders, users, .. } = &because else { panic!("{because:?}") };
    assert_eq!((holders.len(), &*holders[0].node, users), (1, "a", &Users::default()));
    assert_eq!(because.standing(), Standing::Stuck, "{because}");
    assert_eq!(sight.hold(&attachments[0]), holders[0].hold);
    let gone = Sight { nodes: &nodes[1..], ..sight };
    assert_eq!(gone.hold(&attachments[0]), Hold::Forced { evidence: Evidence::NodeGone });
}

/// Rule: ATTACH-6.5
#[test]
fn how_many_nodes_a_volume_may_have() {
    let (one, many) = (Sharing::OneNode, Sharing::ManyNodes);
    for (modes, expected) in [
        (&["ReadWriteOnce"][..], one),
        (&["ReadWriteOncePod"], one),
        (&["ReadWriteOnce", "ReadWriteOncePod"], one),
        (&["ReadWriteMany"], many),
        (&["ReadOnlyMany"], many),
        (&["ReadWriteOnce", "ReadOnlyMany"], many),
        (&[], many),
    ] {
        assert_eq!(super::target("v", modes).sharing, expected, "{modes:?}");
    }
}

/// Rule: MIGRATE-10.1
#[test]
fn a_migrated_volume_is_shared_as_its_driver_understands() {
    let disk = |modes: Value| -> Volume {
        read(json!({"metadata": {"name": "pv"}, "spec": {"accessModes": modes, "gcePersistentDisk": {"pdName": "d"}}}))
    };
    let sharing = |modes: Value| Target::of_volume(&disk(modes)).unwrap().unwrap().sharing;
    assert_eq!(sharing(json!(["ReadWriteMany"])), Sharing::OneNode);
    assert_eq!(sharing(json!(["ReadOnlyMany"])), Sharing::ManyNodes);
    for (inline, expected) in [
        (json!({"name": "x", "cinder": {"volumeID": "1"}}), Sharing::OneNode),
        (json!({"name": "x", "gcePersistentDisk": {"pdName": "d"}}), Sharing::ManyNodes),
    ] {
        let pod = pod(json!([inline]));
        assert_eq!(resolve(&pod, &pod.volumes[0], &World::default()).unwrap().sharing, expected);
    }
}
