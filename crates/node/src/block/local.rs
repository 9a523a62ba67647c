//! Local volumes in block mode: a device of this machine for a pod, as it is (NODE-17.1.8, NODE-24).
//!
//! No driver and no step for the whole machine. The file that the device is bound to is made first and goes last, so that a
//! pod that may have something is found again from the disk alone.

use api::Uid;
use lifecycle::node::because::Stage;
use lifecycle::node::{Class, Step};

use super::AT;
use crate::Agent;
use crate::desired::Wish;
use crate::host::HostError;
use crate::layout::{Name, Plugin};
use crate::reconcile::{Effect, Failure, How, View};
use crate::volumes::block::{self, Mapping};
use crate::volumes::local::{self, LocalError};

impl Agent {
    pub(crate) async fn act_local_device(&self, step: &Step, view: &View, name: &Name) -> Result<Effect, Failure> {
        match step {
            Step::Stage(_) | Step::Unstage | Step::Republish(_) => Ok(Effect::default()),
            Step::Publish(_) => {
                let gone = || Failure::transient(AT, "the pod does not want the volume any more");
                self.map_local(view.wish(step).ok_or_else(gone)?).await.map(|()| Effect::default())
            }
            // A device is as large as it is; what stands on it is its pod's.
            Step::Expand(_) => {
                let size = view.wish(step).and_then(|wish| wish.capacity.clone());
                Ok(Effect { size, ..Effect::default() })
            }
            Step::Unpublish(pod) => self.unmap_local(pod, name).await.map(|()| Effect::default()),
            Step::Forget => {
                let removed = self.host.remove_directory(&self.options.layout.local_block(name)).await;
                removed.map(|()| Effect::default()).map_err(uncertain(Stage::UnmountDevice))
            }
        }
    }

    async fn map_local(&self, wish: &Wish) -> Result<(), Failure> {
        let path = self.local_path(wish).await?;
        let device = local::device(&*self.host, &path).await.map_err(|error| match error {
            LocalError::Host(error) => Failure::host(AT)(error),
            LocalError::NoDevice(_) | LocalError::NoSource(_) => Failure::of(Class::Final, AT, error),
        })?;
        let mapping = Mapping { device, ..self.local_mapping(wish.pod.uid(), &wish.spec)? };
        block::announce(&*self.host, &mapping).await.map_err(uncertain(AT))?;
        block::map(&*self.host, &mapping).await.map_err(uncertain(AT))?;
        self.tell_mapped(wish, [&self.options.layout.local_block(&wish.spec), &mapping.link]);
        Ok(())
    }

    async fn unmap_local(&self, pod: &Uid, name: &Name) -> Result<(), Failure> {
        let mapping = self.local_mapping(pod, name)?;
        block::unmap(&*self.host, &mapping).await.map_err(uncertain(Stage::TearDown))
    }

    /// Where a pod finds the device. Which device it is need not be known to take it away.
    fn local_mapping(&self, pod: &Uid, name: &Name) -> Result<Mapping, Failure> {
        let pod = Name::new(pod.as_str()).map_err(|error| Failure::transient(AT, error))?;
        let bound = self.options.layout.local_block(name).join(&pod);
        let link = self.options.layout.pod(&pod).device(Plugin::Local, name);
        Ok(Mapping { device: bound.clone(), bound, link })
    }
}

fn uncertain(stage: Stage) -> impl Fn(HostError) -> Failure {
    move |error| Failure { how: How::from(&error), ..Failure::of(Class::Uncertain, stage, error) }
}
