//! From a step to the calls it takes.

use api::Amount;
use lifecycle::node::because::Stage;
use lifecycle::node::{Class, Step};
use tokio::time::Instant;

use super::remember;
use super::view::View;
use crate::Agent;
use crate::actual::{Entry, Shape, VolumeId, What};
use crate::host::HostError;

/// What a step that succeeded leaves to remember.
#[derive(Debug, Default)]
pub(crate) struct Effect {
    pub(crate) republish: Option<Instant>,
    pub(crate) size: Option<Amount>,
    pub(crate) refused: Option<Amount>,
}

/// What a step that failed leaves to know.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) class: Class,
    pub(crate) stage: Stage,
    pub(crate) message: String,
    /// Whether it was brought about and something after it failed: it is there.
    pub(crate) seen: bool,
    pub(crate) how: How,
}

/// What kind of failure it is, where something follows from that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Plain,
    /// A path did not answer.
    Hung,
    /// There is another filesystem on the device than was asked for.
    WrongFilesystem,
}

impl From<&HostError> for How {
    fn from(error: &HostError) -> Self {
        match error {
            HostError::Refused { .. } => Self::Plain,
            HostError::WrongFilesystem { .. } => Self::WrongFilesystem,
            HostError::Hung { .. } => Self::Hung,
        }
    }
}

impl Failure {
    /// Nothing was done.
    pub(crate) fn transient(stage: Stage, message: impl ToString) -> Self {
        Self { class: Class::Transient, stage, message: message.to_string(), seen: false, how: How::Plain }
    }

    pub(crate) fn of(class: Class, stage: Stage, message: impl ToString) -> Self {
        Self { class, stage, message: message.to_string(), seen: false, how: How::Plain }
    }

    /// The volume is mounted, and something else did not work.
    pub(crate) fn after_mount(stage: Stage, message: impl ToString) -> Self {
        Self { class: Class::Uncertain, stage, message: message.to_string(), seen: true, how: How::Plain }
    }

    /// The machine did not do something before the driver was asked.
    pub(crate) fn host(stage: Stage) -> impl Fn(HostError) -> Self {
        move |error| Self { how: How::from(&error), ..Self::transient(stage, error) }
    }
}

impl Agent {
    pub(super) async fn act(&self, id: &VolumeId, step: &Step, view: &View) -> Result<Effect, Failure> {
        self.remember(id, step, view);
        match &view.what {
            What::Csi { shape: Shape::Block { .. }, .. } => self.act_block(step, view).await,
            What::Csi { .. } => self.act_filesystem(step, view).await,
            What::InTree { .. } => self.act_in_tree(step, view).await,
            What::LocalDevice { name } => self.act_local_device(step, view, name).await,
        }
    }

    /// Before anything is asked for, it is known that it may be there.
    fn remember(&self, id: &VolumeId, step: &Step, view: &View) {
        if !matches!(step, Step::Stage(_) | Step::Publish(_) | Step::Republish(_)) {
            return;
        }
        let attachable = self.attachable(&view.what);
        let mut world = self.world();
        let entry = world.actual.entry(id.clone()).or_insert_with(|| Entry::new(view.what.clone(), attachable));
        if entry.is_empty() {
            entry.context = step.pod().and_then(|pod| view.context(pod)).cloned();
        }
        if let (Step::Publish(pod) | Step::Republish(pod), Some(wish)) = (step, view.wish(step)) {
            remember(entry, pod, &wish.spec);
        }
        if entry.size.is_none() {
            entry.size = view.wish(step).and_then(|wish| wish.claimed.clone());
        }
    }

    async fn act_filesystem(&self, step: &Step, view: &View) -> Result<Effect, Failure> {
        match step {
            Step::Stage(_) => self.stage(step, view).await.map(|()| Effect::default()),
            Step::Publish(_) => self.publish(step, view).await,
            Step::Republish(_) => self.republish(step, view).await,
            Step::Expand(_) => self.expand(step, view).await,
            Step::Unpublish(pod) if view.is_alone() => {
                self.unpublish_alone(pod, view).await.map(|()| Effect::default())
            }
            Step::Unstage if view.is_alone() => self.unstage_alone(view).await.map(|()| Effect::default()),
            Step::Unpublish(pod) => self.unpublish(pod, view).await.map(|()| Effect::default()),
            Step::Unstage => self.unstage(view).await.map(|()| Effect::default()),
            Step::Forget => self.forget_staged(view).await.map(|()| Effect::default()),
        }
    }
}
