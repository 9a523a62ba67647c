//! Volumes and inline volumes, handles and topology: the table of MIGRATE-10.1 and the rules of MIGRATE-10.2.

use api::keys::{annotation, label};
use serde_json::{Value, json};

use crate::migration::{Untranslatable, csi_source, inline_to_csi, repair_handle, volume_to_csi, volume_to_in_tree};

fn pv(field: &str, source: Value) -> Value {
    json!({"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"], field: source}})
}

fn labelled(field: &str, source: Value, labels: Value) -> Value {
    let mut pv = pv(field, source);
    pv["metadata"]["labels"] = labels;
    pv
}

fn csi(pv: &Value) -> Value {
    volume_to_csi(pv).unwrap()["spec"]["csi"].clone()
}

fn expression(key: &str, values: &[&str]) -> Value {
    json!({"key": key, "operator": "In", "values": values})
}

fn with_terms(mut pv: Value, terms: Value) -> Value {
    pv["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": terms}});
    pv
}

fn terms(pv: &Value) -> Value {
    pv["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"].clone()
}

/// Rule: MIGRATE-10.1
#[test]
fn a_source_becomes_the_drivers() {
    let uri = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d";
    let table = [
        (
            "gcePersistentDisk",
            json!({"pdName": "d", "fsType": "ext4", "partition": 3, "readOnly": true}),
            json!({"driver": "pd.csi.storage.gke.io", "volumeHandle": "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d",
                "fsType": "ext4", "readOnly": true, "volumeAttributes": {"partition": "3"}}),
        ),
        (
            "gcePersistentDisk",
            json!({"pdName": "d"}),
            json!({"driver": "pd.csi.storage.gke.io", "volumeHandle": "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d",
                "volumeAttributes": {"partition": ""}}),
        ),
        (
            "awsElasticBlockStore",
            json!({"volumeID": "aws://us-east-1a/vol-0ab"}),
            json!({"driver": "ebs.csi.aws.com", "volumeHandle": "vol-0ab", "volumeAttributes": {"partition": "0"}}),
        ),
        (
            "awsElasticBlockStore",
            json!({"volumeID": "anything", "partition": 2}),
            json!({"driver": "ebs.csi.aws.com", "volumeHandle": "anything", "volumeAttributes": {"partition": "2"}}),
        ),
        (
            "cinder",
            json!({"volumeID": "id", "fsType": "xfs", "secretRef": {"name": "s"}}),
            json!({"driver": "cinder.csi.openstack.org", "volumeHandle": "id", "fsType": "xfs"}),
        ),
        (
            "azureDisk",
            json!({"diskName": "d", "diskURI": uri, "cachingMode": "ReadOnly", "fsType": "xfs", "readOnly": true, "kind": "managed"}),
            json!({"driver": "disk.csi.azure.com", "volumeHandle": uri, "fsType": "xfs", "readOnly": true,
                "volumeAttributes": {"kind": "Managed", "cachingmode": "ReadOnly", "fstype": "xfs"}}),
        ),
        (
            "vsphereVolume",
            json!({"volumePath": "[ds] a.vmdk", "fsType": "ext4", "storagePolicyName": "gold"}),
            json!({"driver": "csi.vsphere.vmware.com", "volumeHandle": "[ds] a.vmdk", "fsType": "ext4",
                "volumeAttributes": {"storagepolicyname": "gold"}}),
        ),
        (
            "portworxVolume",
            json!({"volumeID": "id", "fsType": "ext4", "readOnly": true}),
            json!({"driver": "pxd.portworx.com", "volumeHandle": "id", "fsType": "ext4"}),
        ),
    ];
    for (field, source, expected) in table {
        let translated = volume_to_csi(&pv(field, source)).unwrap();
        assert_eq!(translated["spec"]["csi"], expected);
        assert_eq!(translated["spec"].get(field), None, "the old source is gone");
    }
}

