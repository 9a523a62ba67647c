//! What a label key and a label value may look like, with the texts that say what is wrong with one.

const NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                         alphanumeric character";
const NAME_REGEX: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
                              or '.', and must start and end with an alphanumeric character (e.g. 'example.com', \
                              regex used for validation is \
                              '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const NAME_BYTES: usize = 63;
const SUBDOMAIN_BYTES: usize = 253;

/// Empty if `key` may be a label key: an optional DNS prefix with a slash, and a name.
pub fn label_key_problems(key: &str) -> Vec<String> {
    let rule = format!(
        "{NAME_RULE} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{NAME_REGEX}')"
    );
    let mut problems = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                problems.extend(subdomain_problems(prefix).into_iter().map(|text| format!("prefix part {text}")));
            }
            name
        }
        _ => {
            let tail = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {rule} {tail}")];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > NAME_BYTES {
        problems.push(format!("name part must be no more than {NAME_BYTES} bytes"));
    }
    if !is_name(name) {
        problems.push(format!("name part {rule}"));
    }
    problems
}

/// Empty if `value` may be a label value.
pub fn label_value_problems(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > NAME_BYTES {
        problems.push(format!("must be no more than {NAME_BYTES} bytes"));
    }
    if !value.is_empty() && !is_name(value) {
        let rule = NAME_RULE.strip_prefix("must ").unwrap_or(NAME_RULE);
        problems.push(format!(
            "a valid label must be an empty string or {rule} (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
             for validation is '({NAME_REGEX})?')"
        ));
    }
    problems
}

fn subdomain_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > SUBDOMAIN_BYTES {
        problems.push(format!("must be no more than {SUBDOMAIN_BYTES} bytes"));
    }
    let is_label = |label: &str| {
        let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        label.starts_with(edge) && label.ends_with(edge) && label.chars().all(|c| edge(c) || c == '-')
    };
    if !text.split('.').all(is_label) {
        problems.push(SUBDOMAIN_RULE.to_owned());
    }
    problems
}

fn is_name(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(edge) && text.ends_with(edge) && text.chars().all(|c| edge(c) || matches!(c, '-' | '_' | '.'))
}
