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
        "{0:?} cannot be explained; what can be are pvc (persistentvolumeclaim, claim), pv (persistentvolume, volume) and pod"
    )]
    Kind(String),
    #[error("{name:?} is no name of an object: one has small letters, digits, '-' and '.'; write {kind}/NAME{}", small(.kind, .name))]
    Name { kind: String, name: String },
}

/// A single word is the name of a claim, if it is anything.
fn meant(word: &str) -> String {
    if is_name(word) { format!("; did you mean pvc/{word}?") } else { String::new() }
}

fn small(kind: &str, name: &str) -> String {
    let small = name.to_ascii_lowercase().replace(['_', ' '], "-");
    if is_name(&small) { format!("; did you mean {kind}/{small}?") } else { String::new() }
}

fn is_name(name: &str) -> bool {
    let allowed = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-.".contains(letter);
    !name.is_empty() && name.len() <= 253 && name.chars().all(allowed)
}

impl Target {
    /// Reads `KIND/NAME`, or the two as words of their own.
    pub(super) fn parse(words: &[String]) -> Result<Self, NotATarget> {
        let (kind, name) = match words {
            [both] => both.split_once('/').ok_or_else(|| NotATarget::Shape(both.clone()))?,
            [kind, name] => (kind.as_str(), name.as_str()),
            words => return Err(NotATarget::Shape(words.join(" "))),
        };
        if !is_name(name) {
            return Err(NotATarget::Name { kind: kind.to_owned(), name: name.to_owned() });
        }
        match kind.to_ascii_lowercase().as_str() {
            "pvc" | "pvcs" | "persistentvolumeclaim" | "persistentvolumeclaims" | "claim" | "claims" => {
                Ok(Self::Claim(name.to_owned()))
            }
            "pv" | "pvs" | "persistentvolume" | "persistentvolumes" | "volume" | "volumes" => {
                Ok(Self::Volume(name.to_owned()))
            }
            "po" | "pod" | "pods" => Ok(Self::Pod(name.to_owned())),
            _ => Err(NotATarget::Kind(kind.to_owned())),
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
    fn what_cannot_be_explained_says_what_can() {
        assert!(parse(&["data"]).is_err_and(|error| error.to_string().contains("pvc/NAME")));
        assert!(parse(&["node/data"]).is_err_and(|error| error.to_string().contains("persistentvolumeclaim")));
        for name in ["pvc/", "pvc/a/b", "pvc/..%2f", "pvc/Data"] {
            assert!(parse(&[name]).is_err(), "{name}");
        }
    }
}
