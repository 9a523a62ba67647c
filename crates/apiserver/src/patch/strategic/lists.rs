//! Lists of a strategic merge patch: which items are merged, and in what order they come out.
//!
//! The order rule (API-4.5): items of the patch keep the patch's order, items that only the live list has keep theirs,
//! and the two are woven together by the live order where it is known; a new item comes before live items it is not
//! ordered with.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::go_value::go_text;
use super::{BAD_ORDER, Fields, PATCH, Place, StrategicError, bad_directive, internal, merge_maps, without_directives};

/// How a list is merged.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListRule<'p> {
    pub(super) item: Place<'p>,
    pub(super) merges: Merges,
    /// The field that tells items apart.
    pub(super) key: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Merges {
    Replaced,
    Merged,
}

/// What a list of the patch is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Merge,
    /// Its scalars leave the live list.
    Delete,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ItemKind {
    Map,
    Scalar,
}

type Items = Vec<Value>;
type Outcome<T> = Result<T, StrategicError>;

impl ListRule<'_> {
    pub(super) fn merge(&self, original: Items, patch: Items, role: Role) -> Outcome<Items> {
        if self.merges == Merges::Replaced && role == Role::Merge {
            return Ok(patch);
        }
        if original.is_empty() && patch.is_empty() {
            return Ok(original);
        }
        match item_kind(&[&original, &patch])? {
            ItemKind::Scalar if role == Role::Delete => {
                let gone = positions(&patch, None);
                Ok(original.into_iter().filter(|item| !gone.contains_key(&identity(item, None))).collect())
            }
            ItemKind::Scalar => {
                let mut merged = original.clone();
                merged.extend(patch.iter().cloned());
                let merged = first_of_each(merged);
                self.order(merged, &patch, &original, ItemKind::Scalar)
            }
            ItemKind::Map => {
                let Some(key) = self.key else {
                    return internal("cannot merge lists without merge key for struct".to_owned());
                };
                let (original, patch) = obey_directives(original, patch, key)?;
                let merged = self.merge_items(original.clone(), &patch, key)?;
                self.order(merged, &patch, &original, ItemKind::Map)
            }
        }
    }

    /// Merges each item of the patch into the live item with its key; new ones are added.
    fn merge_items(&self, original: Items, patch: &[Value], key: &str) -> Outcome<Items> {
        let mut places = BTreeMap::new();
        for (index, item) in original.iter().enumerate() {
            if !item.is_object() {
                return internal(format!("value for key {index} is not a map"));
            }
            places.entry(identity(item, Some(key))).or_insert(index);
        }
        let mut merged = original;
        let mut named = BTreeSet::new();
        for item in patch {
            let Value::Object(fields) = item else { continue };
            let id = key_of(fields, key)?;
            if !named.insert(id.clone()) {
                self.item.repeat()?;
            }
            match places.get(&id).and_then(|place| merged.get_mut(*place)) {
                Some(Value::Object(live)) => *live = merge_maps(std::mem::take(live), fields.clone(), self.item)?,
                _ => {
                    places.insert(id, merged.len());
                    merged.push(item.clone());
                }
            }
        }
        Ok(merged)
    }

    /// The items of a patch must be in the order that `$setElementOrder` gives and among its items.
    pub(super) fn check_order(&self, patch: &[Value], order: &[Value]) -> Outcome<()> {
        if patch.is_empty() || order.is_empty() {
            return Ok(());
        }
        let mut items = Vec::with_capacity(patch.len());
        for item in patch {
            match (self.key, item) {
                (Some(_), item) if is_deletion(item) => {}
                (Some(_), Value::Object(_)) | (None, _) => items.push(item),
                (Some(_), _) => return internal("expected a map[string]interface {} in the patch list".to_owned()),
            }
        }
        let mut items = items.into_iter().peekable();
        let mut order_left = order.iter().peekable();
        while let (Some(item), Some(step)) = (items.peek(), order_left.peek()) {
            if item.get(PATCH).is_some() {
                items.next();
                continue;
            }
            if self.checked_identity(item)? == self.checked_identity(step)? {
                items.next();
            }
            order_left.next();
        }
        if items.peek().is_none() {
            return Ok(());
        }
        internal(format!(
            "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
            go_text(&Value::from(patch)),
            go_text(&Value::from(order))
        ))
    }

    fn checked_identity(&self, item: &Value) -> Outcome<String> {
        match (self.key, item) {
            (None, item) => Ok(identity(item, None)),
            (Some(key), Value::Object(fields)) => key_of(fields, key),
            (Some(_), _) => internal("expected a map[string]interface {} in the $setElementOrder list".to_owned()),
        }
    }

    /// The live list merged with the patch's, ordered by `$setElementOrder`; `None` when there is no list at all.
    pub(super) fn merge_in_order(
        &self,
        live: Option<Items>,
        patch: Option<Items>,
        order: &[Value],
    ) -> Outcome<Option<Items>> {
        let merged = match (&live, &patch) {
            (None, None) => return Ok(None),
            (Some(live), None) => live.clone(),
            (None, Some(patch)) => patch.iter().cloned().filter_map(without_directives).collect(),
            (Some(live), Some(patch)) => self.merge(live.clone(), patch.clone(), Role::Merge)?,
        };
        let (live, patch) = (live.unwrap_or_default(), patch.unwrap_or_default());
        if self.key.is_some() {
            self.check_items_are_maps(&merged, order)?;
        }
        let kind = item_kind(&[&live, &patch])?;
        self.order(merged, order, &self.live_order(live, &patch), kind).map(Some)
    }

    /// The live order after the patch: a new item counts as live when a deleted one left room for it at the end. Nobody
    /// designed this, but clients see it whenever they delete one item and add another.
    fn live_order(&self, live: Items, patch: &[Value]) -> Items {
        let (Some(key), Merges::Merged) = (self.key, self.merges) else { return live };
        let (directives, added): (Vec<&Value>, Vec<&Value>) = patch.iter().partition(|item| item.get(PATCH).is_some());
        let gone: BTreeSet<String> =
            directives.iter().filter(|item| is_deletion(item)).map(|item| identity(item, Some(key))).collect();
        let before = live.len();
        let mut order: Items = live.into_iter().filter(|item| !gone.contains(&identity(item, Some(key)))).collect();
        let room = before - order.len();
        let mut known = positions(&order, Some(key));
        if directives.iter().all(|item| is_deletion(item)) {
            let new = added.into_iter().filter(|item| known.insert(identity(item, Some(key)), 0).is_none());
            order.extend(new.take(room).cloned());
        }
        order
    }

    fn check_items_are_maps(&self, merged: &[Value], order: &[Value]) -> Outcome<()> {
        match order.iter().position(|item| !item.is_object()) {
            Some(index) if !merged.is_empty() => internal(format!("value for key {index} is not a map")),
            _ => Ok(()),
        }
    }

    /// Orders a merged list by the patch's order and the live order.
    fn order(&self, merged: Items, patch: &[Value], live: &[Value], kind: ItemKind) -> Outcome<Items> {
        // Maps without a merge key cannot be told apart, unless there are none.
        let key = match kind {
            ItemKind::Map => Some(self.key.unwrap_or_default()),
            ItemKind::Scalar => self.key,
        };
        if let Some(key) = key {
            for item in merged.iter().chain(patch).chain(live) {
                match item {
                    Value::Object(fields) => key_of(fields, key)?,
                    _ => return internal("expected a map[string]interface {}".to_owned()),
                };
            }
        }
        let in_patch = positions(patch, self.key);
        let in_live = positions(live, self.key);
        let (patched, server_only): (Items, Items) =
            merged.into_iter().partition(|item| in_patch.contains_key(&identity(item, self.key)));
        let patched = self.sorted(patched, &in_patch);
        let server_only = self.sorted(server_only, &in_live);
        Ok(self.weave(server_only, patched, &in_live))
    }

    /// Sorts by known positions. An item without one moves to the front of those before it; items that are left-over
    /// delete directives go last.
    fn sorted(&self, items: Items, positions: &Positions) -> Items {
        let (deletions, items): (Items, Items) = items.into_iter().partition(is_deletion);
        let mut placed: Vec<(Option<usize>, Value)> =
            items.into_iter().map(|item| (positions.get(&identity(&item, self.key)).copied(), item)).collect();
        if placed.iter().all(|(position, _)| position.is_some()) {
            placed.sort_by_key(|(position, _)| *position);
        } else {
            return with_unplaced(placed).chain(deletions).collect();
        }
        placed.into_iter().map(|(_, item)| item).chain(deletions).collect()
    }

    /// Weaves two ordered lists together: a live item goes before the first item of the patch that the live order puts
    /// behind it.
    fn weave(&self, server_only: Items, patched: Items, in_live: &Positions) -> Items {
        let place = |item: &Value| in_live.get(&identity(item, self.key)).copied();
        let mut woven = Vec::with_capacity(server_only.len() + patched.len());
        let mut left = server_only.into_iter().peekable();
        for item in patched {
            let right_place = place(&item);
            while let Some(live) =
                left.next_if(|live| matches!((place(live), right_place), (Some(l), Some(r)) if l < r))
            {
                woven.push(live);
            }
            woven.push(item);
        }
        woven.extend(left);
        woven
    }
}

