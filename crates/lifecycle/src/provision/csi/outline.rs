//! What the claim, its class and the driver's abilities alone decide about a volume to be (PROVISION-2.6,
//! PROVISION-2.7).

use std::borrow::Cow;
use std::collections::BTreeMap;

use api::class::TopologyTerm;
use api::keys::parameter;
use api::{AttributesClass, Claim, ClaimPhase, Class, ClassName, Grant, VolumeMode};

use super::ability::{self, Abilities, Ability};
use super::access::{self, Access};
use super::parameters;
use super::plan::{ClaimOf, Plan, Shape};
use super::secrets::{self, ClaimNames, Names, Secrets};
use super::source::{self, Content, Crossing, ModeChange, Normal, Origin, Wanted};
use super::topology::{Immediate, Requirement, Strictness};
use super::unfit::Unfit;
use crate::decision::Lookup;
use crate::migration;

/// What the flags of the provisioner say about plans.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// `--strict-topology`.
    pub strictness: Strictness,
    /// `--immediate-topology`.
    pub immediate: Immediate,
    /// Whether places count at all (feature gate `Topology`).
    pub topology: TopologyGate,
    /// `--default-fstype`; empty is none.
    pub default_fstype: String,
    /// `--extra-create-metadata`.
    pub metadata: Metadata,
    /// `--controller-publish-readonly`.
    pub read_only: ReadOnly,
    /// `--prevent-volume-mode-conversion`.
    pub modes: ModeChange,
    /// Feature gate `CrossNamespaceVolumeDataSource`.
    pub crossing: Crossing,
    /// Feature gate `VolumeAttributesClass`.
    pub attributes: AttributesGate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TopologyGate {
    #[default]
    On,
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AttributesGate {
    #[default]
    On,
    Off,
}

/// Whether the driver is told the names of claim and volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Metadata {
    #[default]
    Plain,
    WithNames,
}

/// Whether volumes for readers only are attached for reading only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadOnly {
    #[default]
    Never,
    ForReaders,
}

/// Everything an outline is made of.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    pub claim: &'a Claim,
    pub class: &'a Class,
    pub volume_name: &'a str,
    pub driver: &'a str,
    pub abilities: &'a Abilities,
    pub options: &'a Options,
    /// The grants in the namespace of the claim's source, if that is another one ([`source::crosses`]).
    pub grants: &'a [Grant],
}

/// A plan without what has to be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    pub wanted: Wanted,
    /// The VolumeAttributesClass to ask for; empty is none.
    pub attributes_class: String,
    /// Whether places count for this driver.
    pub placed: bool,
    /// Where the class allows volumes, in the driver's words.
    pub allowed: Vec<TopologyTerm>,
    plan: Plan,
}

/// Decides what can be decided without asking anybody.
pub fn outline(seen: &Seen<'_>) -> Result<Outline, Unfit> {
    match in_drivers_words(seen.class, seen.driver)? {
        Cow::Borrowed(_) => outline_native(seen),
        Cow::Owned(class) => outline_native(&Seen { class: &class, ..*seen }).map(|outline| {
            let provisioner = seen.class.provisioner.to_string();
            Outline { plan: Plan { provisioner, ..outline.plan }, ..outline }
        }),
    }
}

/// A class of the driver's own, or of the plugin that it took over from, in the driver's words (PROVISION-2.6).
pub fn in_drivers_words<'a>(class: &'a Class, driver: &str) -> Result<Cow<'a, Class>, Unfit> {
    match *class.provisioner == *driver {
        true => Ok(Cow::Borrowed(class)),
        false => migration::class_to_csi(class).map(Cow::Owned).map_err(Unfit::Class),
    }
}

