//! From a volume of a pod to the volume of the machine (node 5.4).

use std::sync::Arc;

use api::{AccessModes, Attachment, Claim, CsiDriver, Key, Node, Object, Source, Volume, VolumeMode};
use lifecycle::attach::{attachment_name, unique_name};
use lifecycle::node::{Because, claim, terms};
use runtime::client::{Error, Extent};
use runtime::{Context, Live, Want};
use tokio::time::Instant;

use super::{Desired, DesiredPod, Wants, Wish};
use crate::actual::{Shape, VolumeId, What};
use crate::layout::{Name, Plugin, inline_handle, per_pod_name};
use crate::pods::{LocalPod, PodVolume, VolumeSource};

/// What a pod's volumes are looked up in.
pub(crate) struct Resolver<'a> {
    pub(crate) context: &'a Context,
    pub(crate) node: &'a str,
    /// The node itself, if it is known.
    pub(crate) labels: Option<&'a Node>,
}

impl Resolver<'_> {
    /// Resolves all volumes of a pod. What cannot be looked up now is an error; what is wrong is part of the answer.
    pub(crate) async fn pod(&self, pod: &Arc<LocalPod>, known: Option<&DesiredPod>) -> Result<DesiredPod, Error> {
        let mut desired = DesiredPod { pod: pod.clone(), volumes: Default::default(), wants: Wants::default() };
        for volume in &pod.volumes {
            let since = known.and_then(|known| known.volumes.get(&volume.name)?.as_ref().ok()).map(|wish| wish.since);
            let since = since.unwrap_or_else(Instant::now);
            let resolved = match &volume.source {
                VolumeSource::Other => continue,
                VolumeSource::Claim { name, read_only } => {
                    self.claimed(pod, volume, (name, *read_only), &mut desired.wants).await?
                }
                VolumeSource::Ephemeral => {
                    let name = pod.claim_of(&volume.name);
                    self.claimed(pod, volume, (&name, false), &mut desired.wants).await?
                }
                VolumeSource::Csi(csi) => self.inline(pod, volume, &csi.driver, csi.read_only),
                VolumeSource::EmptyDir { .. } => self.in_tree(pod, volume, Plugin::EmptyDir, false),
                VolumeSource::HostPath { .. } => self.in_tree(pod, volume, Plugin::HostPath, false),
                VolumeSource::Nfs { read_only, .. } => self.in_tree(pod, volume, Plugin::Nfs, *read_only),
            };
            if let Ok(wish) = &resolved {
                self.follow_attachment(&wish.what, known, &mut desired.wants).await?;
            }
            let wish = resolved.map(|wish| Arc::new(Wish { since, ..wish }));
            desired.volumes.insert(volume.name.clone(), wish);
        }
        Ok(desired)
    }

    async fn claimed(
        &self,
        pod: &Arc<LocalPod>,
        volume: &PodVolume,
        (name, read_only): (&str, bool),
        wants: &mut Wants,
    ) -> Result<Result<Wish, Because>, Error> {
        let key = Key::namespaced(pod.namespace(), name);
        let text = key.to_string();
        let asked = claim::Asked {
            pod: pod.uid(),
            claim: &text,
            ephemeral: volume.source == VolumeSource::Ephemeral,
            mounts: volume.mounted,
            devices: volume.device,
        };
        let found = self.look(&key, &mut wants.claims).await?;
        let claimed = match claim::claim(&asked, found.lookup()) {
            Ok(claimed) => claimed,
            Err(because) => return Ok(Err(because)),
        };
        let held = self.look(&Key::cluster(&claimed.volume_name), &mut wants.volumes).await?;
        let place = claim::Place { node: self.node, labels: self.labels.map(|node| &node.meta.labels) };
        Ok(claim::volume(&asked, claimed, held.lookup(), place)
            .and_then(|found| wish_of(pod, volume, claimed, found).map(|wish| Wish { read_only, ..wish })))
    }

    /// From the cache, or from the server if it is not there: missing from a cache is not missing. From now on it is
    /// followed, whether it is there or not.
    async fn look<T: Object>(&self, key: &Key, wants: &mut Vec<Arc<Want<T>>>) -> Result<Live<T>, Error> {
        let cache = self.context.cache::<T>();
        wants.push(Arc::new(cache.want(key)));
        match cache.get(key) {
            Some(object) => Ok(Live::Found(object)),
            None => self.context.read::<T>(key).await,
        }
    }

    /// Follows the attachment that a volume needs. It is read once; what comes of it later is for the watch to say.
    async fn follow_attachment(&self, what: &What, known: Option<&DesiredPod>, wants: &mut Wants) -> Result<(), Error> {
        let What::Csi { driver, handle, shape: Shape::Filesystem | Shape::Block { .. } } = what else { return Ok(()) };
        let object = self.context.cache::<CsiDriver>().get(&Key::cluster(driver.as_str()));
        if !terms::attaches(object.as_deref().map(|object| &object.spec)) {
            return Ok(());
        }
        let cache = self.context.cache::<Attachment>();
        let key = Key::cluster(&attachment_name(driver.as_str(), handle, self.node));
        wants.attachments.push(Arc::new(cache.want(&key)));
        let followed = cache.extent() == Extent::All || known.is_some_and(|known| known.wants.has_attachment(&key));
        if !followed && cache.get(&key).is_none() {
            self.context.read::<Attachment>(&key).await?;
        }
        Ok(())
    }

    fn inline(&self, pod: &Arc<LocalPod>, volume: &PodVolume, driver: &str, read_only: bool) -> Result<Wish, Because> {
        let (spec, driver) = (name(&volume.name, volume)?, name(driver, volume)?);
        let handle = inline_handle(pod.uid().as_str(), &volume.name);
        let what = What::Csi { driver, handle: handle.into(), shape: Shape::Inline };
        let id = per_pod_name(Plugin::Csi, pod.uid().as_str(), &volume.name);
        Ok(Wish { read_only, ..plain(pod, volume, id.into(), what, spec) })
    }

    fn in_tree(
        &self,
        pod: &Arc<LocalPod>,
        volume: &PodVolume,
        plugin: Plugin,
        read_only: bool,
    ) -> Result<Wish, Because> {
        let spec = name(&volume.name, volume)?;
        let id = per_pod_name(plugin, pod.uid().as_str(), &volume.name);
        let what = What::InTree { plugin, name: spec.clone() };
        Ok(Wish { read_only, ..plain(pod, volume, id.into(), what, spec) })
    }
}