fn is_deletion(item: &Value) -> bool {
    item.get(PATCH).and_then(Value::as_str) == Some("delete")
}

/// The order in which the reference puts items of which some have no position. It sorts by insertion, and to its
/// comparison an item without a position and any other item each come before the other. So an item without one goes to
/// the front of all before it, and an item with one goes right behind the last item whose position is not greater,
/// before all items without a position that stand there. The same order comes out of this without moving every item
/// past every other.
fn with_unplaced(placed: Vec<(Option<usize>, Value)>) -> impl Iterator<Item = Value> {
    // The items without a position at the front, the newest last; and those behind each item that has one.
    let mut front: Vec<Value> = Vec::new();
    let mut behind: BTreeMap<(usize, usize), (Value, Vec<Value>)> = BTreeMap::new();
    for (number, (position, item)) in placed.into_iter().enumerate() {
        match position {
            None => front.push(item),
            Some(position) => {
                let before = behind.range_mut(..(position, number)).next_back();
                let taken = std::mem::take(before.map_or(&mut front, |(_, (_, unplaced))| unplaced));
                behind.insert((position, number), (item, taken));
            }
        }
    }
    let newest_first = |unplaced: Vec<Value>| unplaced.into_iter().rev();
    let rest =
        behind.into_values().flat_map(move |(item, unplaced)| std::iter::once(item).chain(newest_first(unplaced)));
    newest_first(front).chain(rest)
}

