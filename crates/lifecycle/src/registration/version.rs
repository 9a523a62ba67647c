//! Which versions of the interface a driver says it speaks (NODE-3.5).
//!
//! What a registrar sends is the version of its registration, `1.0.0` for all that are known, not the driver's own.

use std::fmt;

/// The only major version there is.
const MAJOR: u64 = 1;

/// A version: two or more numbers with dots between; what follows them does not count.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(Vec<u64>);

impl Version {
    /// Reads `1.0`, `v1.2.3` or `1.2.3-rc1`. `None` if it is no version.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut numbers = Vec::new();
        for part in text.split('.') {
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            let (number, rest) = part.split_at(digits);
            match number.parse() {
                Ok(number) => numbers.push(number),
                // A suffix may have dots of its own.
                Err(_) => break,
            }
            if !rest.is_empty() {
                break;
            }
        }
        (numbers.len() >= 2).then(|| {
            // Zeros at the end say nothing: 1.0 and 1.0.0 are one version.
            while numbers.len() > 2 && numbers.last() == Some(&0) {
                numbers.pop();
            }
            Self(numbers)
        })
    }

    fn major(&self) -> u64 {
        self.0.first().copied().unwrap_or_default()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(u64::to_string).collect();
        f.write_str(&numbers.join("."))
    }
}

/// Why none of the versions of a driver will do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    #[error("the plugin names no supported version; it must name one such as 1.0.0")]
    None,
    #[error("the plugin supports {}, none of which is a version {MAJOR}.x", versions.join(", "))]
    Unsupported { versions: Vec<String> },
}

/// The highest version that both sides speak. Those with a higher major number than ours do not count.
pub fn highest(versions: &[String]) -> Result<Version, VersionError> {
    if versions.is_empty() {
        return Err(VersionError::None);
    }
    let ours = versions.iter().filter_map(|text| Version::parse(text)).filter(|version| version.major() <= MAJOR);
    match ours.max() {
        Some(version) if version.major() == MAJOR => Ok(version),
        Some(_) | None => Err(VersionError::Unsupported { versions: versions.to_vec() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(versions: &[&str]) -> Result<String, VersionError> {
        let versions: Vec<String> = versions.iter().map(|version| (*version).to_owned()).collect();
        highest(&versions).map(|version| version.to_string())
    }

    /// Rule: NODE-3.5
    #[test]
    fn the_highest_version_with_major_1_counts() {
        assert_eq!(of(&["1.0.0"]), Ok("1.0".to_owned()));
        assert_eq!(of(&["v1.2.0", "1.10.1", "2.0.0", "0.3.0"]), Ok("1.10.1".to_owned()));
        assert_eq!(of(&["1.2.3-rc.1+build.7"]), Ok("1.2.3".to_owned()));
    }

    /// Rule: NODE-3.5
    #[test]
    fn no_version_and_only_foreign_versions_are_refused() {
        assert_eq!(of(&[]), Err(VersionError::None));
        for bad in [&["0.3.0"][..], &["2.0.0"], &["1"], &["one.two"], &[""], &["3.1", "99999999999999999999.1"]] {
            let error = of(bad).expect_err("none of them will do");
            assert!(error.to_string().contains("1.x"), "{error}");
        }
    }
}
