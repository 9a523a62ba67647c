//! NodePublishVolume: the step for one pod, and what has to be right afterwards (NODE-11, NODE-14, NODE-16).

use api::keys::context;
use csi::v1;
use csi::v1::node_service_capability::rpc::Type as NodeRpc;
use lifecycle::Notice;
use lifecycle::attach::attachment_name;
use lifecycle::node::because::Stage;
use lifecycle::node::selinux::Label;
use lifecycle::node::terms::{self, Owner, Ownership};
use lifecycle::node::{Class, Held, Step};
use lifecycle::outcome::Call;
use tokio::time::Instant;

use super::{Asked, Details, Seen, Values, capability, failed, text};
use crate::Agent;
use crate::actual::What;
use crate::desired::Wish;
use crate::host::{self, Access, HostError};
use crate::layout::{DIRECTORY_MODE, Lifecycle, Name, Plugin, PodDirectory, Published, VolumeData, data};
use crate::reconcile::{Effect, Failure, View};

const AT: Stage = Stage::SetUp;

/// Whether a call is the first one for its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Time {
    First,
    /// The pod has the volume; the driver wants to refresh it.
    Again,
}

impl Agent {
    pub(crate) async fn publish(&self, step: &Step, view: &View) -> Result<Effect, Failure> {
        self.publish_for(step, view, Time::First).await
    }

    pub(crate) async fn republish(&self, step: &Step, view: &View) -> Result<Effect, Failure> {
        self.publish_for(step, view, Time::Again).await
    }

    async fn publish_for(&self, step: &Step, view: &View, time: Time) -> Result<Effect, Failure> {
        let wish =
            view.wish(step).ok_or_else(|| Failure::transient(AT, "the pod does not want the volume any more"))?;
        let asked = self.ask_for(wish, AT)?;
        let details = self.details(wish, AT).await?;
        let owner = self.owner(wish, &details, &asked)?;
        let context = view.context(wish.pod.uid());
        let request = self.publish_request(wish, view, &details, (&asked, owner)).await?;
        let place = self.pod_directory(wish)?;
        let published = place.csi(&wish.spec);
        self.host.make_directory(published.directory(), DIRECTORY_MODE).await.map_err(Failure::host(AT))?;
        data::store(&*self.host, &published.data(), &self.kept(wish, context)).await.map_err(Failure::host(AT))?;
        self.call_publish(request, &asked, (view.held(wish.pod.uid()), time), &published).await?;
        if time == Time::First {
            self.own(wish, &published, owner).await?;
        }
        let grown = match time {
            Time::First => self.expand_before_use(wish, &details, &asked).await?,
            Time::Again => Effect::default(),
        };
        // The driver has published it: a machine that refuses what comes after that does not undo it.
        let mounted = |error: HostError| Failure::after_mount(AT, error);
        let marker = place.ready_marker(Plugin::Csi, &wish.spec);
        if let Some(parent) = marker.parent() {
            self.host.make_directory(parent, DIRECTORY_MODE).await.map_err(mounted)?;
        }
        self.host.make_file(&marker, 0o600).await.map_err(mounted)?;
        Ok(Effect { republish: self.republish_at(wish), ..grown })
    }

    /// Calls the driver, and looks whether what it says is true.
    async fn call_publish(
        &self,
        request: v1::NodePublishVolumeRequest,
        asked: &Asked,
        (before, time): (Held, Time),
        published: &Published,
    ) -> Result<(), Failure> {
        if let Err(error) = asked.driver.node_publish_volume(request, self.options.timeout).await {
            let failure = failed(Call::NodePublish, AT, before, &error);
            let nothing = failure.class == Class::Final && before.after_failure(Class::Final).is_none();
            if nothing && time == Time::First {
                // It may hold what an earlier run knew, or a driver that lies: then it stays.
                if let Err(error) = self.remove_published(published).await {
                    tracing::warn!(%error, "what was made for publishing could not be removed");
                }
            }
            return Err(failure);
        }
        match self.look(&published.mount()).await {
            Ok(Seen::Mounted) => Ok(()),
            Ok(Seen::NotMounted) => {
                let message = format!(
                    "the driver says that the volume is published, but nothing is mounted at {}",
                    published.mount().display()
                );
                Err(Failure::of(Class::Uncertain, AT, message))
            }
            Ok(Seen::Corrupted(why)) => {
                Err(Failure::after_mount(AT, format!("the driver published a dead mount: {why}")))
            }
            Err(error) => Err(Failure::after_mount(AT, error)),
        }
    }

    async fn publish_request(
        &self,
        wish: &Wish,
        view: &View,
        details: &Details,
        (asked, owner): (&Asked, Owner),
    ) -> Result<v1::NodePublishVolumeRequest, Failure> {
        let What::Csi { driver, handle, .. } = &wish.what else {
            return Err(Failure::transient(AT, "the volume has no driver"));
        };
        let object = self.driver_object(driver.as_str());
        let spec = object.as_ref().map(|object| &object.spec);
        if !terms::serves(spec, wish.what.is_inline()) {
            let kind = if wish.what.is_inline() { Lifecycle::Ephemeral } else { Lifecycle::Persistent };
            return Err(Failure::transient(
                AT,
                format!("the driver {driver} does not make volumes of the kind {}", kind.text()),
            ));
        }
        let publish_context = self.attached(wish, view.device()).await?;
        let mut secrets = self.secret(details.publish_secret.as_ref(), AT).await?;
        let mut volume_context = details.attributes.clone();
        if spec.is_some_and(|spec| spec.pod_info_on_mount == Some(true)) {
            volume_context.extend(pod_info(wish));
        }
        if let Some(spec) = spec
            && let Some(tokens) =
                self.service_account_tokens(&wish.pod, spec).await.map_err(|error| Failure::transient(AT, error))?
        {
            let in_secrets = spec.service_account_token_in_secrets == Some(true);
            let place = if in_secrets { &mut secrets } else { &mut volume_context };
            place.insert(context::TOKENS.to_owned(), tokens);
        }
        let group = match owner {
            Owner::Driver(group) => Some(group),
            Owner::Agent(_) | Owner::Nobody => None,
        };
        let stages = !wish.what.is_inline() && asked.can(NodeRpc::StageUnstageVolume);
        let staged = self.options.layout.staged(driver, handle);
        let mount = details.mount(group, view.context(wish.pod.uid()));
        Ok(v1::NodePublishVolumeRequest {
            volume_id: handle.to_string(),
            publish_context,
            staging_target_path: if stages { text(&staged.mount()) } else { String::new() },
            target_path: text(&self.pod_directory(wish)?.csi(&wish.spec).mount()),
            volume_capability: capability(details.mode(asked), Some(mount)),
            readonly: wish.read_only,
            secrets,
            volume_context,
        })
    }

