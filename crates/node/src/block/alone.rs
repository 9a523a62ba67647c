//! Devices of a driver that never comes back: the machine takes them from pods by itself (NODE-31.25).

use api::Uid;
use lifecycle::node::Class;
use lifecycle::node::because::Stage;

use crate::Agent;
use crate::host::HostError;
use crate::reconcile::{Failure, View};
use crate::volumes::block;

impl Agent {
    pub(super) async fn unmap_alone(&self, pod: &Uid, view: &View) -> Result<(), Failure> {
        const AT: Stage = Stage::TearDown;
        let uncertain = |error: HostError| Failure::of(Class::Uncertain, AT, error);
        let place = self.place(view, pod)?;
        block::release(&*self.host, &place.mapping()).await.map_err(uncertain)?;
        let target = place.block.publish(&place.pod);
        self.unmount_alone(&target, AT).await?;
        self.host.remove_file(&target).await.map_err(uncertain)?;
        self.host.remove_file(&place.block.mapped(&place.pod)).await.map_err(uncertain)?;
        self.tell_alone(view, Some(pod), &target).await;
        Ok(())
    }

    pub(super) async fn unstage_block_alone(&self, view: &View) -> Result<(), Failure> {
        const AT: Stage = Stage::UnmountDevice;
        let (_, _, block) = self.block_of_view(view)?;
        self.unmount_alone(&block.staging(), AT).await?;
        self.clear_block(&block).await.map_err(|error| Failure::of(Class::Uncertain, AT, error))?;
        self.tell_alone(view, None, &block.staging()).await;
        Ok(())
    }
}
