//! Where two answers differ, path by path.

use serde_json::Value;

/// Characters of a value in a short line.
const LONG: usize = 80;

/// One place where the servers disagree.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Difference {
    /// Which request, counted from 1.
    pub(super) step: usize,
    /// Such as `body.details.causes[0].message`.
    pub(super) path: String,
    /// `None` where there is nothing.
    pub(super) ours: Option<Value>,
    pub(super) theirs: Option<Value>,
}

impl Difference {
    /// Both sides in one short line.
    pub(super) fn gist(&self) -> String {
        let show = |value: &Option<Value>| {
            let text = value.as_ref().map_or_else(|| "nothing".to_owned(), Value::to_string);
            match text.char_indices().nth(LONG) {
                Some((end, _)) => format!("{}...", &text[..end]),
                None => text,
            }
        };
        format!("orlop says {}, kube {}", show(&self.ours), show(&self.theirs))
    }

    pub(super) fn lines(&self) -> String {
        let show = |value: &Option<Value>| value.as_ref().map_or_else(|| "(nothing)".to_owned(), Value::to_string);
        format!("    {}\n      orlop: {}\n      kube:  {}", self.path, show(&self.ours), show(&self.theirs))
    }
}

/// How much has to be equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// All of it.
    Everything,
    /// What ours says must be in theirs, in any order: for documents about more kinds than ours serves.
    OursInTheirs,
}

/// Appends every difference below `path`.
pub(super) fn compare(path: &str, pair: (&Value, &Value), extent: Extent, found: &mut Vec<Difference>) {
    let mut differ = |path: String, ours: Option<&Value>, theirs: Option<&Value>| {
        found.push(Difference { step: 0, path, ours: ours.cloned(), theirs: theirs.cloned() });
    };
    match pair {
        (Value::Object(ours), Value::Object(theirs)) => {
            let missing = theirs.keys().filter(|key| extent == Extent::Everything && !ours.contains_key(*key));
            for key in ours.keys().chain(missing) {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match (ours.get(key), theirs.get(key)) {
                    (Some(ours), Some(theirs)) => compare(&path, (ours, theirs), extent, found),
                    (ours, theirs) => {
                        found.push(Difference { step: 0, path, ours: ours.cloned(), theirs: theirs.cloned() })
                    }
                }
            }
        }
        (Value::Array(ours), Value::Array(theirs)) if extent == Extent::OursInTheirs => {
            for (at, item) in ours.iter().enumerate() {
                let path = format!("{path}[{}]", identity(item).map_or_else(|| at.to_string(), str::to_owned));
                let same = theirs.iter().find(|other| match identity(item) {
                    Some(name) => identity(other) == Some(name),
                    None => *other == item,
                });
                match same {
                    Some(other) => compare(&path, (item, other), extent, found),
                    None => found.push(Difference { step: 0, path, ours: Some(item.clone()), theirs: None }),
                }
            }
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            for at in 0..ours.len().max(theirs.len()) {
                let path = format!("{path}[{at}]");
                match (ours.get(at), theirs.get(at)) {
                    (Some(ours), Some(theirs)) => compare(&path, (ours, theirs), extent, found),
                    (ours, theirs) => {
                        found.push(Difference { step: 0, path, ours: ours.cloned(), theirs: theirs.cloned() })
                    }
                }
            }
        }
        (ours, theirs) if ours != theirs => differ(path.to_owned(), Some(ours), Some(theirs)),
        _ => {}
    }
}

/// What an element of a document about kinds is known by.
fn identity(value: &Value) -> Option<&str> {
    let named = ["name", "resource", "subresource", "version", "groupVersion", "type"];
    if value.pointer("/versions").is_some() && value.pointer("/metadata") == Some(&serde_json::json!({})) {
        // The core group has no name.
        return Some("core");
    }
    let own = named.iter().find_map(|key| value.get(key).and_then(Value::as_str));
    own.or_else(|| value.pointer("/metadata/name").and_then(Value::as_str))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn paths(ours: &Value, theirs: &Value, extent: Extent) -> Vec<String> {
        let mut found = Vec::new();
        compare("body", (ours, theirs), extent, &mut found);
        found.into_iter().map(|difference| difference.path).collect()
    }

    #[test]
    fn each_difference_has_its_path() {
        let (ours, theirs) = (json!({"a": [1, 2], "b": 1}), json!({"a": [1, 3, 4], "c": 1}));
        assert_eq!(paths(&ours, &theirs, Extent::Everything), ["body.a[1]", "body.a[2]", "body.b", "body.c"]);
    }

    #[test]
    fn a_larger_document_may_say_more() {
        let ours = json!({"resources": [{"name": "b", "kind": "B"}, {"name": "a", "kind": "X"}]});
        let theirs = json!({"resources": [{"name": "a", "kind": "A"}, {"name": "b", "kind": "B"}, {"name": "c"}]});
        assert_eq!(paths(&ours, &theirs, Extent::OursInTheirs), ["body.resources[a].kind"]);
    }
}
