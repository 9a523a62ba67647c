//! The pod that empties a volume (BIND-4.10).

use std::time::Duration;

use api::Volume;
use serde_json::{Value, json};

/// Where the volume is in the pod that comes without a template of the operator's.
const MOUNT: &str = "/scrub";
/// Small, everywhere, and with all that the script needs.
const IMAGE: &str = "busybox:1.37";

/// What pods that empty volumes are made from. Each pod is made from a copy: two volumes never share one (CTRL-14.8).
#[derive(Debug, Clone, PartialEq)]
pub struct Template(Value);

/// Why a file is no template for a pod that empties volumes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTemplate {
    #[error("the recycler's template is not a pod; its kind has to be Pod")]
    NoPod,
    #[error("the recycler's pod has no volume; its first one is replaced by the volume to be emptied")]
    NoVolume,
    #[error("the recycler's pod has no container")]
    NoContainer,
}

impl Template {
    /// A template of the operator's: a Pod whose first volume stands for the one to be emptied.
    pub fn new(pod: Value) -> Result<Self, BadTemplate> {
        let some = |list: &str| pod.pointer(list).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
        if pod.get("kind").and_then(Value::as_str) != Some("Pod") {
            return Err(BadTemplate::NoPod);
        }
        if !some("/spec/volumes") {
            return Err(BadTemplate::NoVolume);
        }
        if !some("/spec/containers") {
            return Err(BadTemplate::NoContainer);
        }
        Ok(Self(pod))
    }

    /// The pod for one volume. `source` is the volume as a pod's volume says it.
    pub(super) fn pod(&self, volume: &Volume, source: &Value, patience: Duration) -> Value {
        let mut pod = self.0.clone();
        let metadata = &mut pod["metadata"];
        metadata["name"] = name(volume).into();
        metadata["generateName"] = Value::Null;
        if metadata.get("namespace").and_then(Value::as_str).is_none_or(str::is_empty) {
            metadata["namespace"] = "default".into();
        }
        pod["spec"]["activeDeadlineSeconds"] = patience.as_secs().into();
        if let Some(replaced) = pod.pointer_mut("/spec/volumes/0") {
            let mut named = source.clone();
            named["name"] = replaced["name"].take();
            *replaced = named;
        }
        pod
    }
}

/// The name of the pod that empties a volume.
pub(super) fn name(volume: &Volume) -> String {
    format!("recycler-for-{}", volume.name())
}

impl Default for Template {
    /// Removes everything on the volume's own filesystem and looks whether something is left.
    fn default() -> Self {
        let script = format!("find {MOUNT} -xdev -mindepth 1 -delete && test -z \"$(ls -A {MOUNT})\"");
        Self(json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": "default"},
            "spec": {
                "restartPolicy": "Never",
                "volumes": [{"name": "vol"}],
                "containers": [{
                    "name": "pv-recycler",
                    "image": IMAGE,
                    "command": ["/bin/sh", "-c", script],
                    "volumeMounts": [{"name": "vol", "mountPath": MOUNT}],
                }],
            },
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume() -> Volume {
        serde_json::from_value(json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "4Gi"}}})).unwrap()
    }

    /// Rule: BIND-4.10
    #[test]
    fn a_pod_has_the_volumes_name_its_deadline_and_its_source() {
        let nfs = json!({"nfs": {"server": "s", "path": "/p"}});
        let pod = Template::default().pod(&volume(), &nfs, Duration::from_secs(300));
        assert_eq!(pod["metadata"]["name"], "recycler-for-v");
        assert_eq!(pod["spec"]["activeDeadlineSeconds"], 300);
        assert_eq!(pod["spec"]["restartPolicy"], "Never");
        assert_eq!(pod["spec"]["volumes"], json!([{"name": "vol", "nfs": {"server": "s", "path": "/p"}}]));
    }

    #[test]
    fn a_template_of_the_operators_keeps_what_is_not_the_volumes() {
        let given = json!({
            "kind": "Pod", "metadata": {"namespace": "storage", "generateName": "x-", "labels": {"a": "b"}},
            "spec": {"volumes": [{"name": "data", "emptyDir": {}}, {"name": "more", "emptyDir": {}}], "containers": [{"name": "c"}]},
        });
        let pod =
            Template::new(given).unwrap().pod(&volume(), &json!({"hostPath": {"path": "/p"}}), Duration::from_secs(60));
        assert_eq!(pod["metadata"]["namespace"], "storage");
        assert_eq!((&pod["metadata"]["labels"]["a"], &pod["metadata"]["generateName"]), (&json!("b"), &Value::Null));
        let volumes = json!([{"name": "data", "hostPath": {"path": "/p"}}, {"name": "more", "emptyDir": {}}]);
        assert_eq!(pod["spec"]["volumes"], volumes);
    }

    #[test]
    fn what_is_no_template_says_why() {
        assert_eq!(Template::new(json!({"kind": "Job"})), Err(BadTemplate::NoPod));
        assert_eq!(Template::new(json!({"kind": "Pod", "spec": {"volumes": []}})), Err(BadTemplate::NoVolume));
        let no_container = json!({"kind": "Pod", "spec": {"volumes": [{"name": "v"}]}});
        assert_eq!(Template::new(no_container), Err(BadTemplate::NoContainer));
    }
}