/// Rule: MIGRATE-10.1
#[test]
fn what_cannot_be_translated_says_why() {
    let bad = [
        ("awsElasticBlockStore", json!({"volumeID": "aws://zone/disk-1"})),
        ("awsElasticBlockStore", json!({"volumeID": "aws://vol-1"})),
        ("azureDisk", json!({"diskURI": "u", "kind": "Dedicated"})),
        ("azureFile", json!({"secretName": "s", "shareName": "x"})),
        ("gcePersistentDisk", json!({"pdName": 7})),
        ("nfs", json!({"server": "s", "path": "/"})),
    ];
    for (field, source) in bad {
        let error = volume_to_csi(&pv(field, source)).unwrap_err();
        assert!(!error.to_string().is_empty(), "{field}");
    }
    let kind = Untranslatable::Unmanaged { kind: "Shared".to_owned() };
    assert_eq!(volume_to_csi(&pv("azureDisk", json!({"diskURI": "u", "kind": "Shared"}))), Err(kind.clone()));
    assert_eq!(inline_to_csi(&json!({"name": "v", "azureDisk": {"kind": "Shared"}}), "n"), Err(kind));
}

/// Rule: MIGRATE-10.1
#[test]
fn a_gce_handle_names_the_zone_or_the_region_of_the_labels() {
    let handle = |labels| {
        let pv = labelled("gcePersistentDisk", json!({"pdName": "d"}), labels);
        volume_to_csi(&pv).map(|pv| pv["spec"]["csi"]["volumeHandle"].as_str().unwrap().to_owned())
    };
    for key in [label::ZONE, label::BETA_ZONE] {
        assert_eq!(handle(json!({key.text(): "a-b-c"})).unwrap(), "projects/UNSPECIFIED/zones/a-b-c/disks/d");
        let two = handle(json!({key.text(): "a-b-c__a-b-d"}));
        assert_eq!(two.unwrap(), "projects/UNSPECIFIED/regions/a-b/disks/d");
    }
    assert_eq!(handle(json!({label::ZONE.text(): ""})).unwrap(), "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d");
    let apart = handle(json!({label::ZONE.text(): "a-b-c__x-y-z"}));
    assert_eq!(apart, Err(Untranslatable::Regions { zones: vec!["a-b-c".to_owned(), "x-y-z".to_owned()] }));
    let strange = handle(json!({label::ZONE.text(): "a__b"}));
    assert_eq!(strange, Err(Untranslatable::Zone { zone: "a".to_owned() }));
}

/// Rule: MIGRATE-10.1
#[test]
fn gce_access_modes_are_squashed() {
    let table: [(&[&str], &[&str]); 7] = [
        (&["ReadWriteMany"], &["ReadWriteOnce"]),
        (&["ReadOnlyMany", "ReadWriteOnce"], &["ReadWriteOnce"]),
        (&["ReadOnlyMany", "ReadWriteMany"], &["ReadWriteOnce"]),
        (&["ReadOnlyMany"], &["ReadOnlyMany"]),
        (&["ReadWriteOnce"], &["ReadWriteOnce"]),
        (&["ReadWriteOncePod"], &["ReadWriteOnce"]),
        (&[], &[]),
    ];
    for (given, expected) in table {
        let mut pv = pv("gcePersistentDisk", json!({"pdName": "d"}));
        pv["spec"]["accessModes"] = json!(given);
        assert_eq!(volume_to_csi(&pv).unwrap()["spec"]["accessModes"], json!(expected), "{given:?}");
    }
    let mut ebs = pv("awsElasticBlockStore", json!({"volumeID": "i"}));
    ebs["spec"]["accessModes"] = json!(["ReadWriteMany"]);
    assert_eq!(volume_to_csi(&ebs).unwrap()["spec"]["accessModes"], json!(["ReadWriteMany"]), "others stay");
}

