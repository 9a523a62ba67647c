//! Wrong behaviour on purpose: what each invariant must notice.

use crate::World;
use crate::driver::Model;
use crate::storage::witness::Witness;

/// What is wrong in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// Nothing.
    None,
}

impl Mutation {
    pub(super) async fn play(self, _world: &World, _witness: &Witness, _model: &Model) {
        match self {
            Self::None => std::future::pending().await,
        }
    }
}
