//! Answers on their way: each keeps the place of its request until its client has taken all of it, and one that its client
//! does not take is cut.
//!
//! Guarantee: an answer of which nothing is taken for [`LONGEST_PAUSE`] is dropped, and so is its connection. Until then it
//! counts as a request in flight. The lines of a watch keep their place, too, and are not cut: their client waits for events.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::body::Body;
use super::flow::InFlight;
use super::handle::ConnectionSeat;

const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How often answers are looked at that have not been taken.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// The answers that clients have not taken yet, but for watches.
#[derive(Debug, Default)]
pub(super) struct AnswersUnderway(Arc<Mutex<Underway>>);

#[derive(Debug, Default)]
struct Underway {
    next: u64,
    answers: BTreeMap<u64, Arc<AnswerState>>,
    is_checked: bool,
}

#[derive(Debug)]
struct AnswerState {
    progress: Mutex<Progress>,
    seat: Option<Arc<ConnectionSeat>>,
}

#[derive(Debug)]
enum Progress {
    Sending(Box<Rest>),
    Taken,
    /// The connection is about to end.
    Cut,
}

/// What is still to be sent.
#[derive(Debug)]
struct Rest {
    body: Body,
    /// Held until the rest is dropped.
    _place: Option<InFlight>,
    moved: Instant,
}

/// The body of an answer that is being sent.
#[derive(Debug)]
pub(super) struct SentBody {
    state: Arc<AnswerState>,
    registered: Option<(u64, Arc<Mutex<Underway>>)>,
}

impl AnswersUnderway {
    /// The same body, which keeps a place until it has been taken.
    pub(super) fn send(&self, body: Body, place: Option<InFlight>, seat: Option<Arc<ConnectionSeat>>) -> Body {
        let lasting = body.is_lasting();
        let rest = Rest { body: body.in_pieces(), _place: place, moved: Instant::now() };
        let state = Arc::new(AnswerState { progress: Mutex::new(Progress::Sending(Box::new(rest))), seat });
        let registered = (!lasting).then(|| (self.register(&state), Arc::clone(&self.0)));
        Body::sent(SentBody { state, registered })
    }

    fn register(&self, state: &Arc<AnswerState>) -> u64 {
        let mut underway = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        underway.next += 1;
        let number = underway.next;
        underway.answers.insert(number, Arc::clone(state));
        if !underway.is_checked
            && let Ok(runtime) = Handle::try_current()
        {
            underway.is_checked = true;
            runtime.spawn(check(Arc::downgrade(&self.0)));
        }
        number
    }
}

/// Cuts answers until none is underway.
async fn check(underway: Weak<Mutex<Underway>>) {
    loop {
        tokio::time::sleep(CHECK_EVERY).await;
        let Some(underway) = underway.upgrade() else { return };
        let mut underway = underway.lock().unwrap_or_else(PoisonError::into_inner);
        if underway.answers.is_empty() {
            underway.is_checked = false;
            return;
        }
        let now = Instant::now();
        for state in underway.answers.values() {
            state.cut_if_stuck(now);
        }
    }
}

impl AnswerState {
    fn cut_if_stuck(&self, now: Instant) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(&*progress, Progress::Sending(rest) if now.duration_since(rest.moved) >= LONGEST_PAUSE) {
            return;
        }
        *progress = Progress::Cut;
        tracing::debug!("a client took nothing of an answer for {} seconds", LONGEST_PAUSE.as_secs());
        if let Some(seat) = &self.seat {
            seat.seat().end();
        }
    }
}

impl SentBody {
    fn with<T>(&self, look: impl FnOnce(&mut Progress) -> T) -> T {
        look(&mut self.state.progress.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        self.with(|progress| {
            let rest = match progress {
                Progress::Sending(rest) => rest,
                Progress::Taken => return Poll::Ready(None),
                // An end here would look like the end of the answer.
                Progress::Cut => return Poll::Pending,
            };
            let Poll::Ready(frame) = Pin::new(&mut rest.body).poll_frame(context) else { return Poll::Pending };
            rest.moved = Instant::now();
            let piece = frame.map(|piece| piece.unwrap_or_else(|never| match never {}));
            if piece.is_none() || rest.body.is_end_stream() {
                *progress = Progress::Taken;
            }
            Poll::Ready(piece)
        })
    }

    pub(super) fn is_over(&self) -> bool {
        self.with(|progress| match progress {
            Progress::Sending(rest) => rest.body.is_end_stream(),
            Progress::Taken => true,
            Progress::Cut => false,
        })
    }

    pub(super) fn size(&self) -> SizeHint {
        self.with(|progress| match progress {
            Progress::Sending(rest) => rest.body.size_hint(),
            Progress::Taken => SizeHint::with_exact(0),
            Progress::Cut => SizeHint::default(),
        })
    }
}

impl Drop for SentBody {
    fn drop(&mut self) {
        if let Some((number, underway)) = &self.registered {
            underway.lock().unwrap_or_else(PoisonError::into_inner).answers.remove(number);
        }
    }
}
