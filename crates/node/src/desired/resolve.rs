//! From a volume of a pod to the volume of the machine (NODE-5.4).

use std::sync::Arc;

use api::{AccessModes, Attachment, Claim, CsiDriver, Key, Kind, Node, Object, Source, Volume, VolumeMode};
use lifecycle::attach::{attachment_name, unique_name};
use lifecycle::migration::{self, CsiSource};
use lifecycle::node::selinux::Judged;
use lifecycle::node::{Because, claim, terms};
use runtime::client::{Error, Extent};
use runtime::{Context, Live, Want};
use serde::Deserialize as _;
use serde_json::Value;
use tokio::time::Instant;

use super::{Contexts, Desired, DesiredPod, Wants, Wish};
use crate::actual::{Shape, VolumeId, What};
use crate::layout::{Name, Plugin, inline_handle, per_pod_name};
use crate::pods::{LocalPod, PodVolume, VolumeSource};

/// What a pod's volumes are looked up in.
pub(crate) struct Resolver<'a> {
    pub(crate) context: &'a Context,
    pub(crate) node: &'a str,
    /// The node itself, if it is known.
    pub(crate) labels: Option<&'a Node>,
    /// If SELinux is on here.
    pub(crate) contexts: Option<Contexts<'a>>,
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
                VolumeSource::Migrated(source) => self.taken_over(pod, volume, source),
                VolumeSource::Csi(csi) => self.inline(pod, volume, &csi.driver, csi.read_only),
                VolumeSource::EmptyDir { .. } => self.in_tree(pod, volume, Plugin::EmptyDir, false),
                VolumeSource::HostPath { .. } => self.in_tree(pod, volume, Plugin::HostPath, false),
                VolumeSource::Nfs { read_only, .. } => self.in_tree(pod, volume, Plugin::Nfs, *read_only),
            };
            if let Ok(wish) = &resolved {
                self.follow_attachment(&wish.what, known, &mut desired.wants).await?;
            }
            let before = known.and_then(|known| known.volumes.get(&volume.name));
            let wish = match resolved {
                Ok(wish) => self.with_context(wish, volume, (before, &desired)).await?,
                Err(because) => Err(because),
            };
            let wish = wish.map(|wish| Arc::new(Wish { since, ..wish }));
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
        let held = self.look::<Volume>(&Key::cluster(&claimed.volume_name), &mut wants.volumes).await?;
        let (held, migrated) = match self.translated(&held).await? {
            Some(Ok(translated)) => (Live::Found(Arc::new(translated)), true),
            Some(Err(because)) => return Ok(Err(because)),
            None => (held, false),
        };
        let place = claim::Place { node: self.node, labels: self.labels.map(|node| &node.meta.labels) };
        Ok(claim::volume(&asked, claimed, held.lookup(), place)
            .and_then(|found| wish_of(pod, volume, claimed, found).map(|wish| Wish { read_only, migrated, ..wish })))
    }

    /// A volume of an in-tree plugin that a driver took over, as the driver's (NODE-5.4.7): not only its source, but
    /// its access modes and where it can be reached from as well. `None` if it is no such volume.
    async fn translated(&self, held: &Live<Volume>) -> Result<Option<Result<Volume, Because>>, Error> {
        let Live::Found(held) = held else { return Ok(None) };
        let Source::Other { .. } = &held.source else { return Ok(None) };
        if let Ok(None) = migration::csi_source(held) {
            return Ok(None);
        }
        // Such volumes are rare: the cache does not hold all that is needed of them.
        let object: Value = match self.context.client.get(Kind::VOLUME, &held.meta.key).await {
            Ok(object) => object,
            Err(error) if error.is_not_found() => {
                return Ok(Some(Err(Because::VolumeMissing { volume: held.name().into() })));
            }
            Err(error) => return Err(error),
        };
        let wrong = |why: String| Because::Unsupported { volume: held.name().into(), what: why.into() };
        let translated = migration::volume_to_csi(&object).map_err(|error| wrong(error.to_string()));
        let read = |object: Value| serde_json::from_value(object).map_err(|error| wrong(error.to_string()));
        Ok(Some(translated.and_then(read)))
    }

    /// An in-tree volume that stands in the pod: what stands for it is attached and staged as any other (NODE-5.4), but
    /// it has no claim, so that nobody grows it.
    fn taken_over(&self, pod: &Arc<LocalPod>, volume: &PodVolume, source: &Value) -> Result<Wish, Because> {
        let wrong = |why: String| Because::Unsupported { volume: volume.name.clone(), what: why.into() };
        let object = migration::inline_to_csi(source, pod.namespace()).map_err(|error| wrong(error.to_string()))?;
        let csi: CsiSource = object
            .pointer("/spec/csi")
            .ok_or_else(|| wrong("its driver is not known".to_owned()))
            .and_then(|csi| CsiSource::deserialize(csi).map_err(|error| wrong(error.to_string())))?;
        let access = object.pointer("/spec/accessModes").and_then(|modes| AccessModes::deserialize(modes).ok());
        // A name that is made of a path would be several directories.
        let title = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().replace('/', "~");
        let id = unique_name(&csi.driver, &csi.volume_handle);
        let driver = name(&csi.driver, volume)?;
        let what = What::Csi { driver, handle: csi.volume_handle.into(), shape: Shape::Filesystem };
        let plain = plain(pod, volume, id.into(), what, name(&title, volume)?);
        Ok(Wish { read_only: csi.read_only, migrated: true, access: access.unwrap_or_default(), ..plain })
    }

    /// With the SELinux context that it is to have. A driver's object that a cache lacks is asked for: without it the volume
    /// would be mounted without a context, and keep that.
    async fn with_context(
        &self,
        wish: Wish,
        volume: &PodVolume,
        known: (Option<&Result<Arc<Wish>, Because>>, &DesiredPod),
    ) -> Result<Result<Wish, Because>, Error> {
        let Some(contexts) = &self.contexts else { return Ok(Ok(wish)) };
        let driver = match wish.what.driver() {
            Some(driver) if !volume.contexts.is_empty() => self.read(&Key::cluster(driver.as_str())).await?,
            Some(_) | None => Live::Absent,
        };
        Ok(contexts.give(wish, volume, driver.lookup().found(), known))
    }

    /// From the cache, or from the server if it is not there: missing from a cache is not missing. From now on it is
    /// followed, whether it is there or not.
    async fn look<T: Object>(&self, key: &Key, wants: &mut Vec<Arc<Want<T>>>) -> Result<Live<T>, Error> {
        wants.push(Arc::new(self.context.cache::<T>().want(key)));
        self.read(key).await
    }

    /// From the cache, or from the server.
    async fn read<T: Object>(&self, key: &Key) -> Result<Live<T>, Error> {
        match self.context.cache::<T>().get(key) {
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
        migrated: false,
        selinux: Judged::default(),
        access: AccessModes::default(),
        asked: AccessModes::default(),
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
        Source::Local { .. } => {
            let what = match found.mode {
                VolumeMode::Filesystem => What::InTree { plugin: Plugin::Local, name: spec.clone() },
                VolumeMode::Block => What::LocalDevice { name: spec.clone() },
            };
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
        asked: claim.access,
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
