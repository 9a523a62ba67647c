//! The three numbers that upstream shows, counted when somebody looks: with a place for every node there are thousands of
//! items, and counting all of them after each would cost more than all the rest.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use api::{Capacity, Class};
use lifecycle::capacity::{self, Immediate, Item};
use runtime::metrics::CapacityMetrics;
use runtime::{Cache, Metrics};

use super::Known;

/// What the numbers of one driver are counted from.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) classes: Cache<Class>,
    pub(super) objects: Cache<Capacity>,
    pub(super) known: Arc<Known>,
    pub(super) driver: String,
    pub(super) immediate: Immediate,
}

/// How many there should be, how many of those there are, and how many there are besides.
#[derive(Debug, Default, Clone, Copy)]
struct Numbers {
    goal: i64,
    current: i64,
    obsolete: i64,
}

impl Measured {
    /// Shows the numbers for as long as somebody holds this. Those of several drivers in one process are added up.
    pub(super) fn show(self: &Arc<Self>, metrics: &Metrics) {
        let (weak, gauges) = (Arc::downgrade(self), metrics.capacities.clone());
        let shown = Mutex::new(Numbers::default());
        metrics.before_encoding(move || {
            let now = weak.upgrade().map(|measured| measured.count()).unwrap_or_default();
            let before = std::mem::replace(&mut *shown.lock().unwrap_or_else(PoisonError::into_inner), now);
            let CapacityMetrics { goal, current, obsolete } = &gauges;
            goal.inc_by(now.goal - before.goal);
            current.inc_by(now.current - before.current);
            obsolete.inc_by(now.obsolete - before.obsolete);
        });
    }

    fn count(&self) -> Numbers {
        let places = self.known.get();
        let told = self.classes.walk().filter(|class| capacity::is_told(class, &self.driver, self.immediate));
        let of_class = |class: &Class| {
            let class = class.name().to_owned();
            let of_place = |place| Item { class: class.clone(), place };
            places.iter().cloned().map(of_place).collect::<Vec<Item>>()
        };
        let wanted: BTreeSet<Item> = told.flat_map(|class| of_class(&class)).collect();
        let (mut objects, mut held) = (0, BTreeSet::new());
        for object in self.objects.walk() {
            objects += 1;
            held.extend(capacity::item_of(&object));
        }
        let current = number(wanted.intersection(&held).count());
        Numbers { goal: number(wanted.len()), current, obsolete: objects - current }
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