/// Rule: MIGRATE-10.2
#[test]
fn only_gce_handles_are_repaired_and_only_what_is_unknown() {
    let gce = |handle: &str, node: &str| repair_handle("pd.csi.storage.gke.io", handle, node);
    let node = "projects/p/zones/a-b-c/instances/n";
    let table = [
        ("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d", "projects/p/zones/a-b-c/disks/d"),
        ("projects/UNSPECIFIED/zones/x-y-z/disks/d", "projects/p/zones/x-y-z/disks/d"),
        ("projects/UNSPECIFIED/regions/UNSPECIFIED/disks/d", "projects/p/regions/a-b/disks/d"),
        ("projects/UNSPECIFIED/regions/x-y/disks/d", "projects/p/regions/x-y/disks/d"),
        ("projects/q/zones/UNSPECIFIED/disks/d", "projects/q/zones/UNSPECIFIED/disks/d"),
    ];
    for (handle, repaired) in table {
        assert_eq!(gce(handle, node).unwrap(), repaired);
    }
    assert!(matches!(gce("d", node), Err(Untranslatable::Handle { .. })));
    assert!(matches!(gce("projects/UNSPECIFIED/places/x/disks/d", node), Err(Untranslatable::Handle { .. })));
    assert!(matches!(gce("projects/UNSPECIFIED/zones/x/disks/d", "n"), Err(Untranslatable::NodeId { .. })));
    assert_eq!(repair_handle("ebs.csi.aws.com", "h", "n").unwrap(), "h");
    assert!(repair_handle("local.orlop.dev", "h", "n").is_err());
}

/// Rule: MIGRATE-10.1
#[test]
fn an_azure_share_names_everything_in_its_handle() {
    let source = json!({"secretName": "azure-storage-account-acc-secret", "shareName": "x", "secretNamespace": "sn"});
    let mut share = pv("azureFile", source);
    share["metadata"]["annotations"] = json!({annotation::AZURE_FILE_RESOURCE_GROUP.text(): "rg"});
    let expected = json!({
        "driver": "file.csi.azure.com", "volumeHandle": "rg#acc#x#v#sn", "volumeAttributes": {"sharename": "x"},
        "nodeStageSecretRef": {"name": "azure-storage-account-acc-secret", "namespace": "sn"},
    });
    assert_eq!(csi(&share), expected);
    let mut claimed = pv("azureFile", json!({"secretName": "plain", "shareName": "x"}));
    claimed["spec"]["claimRef"] = json!({"namespace": "cn", "name": "c"});
    assert_eq!(csi(&claimed)["volumeHandle"], "#plain#x#v#cn");
    let inline = json!({"name": "data", "azureFile": {"secretName": "plain", "shareName": "x"}});
    let translated = inline_to_csi(&inline, "pn").unwrap();
    assert_eq!(translated["metadata"]["name"], "#plain#x#data#pn");
    assert_eq!(translated["spec"]["accessModes"], json!(["ReadWriteMany"]));
    let nowhere = inline_to_csi(&inline, "").unwrap();
    assert_eq!(nowhere["spec"]["csi"]["nodeStageSecretRef"], json!({"name": "plain", "namespace": "default"}));
}

/// Rule: MIGRATE-10.1
#[test]
fn an_azure_share_without_attributes_is_read_from_its_handle() {
    let given = json!({"driver": "file.csi.azure.com", "volumeHandle": "rg#acc#x#"});
    let back = volume_to_in_tree(&pv("csi", given)).unwrap();
    let expected =
        json!({"shareName": "x", "secretName": "azure-storage-account-acc-secret", "secretNamespace": "default"});
    assert_eq!(back["spec"]["azureFile"], expected);
    assert_eq!(back["metadata"]["annotations"][annotation::AZURE_FILE_RESOURCE_GROUP.text()], "rg");
    let short = volume_to_in_tree(&pv("csi", json!({"driver": "file.csi.azure.com", "volumeHandle": "rg#acc"})));
    assert!(matches!(short, Err(Untranslatable::Handle { .. })));
}

