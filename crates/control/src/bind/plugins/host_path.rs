//! hostPath: directories of this machine, for development on one node.
//!
//! A volume's directory has its claim's uid as its name: an attempt that is repeated finds what an earlier one made. It is
//! deleted on this machine as well, and only below the root. Emptying is a pod's work, because the data is where the pod
//! was; without any node there is only this machine, and the directory is emptied here.

use std::path::PathBuf;

use api::keys::{annotation, finalizer, provisioner};
use api::{AccessMode, Kind, Node, ReclaimPolicy, Source, Volume, VolumeMode};
use futures_util::future::BoxFuture;
use runtime::Cache;
use serde_json::{Value, json};

use super::scrub::Scrubber;
use super::tree::{self, TreeError};
use super::{Capabilities, Plugin, PluginError, Recycling};
use crate::Context;
use crate::provision::Wish;

/// Whether directories are made on demand: `--enable-hostpath-provisioner`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Provisioning {
    Off,
    /// Below this directory.
    On {
        root: PathBuf,
    },
}

impl Provisioning {
    /// Where upstream makes them.
    pub fn on() -> Self {
        Self::On { root: PathBuf::from(ROOT) }
    }
}

const ROOT: &str = "/tmp/hostpath_pv";

#[derive(Debug)]
pub struct HostPath {
    nodes: Cache<Node>,
    scrubber: Scrubber,
    provisioning: Provisioning,
    recycling: Recycling,
}

impl HostPath {
    pub(super) fn new(
        context: &Context,
        scrubber: &Scrubber,
        provisioning: Provisioning,
        recycling: Recycling,
    ) -> Self {
        Self { nodes: context.cache::<Node>(), scrubber: scrubber.clone(), provisioning, recycling }
    }

    /// The directory below which volumes are made and deleted.
    fn root(&self) -> PathBuf {
        match &self.provisioning {
            Provisioning::Off => PathBuf::from(ROOT),
            Provisioning::On { root } => root.clone(),
        }
    }

    fn make(&self, wish: &Wish) -> Result<Value, PluginError> {
        let Provisioning::On { root } = &self.provisioning else {
            return Err(PluginError::Unsupported { plugin: self.name(), what: "provision" });
        };
        check(wish)?;
        let uid = wish.claim.uid().as_str();
        let path = root.join(uid);
        // A uid is one name; what is not would leave the root.
        if uid.is_empty() || uid.contains('/') || matches!(uid, "." | "..") {
            return Err(PluginError::Refused { message: format!("the claim's uid {uid:?} cannot name a directory") });
        }
        let path = path.display().to_string();
        tree::make(root, uid).map_err(on("making", &path))?;
        Ok(self.body(wish, &path))
    }

    fn body(&self, wish: &Wish, path: &str) -> Value {
        let (claim, class) = (&wish.claim, &wish.class);
        let policy = class.reclaim_policy.unwrap_or(ReclaimPolicy::Delete);
        let held = (policy == ReclaimPolicy::Delete).then(|| finalizer::PV_CONTROLLER.text());
        let mut modes: Vec<&str> = claim.access.iter().map(AccessMode::name).collect();
        if modes.is_empty() {
            modes.push(AccessMode::ReadWriteOnce.name());
        }
        json!({
            "apiVersion": Kind::VOLUME.api_version(),
            "kind": Kind::VOLUME.kind,
            "metadata": {
                "name": wish.volume_name,
                "annotations": {
                    annotation::CREATED_BY.text(): "hostpath-dynamic-provisioner",
                    annotation::BOUND_BY_CONTROLLER.text(): api::keys::YES,
                    annotation::PROVISIONED_BY.text(): self.name(),
                },
                "finalizers": held.into_iter().collect::<Vec<_>>(),
            },
            "spec": {
                "capacity": {"storage": claim.request.as_ref().map(|request| request.text())},
                "accessModes": modes,
                "volumeMode": "Filesystem",
                "persistentVolumeReclaimPolicy": policy.name(),
                "storageClassName": claim.class().text(),
                "hostPath": {"path": path},
                "claimRef": {
                    "kind": Kind::CLAIM.kind,
                    "apiVersion": Kind::CLAIM.api_version(),
                    "namespace": claim.namespace(),
                    "name": claim.name(),
                    "uid": claim.uid(),
                    "resourceVersion": claim.meta.revision.to_string(),
                },
            },
        })
    }

    async fn empty(&self, volume: &Volume, path: &str) -> Result<(), PluginError> {
        if !self.nodes.is_empty() {
            let source = json!({"hostPath": {"path": path}});
            return Ok(self.scrubber.scrub(volume, &source, &self.recycling).await?);
        }
        match tree::find(&self.root(), path.as_ref()).map_err(on("opening", path))? {
            Some(place) => place.empty().await.map_err(on("emptying", path)),
            None => Ok(()),
        }
    }
}

/// What a directory cannot be.
fn check(wish: &Wish) -> Result<(), PluginError> {
    let (claim, class) = (&wish.claim, &wish.class);
    let refuse = |message: String| Err(PluginError::Refused { message });
    if let Some(source) = &claim.source {
        return refuse(format!("hostPath volumes cannot be made from {} {:?}", source.kind, source.name));
    }
    if claim.mode == VolumeMode::Block {
        return refuse(format!("{} does not support block volume provisioning", provisioner::HOST_PATH));
    }
    if !class.mount_options.is_empty() {
        let options = class.mount_options.join(",");
        return refuse(format!("hostPath volumes have no mount options, and class {:?} has {options}", class.name()));
    }
    if claim.request.is_none() {
        return refuse("the claim asks for no storage".to_owned());
    }
    Ok(())
}

fn on(doing: &'static str, path: &str) -> impl FnOnce(TreeError) -> PluginError {
    move |source| PluginError::Directory { doing, path: path.to_owned(), source }
}

fn path_of(volume: &Volume) -> Result<&str, PluginError> {
    match &volume.source {
        Source::HostPath { path } => Ok(path),
        _ => Err(PluginError::Refused { message: format!("volume {:?} has no hostPath", volume.name()) }),
    }
}

impl Plugin for HostPath {
    fn name(&self) -> &'static str {
        provisioner::HOST_PATH
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { provisions: self.provisioning != Provisioning::Off, deletes: true, recycles: true }
    }

    fn owns(&self, source: &Source) -> bool {
        matches!(source, Source::HostPath { .. })
    }

    fn provision<'a>(&'a self, wish: &'a Wish) -> BoxFuture<'a, Result<Value, PluginError>> {
        Box::pin(async move { self.make(wish) })
    }

    fn delete<'a>(&'a self, volume: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        Box::pin(async move {
            let path = path_of(volume)?;
            match tree::find(&self.root(), path.as_ref()).map_err(on("opening", path))? {
                Some(place) => place.remove().await.map_err(on("deleting", path)),
                None => Ok(()),
            }
        })
    }

    fn recycle<'a>(&'a self, volume: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        Box::pin(async move { self.empty(volume, path_of(volume)?).await })
    }
}
