//! Block volumes: a device for a pod, held so that the kernel does not give its number to another (NODE-17).

mod alone;
mod local;

use std::path::PathBuf;

use api::Uid;
use csi::v1;
use csi::v1::node_service_capability::rpc::Type as NodeRpc;
use lifecycle::Notice;
use lifecycle::attach::attachment_name;
use lifecycle::node::because::Stage;
use lifecycle::node::{Class, Held, Step};
use lifecycle::outcome::Call;

use crate::Agent;
use crate::actual::{Shape, What};
use crate::csi::{capability, device_request, failed, pod_info, text};
use crate::desired::Wish;
use crate::host::{Found, HostError};
use crate::layout::{Block, DIRECTORY_MODE, Name, Plugin, VolumeData, data};
use crate::reconcile::{Effect, Failure, View};
use crate::volumes::block::{self, Mapping};

const AT: Stage = Stage::MapDevice;

/// Where a device is for one pod.
struct Place {
    block: Block,
    pod: Name,
    /// The link that the container runtime gets.
    link: PathBuf,
}

impl Place {
    fn mapping(&self) -> Mapping {
        let bound = self.block.mapped(&self.pod);
        Mapping { device: self.block.publish(&self.pod), bound, link: self.link.clone() }
    }
}

impl Agent {
    /// One step for a device. What fails on the way to it is told in the words that upstream has for devices (NODE-26).
    pub(crate) async fn act_block(&self, step: &Step, view: &View) -> Result<Effect, Failure> {
        let ended = match step {
            Step::Stage(_) => self.stage_block(step, view).await.map(|()| Effect::default()),
            Step::Publish(_) | Step::Republish(_) => self.map_block(step, view).await,
            Step::Expand(_) => self.expand(step, view).await,
            Step::Unpublish(pod) if view.is_alone() => self.unmap_alone(pod, view).await.map(|()| Effect::default()),
            Step::Unstage if view.is_alone() => self.unstage_block_alone(view).await.map(|()| Effect::default()),
            Step::Unpublish(pod) => self.unmap_block(pod, view).await.map(|()| Effect::default()),
            Step::Unstage => self.unstage_block(view).await.map(|()| Effect::default()),
            Step::Forget => self.forget_block(view).await.map(|()| Effect::default()),
        };
        ended.map_err(|failure| match (failure.stage, step) {
            (Stage::WaitForAttach, _) => Failure { stage: Stage::MapAttach, ..failure },
            (Stage::MapDevice, Step::Stage(_)) => Failure { stage: Stage::SetUpDevice, ..failure },
            _ => failure,
        })
    }