/// Rule: MIGRATE-10.1
#[test]
fn portworx_takes_its_secret_from_annotations_into_five_references() {
    let mut volume = pv("portworxVolume", json!({"volumeID": "id"}));
    volume["metadata"]["annotations"] = json!({annotation::PORTWORX_SECRET_NAME.text(): "s"});
    assert_eq!(csi(&volume), json!({"driver": "pxd.portworx.com", "volumeHandle": "id"}), "both or none");
    volume["metadata"]["annotations"][annotation::PORTWORX_SECRET_NAMESPACE.text()] = "n".into();
    let translated = csi(&volume);
    for member in ["controllerPublish", "nodeStage", "nodePublish", "controllerExpand", "nodeExpand"] {
        assert_eq!(translated[format!("{member}SecretRef")], json!({"name": "s", "namespace": "n"}), "{member}");
    }
}

/// Rule: MIGRATE-10.2
#[test]
fn inline_volumes_become_volumes_with_a_name_of_their_disk() {
    let table = [
        ("gcePersistentDisk", json!({"pdName": "d", "readOnly": true}), "pd.csi.storage.gke.io-d", "ReadOnlyMany"),
        ("gcePersistentDisk", json!({"pdName": "d"}), "pd.csi.storage.gke.io-d", "ReadWriteOnce"),
        ("awsElasticBlockStore", json!({"volumeID": "aws://z/vol-1"}), "ebs.csi.aws.com-vol-1", "ReadWriteOnce"),
        ("cinder", json!({"volumeID": "i"}), "cinder.csi.openstack.org-i", "ReadWriteOnce"),
        ("azureDisk", json!({"diskURI": "/u", "cachingMode": ""}), "/u", "ReadWriteOnce"),
        (
            "vsphereVolume",
            json!({"volumePath": "p", "storagePolicyName": "gold"}),
            "csi.vsphere.vmware.com-p",
            "ReadWriteOnce",
        ),
        ("portworxVolume", json!({"volumeID": "i", "readOnly": true}), "pxd.portworx.com-i", "ReadOnlyMany"),
    ];
    for (field, source, name, mode) in table {
        let translated = inline_to_csi(&json!({"name": "data", field: source}), "pn").unwrap();
        assert_eq!(translated["metadata"]["name"], name);
        assert_eq!(translated["spec"]["accessModes"], json!([mode]), "{name}");
        assert_eq!(translated["spec"]["volumeMode"], "Filesystem");
    }
    let disk = json!({"name": "data", "vsphereVolume": {"volumePath": "p", "storagePolicyName": "gold"}});
    let attributes = &inline_to_csi(&disk, "pn").unwrap()["spec"]["csi"]["volumeAttributes"];
    assert_eq!(*attributes, json!({"storagepolicyname": "gold"}), "upstream dies of a nil pointer here");
    let none =
        inline_to_csi(&json!({"name": "data", "azureDisk": {"diskURI": "/u", "cachingMode": ""}}), "pn").unwrap();
    assert_eq!(none["spec"]["csi"]["volumeAttributes"], json!({"kind": "Managed"}));
    assert!(matches!(
        inline_to_csi(&json!({"name": "x", "emptyDir": {}}), "n"),
        Err(Untranslatable::NotMigrated { .. })
    ));
}

const EBS_ZONE: &str = "topology.ebs.csi.aws.com/zone";

fn ebs() -> Value {
    pv("awsElasticBlockStore", json!({"volumeID": "i"}))
}

/// Rule: MIGRATE-10.2
#[test]
fn a_zone_in_the_affinity_gets_the_drivers_key() {
    let other = expression("other", &["x"]);
    for (zone, region) in [(label::ZONE, label::REGION), (label::BETA_ZONE, label::BETA_REGION)] {
        let given = json!([{"matchExpressions": [
            expression(zone.text(), &["us-east-1a"]), other, expression(region.text(), &["us-east-1"])
        ], "matchFields": [{"key": "metadata.name"}]}]);
        let expected = json!([{"matchExpressions": [
            expression(EBS_ZONE, &["us-east-1a"]), other, expression(label::REGION.text(), &["us-east-1"])
        ], "matchFields": [{"key": "metadata.name"}]}]);
        assert_eq!(terms(&volume_to_csi(&with_terms(ebs(), given)).unwrap()), expected);
    }
}

