//! NodeStageVolume: the step for the whole machine (NODE-10.1).

use csi::v1;
use csi::v1::node_service_capability::rpc::Type as NodeRpc;
use lifecycle::node::because::Stage;
use lifecycle::node::selinux::Label;
use lifecycle::node::{Class, Step};
use lifecycle::outcome::Call;

use super::{Asked, Details, Values, capability, failed, text};
use crate::Agent;
use crate::actual::What;
use crate::desired::Wish;
use crate::layout::{DIRECTORY_MODE, Staged, VolumeData, data};
use crate::reconcile::{Failure, View};

const AT: Stage = Stage::MountDevice;

impl Agent {
    pub(crate) async fn stage(&self, step: &Step, view: &View) -> Result<(), Failure> {
        let wish = view.wish(step).ok_or_else(|| Failure::transient(AT, "no pod wants the volume any more"))?;
        let What::Csi { driver, handle, .. } = &view.what else {
            return Err(Failure::transient(AT, "the volume has no driver"));
        };
        let asked = self.ask_for(wish, AT)?;
        let details = self.details(wish, AT).await?;
        let publish_context = self.attached(wish, view.device()).await?;
        let secrets = self.secret(details.stage_secret.as_ref(), AT).await?;
        let staged = self.options.layout.staged(driver, handle);
        self.host.make_directory(&staged.mount(), DIRECTORY_MODE).await.map_err(Failure::host(AT))?;
        let context = view.context(wish.pod.uid());
        let kept = VolumeData {
            driver: driver.to_string(),
            handle: handle.to_string(),
            selinux: context.map(Label::to_string),
            boot: self.boot(),
            ..VolumeData::default()
        };
        data::store(&*self.host, &staged.data(), &kept).await.map_err(Failure::host(AT))?;
        let request = v1::NodeStageVolumeRequest {
            volume_id: handle.to_string(),
            publish_context,
            staging_target_path: text(&staged.mount()),
            volume_capability: stage_capability(wish, &details, &asked, context),
            secrets,
            volume_context: details.attributes,
        };
        match asked.driver.node_stage_volume(request, self.options.timeout).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let failure = failed(Call::NodeStage, AT, view.device(), &error);
                // Metadata of what an earlier run staged is never removed on a driver's word (NODE-31.7).
                if failure.class == Class::Final && view.device().after_failure(Class::Final).is_none() {
                    self.clear_staged(&staged).await;
                }
                Err(failure)
            }
        }
    }

    /// Removes what was made for a volume that is surely not staged. What stays is found again at the next start.
    async fn clear_staged(&self, staged: &Staged) {
        if let Err(error) = self.remove_staged(staged).await {
            tracing::warn!(%error, "what was made for staging could not be removed");
        }
    }
}

fn stage_capability(
    wish: &Wish,
    details: &Details,
    asked: &Asked,
    context: Option<&Label>,
) -> Option<v1::VolumeCapability> {
    let group = wish.pod.group.filter(|_| asked.can(NodeRpc::VolumeMountGroup));
    capability(details.mode(asked), Some(details.mount(group, context)))
}

/// What a stage call of a device carries: no options and no group (NODE-17.1).
pub(crate) fn device_request(
    handle: &str,
    path: &std::path::Path,
    (publish_context, secrets): (Values, Values),
    (details, asked): (&Details, &Asked),
) -> v1::NodeStageVolumeRequest {
    v1::NodeStageVolumeRequest {
        volume_id: handle.to_owned(),
        publish_context,
        staging_target_path: text(path),
        volume_capability: capability(details.mode(asked), None),
        secrets,
        volume_context: details.attributes.clone(),
    }
}