    fn block_of_view<'a>(&self, view: &'a View) -> Result<(&'a Name, &'a str, Block), Failure> {
        let What::Csi { driver, handle, shape: Shape::Block { volume } } = &view.what else {
            return Err(Failure::transient(AT, "the volume is no device"));
        };
        let block = self.options.layout.block(volume).map_err(|error| Failure::transient(AT, error))?;
        Ok((driver, handle, block))
    }

    fn place(&self, view: &View, pod: &Uid) -> Result<Place, Failure> {
        let What::Csi { shape: Shape::Block { volume }, .. } = &view.what else {
            return Err(Failure::transient(AT, "the volume is no device"));
        };
        let bad = |error: crate::layout::BadName| Failure::transient(AT, error);
        let block = self.options.layout.block(volume).map_err(bad)?;
        let pod = Name::new(pod.as_str()).map_err(bad)?;
        let link = self.options.layout.pod(&pod).device(Plugin::Csi, volume);
        Ok(Place { block, pod, link })
    }

    /// Metadata first: with it alone everything can be taken away again.
    async fn keep_block(&self, wish: &Wish, block: &Block) -> Result<(), Failure> {
        let What::Csi { driver, handle, .. } = &wish.what else { return Ok(()) };
        let kept = VolumeData {
            driver: driver.to_string(),
            handle: handle.to_string(),
            volume: Some(wish.spec.to_string()),
            node: Some(self.options.node.clone()),
            attachment: Some(attachment_name(driver.as_str(), handle, &self.options.node)),
            boot: self.boot(),
            ..VolumeData::default()
        };
        let path = block.data();
        if let Some(parent) = path.parent() {
            self.host.make_directory(parent, DIRECTORY_MODE).await.map_err(Failure::host(AT))?;
        }
        data::store(&*self.host, &path, &kept).await.map(drop).map_err(Failure::host(AT))
    }

    async fn stage_block(&self, step: &Step, view: &View) -> Result<(), Failure> {
        let wish = view.wish(step).ok_or_else(|| Failure::transient(AT, "no pod wants the volume any more"))?;
        let (_, handle, block) = self.block_of_view(view)?;
        let asked = self.ask_for(wish, AT)?;
        let details = self.details(wish, AT).await?;
        let context = self.attached(wish, view.device()).await?;
        let secrets = self.secret(details.stage_secret.as_ref(), AT).await?;
        self.keep_block(wish, &block).await?;
        self.host.make_directory(&block.staging(), DIRECTORY_MODE).await.map_err(Failure::host(AT))?;
        let request = device_request(handle, &block.staging(), (context, secrets), (&details, &asked));
        match asked.driver.node_stage_volume(request, self.options.timeout).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let failure = failed(Call::NodeStage, AT, view.device(), &error);
                if failure.class == Class::Final && view.device().after_failure(Class::Final).is_none() {
                    self.clear_block_quietly(&block).await;
                }
                Err(failure)
            }
        }
    }

    async fn map_block(&self, step: &Step, view: &View) -> Result<Effect, Failure> {
        let wish =
            view.wish(step).ok_or_else(|| Failure::transient(AT, "the pod does not want the volume any more"))?;
        let place = self.place(view, wish.pod.uid())?;
        let asked = self.ask_for(wish, AT)?;
        let details = self.details(wish, AT).await?;
        self.keep_block(wish, &place.block).await?;
        // A driver may still be at it when this agent and the pod are gone (NODE-30.9).
        let announced = block::announce(&*self.host, &place.mapping()).await;
        announced.map_err(|error| Failure::of(Class::Uncertain, AT, error))?;
        if let Err(failure) = self.publish_block(wish, view, &place).await {
            return Err(self.withdraw(failure, view.held(wish.pod.uid()), &place).await);
        }
        let mapped = block::map(&*self.host, &place.mapping()).await;
        mapped.map_err(|error| Failure::after_mount(AT, error))?;
        let grown = match step {
            // The pod has had it for long, and is at work with it.
            Step::Republish(_) => Effect::default(),
            _ => {
                self.tell_mapped(wish, [&place.block.map(), &place.link]);
                self.expand_before_use(wish, &details, &asked).await?
            }
        };
        Ok(Effect { republish: self.republish_at(wish), ..grown })
    }

    /// Devices alone are told when they are there (NODE-17.1.9).
    fn tell_mapped(&self, wish: &Wish, paths: [&PathBuf; 2]) {
        for path in paths {
            let message =
                format!("MapVolume.MapPodDevice succeeded for volume {:?} path {}", wish.spec.as_str(), path.display());
            self.notices.always(&*wish.pod, &Notice::normal("SuccessfulMountVolume", message));
        }
    }

    /// What was surely not published is not announced any more.
    async fn withdraw(&self, failure: Failure, before: Held, place: &Place) -> Failure {
        if failure.seen || !before.after_failure(failure.class).is_none() {
            return failure;
        }
        match self.host.remove_file(&place.block.mapped(&place.pod)).await {
            Ok(()) => failure,
            Err(error) => Failure::of(Class::Uncertain, failure.stage, format!("{}; {error}", failure.message)),
        }
    }

    async fn publish_block(&self, wish: &Wish, view: &View, place: &Place) -> Result<(), Failure> {
        let (driver, handle, block) = self.block_of_view(view)?;
        let asked = self.ask_for(wish, AT)?;
        let details = self.details(wish, AT).await?;
        let publish_context = self.attached(wish, view.device()).await?;
        let secrets = self.secret(details.publish_secret.as_ref(), AT).await?;
        let object = self.driver_object(driver.as_str());
        let mut volume_context = details.attributes.clone();
        if object.is_some_and(|object| object.spec.pod_info_on_mount == Some(true)) {
            volume_context.extend(pod_info(wish));
        }
        self.host.make_directory(&block.published(), DIRECTORY_MODE).await.map_err(Failure::host(AT))?;
        let target = block.publish(&place.pod);
        let request = v1::NodePublishVolumeRequest {
            volume_id: handle.to_owned(),
            publish_context,
            // Also for drivers that do not stage (NODE-17.1.6).
            staging_target_path: text(&block.staging()),
            target_path: text(&target),
            volume_capability: capability(details.mode(&asked), None),
            readonly: wish.read_only,
            secrets,
            volume_context,
        };
        let answer = asked.driver.node_publish_volume(request, self.options.timeout).await;
        answer.map_err(|error| failed(Call::NodePublish, AT, view.held(wish.pod.uid()), &error))?;
        match self.host.find(&target).await {
            Ok(Found::Device | Found::Symlink) => Ok(()),
            Ok(found) => {
                let message =
                    format!("the driver says that the device is published, but {} is {found:?}", target.display());
                Err(Failure::of(Class::Uncertain, AT, message))
            }
            Err(error) => Err(Failure::after_mount(AT, error)),
        }
    }

    async fn unmap_block(&self, pod: &Uid, view: &View) -> Result<(), Failure> {
        const AT: Stage = Stage::TearDown;
        let place = self.place(view, pod)?;
        let (_, handle, block) = self.block_of_view(view)?;
        let asked = self.ask(&view.what, AT)?;
        let uncertain = |error: HostError| Failure::of(Class::Uncertain, AT, error);
        block::release(&*self.host, &place.mapping()).await.map_err(uncertain)?;
        let target = block.publish(&place.pod);
        let request = v1::NodeUnpublishVolumeRequest { volume_id: handle.to_owned(), target_path: text(&target) };
        let answer = asked.driver.node_unpublish_volume(request, self.options.timeout).await;
        answer.map_err(|error| failed(Call::NodeUnpublish, AT, view.held(pod), &error))?;
        let mounts = self.host.mounts().await.map_err(uncertain)?;
        if mounts.at(&target).is_some() {
            let message = format!("the driver says that the device is gone, but {} is still mounted", target.display());
            return Err(Failure::of(Class::Uncertain, AT, message));
        }
        // What the driver left of its file is empty: it is no mount any more.
        self.host.remove_file(&target).await.map_err(uncertain)?;
        self.host.remove_file(&place.block.mapped(&place.pod)).await.map_err(uncertain)
    }

    /// Drivers that do not stage leave nothing to unstage, but metadata; and so does what failed before it was staged.
    async fn forget_block(&self, view: &View) -> Result<(), Failure> {
        let (_, _, block) = self.block_of_view(view)?;
        self.clear_block(&block).await.map_err(|error| Failure::of(Class::Uncertain, Stage::UnmountDevice, error))
    }

    async fn unstage_block(&self, view: &View) -> Result<(), Failure> {
        const AT: Stage = Stage::UnmountDevice;
        let (_, handle, block) = self.block_of_view(view)?;
        let asked = self.ask(&view.what, AT)?;
        let uncertain = |error: HostError| Failure::of(Class::Uncertain, AT, error);
        let held = self.host.list(&block.map()).await.map_err(Failure::host(AT))?;
        if let Some(entry) = held.first() {
            let message = format!("the pod with uid {} still has the device", entry.name.to_string_lossy());
            return Err(Failure::of(Class::Uncertain, AT, message));
        }
        let staged = self.host.find(&block.staging()).await.map_err(Failure::host(AT))? != Found::Nothing;
        if staged && asked.can(NodeRpc::StageUnstageVolume) {
            let staging_target_path = text(&block.staging());
            let request = v1::NodeUnstageVolumeRequest { volume_id: handle.to_owned(), staging_target_path };
            let answer = asked.driver.node_unstage_volume(request, self.options.timeout).await;
            answer.map_err(|error| failed(Call::NodeUnstage, AT, view.device(), &error))?;
        }
        self.clear_block(&block).await.map_err(uncertain)
    }

    /// Removes what was made for a block volume, its metadata last. Nothing that is mounted is crossed (NODE-31.10).
    async fn clear_block(&self, block: &Block) -> Result<(), HostError> {
        self.host.remove_tree(&block.staging()).await?;
        self.host.remove_directory(&block.published()).await?;
        self.host.remove_directory(&block.map()).await?;
        self.host.remove_tree(&block.directory()).await
    }

    /// Removes the directories of a device if there is nothing in them.
    pub(crate) async fn clear_unasked(&self, block: &Block) -> Result<(), HostError> {
        let data = block.data();
        for directory in [&*block.staging(), &block.published(), &block.map()].into_iter().chain(data.parent()) {
            self.host.remove_directory(directory).await?;
        }
        self.host.remove_directory(&block.directory()).await
    }

    async fn clear_block_quietly(&self, block: &Block) {
        if let Err(error) = self.clear_block(block).await {
            tracing::warn!(%error, "what was made for a device could not be removed");
        }
    }
}
