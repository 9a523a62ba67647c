//! How much work waits in a process (`workqueue_*`).

use std::collections::BTreeMap;

use super::read;

/// A queue of keys to be worked on.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Queue {
    pub name: Box<str>,
    /// Keys that wait.
    pub depth: u64,
    /// Keys that were added since the process began.
    pub added: Option<u64>,
    /// Of those, the ones that were added again after a failure.
    pub retried: Option<u64>,
    /// Seconds that the longest piece of work has been running.
    pub longest: Option<f64>,
}

/// The queues of one process, by name.
pub fn queues(text: &str) -> Vec<Queue> {
    let mut queues: BTreeMap<Box<str>, Queue> = BTreeMap::new();
    for sample in read(text, &["workqueue_"]) {
        let Some(name) = sample.label("name") else { continue };
        let queue = queues.entry(name.into()).or_insert_with(|| Queue { name: name.into(), ..Queue::default() });
        match &*sample.name {
            "workqueue_depth" => queue.depth = sample.count().unwrap_or(0),
            "workqueue_adds_total" => queue.added = sample.count(),
            "workqueue_retries_total" => queue.retried = sample.count(),
            "workqueue_longest_running_processor_seconds" => queue.longest = Some(sample.value),
            _ => {}
        }
    }
    queues.into_values().collect()
}
