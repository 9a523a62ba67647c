//! Merging an applied configuration into the stored object: what the configuration says wins, the rest stays.
//!
//! Both values have been checked against the type before; what does not fit is taken as a whole from the
//! configuration.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::path::{Path, Step};
use super::shape::{Atom, Listing, Mapping, Shape, Unity};
use super::validate::Misfits;

/// The live object with the configuration laid over it.
pub fn merge(live: &Value, config: &Value, shape: Shape<'_>) -> Result<Value, Misfits> {
    let mut merger = Merger { path: Vec::new() };
    Ok(merger.visit(Some(live), Some(config), shape)?.unwrap_or(Value::Null))
}

struct Merger {
    path: Path,
}

impl Merger {
    /// The merged value, `None` when neither side has anything.
    fn visit(&mut self, live: Side<'_>, config: Side<'_>, shape: Shape<'_>) -> Result<Option<Value>, Misfits> {
        let atom = shape.atom(config.or(live));
        match &atom {
            Atom::Scalar(_) => Ok(whole(live, config)),
            Atom::List(list) => {
                let (old, new) = (items(live), items(config));
                if list.is_atomic() || (old.is_empty() && new.is_empty()) {
                    return Ok(whole(live, config));
                }
                self.visit_items(list, old, new)
            }
            Atom::Map(map) => {
                let (old, new) = (fields(live), fields(config));
                // Two empty values are wholes, so that null and empty stay apart.
                if map.unity == Unity::Atomic || (old.is_none_or(Map::is_empty) && new.is_none_or(Map::is_empty)) {
                    return Ok(whole(live, config));
                }
                self.visit_fields(map, old, new)
            }
        }
    }

    fn visit_fields(
        &mut self,
        map: &Mapping<'_>,
        live: Fields<'_>,
        config: Fields<'_>,
    ) -> Result<Option<Value>, Misfits> {
        let names = live.into_iter().chain(config).flat_map(Map::keys).collect::<BTreeSet<_>>();
        let mut merged = Map::new();
        for name in names {
            let (old, new) = (live.and_then(|all| all.get(name)), config.and_then(|all| all.get(name)));
            self.path.push(Step::field(name));
            let outcome = match map.child(name) {
                Some(shape) => self.visit(old, new, shape),
                None => Ok(whole(old, new)),
            };
            self.path.pop();
            if let Some(value) = outcome? {
                merged.insert(name.clone(), value);
            }
        }
        Ok((!merged.is_empty()).then_some(Value::Object(merged)))
    }

    fn visit_items(&mut self, list: &Listing<'_>, live: &[Value], config: &[Value]) -> Result<Option<Value>, Misfits> {
        let live = self.index(list, live)?;
        let config = self.index(list, config)?;
        let known = by_step(&live);
        let wanted: ByStep<'_> = config.iter().map(|(step, item)| (step, *item)).collect();
        if wanted.len() < config.len() {
            return Err(Misfits::one(&self.path, "duplicate entries for one key".to_owned()));
        }
        let order = interleave(&live, &config, &known, &wanted);
        let mut merged = Vec::with_capacity(order.len());
        for place in order {
            let (step, old, new) = match place {
                Place::Live(at) => (&live[at].0, Some(live[at].1), None),
                Place::Config(at) => (&config[at].0, known.get(&config[at].0).copied(), Some(config[at].1)),
            };
            self.path.push(step.clone());
            let outcome = self.visit(old, new, list.item);
            self.path.pop();
            merged.extend(outcome?);
        }
        Ok((!merged.is_empty()).then_some(Value::Array(merged)))
    }

    fn index<'v>(&self, list: &Listing<'_>, items: &'v [Value]) -> Result<Vec<(Step, &'v Value)>, Misfits> {
        let step = |(index, item): (usize, &'v Value)| match list.step(item) {
            Ok(step) => Ok((step, item)),
            Err(why) => Err(Misfits::one(&self.path, format!("element {index}: {why}"))),
        };
        items.iter().enumerate().map(step).collect()
    }
}

/// Where an item of a merged list comes from, by its index there.
enum Place {
    /// Only the live list has it.
    Live(usize),
    /// The configuration has it, perhaps the live list too.
    Config(usize),
}

/// The order of a merged list: the configuration's order for its items; items that only the live list has stay behind
/// the neighbours they had.
fn interleave(live: &[Item<'_>], config: &[Item<'_>], known: &ByStep<'_>, wanted: &ByStep<'_>) -> Vec<Place> {
    let mut shared = config.iter().map(|(step, _)| step).filter(|step| known.contains_key(step)).peekable();
    let mut done: BTreeSet<&Step> = BTreeSet::new();
    let mut order = Vec::with_capacity(live.len() + config.len());
    let (mut at_live, mut at_config) = (0, 0);
    while at_live < live.len() || at_config < config.len() {
        if let (Some((old, _)), Some((new, _))) = (live.get(at_live), config.get(at_config)) {
            if old == new {
                done.insert(new);
                order.push(Place::Config(at_config));
                at_live += 1;
                at_config += 1;
                shared.next();
                continue;
            }
            // An item of both lists, but not the next one in the configuration's order: its turn comes there.
            if wanted.contains_key(old) && shared.peek().is_some_and(|next| *next != old) {
                at_live += 1;
                continue;
            }
        }
        if let Some((old, _)) = live.get(at_live) {
            if !wanted.contains_key(old) {
                order.push(Place::Live(at_live));
                at_live += 1;
                continue;
            }
            if done.contains(old) {
                at_live += 1;
            }
        }
        if let Some((new, _)) = config.get(at_config) {
            done.insert(new);
            order.push(Place::Config(at_config));
            at_config += 1;
            if shared.peek().is_some_and(|next| *next == new) {
                shared.next();
            }
        }
    }
    order
}

/// The items by their steps; a repeated item is not merged with, since nobody can say which of the two is meant.
fn by_step<'v>(items: &'v [Item<'_>]) -> ByStep<'v> {
    let mut known = BTreeMap::new();
    for (step, item) in items {
        known.entry(step).and_modify(|known| *known = &Value::Null).or_insert(*item);
    }
    known
}

type Item<'v> = (Step, &'v Value);
type ByStep<'v> = BTreeMap<&'v Step, &'v Value>;
type Side<'v> = Option<&'v Value>;
type Fields<'v> = Option<&'v Map<String, Value>>;

fn whole(live: Side<'_>, config: Side<'_>) -> Option<Value> {
    config.or(live).cloned()
}

fn fields(value: Side<'_>) -> Fields<'_> {
    value.and_then(Value::as_object)
}

fn items(value: Side<'_>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
