//! What `cargo deny check bans licenses sources` checks, from the same file (`deny.toml`), without cargo-deny: building it
//! takes longer than everything else that CI builds.
//!
//! Every crate that is part of any target of `deny.toml` has an allowed license, comes from an allowed place and is not
//! banned. A key of those three sections that this check does not know is refused, so that `deny.toml` promises nothing that
//! nobody checks. Advisories are not checked here: their database is not part of this repository (docs/security.md).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::Value;
use toml::Table;

use super::Finding;

const FILE: &str = "deny.toml";
const DEFAULT_REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";
/// The keys that are checked here, by section.
const KNOWN: [(&str, &[&str]); 3] = [
    ("licenses", &["allow", "confidence-threshold"]),
    ("bans", &["multiple-versions", "wildcards", "allow-wildcard-paths", "deny"]),
    ("sources", &["unknown-registry", "unknown-git"]),
];

/// A crate of the dependency graph.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct CrateInfo {
    name: String,
    version: String,
    /// None for our own.
    source: Option<String>,
    license: String,
    /// Dependencies that accept any version and are not ours.
    wildcards: Vec<String>,
}

/// What `deny.toml` says.
#[derive(Debug, Default)]
struct DenyRules {
    targets: Vec<String>,
    licenses: BTreeSet<String>,
    /// Crate to reason.
    banned: BTreeMap<String, String>,
    unknown: Vec<String>,
}

pub(super) fn run(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let text = std::fs::read_to_string(root.join(FILE)).context(FILE)?;
    let rules = rules(&text.parse().context(FILE)?);
    let mut crates = BTreeSet::new();
    for target in &rules.targets {
        let args = ["metadata", "--format-version", "1", "--offline", "--all-features", "--filter-platform", target];
        let output = Command::new("cargo").args(args).current_dir(root).output()?;
        if !output.status.success() {
            bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
        }
        let metadata: Value = serde_json::from_slice(&output.stdout)?;
        crates.extend(metadata["packages"].as_array().into_iter().flatten().map(crate_info));
    }
    Ok(check(&rules, &crates))
}

fn strings(value: Option<&toml::Value>) -> Vec<String> {
    let list = value.and_then(toml::Value::as_array).into_iter().flatten();
    list.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

fn rules(file: &Table) -> DenyRules {
    let empty = Table::new();
    let section = |name: &str| file.get(name).and_then(toml::Value::as_table).unwrap_or(&empty);
    let mut unknown = Vec::new();
    for (name, keys) in KNOWN {
        let strange = section(name).keys().filter(|key| !keys.contains(&key.as_str()));
        unknown.extend(strange.map(|key| format!("[{name}] {key}")));
    }
    let denied = |section: &Table, key: &str| section.get(key).and_then(toml::Value::as_str) == Some("deny");
    for (name, key) in [("bans", "wildcards"), ("sources", "unknown-registry"), ("sources", "unknown-git")] {
        if !denied(section(name), key) {
            unknown.push(format!("[{name}] {key} other than \"deny\""));
        }
    }
    let bans = section("bans").get("deny").and_then(toml::Value::as_array).into_iter().flatten();
    let text = |ban: &toml::Value, key: &str| ban.get(key).and_then(toml::Value::as_str).unwrap_or_default().to_owned();
    DenyRules {
        targets: strings(section("graph").get("targets")),
        licenses: strings(section("licenses").get("allow")).into_iter().collect(),
        banned: bans.map(|ban| (text(ban, "crate"), text(ban, "reason"))).collect(),
        unknown,
    }
}

fn crate_info(package: &Value) -> CrateInfo {
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    let loose = dependencies.filter(|dependency| dependency["req"] == "*" && dependency["path"].is_null());
    CrateInfo {
        name: text("name"),
        version: text("version"),
        source: package["source"].as_str().map(str::to_owned),
        license: text("license"),
        wildcards: loose.filter_map(|dependency| dependency["name"].as_str().map(str::to_owned)).collect(),
    }
}

fn check(rules: &DenyRules, crates: &BTreeSet<CrateInfo>) -> Vec<Finding> {
    let mut texts: Vec<String> = rules
        .unknown
        .iter()
        .map(|key| format!("{key} is not checked: teach it to xtask/src/tidy/dependencies.rs, or take it out"))
        .collect();
    if rules.targets.is_empty() || crates.is_empty() {
        texts.push("[graph] targets names no target with crates: nothing would be checked".to_owned());
    }
    for CrateInfo { name, version, source, license, wildcards } in crates {
        if let Some(reason) = rules.banned.get(name) {
            texts.push(format!("{name} {version} is banned: {reason}"));
        }
        match is_allowed(license, &rules.licenses) {
            Some(true) => {}
            Some(false) => {
                texts.push(format!("{name} {version} has the license {license:?}, which [licenses] does not allow"))
            }
            None => texts.push(format!("{name} {version} has no license that can be read: {license:?}")),
        }
        if let Some(source) = source.as_ref().filter(|source| *source != DEFAULT_REGISTRY) {
            texts.push(format!("{name} {version} comes from {source}: only the default registry is allowed"));
        }
        if source.is_none() {
            texts.extend(wildcards.iter().map(|other| format!("{name} accepts any version of {other}: name one")));
        }
    }
    texts.into_iter().map(|text| Finding::new(FILE, 1, text)).collect()
}

/// Whether a license expression can be satisfied by the allowed licenses; `None` if it cannot be read.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> Option<bool> {
    // An older way to write OR.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let (outcome, rest) = either(&words, allowed)?;
    rest.is_empty().then_some(outcome)
}