fn outline_native(seen: &Seen<'_>) -> Result<Outline, Unfit> {
    let Seen { claim, class, driver, abilities, options, .. } = *seen;
    let wanted = match source::normalise(claim, options.crossing, seen.grants)? {
        Normal::Ours(wanted) => wanted,
        Normal::Populator { group, kind, name } => return Err(Unfit::Populator { group, kind, name }),
    };
    let attributes_class = match options.attributes {
        AttributesGate::On => claim.attributes_class(),
        AttributesGate::Off => "",
    };
    ability::check(abilities, &wanted, attributes_class)?;
    if claim.selector.is_some() {
        return Err(Unfit::Selector);
    }
    let bytes = claim.request_bytes();
    if bytes <= 0 {
        return Err(Unfit::NoRequest);
    }
    let fstype = parameters::fstype(&class.parameters, &options.default_fstype)?;
    let access = access::of_each(claim.access, abilities)?;
    let plan = Plan {
        driver: driver.to_owned(),
        provisioner: class.provisioner.to_string(),
        volume: seen.volume_name.to_owned(),
        claim: ClaimOf::of(claim),
        class: claim.class().text().to_owned(),
        bytes,
        modes: claim.access.iter().map(|mode| mode.name().to_owned()).collect(),
        read_only: options.read_only == ReadOnly::ForReaders && access == [Access::MultiNodeReaderOnly],
        access,
        shape: match claim.mode {
            VolumeMode::Block => Shape::Block,
            VolumeMode::Filesystem => Shape::Mount { fstype },
        },
        mount_options: class.mount_options.iter().map(ToString::to_string).collect(),
        parameters: driver_parameters(seen)?,
        reclaim: class.reclaim_policy.map(|policy| policy.name().to_owned()),
        attributes_class: Some(attributes_class.to_owned()).filter(|name| !name.is_empty()),
        mutable: BTreeMap::new(),
        secrets: secrets_of(seen)?,
        content: None,
        origin: Origin::of(&wanted),
        topology: None,
        placed: options.topology == TopologyGate::On && abilities.contains(&Ability::Topology),
    };
    let (attributes_class, allowed) = (attributes_class.to_owned(), class.allowed_topologies.clone());
    Ok(Outline { wanted, attributes_class, placed: plan.placed, allowed, plan })
}

fn driver_parameters(seen: &Seen<'_>) -> Result<BTreeMap<String, String>, Unfit> {
    let mut given = parameters::for_driver(&seen.class.parameters)?;
    if seen.options.metadata == Metadata::WithNames {
        let mut name = |key: api::keys::Parameter, value: &str| given.insert(key.text().to_owned(), value.to_owned());
        name(parameter::CLAIM_NAME, seen.claim.name());
        name(parameter::CLAIM_NAMESPACE, seen.claim.namespace());
        name(parameter::VOLUME_NAME, seen.volume_name);
    }
    Ok(given)
}

fn secrets_of(seen: &Seen<'_>) -> Result<Secrets, Unfit> {
    let claim = ClaimNames {
        namespace: seen.claim.namespace(),
        name: seen.claim.name(),
        annotations: Some(&seen.claim.meta.annotations),
    };
    let names = Names { volume: seen.volume_name, claim: Some(claim) };
    Ok(secrets::resolve_all(&seen.class.parameters, &names)?)
}

/// What was asked for after the outline.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    pub content: Option<Content>,
    pub topology: Option<Requirement>,
    pub mutable: BTreeMap<String, String>,
}

impl Outline {
    /// The whole plan.
    pub fn plan(self, findings: Findings) -> Plan {
        let Findings { content, topology, mutable } = findings;
        Plan { content, topology, mutable, ..self.plan }
    }

    /// The secret that creation needs, if it needs one.
    pub fn secret(&self) -> Option<&secrets::Reference> {
        self.plan.secrets.provision.as_ref()
    }
}

/// The parameters of the attributes class that a claim names.
pub fn mutable(
    name: &str,
    driver: &str,
    found: Lookup<'_, AttributesClass>,
) -> Result<BTreeMap<String, String>, Unfit> {
    match found {
        Lookup::Found(class) if *class.driver_name == *driver => {
            Ok(class.parameters.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect())
        }
        Lookup::Found(class) => Err(Unfit::ForeignAttributesClass {
            name: name.to_owned(),
            theirs: class.driver_name.to_string(),
            ours: driver.to_owned(),
        }),
        Lookup::Absent | Lookup::NotCached => Err(Unfit::NoAttributesClass { name: name.to_owned() }),
    }
}

/// Whether a claim still needs what it names as its source: it waits for a volume.
pub fn needs_source(claim: &Claim) -> bool {
    claim.phase == ClaimPhase::Pending && !matches!(claim.class(), ClassName::None)
}
