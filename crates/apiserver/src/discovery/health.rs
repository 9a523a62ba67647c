//! `/livez`, `/readyz` and `/healthz`: is the server alive, and should it get requests?

/// One thing that can be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) passed: bool,
}

/// What a health endpoint answers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Health {
    pub(crate) code: u16,
    pub(crate) text: String,
}

/// `path` is such as `readyz`. A failed check is always told in full, a passed one only when asked for.
pub(crate) fn health(path: &str, checks: &[Check], excluded: &[&str], verbose: bool) -> Health {
    let considered = checks.iter().filter(|check| !excluded.contains(&check.name));
    let failed = considered.clone().any(|check| !check.passed);
    if !failed && !verbose {
        return Health { code: 200, text: "ok".to_owned() };
    }
    let mut text = String::new();
    for check in considered {
        match check.passed {
            true => text.push_str(&format!("[+]{} ok\n", check.name)),
            false => text.push_str(&format!("[-]{} failed: reason withheld\n", check.name)),
        }
    }
    match failed {
        true => {
            text.push_str(&format!("{path} check failed\n"));
            Health { code: 500, text }
        }
        false => {
            text.push_str(&format!("{path} check passed\n"));
            Health { code: 200, text }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECKS: [Check; 2] = [Check { name: "ping", passed: true }, Check { name: "shutdown", passed: false }];

    #[test]
    fn a_failed_check_is_named_and_its_reason_is_not() {
        let health = health("readyz", &CHECKS, &[], false);
        assert_eq!(health.code, 500);
        assert_eq!(health.text, "[+]ping ok\n[-]shutdown failed: reason withheld\nreadyz check failed\n");
    }

    #[test]
    fn an_excluded_check_does_not_count() {
        assert_eq!(health("readyz", &CHECKS, &["shutdown"], false).text, "ok");
    }

    #[test]
    fn verbose_lists_what_passed() {
        let health = health("livez", &CHECKS[..1], &[], true);
        assert_eq!(health.text, "[+]ping ok\nlivez check passed\n");
    }
}
