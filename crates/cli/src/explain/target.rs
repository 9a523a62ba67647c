//! Which object a command line names.

/// An object that can be explained, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Claim(String),
    Volume(String),
    Pod(String),
}

/// A command line that names nothing we explain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotATarget {
    #[error("{0:?} names no object: write pvc/NAME, pv/NAME or pod/NAME{meant}", meant = meant(.0))]
    Shape(String),
    #[error(
        "{kind:?} cannot be explained; what can be are pvc (persistentvolumeclaim, claim), pv (persistentvolume, volume) and \
         pod{hint}"
    )]
    Kind { kind: String, hint: String },
    #[error("{first:?} and {second:?} are two objects: they are explained one at a time; `orlop tree` shows many")]
    Several { first: String, second: String },
    #[error("{} is no name of an object: one has small letters, digits, '-' and '.', 253 at most; write {kind}/NAME{}",
        shown(.name), small(.kind, .name))]
    Name { kind: String, name: String },
    #[error("a namespace is given with -n: {kind}/{name} -n {namespace}")]
    Namespace { kind: String, namespace: String, name: String },
}

/// A single word is the name of a claim, if it is anything.
fn meant(word: &str) -> String {
    if is_name(word) { format!("; did you mean pvc/{word}?") } else { String::new() }
}

fn small(kind: &str, name: &str) -> String {
    let small = name.to_ascii_lowercase().replace(['_', ' '], "-");
    if is_name(&small) { format!("; did you mean {kind}/{small}?") } else { String::new() }
}

/// The start of a name that is too long to be read.
fn shown(name: &str) -> String {
    match name.char_indices().nth(60) {
        Some((end, _)) => format!("{:?}... ({} letters)", &name[..end], name.chars().count()),
        None => format!("{name:?}"),
    }
}

fn is_name(name: &str) -> bool {
    let allowed = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-.".contains(letter);
    !name.is_empty() && name.len() <= 253 && name.chars().all(allowed)
}

/// The kinds that are explained, by the names that they go by.
fn known(kind: &str) -> Option<fn(String) -> Target> {
    match kind.to_ascii_lowercase().as_str() {
        "pvc" | "pvcs" | "persistentvolumeclaim" | "persistentvolumeclaims" | "claim" | "claims" => Some(Target::Claim),
        "pv" | "pvs" | "persistentvolume" | "persistentvolumes" | "volume" | "volumes" => Some(Target::Volume),
        "po" | "pod" | "pods" => Some(Target::Pod),
        _ => None,
    }
}

/// Kinds of Kubernetes that are not explained; any other word may be a namespace.
const OTHERS: [&str; 21] = [
    "node",
    "no",
    "nodes",
    "sc",
    "storageclass",
    "va",
    "volumeattachment",
    "csinode",
    "csidriver",
    "volumesnapshot",
    "deployment",
    "deploy",
    "statefulset",
    "sts",
    "daemonset",
    "ds",
    "job",
    "cronjob",
    "service",
    "svc",
    "namespace",
];

/// What may have been meant with a kind that is none of ours.
fn hint(kind: &str, name: &str) -> String {
    match kind.to_ascii_lowercase().as_str() {
        // The two words the other way round.
        _ if known(name).is_some() && is_name(kind) => format!("; did you mean {name}/{kind}?"),
        "node" | "no" | "nodes" => "; `orlop top` shows the volumes of each node".to_owned(),
        "sc" | "storageclass" => "; a claim of the class says what it waits for".to_owned(),
        "va" | "volumeattachment" => "; `orlop tree -A` shows attachments with their reasons".to_owned(),
        other if is_name(other) && !OTHERS.contains(&other) => {
            format!("; if {kind:?} is a namespace: pvc/{name} -n {kind}")
        }
        _ => String::new(),
    }
}

impl Target {
    /// Reads `KIND/NAME`, or the two as words of their own.
    pub(super) fn parse(words: &[String]) -> Result<Self, NotATarget> {
        let (kind, name) = match words {
            [both] => both.split_once('/').ok_or_else(|| NotATarget::Shape(both.clone()))?,
            [first, second] if first.contains('/') => {
                return Err(NotATarget::Several { first: first.clone(), second: second.clone() });
            }
            [kind, name] => (kind.as_str(), name.as_str()),
            words => return Err(NotATarget::Shape(words.join(" "))),
        };
        let Some(target) = known(kind) else {
            return Err(NotATarget::Kind { kind: kind.to_owned(), hint: hint(kind, name) });
        };
        match name.split_once('/') {
            Some((namespace, name)) if is_name(namespace) && is_name(name) => {
                let (kind, namespace, name) = (kind.to_owned(), namespace.to_owned(), name.to_owned());
                Err(NotATarget::Namespace { kind, namespace, name })
            }
            None if is_name(name) => Ok(target(name.to_owned())),
            _ => Err(NotATarget::Name { kind: kind.to_owned(), name: name.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Target, NotATarget> {
        Target::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_kind_and_a_name_are_understood_together_and_apart() {
        for words in [&["pvc/data"][..], &["pvc", "data"], &["PersistentVolumeClaim/data"], &["claim", "data"]] {
            assert_eq!(parse(words), Ok(Target::Claim("data".to_owned())), "{words:?}");
        }
        for words in [&["pv/data"][..], &["persistentvolumes", "data"], &["volume/data"]] {
            assert_eq!(parse(words), Ok(Target::Volume("data".to_owned())), "{words:?}");
        }
        assert_eq!(parse(&["pod/web"]), Ok(Target::Pod("web".to_owned())));
    }

    #[test]
    fn what_was_probably_meant_is_said() {
        let rows: [(&[&str], &str); 6] = [
            (&["data", "pvc"], "did you mean pvc/data?"),
            (&["shop/data"], "pvc/data -n shop"),
            (&["pvc/shop/data"], "pvc/data -n shop"),
            (&["pvc/a", "pvc/b"], "\"pvc/b\" are two objects"),
            (&["node/vm"], "orlop top"),
            (&[&format!("pvc/{}", "a".repeat(300))], "(300 letters)"),
        ];
        for (words, want) in rows {
            let error = parse(words).expect_err("it cannot be explained").to_string();
            assert!(error.contains(want), "{words:?}: {error}");
            assert!(error.len() < 300, "{error}");
        }
    }

    #[test]
    fn what_cannot_be_explained_says_what_can() {
        assert!(parse(&["pvc/a", "pvc/b"]).is_err_and(|error| error.to_string().contains("one at a time")));
        assert!(parse(&["data"]).is_err_and(|error| error.to_string().contains("pvc/NAME")));
        assert!(parse(&["node/data"]).is_err_and(|error| error.to_string().contains("persistentvolumeclaim")));
        for name in ["pvc/", "pvc/a/b", "pvc/..%2f", "pvc/Data"] {
            assert!(parse(&[name]).is_err(), "{name}");
        }
    }
}
