//! What was said about storage: the events that belong to the picture.

use api::{Event, Kind};
use serde::Serialize;

use crate::explain::Picture;
use crate::registration::lease::ANOTHER_MACHINE_EVENT;

/// An event, as far as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Saying {
    pub id: String,
    pub kind: Box<str>,
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub warning: bool,
    pub reason: Box<str>,
    pub message: String,
    pub by: Box<str>,
    pub count: i64,
    /// Milliseconds since 1970.
    pub last: i64,
}

/// Words in the reasons of events about pods that have to do with volumes. Of the others there are too many.
const ABOUT_VOLUMES: [&str; 4] = ["Volume", "Mount", "Attach", "Scheduling"];

/// Events about nodes that tell of machines which are lost or have one name.
const ABOUT_MACHINES: [&str; 2] = [ANOTHER_MACHINE_EVENT, "NodeNotReady"];

/// The newest events about storage, at most `most`, the newest first.
pub fn sayings(picture: &Picture, most: usize) -> Vec<Saying> {
    let mut events: Vec<&Event> = picture.events.items().iter().filter(|event| is_about_storage(event)).collect();
    events.sort_by(|a, b| b.last.cmp(&a.last).then_with(|| b.meta.revision.cmp(&a.meta.revision)));
    events.into_iter().take(most).map(saying).collect()
}

fn is_about_storage(event: &Event) -> bool {
    let storage = [Kind::CLAIM, Kind::VOLUME, Kind::ATTACHMENT, Kind::STORAGE_CLASS, Kind::CSI_NODE, Kind::SNAPSHOT];
    let kind = &*event.about.kind;
    storage.iter().any(|known| known.kind == kind)
        || (kind == Kind::POD.kind && ABOUT_VOLUMES.iter().any(|word| event.reason.contains(word)))
        || (kind == Kind::NODE.kind && ABOUT_MACHINES.contains(&event.reason.as_str()))
}

fn saying(event: &Event) -> Saying {
    Saying {
        id: format!("event/{}", event.meta.key),
        kind: event.about.kind.clone(),
        namespace: event.about.namespace.clone(),
        name: event.about.name.clone(),
        warning: event.warning,
        reason: event.reason.as_str().into(),
        message: crate::explain::plain(&event.message),
        by: event.by.as_str().into(),
        count: event.count,
        last: event.last.0.saturating_mul(1000),
    }
}
