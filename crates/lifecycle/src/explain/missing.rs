//! A claim that does not exist: who wants it, and what kept it from being made.

use api::{Key, Quota};

use super::Picture;
use super::text::{plain, said};

/// How many events are shown.
const SHOWN: usize = 3;

/// What was seen of a claim that is not there.
pub fn missing(picture: &Picture, key: &Key) -> Vec<String> {
    let mut lines = Vec::new();
    let pods = picture.pods.items().iter().filter(|pod| pod.meta.key.namespace() == key.namespace());
    lines.extend(
        pods.filter(|pod| pod.claims().any(|name| *name == *key.name()))
            .take(SHOWN)
            .map(|pod| format!("pod {:?} names it and waits for it", pod.name())),
    );
    let mut events: Vec<_> = picture.events.items().iter().filter(|event| event.warning && names(event, key)).collect();
    events.sort_by_key(|event| std::cmp::Reverse(event.last));
    lines.extend(
        events
            .iter()
            .take(SHOWN)
            .map(|event| format!("{} {:?}: {}", event.about.kind, event.about.name, said(picture, event))),
    );
    lines.extend(used_up(picture, key.namespace().unwrap_or_default()));
    let similar = picture.claims.items().iter().filter(|claim| claim.name() == key.name());
    lines.extend(similar.map(|claim| format!("there is a claim of that name in namespace {:?}", claim.namespace())));
    lines.iter().map(|line| plain(line)).collect()
}

fn names(event: &api::Event, key: &Key) -> bool {
    event
        .message
        .split(|letter: char| !(letter.is_alphanumeric() || "-.".contains(letter)))
        .any(|word| word == key.name())
}

/// What no more of may be claimed in a namespace.
pub(super) fn used_up(picture: &Picture, namespace: &str) -> Vec<String> {
    let here = picture.quotas.items().iter().filter(|quota| quota.meta.key.namespace() == Some(namespace));
    here.flat_map(full).collect()
}

/// The limits on storage that nothing is left of.
fn full(quota: &Quota) -> Vec<String> {
    let about_storage = |name: &str| name.ends_with("persistentvolumeclaims") || name.ends_with("requests.storage");
    let limits = quota.status.hard.iter().filter(|(name, _)| about_storage(name));
    let used = |name: &str| quota.status.used.get(name);
    let full = limits.filter_map(|(name, hard)| used(name).filter(|used| *used >= hard).map(|used| (name, used, hard)));
    full.map(|(name, used, hard)| format!("quota {:?} is used up: {name} is {used} of {hard}", quota.meta.key.name()))
        .collect()
}
