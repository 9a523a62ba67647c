//! In-tree plugins whose volumes a CSI driver took over (MIGRATE-10, SIDECAR-1.10).
//!
//! A StorageClass, a PersistentVolume or a pod's inline volume of such a plugin is translated before a driver sees it; a
//! volume that the driver made for an in-tree class is translated back before it is stored. The texts that come out are a
//! contract with the drivers: nothing about them is improved here.
//!
//! # Invariants
//! 1. All functions are pure. What a translation does not speak of stays as it was.
//! 2. To the driver's form and back gives the same source and the same topology, except where MIGRATE-10.1 says that a
//!    driver forgets something (`tests/round_trip.rs`).

mod aws_ebs;
mod azure_disk;
mod azure_file;
mod cinder;
mod class;
mod gce_pd;
mod keys;
mod mark;
mod portworx;
mod source;
#[cfg(test)]
mod tests;
mod topology;
mod volume;
mod vsphere;

use api::Class;
use api::keys::provisioner;
use serde_json::Value;

pub use mark::{Mark, mark};
pub use source::{CsiSource, SecretReference};
pub use volume::{csi_access, csi_source, inline_to_csi, volume_to_csi, volume_to_in_tree};

use source::{Back, Inline, Synthetic};
use volume::Parts;

/// Why an object of an in-tree plugin cannot be said in its driver's words, or the other way round.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Untranslatable {
    #[error("{what} is none of the in-tree volumes that a CSI driver took over")]
    NotMigrated { what: String },
    #[error("the source {field:?} cannot be read: {why}")]
    Malformed { field: &'static str, why: String },
    #[error("the class has allowedTopologies and the parameter zone or zones; keep one of them")]
    ZonesTwice,
    #[error("the zone {zone:?} is not written as this provider writes zones, so that its region is unknown")]
    Zone { zone: String },
    #[error("the zones {zones:?} are not in one region")]
    Regions { zones: Vec<String> },
    #[error("the volume handle {handle:?} has not the form {form}")]
    Handle { handle: String, form: &'static str },
    #[error("the node id {id:?} has not the form {form}")]
    NodeId { id: String, form: &'static str },
    #[error("the partition {partition:?} is not a number")]
    Partition { partition: String },
    #[error("a disk of kind {kind:?} has no counterpart in the CSI driver, which knows managed disks only")]
    Unmanaged { kind: String },
    #[error("neither the volume's source nor its claim says in which namespace its secret is")]
    NoSecretNamespace,
}

/// What is particular about one plugin and its driver.
trait Translator: Sync {
    /// The plugin's name without its prefix.
    fn short(&self) -> &'static str;
    fn driver(&self) -> &'static str;
    /// The member of a volume's spec, and of a pod's volume, that holds the plugin's source.
    fn field(&self) -> &'static str;
    /// A class in the driver's words.
    fn class(&self, class: Class) -> Result<Class, Untranslatable>;
    fn source(&self, parts: &Parts, source: &Value) -> Result<CsiSource, Untranslatable>;
    fn inline(&self, inline: &Inline<'_>) -> Result<Synthetic, Untranslatable>;
    fn back(&self, csi: &CsiSource) -> Result<Back, Untranslatable>;

    /// Access modes and topology, in the driver's words.
    fn parts_to_csi(&self, _parts: &mut Parts) {}

    /// Topology and labels, in the plugin's words.
    fn parts_to_in_tree(&self, _parts: &mut Parts) -> Result<(), Untranslatable> {
        Ok(())
    }

    /// A handle with what was unknown when it was made, from the node that the volume goes to.
    fn repair(&self, handle: &str, _node_id: &str) -> Result<String, Untranslatable> {
        Ok(handle.to_owned())
    }
}

/// Migration is on for all of them, without a switch.
const TRANSLATORS: [&dyn Translator; 7] = [
    &gce_pd::GcePd,
    &aws_ebs::AwsEbs,
    &cinder::Cinder,
    &azure_disk::AzureDisk,
    &azure_file::AzureFile,
    &vsphere::Vsphere,
    &portworx::Portworx,
];

fn of_driver(driver: &str) -> Option<&'static dyn Translator> {
    TRANSLATORS.into_iter().find(|translator| translator.driver() == driver)
}

fn of_plugin(plugin: &str) -> Option<&'static dyn Translator> {
    let short = plugin.strip_prefix(provisioner::IN_TREE_PREFIX)?;
    TRANSLATORS.into_iter().find(|translator| translator.short() == short)
}

/// Whose source a volume's spec, or a pod's volume, holds.
fn of_members(members: &Value) -> Option<&'static dyn Translator> {
    TRANSLATORS.into_iter().find(|translator| members.get(translator.field()).is_some_and(|source| !source.is_null()))
}

/// All plugins that a driver took over from, by their full names, sorted.
pub fn plugins() -> Vec<String> {
    let name = |translator: &dyn Translator| format!("{}{}", provisioner::IN_TREE_PREFIX, translator.short());
    let mut plugins: Vec<String> = TRANSLATORS.into_iter().map(name).collect();
    plugins.sort();
    plugins
}

/// The driver that took over from a plugin, given the plugin's full name.
pub fn driver_of(plugin: &str) -> Option<&'static str> {
    of_plugin(plugin).map(Translator::driver)
}

/// The plugin a driver took over from, by its full name.
pub fn plugin_of(driver: &str) -> Option<String> {
    Some(format!("{}{}", provisioner::IN_TREE_PREFIX, of_driver(driver)?.short()))
}

/// The plugin whose source a volume's `spec`, or a pod's volume, holds, by its full name; none if no driver took over.
pub fn plugin_of_source(members: &Value) -> Option<String> {
    Some(format!("{}{}", provisioner::IN_TREE_PREFIX, of_members(members)?.short()))
}

/// A class of an in-tree plugin as its driver understands it.
pub fn class_to_csi(class: &Class) -> Result<Class, Untranslatable> {
    let plugin = || Untranslatable::NotMigrated { what: format!("provisioner {:?}", class.provisioner.as_str()) };
    of_plugin(&class.provisioner).ok_or_else(plugin)?.class(class.clone())
}

/// Whether a volume that stands inside a pod may be on one node only, given the driver that took it over: Azure's disks and
/// Cinder's (ATTACH-6.5).
pub fn inline_is_exclusive(driver: &str) -> bool {
    [azure_disk::AzureDisk.driver(), cinder::Cinder.driver()].contains(&driver)
}

/// A volume handle with what was unknown when it was translated, from the id of the node that the volume goes to.
pub fn repair_handle(driver: &str, handle: &str, node_id: &str) -> Result<String, Untranslatable> {
    let unknown = || Untranslatable::NotMigrated { what: format!("driver {driver:?}") };
    of_driver(driver).ok_or_else(unknown)?.repair(handle, node_id)
}
