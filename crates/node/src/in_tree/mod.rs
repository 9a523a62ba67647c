//! Volumes that the machine makes by itself: emptyDir, hostPath, local and NFS (NODE-24).

use api::{Amount, Key, Kind, Source, Uid, Volume};
use lifecycle::Notice;
use lifecycle::node::because::Stage;
use lifecycle::node::{Class, Step};
use serde::Deserialize;

use crate::Agent;
use crate::actual::What;
use crate::desired::Wish;
use crate::host::Access;
use crate::layout::{Name, Plugin};
use crate::pods::VolumeSource;
use crate::reconcile::{Effect, Failure, How, View};
use crate::volumes::{empty_dir, host_path, local, nfs, sub_path};

const AT: Stage = Stage::SetUp;

/// What a PersistentVolume says besides its source.
#[derive(Deserialize)]
struct Wire {
    spec: WireSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    #[serde(default)]
    mount_options: Option<Vec<String>>,
    local: Option<WireLocal>,
    host_path: Option<WireHostPath>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireLocal {
    fs_type: Option<String>,
}

#[derive(Deserialize)]
struct WireHostPath {
    #[serde(rename = "type")]
    kind: Option<String>,
}

impl Agent {
    pub(crate) async fn act_in_tree(&self, step: &Step, view: &View) -> Result<Effect, Failure> {
        let What::InTree { plugin, name } = &view.what else { return Ok(Effect::default()) };
        match step {
            Step::Forget | Step::Republish(_) => {}
            Step::Expand(_) => return self.expand_in_tree(*plugin, self.in_tree_wish(step, view)?).await,
            Step::Stage(_) => drop(self.stage_local(self.in_tree_wish(step, view)?).await?),
            Step::Unstage => local::unstage(&*self.host, &self.options.layout, name)
                .await
                .map_err(|error| Failure::of(Class::Uncertain, Stage::UnmountDevice, error))?,
            Step::Publish(_) => self.set_up(*plugin, self.in_tree_wish(step, view)?).await?,
            Step::Unpublish(pod) => self.tear_down(*plugin, pod, name).await?,
        }
        Ok(Effect::default())
    }

