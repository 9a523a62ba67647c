//! To the driver's form and back is the same volume, for any volume.

use api::keys::label;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::migration::{volume_to_csi, volume_to_in_tree};

fn text() -> impl Strategy<Value = String> {
    "[a-z0-9][a-z0-9-]{0,12}"
}

/// A member that may be missing.
fn maybe(source: &mut Value, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        source[name] = value.into();
    }
}

prop_compose! {
    fn gce()(name in text(), fs in proptest::option::of(text()), part in proptest::option::of(1..9), ro in any::<bool>()) -> Value {
        let mut source = json!({"pdName": name});
        maybe(&mut source, "fsType", fs);
        maybe(&mut source, "partition", part);
        maybe(&mut source, "readOnly", ro.then_some(true));
        json!({"gcePersistentDisk": source})
    }
}

prop_compose! {
    fn by_id()(
        field in prop::sample::select(vec!["awsElasticBlockStore", "cinder"]),
        id in text(), fs in proptest::option::of(text()), ro in any::<bool>(),
    ) -> Value {
        let mut source = json!({"volumeID": id});
        maybe(&mut source, "fsType", fs);
        maybe(&mut source, "readOnly", ro.then_some(true));
        json!({field: source})
    }
}

prop_compose! {
    fn portworx()(id in text(), fs in proptest::option::of(text())) -> Value {
        let mut source = json!({"volumeID": id});
        maybe(&mut source, "fsType", fs);
        json!({"portworxVolume": source})
    }
}

prop_compose! {
    fn azure_disk()(name in text(), group in text(), fs in text(), ro in any::<bool>(), caching in proptest::option::of(text())) -> Value {
        let uri = format!("/subscriptions/s/resourceGroups/{group}/providers/Microsoft.Compute/disks/{name}");
        let mut source = json!({"diskName": name, "diskURI": uri, "fsType": fs, "readOnly": ro, "kind": "Managed"});
        maybe(&mut source, "cachingMode", caching);
        json!({"azureDisk": source})
    }
}

prop_compose! {
    fn azure_file()(share in text(), secret in text(), namespace in text(), ro in any::<bool>()) -> Value {
        let mut source = json!({"shareName": share, "secretName": secret, "secretNamespace": namespace});
        maybe(&mut source, "readOnly", ro.then_some(true));
        json!({"azureFile": source})
    }
}

fn any_source() -> impl Strategy<Value = Value> {
    prop_oneof![gce(), by_id(), portworx(), azure_disk(), azure_file()]
}

/// Zones of one region that both AWS and GCE could have, in the affinity and in the label, with the region in both.
fn topology() -> impl Strategy<Value = (Value, Value)> {
    let zones = prop::sample::subsequence(vec!["us-east-1a", "us-east-1b", "us-east-1c"], 1..=3);
    (zones, any::<bool>()).prop_map(|(zones, stable)| {
        let (zone, region) = match stable {
            true => (label::ZONE.text(), label::REGION.text()),
            false => (label::BETA_ZONE.text(), label::BETA_REGION.text()),
        };
        let labels = json!({zone: zones.join("__"), region: "us-east-1"});
        let term = json!({"matchExpressions": [
            {"key": zone, "operator": "In", "values": zones},
            {"key": "rack", "operator": "In", "values": ["7"]},
        ]});
        (labels, json!([term]))
    })
}

fn volume(source: &Value) -> Value {
    let mut spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}});
    spec.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
    json!({"metadata": {"name": "v", "annotations": {"mine": "kept"}}, "spec": spec})
}

proptest! {
    /// Rule: MIGRATE-10.1
    #[test]
    fn a_source_comes_back_as_it_was(source in any_source()) {
        let before = volume(&source);
        let translated = volume_to_csi(&before).unwrap();
        prop_assert!(translated["spec"]["csi"]["driver"].is_string());
        prop_assert_eq!(volume_to_in_tree(&translated).unwrap(), before);
    }

    /// Rule: MIGRATE-10.2
    #[test]
    fn a_zone_comes_back_as_it_was_with_its_region((labels, terms) in topology(), id in text()) {
        let mut before = volume(&json!({"awsElasticBlockStore": {"volumeID": id}}));
        before["metadata"]["labels"] = labels.clone();
        before["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": terms}});
        let back = volume_to_in_tree(&volume_to_csi(&before).unwrap()).unwrap();
        let zone_before = &before["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"];
        let zone_after = &back["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"];
        for expression in zone_before.as_array().unwrap() {
            prop_assert!(zone_after.as_array().unwrap().contains(expression), "{expression} in {zone_after}");
        }
        prop_assert_eq!(zone_after.as_array().unwrap().len(), 3, "and the region");
        prop_assert_eq!(&back["metadata"]["labels"], &labels);
    }

    #[test]
    fn no_volume_makes_translation_panic(
        field in prop::sample::select(vec!["gcePersistentDisk", "awsElasticBlockStore", "azureDisk", "azureFile", "vsphereVolume", "csi"]),
        id in ".*", driver in prop::sample::select(vec!["pd.csi.storage.gke.io", "ebs.csi.aws.com", "disk.csi.azure.com", "file.csi.azure.com"]),
        zone in ".*",
    ) {
        let source = json!({"pdName": id, "volumeID": id, "diskURI": id, "secretName": id, "shareName": id, "volumePath": id,
            "secretNamespace": id, "driver": driver, "volumeHandle": id});
        let mut given = volume(&json!({field: source}));
        given["metadata"]["labels"] = json!({label::ZONE.text(): zone});
        let key = if driver.starts_with("ebs") { "topology.ebs.csi.aws.com/zone" } else { "topology.gke.io/zone" };
        given["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": key, "operator": "In", "values": [zone]}]}
        ]}});
        let _ = volume_to_csi(&given);
        let _ = volume_to_in_tree(&given);
    }
}
