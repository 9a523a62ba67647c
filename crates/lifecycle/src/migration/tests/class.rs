//! Classes: MIGRATE-10.2, first rule, and the notes of MIGRATE-10.1.

use api::Class;
use api::keys::{annotation, label, parameter};
use serde_json::{Value, json};

use crate::migration::{Untranslatable, class_to_csi, plugin_of};

fn class(driver: &str, parameters: Value, topologies: Value) -> Class {
    serde_json::from_value(json!({
        "metadata": {"name": "c"},
        "provisioner": plugin_of(driver).unwrap(),
        "parameters": parameters,
        "allowedTopologies": topologies,
    }))
    .unwrap()
}

fn parameters(class: &Class) -> Value {
    class
        .parameters
        .iter()
        .map(|(name, value)| (name.to_string(), json!(value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn topologies(class: &Class) -> Vec<(String, Vec<String>)> {
    let expressions = class.allowed_topologies.iter().flat_map(|term| &term.match_label_expressions);
    expressions.map(|e| (e.key.to_string(), e.values.iter().map(ToString::to_string).collect())).collect()
}

const GCE: &str = "pd.csi.storage.gke.io";
const EBS: &str = "ebs.csi.aws.com";
const CINDER: &str = "cinder.csi.openstack.org";
const AZURE_DISK: &str = "disk.csi.azure.com";
const AZURE_FILE: &str = "file.csi.azure.com";
const VSPHERE: &str = "csi.vsphere.vmware.com";
const PORTWORX: &str = "pxd.portworx.com";

/// Rule: MIGRATE-10.2
#[test]
fn fstype_gets_its_csi_name_in_any_case() {
    for driver in [GCE, EBS, CINDER] {
        let translated = class_to_csi(&class(driver, json!({"FsType": "xfs", "Type": "fast"}), json!([]))).unwrap();
        assert_eq!(parameters(&translated), json!({parameter::FSTYPE.text(): "xfs", "Type": "fast"}), "{driver}");
    }
    for driver in [AZURE_DISK, AZURE_FILE, PORTWORX] {
        let translated = class_to_csi(&class(driver, json!({"fsType": "xfs"}), json!([]))).unwrap();
        assert_eq!(parameters(&translated), json!({"fsType": "xfs"}), "{driver} reads it itself");
    }
}

/// Rule: MIGRATE-10.2
#[test]
fn zone_and_zones_become_allowed_topologies() {
    let keys = [
        (GCE, "topology.gke.io/zone"),
        (EBS, "topology.ebs.csi.aws.com/zone"),
        (AZURE_DISK, "topology.disk.csi.azure.com/zone"),
    ];
    for (driver, key) in keys {
        for (given, zones) in [(json!({"zone": "a-b-c"}), vec!["a-b-c"]), (json!({"Zones": "a, b"}), vec!["a", " b"])] {
            let translated = class_to_csi(&class(driver, given, json!([]))).unwrap();
            assert_eq!(topologies(&translated), [(key.to_owned(), zones.into_iter().map(str::to_owned).collect())]);
            assert_eq!(parameters(&translated), json!({}));
        }
        let ours = json!([{"matchLabelExpressions": [{"key": "x", "values": ["y"]}]}]);
        let both = class_to_csi(&class(driver, json!({"zone": "a"}), ours));
        assert_eq!(both.unwrap_err(), Untranslatable::ZonesTwice, "{driver}");
    }
    let cinder = class_to_csi(&class(CINDER, json!({"zone": "a", "availability": "nova"}), json!([]))).unwrap();
    assert_eq!(parameters(&cinder), json!({"zone": "a", "availability": "nova"}), "the driver reads them itself");
    let both = class_to_csi(&class(GCE, json!({"zone": "a", "zones": "b,c"}), json!([]))).unwrap();
    assert_eq!(topologies(&both)[0].1, ["b", "c"]);
}

/// Rule: MIGRATE-10.2
#[test]
fn zones_of_both_generations_get_the_drivers_key_and_others_stay() {
    let keys = [
        (GCE, "topology.gke.io/zone"),
        (EBS, "topology.ebs.csi.aws.com/zone"),
        (CINDER, "topology.cinder.csi.openstack.org/zone"),
        (AZURE_DISK, "topology.disk.csi.azure.com/zone"),
        (VSPHERE, "topology.csi.vmware.com/zone"),
    ];
    for (driver, key) in keys {
        let given = json!([{"matchLabelExpressions": [
            {"key": label::ZONE.text(), "values": ["a"]},
            {"key": label::BETA_ZONE.text(), "values": ["b"]},
            {"key": "other", "values": ["c"]},
        ]}]);
        let translated = class_to_csi(&class(driver, json!({}), given)).unwrap();
        let one = |key: &str, value: &str| (key.to_owned(), vec![value.to_owned()]);
        assert_eq!(topologies(&translated), [one(key, "a"), one(key, "b"), one("other", "c")], "{driver}");
    }
}

/// Rule: MIGRATE-10.1
#[test]
fn a_number_is_no_zone_for_azure_disk() {
    let translated = class_to_csi(&class(AZURE_DISK, json!({"zones": "0,12,westus-1"}), json!([]))).unwrap();
    assert_eq!(topologies(&translated)[0].1, ["", "", "westus-1"]);
}

/// Rule: MIGRATE-10.1
#[test]
fn iops_per_gb_may_be_raised_by_the_driver() {
    let translated = class_to_csi(&class(EBS, json!({"iopsPerGB": "10"}), json!([]))).unwrap();
    assert_eq!(parameters(&translated), json!({"iopsPerGB": "10", "allowautoiopspergbincrease": "true"}));
}

/// Rule: MIGRATE-10.1
#[test]
fn vsphere_parameters_are_renamed_and_unknown_ones_dropped() {
    let given = json!({
        "fstype": "ext4", "StoragePolicyName": "gold", "datastore": "d", "diskFormat": "thin",
        "hostFailuresToTolerate": "1", "forceProvisioning": "1", "cacheReservation": "2", "diskStripes": "3",
        "objectSpaceReservation": "4", "iopsLimit": "5", "something": "else",
    });
    let expected = json!({
        parameter::FSTYPE.text(): "ext4", "storagepolicyname": "gold", "csimigration": "true",
        "datastore-migrationparam": "d", "diskformat-migrationparam": "thin",
        "hostfailurestotolerate-migrationparam": "1", "forceprovisioning-migrationparam": "1",
        "cachereservation-migrationparam": "2", "diskstripes-migrationparam": "3",
        "objectspacereservation-migrationparam": "4", "iopslimit-migrationparam": "5",
    });
    assert_eq!(parameters(&class_to_csi(&class(VSPHERE, given, json!([]))).unwrap()), expected);
    assert_eq!(
        parameters(&class_to_csi(&class(VSPHERE, json!({}), json!([]))).unwrap()),
        json!({"csimigration": "true"})
    );
}

/// Rule: MIGRATE-10.1
#[test]
fn portworx_names_its_secret_for_everything_and_changes_the_provisioner() {
    let given = json!({
        annotation::PORTWORX_SECRET_NAME.text(): "s", annotation::PORTWORX_SECRET_NAMESPACE.text(): "n", "repl": "2",
    });
    let translated = class_to_csi(&class(PORTWORX, given, json!([]))).unwrap();
    assert_eq!(&*translated.provisioner, PORTWORX);
    assert_eq!(translated.parameters.len(), 13);
    for secret in
        ["provisioner", "controller-publish", "node-publish", "node-stage", "controller-expand", "node-expand"]
    {
        let value = |suffix| {
            let name = format!("{}{secret}-secret-{suffix}", parameter::PREFIX);
            translated.parameters.get(name.as_str()).map(|value| &**value)
        };
        assert_eq!((value("name"), value("namespace")), (Some("s"), Some("n")), "{secret}");
    }
}

#[test]
fn a_class_of_another_provisioner_is_not_translated() {
    let other: Class =
        serde_json::from_value(json!({"metadata": {"name": "c"}, "provisioner": "local.orlop.dev"})).unwrap();
    assert!(matches!(class_to_csi(&other), Err(Untranslatable::NotMigrated { .. })));
}
