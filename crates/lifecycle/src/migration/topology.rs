//! Where a volume can be reached from: the plugin's zone and region labels, and the driver's own keys (MIGRATE-10.2).

use std::collections::BTreeSet;

use api::keys::label;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Untranslatable;
use super::volume::Parts;

/// What separates the zones of a volume in a label.
const DELIMITER: &str = "__";

/// A term of `nodeAffinity.required`: all expressions hold.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Term {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Expression>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_fields: Vec<Value>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Expression {
    pub key: String,
    pub operator: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// The two generations of Kubernetes' own labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Family {
    zone: &'static str,
    region: &'static str,
}

const STABLE: Family = Family { zone: label::ZONE.text(), region: label::REGION.text() };
const BETA: Family = Family { zone: label::BETA_ZONE.text(), region: label::BETA_REGION.text() };

/// The family that a volume uses: its affinity says so, or else its labels, and the stable one counts first.
fn family(parts: &Parts) -> Family {
    let in_affinity = |family: &Family| parts.expressions().any(|expression| expression.key == family.zone);
    let in_labels = |family: &Family| parts.labels.contains_key(family.zone);
    let both = [STABLE, BETA];
    both.into_iter().find(in_affinity).or_else(|| both.into_iter().find(in_labels)).unwrap_or(STABLE)
}

fn rename(parts: &mut Parts, from: &str, to: &str) {
    for expression in parts.terms.iter_mut().flat_map(|term| &mut term.match_expressions) {
        if expression.key == from {
            to.clone_into(&mut expression.key);
        }
    }
}

/// All values of a key, without repetition, in order.
fn values(parts: &Parts, key: &str) -> Vec<String> {
    let of_key = parts.expressions().filter(|expression| expression.key == key);
    of_key.flat_map(|expression| expression.values.iter().cloned()).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Requires one of the values in every term; without terms there is one then. Empty values count for nothing.
fn require<'a>(parts: &mut Parts, key: &str, values: impl Iterator<Item = &'a str>) {
    let values: BTreeSet<&str> = values.map(str::trim).filter(|value| !value.is_empty()).collect();
    if values.is_empty() {
        return;
    }
    if parts.terms.is_empty() {
        parts.terms.push(Term::default());
    }
    let values: Vec<String> = values.into_iter().map(str::to_owned).collect();
    for term in &mut parts.terms {
        term.match_expressions.push(is_in(key, values.clone()));
    }
}

fn is_in(key: &str, values: Vec<String>) -> Expression {
    Expression { key: key.to_owned(), operator: "In".to_owned(), values }
}

/// Zones in the driver's words.
pub(super) fn zones_to_csi(parts: &mut Parts, driver_zone: &str) {
    let family = family(parts);
    zone_to_csi(parts, family.zone, driver_zone, |label| label.split(DELIMITER).map(str::to_owned).collect());
    // Nodes of today carry the stable labels only.
    if family == BETA {
        rename(parts, BETA.region, STABLE.region);
    }
}

/// Zones and regions in the driver's words; here a label holds one name, whatever is in it.
pub(super) fn zones_and_regions_to_csi(parts: &mut Parts, driver_zone: &str, driver_region: &str) {
    let family = family(parts);
    for (label, key) in [(family.zone, driver_zone), (family.region, driver_region)] {
        zone_to_csi(parts, label, key, |label| vec![label.to_owned()]);
    }
}

fn zone_to_csi(parts: &mut Parts, label: &str, key: &str, split: fn(&str) -> Vec<String>) {
    if !values(parts, label).is_empty() {
        rename(parts, label, key);
    } else if let Some(names) = parts.labels.get(label).map(|names| split(names)) {
        require(parts, key, names.iter().map(String::as_str));
    }
}

/// The region that zones are in, if the provider's names tell.
pub(super) type RegionOf = fn(&[String]) -> Result<String, Untranslatable>;

/// Zones in the plugin's words, regions where they can be told, and labels for both.
pub(super) fn zones_to_in_tree(
    parts: &mut Parts,
    driver_zone: &str,
    region_of: Option<RegionOf>,
) -> Result<(), Untranslatable> {
    let zone = family(parts).zone;
    rename(parts, driver_zone, zone);
    if let Some(region_of) = region_of {
        require_regions(parts, region_of)?;
    }
    label_with(parts, zone, |zones| Some(zones.join(DELIMITER)));
    Ok(())
}

fn require_regions(parts: &mut Parts, region_of: RegionOf) -> Result<(), Untranslatable> {
    let family = family(parts);
    for term in &mut parts.terms {
        if term.match_expressions.iter().any(|expression| expression.key == family.region) {
            continue;
        }
        let of_zone = term.match_expressions.iter().filter(|expression| expression.key == family.zone);
        let zones: Vec<String> = of_zone.flat_map(|expression| expression.values.iter().cloned()).collect();
        term.match_expressions.push(is_in(family.region, vec![region_of(&zones)?]));
    }
    label_with(parts, family.region, |regions| match regions {
        [region] => Some(region.clone()),
        _ => None,
    });
    Ok(())
}

/// The same for a driver that names zones and regions; of several the first becomes the label.
pub(super) fn zones_and_regions_to_in_tree(parts: &mut Parts, driver_zone: &str, driver_region: &str) {
    let family = family(parts);
    rename(parts, driver_zone, family.zone);
    rename(parts, driver_region, family.region);
    for key in [family.zone, family.region] {
        label_with(parts, key, |names| names.first().cloned());
    }
}

/// Labels the volume with what its affinity says about a key, unless it has that label.
fn label_with(parts: &mut Parts, key: &str, text: fn(&[String]) -> Option<String>) {
    let found = values(parts, key);
    if !found.is_empty()
        && !parts.labels.contains_key(key)
        && let Some(text) = text(&found)
    {
        parts.labels.insert(key.to_owned(), text);
    }
}

/// The one region of several zones.
pub(super) fn one_region(zones: &[String], region_of: fn(&str) -> Option<String>) -> Result<String, Untranslatable> {
    let mut regions = BTreeSet::new();
    for zone in zones {
        regions.insert(region_of(zone).ok_or_else(|| Untranslatable::Zone { zone: zone.clone() })?);
    }
    match (regions.pop_first(), regions.is_empty()) {
        (Some(region), true) => Ok(region),
        _ => Err(Untranslatable::Regions { zones: zones.to_vec() }),
    }
}

/// The zones of a label.
pub(super) fn zones_of_label(label: &str) -> Vec<String> {
    label.split(DELIMITER).map(str::to_owned).collect()
}
