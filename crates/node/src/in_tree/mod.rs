//! Volumes that the machine makes by itself: emptyDir, hostPath, local and NFS.

use lifecycle::node::Step;
use lifecycle::node::because::Stage;

use crate::Agent;
use crate::reconcile::{Effect, Failure, View};

impl Agent {
    pub(crate) async fn act_in_tree(&self, step: &Step, _view: &View) -> Result<Effect, Failure> {
        match step {
            Step::Forget | Step::Unstage => Ok(Effect::default()),
            _ => Err(Failure::transient(Stage::SetUp, "volumes of this kind are not made here yet")),
        }
    }
}