type Positions = BTreeMap<String, usize>;

/// Where each item is first.
fn positions(items: &[Value], key: Option<&str>) -> Positions {
    let mut positions = Positions::new();
    for (index, item) in items.iter().enumerate() {
        positions.entry(identity(item, key)).or_insert(index);
    }
    positions
}

/// What tells an item apart: itself, or the value of its merge key.
fn identity(item: &Value, key: Option<&str>) -> String {
    match key {
        None => item.to_string(),
        Some(key) => item.get(key).map(Value::to_string).unwrap_or_default(),
    }
}

fn key_of(fields: &Fields, key: &str) -> Outcome<String> {
    match fields.get(key) {
        Some(value) => Ok(value.to_string()),
        None => {
            let item = go_text(&Value::Object(fields.clone()));
            internal(format!("map: {item} does not contain declared merge key: {key}"))
        }
    }
}

fn first_of_each(items: Items) -> Items {
    let mut seen = BTreeSet::new();
    items.into_iter().filter(|item| seen.insert(item.to_string())).collect()
}

/// Obeys the items of the patch that are directives: `delete` takes the live item out, `replace` all of them.
fn obey_directives(original: Items, patch: Items, key: &str) -> Outcome<(Items, Items)> {
    let mut kept = Vec::with_capacity(patch.len());
    let mut replaced = false;
    let mut gone = Vec::new();
    for item in patch {
        let Value::Object(fields) = &item else { return Err(BAD_ORDER) };
        match fields.get(PATCH) {
            None => kept.push(item),
            Some(directive) => match directive.as_str() {
                Some("delete") => gone.push(key_of(fields, key)?),
                Some("replace") => replaced = true,
                Some("merge") => return internal("merging lists cannot yet be specified in the patch".to_owned()),
                _ => return internal(bad_directive(directive, fields)),
            },
        }
    }
    if replaced {
        return Ok((kept, Items::new()));
    }
    let gone: BTreeSet<String> = gone.into_iter().collect();
    let original = original.into_iter().filter(|item| !gone.contains(&identity(item, Some(key)))).collect();
    Ok((original, kept))
}

/// The one kind that all items have.
fn item_kind(lists: &[&Items]) -> Outcome<ItemKind> {
    let mut kinds = lists.iter().flat_map(|list| list.iter());
    let Some(first) = kinds.next() else {
        return internal("no elements in any of the given slices".to_owned());
    };
    let kind = match first {
        Value::Array(_) => return Err(StrategicError::ListOfLists),
        Value::Null => return internal("list has a null element".to_owned()),
        Value::Object(_) => ItemKind::Map,
        _ => ItemKind::Scalar,
    };
    if lists.iter().flat_map(|list| list.iter()).any(|item| super::kind_name(item) != super::kind_name(first)) {
        let lists: Vec<String> = lists.iter().map(|list| go_text(&Value::from(list.as_slice()))).collect();
        return internal(format!("list element types are not identical: [{}]", lists.join(" ")));
    }
    Ok(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order of the reference, by insertion.
    fn by_insertion(mut placed: Vec<(Option<usize>, Value)>) -> Items {
        let comes_before = |left: Option<usize>, right: Option<usize>| match (left, right) {
            (Some(left), Some(right)) => left < right,
            _ => true,
        };
        for end in 1..placed.len() {
            let mut at = end;
            while at > 0 && comes_before(placed[at].0, placed[at - 1].0) {
                placed.swap(at, at - 1);
                at -= 1;
            }
        }
        placed.into_iter().map(|(_, item)| item).collect()
    }

    #[test]
    fn items_without_a_position_come_where_sorting_by_insertion_puts_them() {
        // Every list of seven items, each without a position or with one of three.
        for number in 0..4_usize.pow(7) {
            let digit = |at: u32| number / 4_usize.pow(at) % 4;
            let placed: Vec<_> =
                (0..7).map(|at| (digit(at).checked_sub(1), Value::from(format!("{at}:{}", digit(at))))).collect();
            assert_eq!(with_unplaced(placed.clone()).collect::<Items>(), by_insertion(placed));
        }
    }
}
