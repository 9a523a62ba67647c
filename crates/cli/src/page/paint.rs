//! Paints what changed: ways, pools, nodes, events, and how well the cluster can be seen.
//!
//! Painting happens while somebody looks, at most ten times a second, and never for more than a fifth of the time. The
//! explanations of one painting have a budget; a way that has to wait for its own is drawn without it and comes next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use control::Context;
use lifecycle::scene::{self, Picture, Tone, Way, WayId, Why};
use runtime::{Clock, Stop};
use serde::Serialize;
use tokio::time::sleep;

use super::board::{Board, Edit};
use super::diary::Diary;
use super::marks::{Extent, Marks};
use super::rooms::Asked;
use super::world::{Trouble, World};

/// Changes are collected for so long.
const PAUSE: Duration = Duration::from_millis(100);
/// The share of the time that may be spent painting is one part of this many.
const SHARE: u32 = 5;
/// What the explanations of one painting may take.
const BUDGET: Duration = Duration::from_millis(150);
/// Ages and silences grow without any change, so that what waits is looked at again after this.
const AGAIN: Duration = Duration::from_secs(10);
/// The same while the cluster is being read for the first time.
const READING: Duration = Duration::from_millis(100);
/// How many events are shown.
const EVENTS: usize = 200;

/// What paints. The cluster is followed from the first painting on.
#[derive(Debug)]
pub(super) struct Painter {
    context: Context,
    clock: Arc<dyn Clock>,
    board: Arc<Board>,
    marks: Marks,
    asked: Asked,
    diary: Diary,
    cluster: String,
    world: Option<World>,
    /// What hangs on the board, with how it stands.
    drawn: BTreeMap<WayId, Drawn>,
}

/// A way on the board.
#[derive(Debug, Clone)]
struct Drawn {
    tone: Tone,
    why: Option<Why>,
}

/// A way, with its reason once that is known.
#[derive(Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    way: &'a Way,
    why: Option<&'a Why>,
}

impl Painter {
    pub(super) fn new(context: &Context, board: &Arc<Board>, asked: &Asked, cluster: String) -> Self {
        Self {
            context: context.clone(),
            clock: context.clock.clone(),
            board: Arc::clone(board),
            marks: Marks::new(board),
            asked: asked.clone(),
            diary: Diary::of(board),
            cluster,
            world: None,
            drawn: BTreeMap::new(),
        }
    }

    /// Paints what was touched; with `again` also whatever waits.
    fn paint(&mut self, again: bool) {
        let mut world = match self.world.take() {
            Some(world) => world,
            None => World::follow(&self.context, &self.marks),
        };
        // Half a cluster is no picture, unless something keeps us from the other half.
        if !world.is_read() && world.troubles().is_empty() {
            self.world = Some(world);
            return;
        }
        let touched = self.marks.take();
        let picture = world.look(&*self.clock);
        let mut ways = touched.ways;
        match touched.extent {
            Extent::All => {
                ways.extend(self.drawn.keys().cloned());
                ways.extend(scene::ways(picture));
            }
            Extent::Unsettled => ways.extend(self.unsettled()),
            Extent::Named if again => ways.extend(self.unsettled()),
            Extent::Named => {}
        }
        let board = Arc::clone(&self.board);
        let rows = self.rows(picture, ways);
        let asked = self.asked.get();
        let mut items: Vec<(String, String)> = vec![
            ("pools".to_owned(), text("pools", &scene::pools(picture, &asked))),
            ("machines".to_owned(), text("machines", &scene::machines(picture))),
        ];
        let said = scene::sayings(picture, EVENTS);
        let told: BTreeSet<String> = said.iter().map(|saying| saying.id.clone()).collect();
        items.extend(said.iter().map(|saying| (saying.id.clone(), text("event", saying))));
        items.push(("cluster".to_owned(), self.cluster(&world)));
        board.edit(|edit| {
            hang(edit, rows);
            edit.ids("event/").iter().filter(|id| !told.contains(*id)).for_each(|id| edit.remove(id));
            items.into_iter().for_each(|(id, text)| edit.put(&id, text));
        });
        self.world = Some(world);
    }

    /// When to look again if nothing rings.
    fn patience(&self) -> Duration {
        let reads = self.world.as_ref().is_none_or(|world| !world.is_read());
        if reads { READING } else { AGAIN }
    }

    fn unsettled(&self) -> Vec<WayId> {
        let waiting = self.drawn.iter().filter(|(_, drawn)| drawn.tone != Tone::Settled || drawn.why.is_none());
        waiting.map(|(id, _)| id.clone()).collect()
    }

