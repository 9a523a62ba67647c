//! The rules of SIDECAR-1.6, SIDECAR-1.9 and PROVISION-2.6 to PROVISION-2.10, each with the rule's number.

mod answers;
mod outlines;
mod secrets;
mod sources;
mod topologies;

use api::{Claim, Class};
use serde_json::{Value, json};

use super::ability::{Abilities, Ability};
use super::outline::{Options, Outline, Seen, outline};
use super::unfit::Unfit;

const DRIVER: &str = "disk.example.com";

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A claim for 1 GiB of the class `fast`, with more of its spec.
fn claim(spec: Value) -> Claim {
    let mut all = json!({
        "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}},
    });
    merge(&mut all, spec);
    let metadata = json!({"namespace": "shop", "name": "data-web-0", "uid": "u-1", "resourceVersion": "41"});
    read(json!({"metadata": metadata, "spec": all}))
}

fn merge(into: &mut Value, from: Value) {
    for (key, value) in from.as_object().unwrap() {
        into[key] = value.clone();
    }
}

/// The class `fast` of our driver, with these parameters.
fn class(parameters: Value) -> Class {
    read(json!({
        "metadata": {"name": "fast", "uid": "c-1", "resourceVersion": "7"},
        "provisioner": DRIVER, "parameters": parameters, "reclaimPolicy": "Delete", "mountOptions": ["noatime"],
    }))
}

fn all_abilities() -> Abilities {
    Abilities::from([
        Ability::ControllerService,
        Ability::CreateDelete,
        Ability::Snapshots,
        Ability::Clones,
        Ability::Modify,
        Ability::Topology,
    ])
}

fn outlined(claim: &Claim, class: &Class, abilities: &Abilities, options: &Options) -> Result<Outline, Unfit> {
    let volume_name = "pvc-u-1";
    outline(&Seen { claim, class, volume_name, driver: DRIVER, abilities, options, grants: &[] })
}
