//! What is full, for people and for programs.
//!
//! The JSON is described in docs/reading-the-state.md.

use serde_json::{Value, json};

use super::{Filling, Limit, Places, Room, Top};
use crate::measured::Usage;
use crate::table::{self, Cell, Column, Look, Table, Tone};
use crate::tree::{unseen_text, unseen_value, usage_value};

const FORM: u32 = 1;

/// Shares from which a number is worth a look, and from which it is bad.
const HIGH: u64 = 80;
const FULL: u64 = 95;

impl Top {
    pub fn text(&self, look: Look) -> String {
        let parts = [self.claims_text(look), self.places_text(look), self.rooms_text(look), self.queues_text(look)];
        let mut text = parts.into_iter().flatten().collect::<Vec<_>>().join("\n");
        if text.is_empty() {
            text = "There is nothing to show.\n".to_owned();
        }
        if !self.unreachable.is_empty() {
            text.push_str("\nNot reachable:\n");
            for one in &self.unreachable {
                text.push_str(&format!("  - {}: {}\n", one.what, one.why));
            }
        }
        text + &unseen_text(&self.unseen)
    }

    fn claims_text(&self, look: Look) -> Option<String> {
        let mut table = Table::new([
            Column::left("NAMESPACE"),
            Column::left("CLAIM"),
            Column::right("SIZE"),
            Column::right("USED"),
            Column::right("FREE"),
            Column::right("USE%"),
            Column::right("INODES%"),
            Column::left("HEALTH"),
            Column::left("NODES"),
            Column::wide("VOLUME"),
        ]);
        for filling in &self.claims {
            let usage = filling.usage.unwrap_or_default();
            let health = usage.abnormal.map(|abnormal| if abnormal { "abnormal" } else { "" });
            table.push([
                Cell::of(filling.claim.namespace().filter(|_| self.everywhere)),
                filling.claim.name().into(),
                Cell::of(filling.size.as_ref().map(api::Amount::text)),
                Cell::of(usage.used.map(table::bytes)),
                Cell::of(usage.available.map(table::bytes)),
                share(usage.percent()),
                share(usage.inodes_percent()),
                Cell::new(health.unwrap_or_default(), Tone::Bad),
                filling.nodes.iter().map(|node| &**node).collect::<Vec<_>>().join(",").into(),
                (&*filling.volume).into(),
            ]);
        }
        (!table.is_empty()).then(|| table.render(look))
    }

    fn places_text(&self, look: Look) -> Option<String> {
        let mut table = Table::new([
            Column::left("NODE"),
            Column::left("DRIVER"),
            Column::right("ATTACHED"),
            Column::right("OF"),
            Column::right("USE%"),
            Column::prose("NOTE"),
        ]);
        for places in &self.places {
            let (of, note) = match (places.limit, places.ready) {
                (Limit::Unregistered, _) => (String::new(), "the driver is not registered here"),
                (Limit::Of(limit), true) => (limit.to_string(), ""),
                (Limit::None, true) => ("no limit".to_owned(), ""),
                (Limit::Of(limit), false) => (limit.to_string(), "the node is not ready"),
                (Limit::None, false) => ("no limit".to_owned(), "the node is not ready"),
            };
            table.push([
                (&*places.node).into(),
                (&*places.driver).into(),
                places.taken.to_string().into(),
                of.into(),
                share(places.percent()),
                Cell::new(note, Tone::Waiting),
            ]);
        }
        (!table.is_empty()).then(|| table.render(look))
    }

    fn rooms_text(&self, look: Look) -> Option<String> {
        let mut table = Table::new([
            Column::left("CLASS"),
            Column::right("FREE"),
            Column::right("LARGEST VOLUME"),
            Column::left("WHERE"),
        ]);
        let amount = |amount: &api::Amount| u64::try_from(amount.bytes()).ok().map(table::bytes);
        for room in &self.rooms {
            table.push([
                (&*room.class).into(),
                Cell::of(room.free.as_ref().and_then(amount)),
                Cell::of(room.largest.as_ref().and_then(amount)),
                (&*room.place).into(),
            ]);
        }
        (!table.is_empty()).then(|| table.render(look))
    }

