//! Notes when things happen, for the times that the API does not tell.
//!
//! What was there when we came has no moment: only a change that we saw does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use api::node::PodPhase;
use api::{Attachment, Claim, ClaimPhase, Object, Pod, Volume};
use control::Context;
use lifecycle::scene::{Moment, Moments};
use runtime::client::Selection;
use runtime::{Cache, Change, Clock, Stop, Subscription};

use super::board::Board;

/// What has been seen to happen. Clones are the same diary.
#[derive(Debug, Clone, Default)]
pub(super) struct Diary(Arc<Mutex<Moments>>);

impl Diary {
    /// The diary that lies beside a board.
    pub(super) fn of(board: &Board) -> Self {
        board.diary().clone()
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&Moments) -> T) -> T {
        read(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(&self, write: impl FnOnce(&mut Moments)) {
        write(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Notes what happens until `stop`. The caches are those of the controllers beside us, where there are any.
pub(super) async fn keep(context: &Context, board: &Arc<Board>, stop: &Stop) {
    let diary = Diary::of(board);
    let work = async {
        tokio::join!(
            follow::<Claim>(context, &diary, |claim| match claim.phase {
                ClaimPhase::Bound => vec![Moment::Created, Moment::Bound],
                ClaimPhase::Pending | ClaimPhase::Lost => vec![Moment::Created],
            }),
            follow::<Volume>(context, &diary, |_| vec![Moment::Created]),
            follow::<Attachment>(context, &diary, |held| match held.attached {
                true => vec![Moment::Created, Moment::Attached],
                false => vec![Moment::Created],
            }),
            follow::<Pod>(context, &diary, of_pod),
        )
    };
    let _noting = tokio::select! {
        biased;
        () = stop.stopped() => return,
        noting = work => noting,
    };
    stop.stopped().await;
}

fn of_pod(pod: &Pod) -> Vec<Moment> {
    let mut moments = vec![Moment::Created];
    if pod.scheduled() {
        moments.push(Moment::Scheduled);
    }
    if pod.phase == PodPhase::Running || pod.volumes_ready.as_ref().is_some_and(|said| said.ready) {
        moments.push(Moment::Mounted);
    }
    moments
}

/// Once the cache is complete, what an object has come to and had not come to before is noted with the time, for as long as
/// the answer lives.
async fn follow<T: Object>(context: &Context, diary: &Diary, reached: fn(&T) -> Vec<Moment>) -> Subscription {
    let cache: Cache<T> = context.caches.selected(Selection::default());
    cache.synced().await;
    let (diary, clock) = (diary.clone(), context.clock.clone());
    let live = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&live);
    let noting = cache.subscribe(move |change| note(change, (&diary, &*clock), told.load(Ordering::Acquire), reached));
    live.store(true, Ordering::Release);
    noting
}

fn note<T: Object>(
    change: &Change<T>,
    (diary, clock): (&Diary, &dyn Clock),
    live: bool,
    reached: fn(&T) -> Vec<Moment>,
) {
    let uid = &change.object().meta().uid;
    let before = match change {
        Change::Removed(_) => return diary.write(|moments| moments.forget(uid)),
        // Told to us because it was there when we came.
        Change::Added(_) if !live => return,
        Change::Added(_) => Vec::new(),
        Change::Changed { old, .. } => reached(old),
    };
    let now = clock.now().as_millisecond();
    let new = reached(change.object()).into_iter().filter(|moment| !before.contains(moment));
    diary.write(|moments| new.for_each(|moment| moments.note(uid, moment, now)));
}