/// Rule: MIGRATE-10.2
#[test]
fn a_zone_that_only_a_label_has_is_required_in_every_term() {
    for zone in [label::ZONE, label::BETA_ZONE] {
        let labels = json!({zone.text(): "b__a__ __b"});
        let bare = labelled("awsElasticBlockStore", json!({"volumeID": "i"}), labels);
        let required = expression(EBS_ZONE, &["a", "b"]);
        assert_eq!(terms(&volume_to_csi(&bare).unwrap()), json!([{"matchExpressions": [required]}]));
        let other = expression("other", &["x"]);
        let given = with_terms(bare, json!([{"matchExpressions": [other]}, {"matchExpressions": [other]}]));
        let both = json!({"matchExpressions": [other, required]});
        assert_eq!(terms(&volume_to_csi(&given).unwrap()), json!([both, both]));
    }
    assert_eq!(volume_to_csi(&ebs()).unwrap()["spec"].get("nodeAffinity"), None, "no zone, no affinity");
}

/// Rule: MIGRATE-10.1
#[test]
fn azure_disk_and_shares_and_portworx_keep_their_topology() {
    let given = json!([{"matchExpressions": [expression(label::ZONE.text(), &["1"])]}]);
    for (field, source) in [
        ("azureDisk", json!({"diskURI": "u"})),
        ("azureFile", json!({"secretName": "s", "shareName": "x", "secretNamespace": "n"})),
        ("portworxVolume", json!({"volumeID": "i"})),
    ] {
        assert_eq!(terms(&volume_to_csi(&with_terms(pv(field, source), given.clone())).unwrap()), given, "{field}");
    }
}

/// Rule: MIGRATE-10.1
#[test]
fn vsphere_translates_zone_and_region() {
    let labels = json!({label::ZONE.text(): "z__1", label::REGION.text(): "r"});
    let bare = labelled("vsphereVolume", json!({"volumePath": "p"}), labels);
    let expected = json!([{"matchExpressions": [
        expression("topology.csi.vmware.com/zone", &["z__1"]), expression("topology.csi.vmware.com/region", &["r"])
    ]}]);
    assert_eq!(terms(&volume_to_csi(&bare).unwrap()), expected, "a label is one name here");
    let source = json!({"driver": "csi.vsphere.vmware.com", "volumeHandle": "id", "fsType": "ext4",
        "volumeAttributes": {"initialvolumefilepath": "[ds] a.vmdk"}});
    let back = volume_to_in_tree(&with_terms(pv("csi", source), expected)).unwrap();
    assert_eq!(back["spec"]["vsphereVolume"], json!({"volumePath": "[ds] a.vmdk", "fsType": "ext4"}));
    assert_eq!(back["metadata"]["labels"], json!({label::ZONE.text(): "z__1", label::REGION.text(): "r"}));
}