fn plain(pod: &Arc<LocalPod>, volume: &PodVolume, id: VolumeId, what: What, spec: Name) -> Wish {
    Wish {
        id,
        pod: pod.clone(),
        volume: volume.name.clone(),
        what,
        spec,
        claim: None,
        volume_key: None,
        read_only: false,
        access: AccessModes::default(),
        capacity: None,
        claimed: None,
        since: Instant::now(),
    }
}

fn name(text: &str, volume: &PodVolume) -> Result<Name, Because> {
    let bad = |error: crate::layout::BadName| Because::Unsupported {
        volume: volume.name.clone(),
        what: error.to_string().into(),
    };
    Name::new(text).map_err(bad)
}

/// A PersistentVolume that a pod wants.
fn wish_of(pod: &Arc<LocalPod>, volume: &PodVolume, claim: &Claim, found: &Volume) -> Result<Wish, Because> {
    let spec = name(found.name(), volume)?;
    let (id, what) = match &found.source {
        Source::Csi { driver, handle } => {
            let shape = match found.mode {
                VolumeMode::Filesystem => Shape::Filesystem,
                VolumeMode::Block => Shape::Block { volume: spec.clone() },
            };
            let id = unique_name(driver, handle);
            (id, What::Csi { driver: name(driver, volume)?, handle: handle.clone(), shape })
        }
        Source::Local { .. } if found.mode == VolumeMode::Block => {
            let what = "local volumes are mounted here, but not given as devices".into();
            return Err(Because::Unsupported { volume: found.name().into(), what });
        }
        Source::Local { .. } => {
            let what = What::InTree { plugin: Plugin::Local, name: spec.clone() };
            (format!("{}/{}", Plugin::Local.name(), found.name()), what)
        }
        Source::HostPath { .. } => per_pod(pod, &spec, Plugin::HostPath),
        Source::Nfs { .. } => per_pod(pod, &spec, Plugin::Nfs),
        Source::Other { field, .. } => {
            let what = format!("volumes of the kind {field} have no place here").into();
            return Err(Because::Unsupported { volume: found.name().into(), what });
        }
        Source::Missing => {
            return Err(Because::Unsupported { volume: found.name().into(), what: "it has no source".into() });
        }
    };
    Ok(Wish {
        claim: Some((claim.meta.key.clone(), claim.meta.uid.clone())),
        volume_key: Some(found.meta.key.clone()),
        access: found.access,
        capacity: found.capacity.clone(),
        claimed: claim.status.capacity.clone(),
        ..plain(pod, volume, id.into(), what, spec)
    })
}

fn per_pod(pod: &LocalPod, spec: &Name, plugin: Plugin) -> (String, What) {
    let what = What::InTree { plugin, name: spec.clone() };
    (per_pod_name(plugin, pod.uid().as_str(), spec.as_str()), what)
}

impl Desired {
    /// What is known of a pod, so that its wishes keep the time at which they were made.
    pub(crate) fn known(&self, pod: &LocalPod) -> Option<DesiredPod> {
        self.pod(pod.uid()).cloned()
    }
}
