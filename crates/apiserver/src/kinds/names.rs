//! Name syntax. Each check returns every complaint in the reference's words, so that a caller adds the field only.

use std::borrow::Cow;

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const QUALIFIED_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                              alphanumeric character";

/// Whether a name is final or the prefix of one to be generated, which may end in a dash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    Prefix,
}

/// Which names a kind allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// A DNS subdomain.
    Subdomain,
    /// A DNS label: no dots.
    Label,
    /// Anything that can be one segment of a path.
    PathSegment,
}

impl NameRule {
    pub(crate) fn complaints(self, name: &str, part: Part) -> Vec<String> {
        let masked = match part {
            // What follows the dash is generated, so a letter stands for it.
            Part::Prefix if name.len() > 1 && name.ends_with('-') => {
                Cow::Owned(format!("{}a", &name[..name.len() - 1]))
            }
            Part::Prefix | Part::Whole => Cow::Borrowed(name),
        };
        match self {
            Self::Subdomain => subdomain(&masked),
            Self::Label => label(&masked),
            Self::PathSegment => path_segment(name, part),
        }
    }
}

fn rule(text: &str, examples: &[&str], pattern: &str) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{text} (e.g. {}regex used for validation is '{pattern}')", examples.join(" or "))
}

fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(&first), Some(&last)) => {
            inner(first) && inner(last) && bytes.iter().all(|&byte| inner(byte) || byte == b'-')
        }
        _ => false,
    }
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_qualified(text: &str) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            first.is_ascii_alphanumeric()
                && last.is_ascii_alphanumeric()
                && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        }
        _ => false,
    }
}

/// A DNS-1123 label of at most 63 bytes.
pub(crate) fn label(text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if text.len() > 63 {
        complaints.push("must be no more than 63 characters".into());
    }
    if !is_label(text) {
        complaints.push(if is_subdomain(text) {
            "must not contain dots".into()
        } else {
            rule(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                 and end with an alphanumeric character",
                &["my-name", "123-abc"],
                LABEL,
            )
        });
    }
    complaints
}

/// A DNS-1123 subdomain of at most 253 bytes.
pub(crate) fn subdomain(text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if text.len() > 253 {
        complaints.push("must be no more than 253 characters".into());
    }
    if !is_subdomain(text) {
        complaints.push(rule(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character",
            &["example.com"],
            SUBDOMAIN,
        ));
    }
    complaints
}

/// A label key: a name of at most 63 bytes with an optional DNS prefix.
pub(crate) fn qualified(text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let qualified_rule = || rule(QUALIFIED_RULE, &["MyName", "my.name", "123-abc"], QUALIFIED);
    let mut parts = text.split('/');
    let name = match (parts.next().unwrap_or_default(), parts.next(), parts.next()) {
        (name, None, _) => name,
        (prefix, Some(name), None) => {
            if prefix.is_empty() {
                complaints.push("prefix part must be non-empty".into());
            } else {
                let prefix = subdomain(prefix).into_iter();
                // The shared checks of keys count in bytes.
                complaints
                    .extend(prefix.map(|text| format!("prefix part {}", text.replace("253 characters", "253 bytes"))));
            }
            name
        }
        _ => {
            let tail = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {} {tail}", qualified_rule())];
        }
    };
    if name.is_empty() {
        complaints.push("name part must be non-empty".into());
    } else if name.len() > 63 {
        complaints.push("name part must be no more than 63 bytes".into());
    }
    if !is_qualified(name) {
        complaints.push(format!("name part {}", qualified_rule()));
    }
    complaints
}

/// A label value: empty, or like the name of a key.
pub(crate) fn label_value(text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if text.len() > 63 {
        complaints.push("must be no more than 63 bytes".into());
    }
    if !text.is_empty() && !is_qualified(text) {
        let head = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
                    must start and end with an alphanumeric character";
        complaints.push(rule(head, &["MyValue", "my_value", "12345"], &format!("({QUALIFIED})?")));
    }
    complaints
}

/// A key of a secret or a config map.
pub(crate) fn config_key(text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if text.len() > 253 {
        complaints.push("must be no more than 253 characters".into());
    }
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        complaints.push(rule(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            &["key.name", "KEY_NAME", "key-name"],
            "[-._a-zA-Z0-9]+",
        ));
    }
    match text {
        "." => complaints.push("must not be '.'".into()),
        ".." => complaints.push("must not be '..'".into()),
        _ if text.starts_with("..") => complaints.push("must not start with '..'".into()),
        _ => {}
    }
    complaints
}

/// One segment of a path, as role names must be.
fn path_segment(name: &str, part: Part) -> Vec<String> {
    if part == Part::Whole {
        match name {
            "." => return vec!["may not be '.'".into()],
            ".." => return vec!["may not be '..'".into()],
            _ => {}
        }
    }
    ["/", "%"]
        .iter()
        .filter(|illegal| name.contains(**illegal))
        .map(|illegal| format!("may not contain '{illegal}'"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_have_no_complaints() {
        for (check, good) in [
            (label as fn(&str) -> Vec<String>, "my-name"),
            (subdomain, "a.b-c.0"),
            (qualified, "x.io/Y_z.1"),
            (qualified, "a"),
            (label_value, ""),
            (config_key, "tls.crt"),
        ] {
            assert_eq!(check(good), Vec::<String>::new(), "{good}");
        }
    }

    #[test]
    fn complaints_are_the_references_words() {
        assert_eq!(label("a.b"), ["must not contain dots"]);
        assert_eq!(
            subdomain("A_b"),
            [
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
              start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
              '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ]
        );
        assert_eq!(
            label_value("-"),
            ["a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
              start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
              validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"]
        );
        assert_eq!(qualified("/a"), ["prefix part must be non-empty"]);
        assert_eq!(config_key("..a"), ["must not start with '..'"]);
    }

    #[test]
    fn a_prefix_may_end_in_a_dash() {
        assert!(NameRule::Subdomain.complaints("g-", Part::Prefix).is_empty());
        assert!(!NameRule::Subdomain.complaints("g-", Part::Whole).is_empty());
    }
}
