//! How an engine behaves, with upstream's defaults (PROVISION-2.1).

use api::Uid;
use runtime::queue::Backoff;

/// How an engine behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// `--worker-threads`: so many claims and so many volumes at once.
    pub workers: usize,
    /// `--retry-interval-start` and `--retry-interval-max`. What was refused as invalid waits for the latter.
    pub backoff: Backoff,
    pub naming: Naming,
    /// Who events come from, such as `<driver>_<host>_<uuid>`.
    pub component: String,
    /// Where the journal of intents is kept.
    pub namespace: String,
    /// Tells apart provisioners of the same name that work at the same time, such as one per node.
    pub instance: Option<String>,
    pub asking: Asking,
}

/// How a binder of the same process asks for a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Asking {
    /// Without a write. Only this engine hears of it.
    #[default]
    Directly,
    /// With an annotation on the claim, as between processes: provisioners of other machines have to hear of it, too.
    ByAnnotation,
}

impl Options {
    /// Upstream's defaults, with the journal in `namespace`.
    pub fn new(component: &str, namespace: &str) -> Self {
        Self {
            workers: 100,
            backoff: Backoff::default(),
            naming: Naming::default(),
            component: component.to_owned(),
            namespace: namespace.to_owned(),
            instance: None,
            asking: Asking::Directly,
        }
    }
}

/// How volumes are called: `--volume-name-prefix` and `--volume-name-uuid-length`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Naming {
    prefix: String,
    length: Option<usize>,
}

impl Default for Naming {
    fn default() -> Self {
        Self { prefix: "pvc".to_owned(), length: None }
    }
}

/// Why names cannot be made like this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadNaming {
    #[error("the prefix of volume names is empty; give one, such as \"pvc\"")]
    NoPrefix,
    #[error(
        "the prefix {prefix:?} starts no name of an object: use small letters, digits and '-', and begin with a letter or digit"
    )]
    BadPrefix { prefix: String },
    #[error("{length} letters of a claim's uid do not tell claims apart; use -1 for the whole uid, or at least 1")]
    NoLength { length: i64 },
}

impl Naming {
    /// A length of -1 keeps the uid as it is.
    pub fn new(prefix: &str, length: i64) -> Result<Self, BadNaming> {
        if prefix.is_empty() {
            return Err(BadNaming::NoPrefix);
        }
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        if !prefix.bytes().all(allowed) || prefix.starts_with(['-', '.']) {
            return Err(BadNaming::BadPrefix { prefix: prefix.to_owned() });
        }
        let length = match length {
            -1 => None,
            length => {
                Some(usize::try_from(length).ok().filter(|length| *length > 0).ok_or(BadNaming::NoLength { length })?)
            }
        };
        Ok(Self { prefix: prefix.to_owned(), length })
    }

    /// The name of the volume of a claim: the same, always.
    pub fn volume(&self, claim: &Uid) -> String {
        let Self { prefix, length } = self;
        match length {
            None => format!("{prefix}-{claim}"),
            Some(length) => {
                let letters: String = claim.as_str().chars().filter(|letter| *letter != '-').take(*length).collect();
                format!("{prefix}-{letters}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule: PROVISION-2.1
    #[test]
    fn names_follow_prefix_and_length() {
        let uid = Uid::from("0a1b-2c3d-4e5f");
        assert_eq!(Naming::default().volume(&uid), "pvc-0a1b-2c3d-4e5f");
        assert_eq!(Naming::new("kube", 6).unwrap().volume(&uid), "kube-0a1b2c");
        assert_eq!(Naming::new("kube", 99).unwrap().volume(&uid), "kube-0a1b2c3d4e5f");
        assert_eq!(Naming::new("", -1), Err(BadNaming::NoPrefix));
        assert_eq!(Naming::new("p", 0), Err(BadNaming::NoLength { length: 0 }));
        assert_eq!(Naming::new("p", -2), Err(BadNaming::NoLength { length: -2 }));
    }
}
