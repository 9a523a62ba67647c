use std::collections::BTreeMap;

use api::keys::parameter;
use api::{AccessMode, AccessModes, AttributesClass};
use serde_json::json;

use super::super::access::{self, Access, BadAccess};
use super::super::outline::{self, AttributesGate, Findings, Metadata, Options, ReadOnly, TopologyGate};
use super::super::parameters::{self, BadParameter, Parameters};
use super::super::plan::{Plan, Shape};
use super::super::unfit::{Standing, Unfit};
use super::*;
use crate::decision::Lookup;

fn parameters(pairs: &[(&str, &str)]) -> Parameters {
    pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

/// Rule: SIDECAR-1.6
#[test]
fn every_row_of_the_table_of_access_modes() {
    use AccessMode::{ReadOnlyMany as Rox, ReadWriteMany as Rwx, ReadWriteOnce as Rwo, ReadWriteOncePod as Rwop};
    let plain = Abilities::new();
    let fine = Abilities::from([Ability::SingleNodeMultiWriter]);
    type Row<'a> = (&'a [AccessMode], Result<Access, BadAccess>, Result<Access, BadAccess>);
    let rows: [Row<'_>; 9] = [
        (&[Rwop], Ok(Access::SingleNodeWriter), Ok(Access::SingleNodeSingleWriter)),
        (&[Rwop, Rwo], Err(BadAccess::PodAndMore), Err(BadAccess::PodAndMore)),
        (&[Rwx], Ok(Access::MultiNodeMultiWriter), Ok(Access::MultiNodeMultiWriter)),
        (&[Rwx, Rox, Rwo], Ok(Access::MultiNodeMultiWriter), Ok(Access::MultiNodeMultiWriter)),
        (&[Rox, Rwo], Err(BadAccess::ReadersAndOneWriter), Err(BadAccess::ReadersAndOneWriter)),
        (&[Rox], Ok(Access::MultiNodeReaderOnly), Ok(Access::MultiNodeReaderOnly)),
        (&[Rwo], Ok(Access::SingleNodeWriter), Ok(Access::SingleNodeMultiWriter)),
        (&[], Err(BadAccess::Unknown), Err(BadAccess::Unknown)),
        (&[Rwop, Rwx], Err(BadAccess::PodAndMore), Err(BadAccess::PodAndMore)),
    ];
    for (modes, without, with) in rows {
        let set = AccessModes::of(modes);
        assert_eq!((access::of_set(set, &plain), access::of_set(set, &fine)), (without, with), "{modes:?}");
    }
}

/// Rule: SIDECAR-1.6
#[test]
fn the_provisioner_sends_one_capability_per_mode() {
    use AccessMode::{ReadOnlyMany, ReadWriteOnce, ReadWriteOncePod};
    let none = Abilities::new();
    let each = |modes: &[AccessMode]| access::of_each(AccessModes::of(modes), &none);
    assert_eq!(each(&[ReadWriteOnce, ReadOnlyMany]), Ok(vec![Access::SingleNodeWriter, Access::MultiNodeReaderOnly]));
    assert_eq!(each(&[ReadWriteOncePod, ReadWriteOnce]), Err(BadAccess::PodAndMore));
    let strange: AccessModes = read(json!(["ReadWriteOnce", "ReadWriteTwice"]));
    assert_eq!(access::of_each(strange, &none), Err(BadAccess::Unknown));
}

/// Rule: PROVISION-2.7
#[test]
fn the_filesystem_type_has_one_key_of_any_case_and_a_default() {
    let own = parameter::FSTYPE.text();
    let of = |pairs: &[(&str, &str)], default: &str| parameters::fstype(&parameters(pairs), default);
    assert_eq!(of(&[("FsType", "xfs")], "ext4"), Ok(Some("xfs".to_owned())));
    assert_eq!(of(&[(own, "btrfs")], ""), Ok(Some("btrfs".to_owned())));
    assert_eq!(of(&[], "ext4"), Ok(Some("ext4".to_owned())));
    assert_eq!(of(&[(own, "")], "ext4"), Ok(Some("ext4".to_owned())), "an empty one falls back");
    assert_eq!(of(&[], ""), Ok(None));
    assert!(matches!(of(&[("fstype", "xfs"), (own, "xfs")], ""), Err(BadParameter::TwoFilesystems { .. })));
    assert!(matches!(of(&[("fstype", "xfs"), ("fsType", "xfs")], ""), Err(BadParameter::TwoFilesystems { .. })));
}

