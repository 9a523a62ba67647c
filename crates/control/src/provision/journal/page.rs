//! One ConfigMap of the journal, as data: what it holds, what it should hold, and the patch between the two.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::keys::label;
use api::{Key, Kind, Meta, intents};
use runtime::client::Selection;
use serde_json::{Map, Value, json};

/// Texts by the uid of their claim.
pub(super) type Texts = BTreeMap<Box<str>, Arc<str>>;

/// A page takes new entries up to this size: every write stores the whole page again.
pub(super) const COMFORTABLE: usize = 64 * 1024;
/// When no page is comfortable and no page can be added, up to this: the API's limit is 1 MiB for the whole object.
pub(super) const LARGEST: usize = 900 * 1024;
/// How many pages there may be.
pub(super) const MOST_PAGES: usize = 64;

/// How much an entry takes.
pub(super) fn size(key: &str, text: &str) -> usize {
    // Quotes, a colon and a comma; quotes inside the text are escaped on the wire.
    key.len() + text.len() + text.matches('"').count() + 8
}

pub(super) fn size_of(texts: &Texts) -> usize {
    texts.iter().map(|(key, text)| size(key, text)).sum()
}

/// Whose pages they are, and how they are called.
#[derive(Debug, Clone)]
pub(super) struct Owner {
    namespace: String,
    /// The provisioner's name, in the letters that names and labels have.
    label: String,
    instance: Option<String>,
}

impl Owner {
    pub(super) fn new(namespace: &str, provisioner: &str, instance: Option<&str>) -> Self {
        let instance = instance.map(intents::instance);
        Self { namespace: namespace.to_owned(), label: plain(provisioner), instance }
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(super) fn selection(&self) -> Selection {
        let instance = match &self.instance {
            Some(instance) => format!("{}={instance}", label::INTENTS_INSTANCE),
            None => format!("!{}", label::INTENTS_INSTANCE),
        };
        let labels = format!("{}={},{instance}", label::INTENTS, self.label);
        Selection { namespace: Some(self.namespace.clone()), labels: Some(labels), ..Selection::default() }
    }

    pub(super) fn key(&self, name: &str) -> Key {
        Key::namespaced(&self.namespace, name)
    }

    /// The name of the page with this number.
    pub(super) fn name(&self, number: usize) -> String {
        match &self.instance {
            Some(instance) => format!("orlop-intents-{}-{instance}-{number}", self.label),
            None => format!("orlop-intents-{}-{number}", self.label),
        }
    }

    /// A new page.
    pub(super) fn body(&self, name: &str, texts: &Texts) -> Value {
        let mut labels = Map::new();
        labels.insert(label::INTENTS.text().to_owned(), json!(self.label));
        if let Some(instance) = &self.instance {
            labels.insert(label::INTENTS_INSTANCE.text().to_owned(), json!(instance));
        }
        let data: BTreeMap<&str, &str> = texts.iter().map(|(key, text)| (&**key, &**text)).collect();
        json!({
            "apiVersion": Kind::CONFIG_MAP.api_version(),
            "kind": Kind::CONFIG_MAP.kind,
            "metadata": {"name": name, "namespace": self.namespace, "labels": labels},
            "data": data,
        })
    }
}

/// The merge patch that makes `known` into `wanted`, valid only for the revision at which `known` was seen. None if there
/// is no difference.
pub(super) fn difference(meta: &Meta, known: &Texts, wanted: &Texts) -> Option<Value> {
    let mut data = Map::new();
    for (key, text) in wanted {
        if known.get(key) != Some(text) {
            data.insert(key.to_string(), json!(&**text));
        }
    }
    for key in known.keys().filter(|key| !wanted.contains_key(*key)) {
        data.insert(key.to_string(), Value::Null);
    }
    let metadata = json!({"resourceVersion": meta.revision.to_string(), "uid": meta.uid.as_str()});
    (!data.is_empty()).then(|| json!({"metadata": metadata, "data": data}))
}

/// A name in the letters that both a label's value and an object's name may have. A name that had to be changed gets a
/// hash, so that two names stay two.
fn plain(name: &str) -> String {
    const LONGEST: usize = 63;
    let allowed = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-.".contains(letter);
    let ends_well = |name: &str| !name.starts_with(['-', '.']) && !name.ends_with(['-', '.']) && !name.contains("..");
    if !name.is_empty() && name.len() <= LONGEST && name.chars().all(allowed) && ends_well(name) {
        return name.to_owned();
    }
    let lower = name.to_ascii_lowercase();
    let letters = lower.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' });
    let start: String = letters.take(LONGEST - 17).collect();
    let start = start.trim_matches('-');
    let hash = intents::hash(name);
    if start.is_empty() { format!("{hash:016x}") } else { format!("{start}-{hash:016x}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(pairs: &[(&str, &str)]) -> Texts {
        pairs.iter().map(|(key, text)| ((*key).into(), (*text).into())).collect()
    }

    #[test]
    fn names_of_provisioners_become_names_of_objects_and_stay_different() {
        assert_eq!(plain("local.orlop.dev"), "local.orlop.dev");
        let strange = ["example.org/nfs", "example.org-nfs_", "Example.org/nfs", "-", "", "a..b", &"x".repeat(80)];
        let plains: Vec<String> = strange.iter().map(|name| plain(name)).collect();
        for (index, name) in plains.iter().enumerate() {
            assert!(name.len() <= 63 && !name.starts_with('-'), "{name}");
            assert!(!plains.iter().skip(index + 1).any(|other| other == name), "{name} stands for two");
        }
        let one = Owner::new("n", "d", Some("node-1"));
        assert_ne!(one.name(0), Owner::new("n", "d", Some("node-2")).name(0));
        assert_ne!(one.selection(), Owner::new("n", "d", None).selection());
    }

    #[test]
    fn a_patch_holds_the_difference_and_the_revision_it_is_for() {
        let meta = Meta { revision: api::Revision::new(7), uid: "u".into(), ..Meta::new(Key::cluster("page")) };
        let known = texts(&[("a", "1"), ("b", "2"), ("c", "3")]);
        assert_eq!(difference(&meta, &known, &known), None);
        let patch = difference(&meta, &known, &texts(&[("a", "1"), ("b", "9"), ("d", "4")])).unwrap();
        let data = json!({"b": "9", "c": null, "d": "4"});
        assert_eq!(patch, json!({"metadata": {"resourceVersion": "7", "uid": "u"}, "data": data}));
    }
}