fn either<'w>(words: &'w [&'w str], allowed: &BTreeSet<String>) -> Option<(bool, &'w [&'w str])> {
    let (mut outcome, mut rest) = both(words, allowed)?;
    while let ["OR", after @ ..] = rest {
        let (next, left) = both(after, allowed)?;
        (outcome, rest) = (outcome || next, left);
    }
    Some((outcome, rest))
}

fn both<'w>(words: &'w [&'w str], allowed: &BTreeSet<String>) -> Option<(bool, &'w [&'w str])> {
    let (mut outcome, mut rest) = one(words, allowed)?;
    while let ["AND", after @ ..] = rest {
        let (next, left) = one(after, allowed)?;
        (outcome, rest) = (outcome && next, left);
    }
    Some((outcome, rest))
}

fn one<'w>(words: &'w [&'w str], allowed: &BTreeSet<String>) -> Option<(bool, &'w [&'w str])> {
    match words {
        ["(", inside @ ..] => match either(inside, allowed)? {
            (outcome, [")", rest @ ..]) => Some((outcome, rest)),
            _ => None,
        },
        [")" | "OR" | "AND" | "WITH", ..] | [] => None,
        [name, "WITH", exception, rest @ ..] => Some((allowed.contains(&format!("{name} WITH {exception}")), rest)),
        [name, rest @ ..] => Some((allowed.contains(*name), rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_license_expression_is_satisfied_or_not() {
        let allowed: BTreeSet<String> =
            ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "ISC"].map(str::to_owned).into();
        let cases = [
            ("MIT", Some(true)),
            ("GPL-3.0", Some(false)),
            ("GPL-3.0 OR MIT", Some(true)),
            ("MIT/GPL-3.0", Some(true)),
            ("MIT AND GPL-3.0", Some(false)),
            ("(MIT OR GPL-3.0) AND ISC", Some(true)),
            ("MIT OR GPL-3.0 AND GPL-2.0", Some(true)),
            ("Apache-2.0 WITH LLVM-exception", Some(true)),
            ("MIT WITH Other-exception", Some(false)),
            ("", None),
            ("(MIT", None),
            ("MIT MIT", None),
        ];
        for (expression, expected) in cases {
            assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
        }
    }

    #[test]
    fn every_kind_of_forbidden_crate_is_named() {
        let file = r#"
            [graph]
            targets = ["x"]
            [licenses]
            allow = ["MIT"]
            [bans]
            wildcards = "deny"
            deny = [{ crate = "openssl", reason = "use rustls" }]
            skip = ["a"]
            [sources]
            unknown-registry = "deny"
            unknown-git = "allow"
        "#;
        let info = |name: &str, source: Option<&str>, license: &str, wildcards: &[&str]| CrateInfo {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            source: source.map(str::to_owned),
            license: license.to_owned(),
            wildcards: wildcards.iter().map(|name| (*name).to_owned()).collect(),
        };
        let crates = BTreeSet::from([
            info("good", Some(DEFAULT_REGISTRY), "MIT", &["theirs"]),
            info("openssl", Some(DEFAULT_REGISTRY), "MIT", &[]),
            info("copyleft", Some(DEFAULT_REGISTRY), "GPL-3.0", &[]),
            info("forked", Some("git+https://example.com/x"), "MIT", &[]),
            info("ours", None, "MIT", &["loose"]),
        ]);
        let found = check(&rules(&file.parse().expect("it is TOML")), &crates);
        let found: Vec<String> = found.iter().map(|finding| finding.text.clone()).collect();
        for words in
            ["[bans] skip", "unknown-git", "openssl 1.0.0 is banned: use rustls", "GPL-3.0", "git+https", "loose"]
        {
            assert!(found.iter().any(|text| text.contains(words)), "{words}: {found:?}");
        }
        assert_eq!(found.len(), 6, "{found:?}");
    }
}