    pub(crate) fn pod_directory(&self, wish: &Wish) -> Result<PodDirectory, Failure> {
        let uid = Name::new(wish.pod.uid().as_str()).map_err(|error| Failure::transient(AT, error))?;
        Ok(self.options.layout.pod(&uid))
    }

    /// What is written down about a pod's volume (NODE-2.1).
    fn kept(&self, wish: &Wish, context: Option<&Label>) -> VolumeData {
        let What::Csi { driver, handle, .. } = &wish.what else { return VolumeData::default() };
        let lifecycle = if wish.what.is_inline() { Lifecycle::Ephemeral } else { Lifecycle::Persistent };
        VolumeData {
            driver: driver.to_string(),
            handle: handle.to_string(),
            volume: Some(wish.spec.to_string()),
            node: Some(self.options.node.clone()),
            attachment: Some(attachment_name(driver.as_str(), handle, &self.options.node)),
            lifecycle: Some(lifecycle),
            selinux: context.map(Label::to_string),
            boot: self.boot(),
        }
    }

    fn owner(&self, wish: &Wish, details: &Details, asked: &Asked) -> Result<Owner, Failure> {
        let object = wish.what.driver().and_then(|driver| self.driver_object(driver.as_str()));
        terms::owner(&Ownership {
            group: wish.pod.group,
            driver_mounts_group: asked.can(NodeRpc::VolumeMountGroup),
            read_only: wish.read_only,
            driver: object.as_ref().map(|object| &object.spec),
            fs_type: &details.fs_type,
            inline: wish.what.is_inline(),
            access: details.access,
        })
        .map_err(|error| Failure::transient(AT, error))
    }

    /// Gives the files to the pod's group. It ends early when the pod does not want the volume any more.
    async fn own(&self, wish: &Wish, published: &Published, owner: Owner) -> Result<(), Failure> {
        let Owner::Agent(group) = owner else { return Ok(()) };
        let ownership = host::Ownership {
            root: published.mount(),
            group,
            access: if wish.read_only { Access::ReadOnly } else { Access::ReadWrite },
            when: wish.pod.group_change,
        };
        self.give(wish, &ownership).await.map_err(|message| Failure::after_mount(Stage::Own, message))
    }

    /// Changes ownership, and tells the pod about it when it takes long (NODE-14).
    pub(crate) async fn give(&self, wish: &Wish, ownership: &host::Ownership) -> Result<(), String> {
        use std::sync::atomic::{AtomicU64, Ordering};
        let files = AtomicU64::new(0);
        let progress = |done: u64| files.store(done, Ordering::Relaxed);
        let owning = self.host.own(ownership, &progress);
        tokio::pin!(owning);
        let mut tell = Instant::now() + std::time::Duration::from_secs(30);
        loop {
            tokio::select! {
                biased;
                owned = &mut owning => return owned.map(drop).map_err(|error| error.to_string()),
                () = self.unwanted(wish) => return Err("the pod does not want the volume any more".to_owned()),
                () = tokio::time::sleep_until(tell) => {
                    let done = files.load(Ordering::Relaxed);
                    let message = format!(
                        "Setting volume ownership for {}, processed {done} files.", ownership.root.display());
                    self.notices.always(&*wish.pod, &Notice::warning("VolumePermissionChangeInProgress", message));
                    tell += std::time::Duration::from_secs(60);
                }
            }
        }
    }

    /// Resolves when a pod does not want a volume any more.
    async fn unwanted(&self, wish: &Wish) {
        loop {
            let changed = self.unwants.notified();
            if self.world().desired.wish(&wish.id, wish.pod.uid()).is_none() {
                return;
            }
            changed.await;
        }
    }

    /// When the driver wants to be asked again, if it does (NODE-16).
    pub(crate) fn republish_at(&self, wish: &Wish) -> Option<Instant> {
        let driver = wish.what.driver()?;
        let wants = self.driver_object(driver.as_str())?.spec.requires_republish == Some(true);
        wants.then(|| Instant::now() + self.context.entropy.longer(self.options.republish, 0.5))
    }
}

/// Which pod it is for, as drivers are told (NODE-11).
pub(crate) fn pod_info(wish: &Wish) -> Values {
    let pairs = [
        (context::POD_NAME, wish.pod.name()),
        (context::POD_NAMESPACE, wish.pod.namespace()),
        (context::POD_UID, wish.pod.uid().as_str()),
        (context::SERVICE_ACCOUNT, &wish.pod.service_account),
        (context::EPHEMERAL, if wish.what.is_inline() { "true" } else { "false" }),
    ];
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}
