//! How the provisioner says that room has changed: items are asked again at once.

use std::sync::Arc;

use api::{Class, Volume};
use lifecycle::capacity::Item;
use lifecycle::provision::csi::topology::Term;
use runtime::Queue;

use super::{Job, Known};
use crate::Context;

/// What came or went.
#[derive(Debug, Clone, Copy)]
pub enum Changed<'a> {
    /// A volume: the room where it can be reached from, or of its class if that is everywhere.
    Volume(&'a Volume),
    /// Something of a class, nobody knows where.
    Class(&'a str),
}

/// Tells a producer. Clones are the same.
#[derive(Debug, Clone)]
pub struct Refresh {
    context: Context,
    driver: String,
    queue: Queue<Job>,
    known: Arc<Known>,
}

impl Refresh {
    pub(super) fn new(context: &Context, driver: &str, queue: Queue<Job>, known: Arc<Known>) -> Self {
        Self { context: context.clone(), driver: driver.to_owned(), queue, known }
    }

    pub fn tell(&self, changed: &Changed<'_>) {
        match changed {
            Changed::Class(class) => self.class(class),
            Changed::Volume(volume) if volume.affinity.is_none() => self.class(volume.class().text()),
            Changed::Volume(volume) => self.places(volume),
        }
    }

    fn class(&self, class: &str) {
        for place in self.known.get() {
            self.queue.add(Job::Item(Item { class: class.to_owned(), place }));
        }
    }

    /// All classes of the driver share the room of a place.
    fn places(&self, volume: &Volume) {
        let reached = |place: &Term| volume.reachable_from("", &place.0.iter().collect());
        let places: Vec<_> = self.known.get().into_iter().filter(reached).collect();
        for class in self.context.cache::<Class>().walk().filter(|class| *class.provisioner == *self.driver) {
            for place in &places {
                self.queue.add(Job::Item(Item { class: class.name().to_owned(), place: place.clone() }));
            }
        }
    }
}