    /// The touched ways as they are now; nothing for one that is gone.
    fn rows(&mut self, picture: &Picture, ways: BTreeSet<WayId>) -> Vec<(String, Option<String>)> {
        let begun = Instant::now();
        let mut late = Vec::new();
        let mut rows = Vec::with_capacity(ways.len());
        for id in ways {
            let Some(mut way) = self.diary.read(|moments| scene::way(picture, &id, moments)) else {
                self.drawn.remove(&id);
                rows.push((id.to_string(), None));
                continue;
            };
            let why = match begun.elapsed() < BUDGET {
                true => scene::explain(picture, &id),
                false => {
                    late.push(id.clone());
                    self.drawn.get(&id).and_then(|drawn| drawn.why.clone())
                }
            };
            if let Some(why) = &why {
                settle(&mut way, why.tone);
            }
            rows.push((id.to_string(), Some(text("way", &Row { way: &way, why: why.as_ref() }))));
            self.drawn.insert(id, Drawn { tone: way.tone, why });
        }
        if !late.is_empty() {
            self.marks.add(late, Extent::Named);
        }
        rows
    }

    /// How well the cluster can be seen.
    fn cluster(&self, world: &World) -> String {
        let troubles = world.troubles();
        let value = serde_json::json!({
            "type": "cluster", "id": "cluster", "name": self.cluster,
            "read": world.is_read(), "troubles": told(&troubles),
            "unseen": troubles.iter().map(|trouble| trouble.what).collect::<Vec<_>>(),
        });
        value.to_string()
    }
}

/// The explanation knows more than a station does by itself: whether a claim that is Pending moves, waits or is stuck.
fn settle(way: &mut Way, tone: Tone) {
    way.tone = tone;
    if let Some(claim) = way.claim.as_mut().filter(|claim| claim.tone == Tone::Waiting) {
        claim.tone = tone.max(Tone::Moving);
    }
}

fn hang(edit: &mut Edit<'_>, rows: Vec<(String, Option<String>)>) {
    for (id, text) in rows {
        match text {
            Some(text) => edit.put(&id, text),
            None => edit.remove(&id),
        }
    }
}

/// What cannot be followed, each reason once.
fn told(troubles: &[Trouble]) -> Vec<String> {
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for trouble in troubles {
        reasons.entry(&trouble.why).or_default().push(trouble.what);
    }
    reasons.into_iter().map(|(why, kinds)| format!("{}: {why}", kinds.join(", "))).collect()
}

/// An item as JSON: a list becomes an item with a list in it.
fn text(kind: &str, value: &impl Serialize) -> String {
    // Numbers, texts and lists of them: there is nothing that JSON cannot say.
    let value = serde_json::to_value(value).unwrap_or_default();
    let item = match value {
        serde_json::Value::Object(mut members) => {
            members.insert("type".to_owned(), kind.into());
            serde_json::Value::Object(members)
        }
        list => serde_json::json!({"type": kind, "id": kind, "list": list}),
    };
    item.to_string()
}

/// Paints while anybody looks, until `stop`.
pub(super) async fn run(painter: Painter, board: &Arc<Board>, stop: &Stop) {
    tokio::select! {
        biased;
        () = stop.stopped() => {}
        never = paint_on(painter, board) => match never {},
    }
}

async fn paint_on(mut painter: Painter, board: &Arc<Board>) -> std::convert::Infallible {
    let (mut viewers, mut bell) = (board.viewers(), board.bell());
    let mut again = true;
    loop {
        // The board lives as long as its receivers here, so that these waits do not fail.
        let _ = viewers.wait_for(|count| *count > 0).await;
        bell.borrow_and_update();
        let begun = Instant::now();
        let painting = tokio::task::spawn_blocking(move || {
            painter.paint(again);
            painter
        });
        painter = match painting.await {
            Ok(painter) => painter,
            // A painter that panicked has said so; a page that never changes again would hide it.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        sleep(PAUSE.max(begun.elapsed() * (SHARE - 1))).await;
        again = tokio::select! {
            biased;
            _ = bell.changed() => false,
            () = sleep(painter.patience()) => true,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_many_kinds_share_is_told_once() {
        let not = |what, why: &str| Trouble { what, why: why.to_owned() };
        let troubles = [not("pods", "not allowed"), not("leases", "no answer"), not("nodes", "not allowed")];
        assert_eq!(told(&troubles), ["leases: no answer", "pods, nodes: not allowed"]);
    }
}