/// Rule: PROVISION-2.7
#[test]
fn the_provisioners_parameters_are_kept_from_the_driver_and_old_ones_are_not() {
    let secret = format!("{}-name", parameter::NODE_STAGE_SECRET);
    let fallback = format!("{}-namespace", parameter::DEFAULT_SECRET);
    let given = parameters(&[
        (parameter::FSTYPE.text(), "xfs"),
        (&secret, "s"),
        (&fallback, "n"),
        ("fstype", "xfs"),
        ("csiProvisionerSecretName", "old"),
        ("tier", "gold"),
    ]);
    let kept = parameters::for_driver(&given).unwrap();
    assert_eq!(kept.keys().collect::<Vec<_>>(), ["csiProvisionerSecretName", "fstype", "tier"]);
}

/// Rule: PROVISION-2.6
#[test]
fn an_unknown_reserved_parameter_is_wrong() {
    let key = format!("{}speling", parameter::PREFIX);
    let class = class(json!({key: "x"}));
    let unfit = outlined(&claim(json!({})), &class, &all_abilities(), &Options::default()).unwrap_err();
    assert_eq!((unfit.standing(), unfit.to_string().contains("speling")), (Standing::Wrong, true), "{unfit}");
}

/// Rule: PROVISION-2.6
#[test]
fn what_the_driver_cannot_do_is_wrong() {
    let snapshot =
        json!({"dataSource": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"}});
    let clone = json!({"dataSource": {"kind": "PersistentVolumeClaim", "name": "c"}});
    let rows = [
        (Ability::ControllerService, json!({})),
        (Ability::CreateDelete, json!({})),
        (Ability::Snapshots, snapshot),
        (Ability::Clones, clone),
        (Ability::Modify, json!({"volumeAttributesClassName": "gold"})),
    ];
    for (ability, spec) in rows {
        let mut abilities = all_abilities();
        let claim = claim(spec);
        assert!(outlined(&claim, &class(json!({})), &abilities, &Options::default()).is_ok(), "{ability}");
        abilities.remove(&ability);
        let unfit = outlined(&claim, &class(json!({})), &abilities, &Options::default()).unwrap_err();
        assert_eq!(unfit.standing(), Standing::Wrong, "{ability}");
        assert!(unfit.to_string().contains(ability.name()), "{unfit}");
    }
}

/// Rule: PROVISION-2.6
#[test]
fn a_selector_and_two_filesystems_and_strange_modes_are_wrong() {
    let selector = claim(json!({"selector": {"matchLabels": {"a": "b"}}}));
    let two = class(json!({"fstype": "a", "FSTYPE": "b"}));
    let strange = claim(json!({"accessModes": ["ReadWriteTwice"]}));
    let plain = class(json!({}));
    for (claim, class) in [(&selector, &plain), (&claim(json!({})), &two), (&strange, &plain)] {
        let unfit = outlined(claim, class, &all_abilities(), &Options::default()).unwrap_err();
        assert_eq!(unfit.standing(), Standing::Wrong, "{unfit}");
    }
}

/// Rule: PROVISION-2.6
#[test]
fn another_kind_of_source_is_left_to_its_populator() {
    let spec = json!({"dataSourceRef": {"apiGroup": "cdi.example.com", "kind": "Import", "name": "i"}});
    let unfit = outlined(&claim(spec), &class(json!({})), &all_abilities(), &Options::default()).unwrap_err();
    assert_eq!(unfit.standing(), Standing::Ignored);
}

/// Rule: PROVISION-2.6
#[test]
fn what_may_come_is_waited_for_and_a_node_that_went_is_left() {
    use super::super::topology::NoPlace;
    let node = || "n".to_owned();
    assert_eq!(Unfit::Place(NoPlace::NodeGone { node: node() }).standing(), Standing::Elsewhere);
    assert_eq!(Unfit::Place(NoPlace::NodeUnknown { node: node() }).standing(), Standing::NotYet);
    assert_eq!(Unfit::NoAttributesClass { name: node() }.standing(), Standing::NotYet);
}

/// Rule: PROVISION-2.6
#[test]
fn an_attributes_class_must_exist_and_be_the_drivers() {
    let class: AttributesClass =
        read(json!({"metadata": {"name": "gold"}, "driverName": DRIVER, "parameters": {"iops": "5"}}));
    let found = outline::mutable("gold", DRIVER, Lookup::Found(&class)).unwrap();
    assert_eq!(found, BTreeMap::from([("iops".to_owned(), "5".to_owned())]));
    let absent = outline::mutable("gold", DRIVER, Lookup::Absent).unwrap_err();
    let foreign = outline::mutable("gold", "other", Lookup::Found(&class)).unwrap_err();
    assert_eq!((absent.standing(), foreign.standing()), (Standing::NotYet, Standing::Wrong));
}

/// Rule: PROVISION-2.7
#[test]
fn the_whole_request_follows_from_claim_class_and_flags() {
    let options = Options { metadata: Metadata::WithNames, default_fstype: "ext4".to_owned(), ..Options::default() };
    let outline = outlined(
        &claim(json!({"volumeAttributesClassName": "gold"})),
        &class(json!({"tier": "x"})),
        &all_abilities(),
        &options,
    );
    let outline = outline.unwrap();
    assert_eq!(outline.attributes_class, "gold");
    let plan = outline.plan(Findings::default());
    assert_eq!((plan.volume.as_str(), plan.bytes, plan.class.as_str()), ("pvc-u-1", 1 << 30, "fast"));
    assert_eq!((plan.modes, plan.access), (vec!["ReadWriteOnce".to_owned()], vec![Access::SingleNodeWriter]));
    assert_eq!(plan.shape, Shape::Mount { fstype: Some("ext4".to_owned()) });
    assert_eq!(plan.mount_options, ["noatime"]);
    let named: Vec<(&str, &str)> = plan.parameters.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let wanted = [
        (parameter::VOLUME_NAME.text(), "pvc-u-1"),
        (parameter::CLAIM_NAME.text(), "data-web-0"),
        (parameter::CLAIM_NAMESPACE.text(), "shop"),
        ("tier", "x"),
    ];
    assert_eq!(named, wanted);
}

/// Rule: PROVISION-2.7
#[test]
fn a_raw_volume_has_no_filesystem() {
    let claim = claim(json!({"volumeMode": "Block"}));
    let plan = outlined(&claim, &class(json!({"fstype": "xfs"})), &all_abilities(), &Options::default()).unwrap();
    assert_eq!(plan.plan(Findings::default()).shape, Shape::Block);
}

/// Rule: PROVISION-2.10
#[test]
fn only_a_single_read_only_mode_makes_a_read_only_volume_and_only_if_asked() {
    let readers = claim(json!({"accessModes": ["ReadOnlyMany"]}));
    let both = claim(json!({"accessModes": ["ReadOnlyMany", "ReadWriteOnce"]}));
    let on = Options { read_only: ReadOnly::ForReaders, ..Options::default() };
    let is = |claim, options| {
        outlined(claim, &class(json!({})), &all_abilities(), options).unwrap().plan(Findings::default()).read_only
    };
    assert!(is(&readers, &on) && !is(&both, &on) && !is(&readers, &Options::default()));
}

/// Rule: PROVISION-2.1
#[test]
fn gates_switch_places_and_attributes_off() {
    let options = Options { topology: TopologyGate::Off, attributes: AttributesGate::Off, ..Options::default() };
    let claim = claim(json!({"volumeAttributesClassName": "gold"}));
    let mut abilities = all_abilities();
    abilities.remove(&Ability::Modify);
    let outline = outlined(&claim, &class(json!({})), &abilities, &options).unwrap();
    assert_eq!((outline.placed, outline.attributes_class.as_str()), (false, ""));
}

#[test]
fn a_plan_survives_being_stored_and_holds_no_value_of_a_secret() {
    let stem = parameter::PROVISIONER_SECRET;
    let class = class(json!({format!("{stem}-name"): "s-${pvc.name}", format!("{stem}-namespace"): "vault"}));
    let plan = outlined(&claim(json!({})), &class, &all_abilities(), &Options::default()).unwrap();
    let plan = plan.plan(Findings::default());
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
    assert!(text.contains("s-data-web-0") && text.len() < 700, "{} {text}", text.len());
}

/// Rule: PROVISION-2.6
#[test]
fn a_class_of_a_plugin_that_the_driver_took_over_is_said_in_its_words() {
    let driver = "ebs.csi.aws.com";
    let plugin = crate::migration::plugin_of(driver).unwrap();
    let class: Class =
        read(json!({"metadata": {"name": "fast"}, "provisioner": plugin, "parameters": {"fsType": "xfs"}}));
    let (claim, abilities, options) = (claim(json!({})), all_abilities(), Options::default());
    let seen = Seen {
        claim: &claim,
        class: &class,
        volume_name: "v",
        driver,
        abilities: &abilities,
        options: &options,
        grants: &[],
    };
    let plan = outline::outline(&seen).unwrap().plan(Findings::default());
    assert_eq!((plan.driver.as_str(), plan.provisioner.as_str()), (driver, plugin.as_str()));
    assert_eq!(plan.shape, Shape::Mount { fstype: Some("xfs".to_owned()) });
    let strange = Class { provisioner: "nobody.example.com".into(), ..class.clone() };
    let unfit = outline::outline(&Seen { class: &strange, ..seen }).unwrap_err();
    assert_eq!(unfit.standing(), Standing::Wrong);
}
