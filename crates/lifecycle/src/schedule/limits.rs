//! How many volumes of a driver a node can have (SCHED-5.9, NodeVolumeLimits).

use std::collections::{BTreeMap, BTreeSet};

use api::{Claim, Node, Pod, Source, Volume, Word};

use super::Cluster;
use super::book::Book;
use super::refusal::Refusal;
use super::wants::Want;
use crate::migration;

/// A volume as its driver counts it: the same volume used by two pods is one.
type Counted = (Word, Box<str>);

/// Whether a node can have the volumes of a pod beside those it has.
pub(super) fn within(node: &Node, wants: &[Want], cluster: &dyn Cluster, book: &Book) -> Result<(), Refusal> {
    let mut new: BTreeMap<Word, BTreeSet<Box<str>>> = BTreeMap::new();
    for (driver, id) in wants.iter().filter_map(|want| counted(&want.claim, cluster)) {
        new.entry(driver).or_default().insert(id);
    }
    if new.is_empty() {
        return Ok(());
    }
    // A node whose CSINode is missing has no limits that anybody knows (CTRL-14.26: as upstream, decided).
    let known = cluster.csi_node(node.name());
    for (driver, new) in new {
        let here = known.as_ref().and_then(|known| known.driver(&driver));
        let Some(here) = here else {
            let needed = cluster.driver(&driver).and_then(|driver| driver.spec.prevent_pod_scheduling_if_missing);
            if needed == Some(true) {
                return Err(Refusal::DriverMissing { driver: (&*driver).into() });
            }
            continue;
        };
        let Some(limit) = here.allocatable.and_then(|allocatable| allocatable.count) else { continue };
        let held = held(node, &driver, cluster, book);
        let more = new.difference(&held).count();
        if more > 0 && held.len() + more > usize::try_from(limit).unwrap_or(0) {
            return Err(Refusal::TooManyVolumes);
        }
    }
    Ok(())
}

/// The volumes of a driver that a node has or will have: of its pods, of pods that are meant for it, and whatever is
/// attached although no pod uses it.
fn held(node: &Node, driver: &Word, cluster: &dyn Cluster, book: &Book) -> BTreeSet<Box<str>> {
    let mut held = BTreeSet::new();
    let mut add = |claim: &Claim| {
        if let Some((of, id)) = counted(claim, cluster)
            && of == *driver
        {
            held.insert(id);
        }
    };
    for pod in cluster.pods_on(node.name()) {
        claims(&pod, cluster).for_each(|claim| add(&claim));
    }
    let meant = book.meant_for(node.name()).flat_map(|assignment| &assignment.steps);
    meant.filter_map(|step| cluster.claim(&step.claim)).for_each(|claim| add(&claim));
    for attachment in cluster.attachments_on(node.name()) {
        if attachment.attacher != *driver {
            continue;
        }
        let volume = attachment.volume.as_ref().and_then(|name| cluster.volume(name));
        let known = volume.and_then(|volume| identity(&volume)).map(|(_, id)| id);
        // Attached, though nobody knows what: it takes a place all the same.
        held.insert(known.unwrap_or_else(|| format!("attachment/{}", attachment.meta.key.name()).into()));
    }
    held
}

fn claims<'a>(pod: &'a Pod, cluster: &'a dyn Cluster) -> impl Iterator<Item = std::sync::Arc<Claim>> + 'a {
    pod.claims().filter_map(|name| cluster.claim(&pod.meta.key.sibling(&name)))
}

/// How a driver counts a claim's volume. One that is not made yet is counted under the claim's name.
fn counted(claim: &Claim, cluster: &dyn Cluster) -> Option<Counted> {
    if !claim.volume_name.is_empty() {
        return identity(&*cluster.volume(&claim.volume_name)?);
    }
    let class = cluster.class(claim.class().text())?;
    let driver = migration::driver_of(&class.provisioner).unwrap_or(&class.provisioner);
    Some((Word::new(driver), claim.key().to_string().into()))
}

/// How a driver counts a volume, also one that it took over from an in-tree plugin.
fn identity(volume: &Volume) -> Option<Counted> {
    if let Source::Csi { driver, handle } = &volume.source {
        return Some((driver.clone(), handle.clone()));
    }
    // What cannot be said in a driver's words is no volume of a driver.
    let source = migration::csi_source(volume).ok()??;
    Some((Word::new(&source.driver), source.volume_handle.into()))
}