    fn in_tree_wish<'a>(&self, step: &Step, view: &'a View) -> Result<&'a Wish, Failure> {
        let wish =
            view.wish(step).ok_or_else(|| Failure::transient(AT, "the pod does not want the volume any more"))?;
        Ok(wish)
    }

    async fn set_up(&self, plugin: Plugin, wish: &Wish) -> Result<(), Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::of(Class::Uncertain, AT, error);
        let place = self.pod_directory(wish)?;
        match plugin {
            Plugin::EmptyDir => {
                let volume = empty_dir::EmptyDir::new(&place, &wish.spec, medium(wish)?, wish.pod.group);
                empty_dir::set_up(&*self.host, &volume).await.map_err(|error| failed(&error))
            }
            Plugin::HostPath => {
                let (path, kind) = self.host_path(wish).await?;
                let expected = host_path::Expected::parse(&kind).map_err(|error| failed(&error))?;
                let done = host_path::set_up(&*self.host, path.as_ref(), expected).await;
                done.map_err(|error| {
                    let how = if error.is_hung() { How::Hung } else { How::Plain };
                    Failure { how, ..failed(&error) }
                })
            }
            Plugin::Nfs => {
                let export = self.export(wish).await?;
                let target = place.volume(Plugin::Nfs, &wish.spec);
                nfs::set_up(&*self.host, &export, &target).await.map_err(|error| failed(&error))
            }
            Plugin::Local => self.set_up_local(wish).await,
            other => Err(Failure::transient(AT, format!("volumes of {} are not made here", other.name()))),
        }
    }

    async fn tear_down(&self, plugin: Plugin, pod: &Uid, spec: &Name) -> Result<(), Failure> {
        const AT: Stage = Stage::TearDown;
        let uid = Name::new(pod.as_str()).map_err(|error| Failure::transient(AT, error))?;
        let place = self.options.layout.pod(&uid);
        sub_path::clean(&*self.host, &place, spec).await.map_err(Failure::host(AT))?;
        let target = place.volume(plugin, spec);
        let done = match plugin {
            Plugin::EmptyDir => empty_dir::tear_down(&*self.host, &place, spec).await,
            Plugin::Nfs => nfs::tear_down(&*self.host, &target).await,
            Plugin::Local => local::tear_down(&*self.host, &target).await,
            _ => Ok(()),
        };
        done.map_err(|error| Failure::of(Class::Uncertain, AT, error))
    }

    async fn stage_local(&self, wish: &Wish) -> Result<(local::Local, std::path::PathBuf), Failure> {
        let (wire, source) = self.object(wish).await?;
        let Source::Local { path } = source else { return Err(Failure::transient(AT, "the volume is not local")) };
        let volume = local::Local {
            name: wish.spec.clone(),
            path: path.as_ref().into(),
            fs_type: wire.local.and_then(|local| local.fs_type).unwrap_or_default(),
            options: wire.mount_options.unwrap_or_default(),
            access: access(wish),
        };
        let staged = local::stage(&*self.host, &self.options.layout, &volume).await;
        let staged = staged.map_err(|error| {
            let how = match &error {
                local::LocalError::Host(error) => How::from(error),
                local::LocalError::NoSource(_) | local::LocalError::NoDevice(_) => How::Plain,
            };
            Failure { how, ..Failure::of(Class::Uncertain, Stage::MountDevice, error) }
        })?;
        Ok((volume, staged))
    }

    async fn set_up_local(&self, wish: &Wish) -> Result<(), Failure> {
        let (volume, staged) = self.stage_local(wish).await?;
        let wanted = local::Wanted {
            target: self.pod_directory(wish)?.volume(Plugin::Local, &wish.spec),
            access: access(wish),
            group: wish.pod.group.map(|group| (group, wish.pod.group_change)),
        };
        let layout = &self.options.layout;
        let done = local::set_up(&*self.host, (layout, &volume), &staged, &wanted, &|_| {}).await;
        match done.map_err(|error| Failure::of(Class::Uncertain, AT, error))? {
            local::Group::LeftTo { group } => {
                let message = format!(
                    "The requested fsGroup is {:?}, but the volume {} has GID {group}. The volume may not be shareable.",
                    wish.pod.group, wish.spec
                );
                self.notices.always(&*wish.pod, &Notice::warning("AlreadyMountedVolume", message));
            }
            local::Group::NotAsked | local::Group::Applied(_) => {}
        }
        Ok(())
    }

    /// Of a device the filesystem grows; other volumes of the machine have no size of their own (NODE-24).
    async fn expand_in_tree(&self, plugin: Plugin, wish: &Wish) -> Result<Effect, Failure> {
        if plugin == Plugin::Local {
            let grown = local::expand(&*self.host, &self.options.layout, &wish.spec).await;
            grown.map_err(|error| Failure::of(Class::Uncertain, Stage::Expand, error))?;
        }
        Ok(Effect { size: wish.capacity.clone(), ..Effect::default() })
    }

    /// Where a local volume is on this machine.
    pub(crate) async fn local_path(&self, wish: &Wish) -> Result<std::path::PathBuf, Failure> {
        match self.object(wish).await?.1 {
            Source::Local { path } => Ok(path.as_ref().into()),
            _ => Err(Failure::transient(AT, "the volume is not local")),
        }
    }

    async fn host_path(&self, wish: &Wish) -> Result<(String, String), Failure> {
        if let Some(VolumeSource::HostPath { path, kind }) = pod_source(wish) {
            return Ok((path.to_string(), kind.to_string()));
        }
        let (wire, source) = self.object(wish).await?;
        let Source::HostPath { path } = source else { return Err(Failure::transient(AT, "the volume is no hostPath")) };
        // Nothing is mounted that they could be for (NODE-9).
        if let Some(option) = wire.mount_options.unwrap_or_default().first() {
            let message = format!("a hostPath volume takes no mount options, and this one has {option:?}");
            return Err(Failure::transient(AT, message));
        }
        let kind = wire.host_path.and_then(|host| host.kind).unwrap_or_default();
        Ok((path.to_string(), kind))
    }

    async fn export(&self, wish: &Wish) -> Result<nfs::Export, Failure> {
        let access = access(wish);
        if let Some(VolumeSource::Nfs { server, path, .. }) = pod_source(wish) {
            return Ok(nfs::Export { server: server.to_string(), path: path.to_string(), access, options: Vec::new() });
        }
        let (wire, source) = self.object(wish).await?;
        let Source::Nfs { server, path } = source else {
            return Err(Failure::transient(AT, "the volume is no NFS export"));
        };
        let options = wire.mount_options.unwrap_or_default();
        Ok(nfs::Export { server: server.to_string(), path: path.to_string(), access, options })
    }

    /// The PersistentVolume as the server has it.
    async fn object(&self, wish: &Wish) -> Result<(WireSpec, Source), Failure> {
        let missing = || Failure::transient(AT, "the volume has no object");
        let key: &Key = wish.volume_key.as_ref().ok_or_else(missing)?;
        let object: serde_json::Value =
            self.context.client.get(Kind::VOLUME, key).await.map_err(|error| Failure::transient(AT, error))?;
        let unreadable = |error: serde_json::Error| Failure::transient(AT, error);
        let volume: Volume = serde_json::from_value(object.clone()).map_err(unreadable)?;
        let wire: Wire = serde_json::from_value(object).map_err(unreadable)?;
        let owner = volume.claim.as_ref().and_then(|claim| claim.uid.as_ref());
        if owner.is_none() || owner != wish.claim.as_ref().map(|(_, uid)| uid) {
            return Err(Failure::transient(AT, format!("the volume {key} does not belong to the claim any more")));
        }
        Ok((wire.spec, volume.source))
    }
}

fn access(wish: &Wish) -> Access {
    if wish.read_only { Access::ReadOnly } else { Access::ReadWrite }
}

fn pod_source(wish: &Wish) -> Option<&VolumeSource> {
    let named = wish.pod.volumes.iter().find(|volume| volume.name == wish.volume);
    named.map(|volume| &volume.source).filter(|_| wish.volume_key.is_none())
}

fn medium(wish: &Wish) -> Result<empty_dir::Medium, Failure> {
    let Some(VolumeSource::EmptyDir { medium, size_limit }) = pod_source(wish) else {
        return Err(Failure::transient(AT, "the volume is no emptyDir"));
    };
    let bytes = |text: &str| Amount::parse(text).ok().and_then(|amount| u64::try_from(amount.bytes()).ok());
    let limit = size_limit.as_deref().and_then(bytes);
    match &**medium {
        "" => Ok(empty_dir::Medium::Default),
        "Memory" => Ok(empty_dir::Medium::Memory { size: empty_dir::memory_size(None, None, limit) }),
        pages => match pages.strip_prefix("HugePages-").and_then(bytes) {
            Some(page_size) => Ok(empty_dir::Medium::HugePages { page_size }),
            None => Err(Failure::transient(AT, format!("{pages:?} is no medium of an emptyDir"))),
        },
    }
}
