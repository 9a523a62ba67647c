//! Names of Kubernetes' objects, where a flag takes one.

use anyhow::bail;

/// Refuses what the API server would refuse later, after things were made.
pub(crate) fn check(flag: &str, name: &str) -> anyhow::Result<()> {
    if is_name(name) {
        return Ok(());
    }
    let meant = name.to_ascii_lowercase().replace(['_', ' '], "-");
    let hint = if is_name(&meant) { format!("; did you mean {meant:?}?") } else { String::new() };
    bail!(
        "{flag} {name:?} is no name of an object: one has small letters, digits, '-' and '.', with a letter or digit at \
         both ends{hint}"
    )
}

/// Reads the name of a namespace.
pub(crate) fn parse_namespace(name: &str) -> Result<String, String> {
    let is_label = |name: &str| is_name(name) && name.len() <= 63 && !name.contains('.');
    if is_label(name) {
        return Ok(name.to_owned());
    }
    let meant = name.to_ascii_lowercase().replace(['_', ' '], "-");
    let hint = if is_label(&meant) { format!("; did you mean {meant:?}?") } else { String::new() };
    Err(format!("a namespace has small letters, digits and '-', with a letter or digit at both ends, 63 at most{hint}"))
}

/// A lowercase RFC 1123 subdomain.
fn is_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let part = |part: &str| {
        let bytes = part.as_bytes();
        bytes.first().is_some_and(|byte| inner(*byte))
            && bytes.last().is_some_and(|byte| inner(*byte))
            && bytes.iter().all(|byte| inner(*byte) || *byte == b'-')
    };
    name.len() <= 253 && name.split('.').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_the_api_server_takes() {
        for name in ["a", "worker-1", "a.b-c.d", "1"] {
            assert!(check("--x", name).is_ok(), "{name}");
        }
        for name in ["", "A", "a_b", "-a", "a-", "a..b", "a b", &"a".repeat(254)] {
            assert!(check("--x", name).is_err(), "{name}");
        }
        assert_eq!(parse_namespace("kube-system"), Ok("kube-system".to_owned()));
        assert!(parse_namespace("Kube_System").is_err_and(|error| error.ends_with("did you mean \"kube-system\"?")));
        for name in ["", "a/b", "a.b", &"a".repeat(64)] {
            assert!(parse_namespace(name).is_err(), "{name}");
        }
        let error = check("--node-name", "Worker_1").expect_err("it has a capital letter").to_string();
        assert!(error.ends_with("did you mean \"worker-1\"?"), "{error}");
    }
}