    /// Empty queues are many and say little: without `-o wide` they are only counted.
    fn queues_text(&self, look: Look) -> Option<String> {
        let mut table = Table::new([
            Column::left("QUEUE"),
            Column::right("WAITING"),
            Column::right("LONGEST RUN"),
            Column::right("RETRIES"),
            Column::wide("ADDED"),
            Column::left("PROCESS"),
        ]);
        let busy = |queue: &crate::measured::Queue| queue.depth > 0 || queue.longest.is_some_and(|run| run >= 1.0);
        let shown = self.queues.iter().filter(|(_, queue)| look.wide || busy(queue));
        for (process, queue) in shown {
            table.push([
                (&*queue.name).into(),
                queue.depth.to_string().into(),
                Cell::of(queue.longest.map(|seconds| format!("{seconds:.1}s"))),
                Cell::of(queue.retried.map(|count| count.to_string())),
                Cell::of(queue.added.map(|count| count.to_string())),
                (&**process).into(),
            ]);
        }
        match (self.queues.len(), table.is_empty()) {
            (0, _) => None,
            (all, true) => Some(format!("No work waits in {all} queues.\n")),
            (_, false) => Some(table.render(look)),
        }
    }

    pub fn value(&self) -> Value {
        json!({
            "form": FORM,
            "claims": self.claims.iter().map(filling).collect::<Vec<_>>(),
            "places": self.places.iter().map(places).collect::<Vec<_>>(),
            "rooms": self.rooms.iter().map(room).collect::<Vec<_>>(),
            "queues": self.queues.iter().map(|(process, queue)| json!({
                "process": process, "name": queue.name, "depth": queue.depth, "added": queue.added,
                "retried": queue.retried, "longestSeconds": queue.longest,
            })).collect::<Vec<_>>(),
            "unreachable": self.unreachable.iter()
                .map(|one| json!({"what": one.what, "why": one.why})).collect::<Vec<_>>(),
            "unseen": unseen_value(&self.unseen),
        })
    }
}

impl Places {
    fn percent(&self) -> Option<u64> {
        match self.limit {
            Limit::Of(limit) => table::percent(u64::try_from(self.taken).ok()?, limit),
            Limit::None | Limit::Unregistered => None,
        }
    }
}

fn share(percent: Option<u64>) -> Cell {
    let tone = match percent {
        Some(FULL..) => Tone::Bad,
        Some(HIGH..) => Tone::Waiting,
        Some(_) | None => Tone::Plain,
    };
    percent.map(|percent| Cell::new(format!("{percent}%"), tone)).unwrap_or_default()
}

fn filling(filling: &Filling) -> Value {
    json!({
        "namespace": filling.claim.namespace(),
        "claim": filling.claim.name(),
        "volume": filling.volume,
        "size": filling.size,
        "nodes": filling.nodes,
        "usage": filling.usage.as_ref().map(usage_value),
        "usePercent": filling.usage.as_ref().and_then(Usage::percent),
    })
}

fn places(places: &Places) -> Value {
    let limit = match places.limit {
        Limit::Of(limit) => Some(limit),
        Limit::None | Limit::Unregistered => None,
    };
    json!({
        "node": places.node,
        "driver": places.driver,
        "taken": places.taken,
        "limit": limit,
        "registered": places.limit != Limit::Unregistered,
        "ready": places.ready,
    })
}

fn room(room: &Room) -> Value {
    json!({
        "class": room.class,
        "where": room.place,
        "freeBytes": room.free.as_ref().map(api::Amount::bytes),
        "largestBytes": room.largest.as_ref().map(api::Amount::bytes),
    })
}
