//! What the driver leaves in its pool when it dies halfway: copies in `.tmp`, and volumes in `.trash` that are deleted and not
//! yet removed. As the local driver does, it clears both when it starts and from time to time; a copy that may still be
//! resumed stays and is listed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use csi::v1;
use tokio::time::sleep;
use v1::volume_content_source::Type as From;

use super::{DriverFlaw, Model, State};
use crate::random::{Odds, Random};

/// How often a driver with faults dies in the middle of making or deleting a volume.
const HALFWAY: Odds = Odds::of_10_000(700);
/// How often leftovers are looked for.
const SWEEP: Duration = Duration::from_secs(300);

/// The hidden directories of the pool.
#[derive(Debug)]
pub(super) struct Leftovers {
    /// By the name of the volume that is to be: the id of the volume it is copied from, if any.
    drafts: BTreeMap<String, Option<String>>,
    /// Ids.
    trash: BTreeSet<String>,
    random: Random,
}

impl Leftovers {
    pub(super) fn new(random: Random) -> Self {
        Self { drafts: BTreeMap::new(), trash: BTreeSet::new(), random }
    }

    /// Whether the driver dies in the middle of what it does now.
    pub(super) fn dies_halfway(&mut self) -> bool {
        self.random.happens(HALFWAY)
    }

    pub(super) fn begin(&mut self, request: &v1::CreateVolumeRequest) {
        let source = request.volume_content_source.as_ref().and_then(|source| source.r#type.as_ref());
        let source = source.and_then(|source| match source {
            From::Volume(volume) => Some(volume.volume_id.clone()),
            From::Snapshot(_) => None,
        });
        self.drafts.insert(request.name.clone(), source);
    }

    pub(super) fn finish(&mut self, name: &str) {
        self.drafts.remove(name);
    }

    pub(super) fn discard(&mut self, id: &str) {
        self.trash.insert(id.to_owned());
    }

    /// Empties the trash, and drops drafts that nothing can resume.
    fn sweep(&mut self, state: &State) {
        self.trash.clear();
        self.drafts.retain(|_, source| source.as_ref().is_some_and(|source| state.get(source).is_some()));
    }

    /// What lies there and is not listed as a copy that may be resumed.
    fn unlisted(&self, state: &State) -> Vec<String> {
        let can_resume = |source: &Option<String>| source.as_ref().is_some_and(|source| state.get(source).is_some());
        let drafts = self.drafts.iter().filter(|(_, source)| !can_resume(source));
        let drafts = drafts.map(|(name, _)| format!("left in .tmp: the half-made volume {name}"));
        drafts.chain(self.trash.iter().map(|id| format!("left in .trash: the deleted volume {id}"))).collect()
    }
}

impl Model {
    /// Clears leftovers, as a driver does that starts.
    pub(super) fn sweep(&self) {
        let mut inner = self.lock();
        if inner.flaw != DriverFlaw::KeepLeftovers {
            let super::Inner { state, leftovers, .. } = &mut *inner;
            leftovers.sweep(state);
        }
    }

    /// Clears leftovers from time to time, for ever.
    pub(super) async fn keep_sweeping(&self) {
        loop {
            sleep(SWEEP).await;
            self.sweep();
        }
    }

    /// What lies in `.tmp` and `.trash` and is in no list.
    pub(crate) fn unlisted(&self) -> Vec<String> {
        let inner = self.lock();
        inner.leftovers.unlisted(&inner.state)
    }
}