/// Rule: MIGRATE-10.2
#[test]
fn a_region_is_told_from_zones_where_the_provider_does_so() {
    let table = [
        ("ebs.csi.aws.com", EBS_ZONE, "us-west-2a", Some("us-west-2")),
        ("ebs.csi.aws.com", EBS_ZONE, "us-gov-east-1a", Some("us-gov-east-1")),
        ("ebs.csi.aws.com", EBS_ZONE, "us-west-2-lax-1a", Some("us-west-2")),
        ("ebs.csi.aws.com", EBS_ZONE, "us-east-1-wl1-bos-wlz-1", Some("us-east-1")),
        ("pd.csi.storage.gke.io", "topology.gke.io/zone", "us-east1-b", Some("us-east1")),
        ("cinder.csi.openstack.org", "topology.cinder.csi.openstack.org/zone", "nova", None),
    ];
    for (driver, key, zone, region) in table {
        let handle = "projects/p/zones/z/disks/d";
        let given = with_terms(
            pv("csi", json!({"driver": driver, "volumeHandle": handle})),
            json!([{"matchExpressions": [expression(key, &[zone])]}]),
        );
        let back = volume_to_in_tree(&given).unwrap();
        let mut expected = vec![expression(label::ZONE.text(), &[zone])];
        expected.extend(region.map(|region| expression(label::REGION.text(), &[region])));
        assert_eq!(terms(&back), json!([{"matchExpressions": expected}]), "{zone}");
        assert_eq!(back["metadata"]["labels"][label::ZONE.text()], zone);
        assert_eq!(back["metadata"]["labels"].get(label::REGION.text()).and_then(Value::as_str), region);
    }
    for bad in ["nowhere", "us-west-10a", "a-b-c-d-e-f"] {
        let given = with_terms(
            pv("csi", json!({"driver": "ebs.csi.aws.com", "volumeHandle": "i"})),
            json!([{"matchExpressions": [expression(EBS_ZONE, &[bad])]}]),
        );
        assert_eq!(volume_to_in_tree(&given), Err(Untranslatable::Zone { zone: bad.to_owned() }));
    }
}

/// Rule: MIGRATE-10.2
#[test]
fn labels_that_a_volume_has_are_kept_and_a_region_in_a_term_is_not_doubled() {
    let term = json!({"matchExpressions": [
        expression(label::REGION.text(), &["mine"]), expression(EBS_ZONE, &["us-east-1b", "us-east-1a"])
    ]});
    let source = json!({"driver": "ebs.csi.aws.com", "volumeHandle": "i"});
    let given = with_terms(labelled("csi", source.clone(), json!({label::REGION.text(): "kept"})), json!([term]));
    let back = volume_to_in_tree(&given).unwrap();
    assert_eq!(terms(&back)[0]["matchExpressions"].as_array().unwrap().len(), 2);
    let labels = json!({label::REGION.text(): "kept", label::ZONE.text(): "us-east-1a__us-east-1b"});
    assert_eq!(back["metadata"]["labels"], labels);
}

/// Rule: MIGRATE-10.1
#[test]
fn a_disk_name_is_the_end_of_its_uri() {
    let back = |uri: &str| volume_to_in_tree(&pv("csi", json!({"driver": "disk.csi.azure.com", "volumeHandle": uri})));
    let managed = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d1";
    let expected = json!({"diskName": "d1", "diskURI": managed, "fsType": "", "readOnly": false, "kind": "Managed"});
    assert_eq!(back(managed).unwrap()["spec"]["azureDisk"], expected);
    assert_eq!(back("https://a.blob/vhds/b.vhd").unwrap()["spec"]["azureDisk"]["diskName"], "b.vhd");
    for bad in
        ["", "d1", "https://a.blob/b.vhd", "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/"]
    {
        assert!(matches!(back(bad), Err(Untranslatable::Handle { .. })), "{bad:?}");
    }
}

/// Rule: MIGRATE-10.1
#[test]
fn a_bad_partition_is_said() {
    for driver in ["ebs.csi.aws.com", "pd.csi.storage.gke.io"] {
        let source = json!({"driver": driver, "volumeHandle": "a/b/c/d/e/f", "volumeAttributes": {"partition": "x"}});
        assert_eq!(volume_to_in_tree(&pv("csi", source)), Err(Untranslatable::Partition { partition: "x".to_owned() }));
    }
}

#[test]
fn what_a_cache_holds_of_a_volume_translates_like_the_whole() {
    let labels = json!({label::ZONE.text(): "a-b-c"});
    let whole = labelled("gcePersistentDisk", json!({"pdName": "d", "fsType": "ext4"}), labels);
    let held: api::Volume = serde_json::from_value(whole.clone()).unwrap();
    assert_eq!(json!(csi_source(&held).unwrap().unwrap()), csi(&whole));
    let own: api::Volume = serde_json::from_value(pv("csi", json!({"driver": "d", "volumeHandle": "h"}))).unwrap();
    assert_eq!(csi_source(&own), Ok(None));
}
