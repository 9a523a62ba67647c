//! What users were told, and whether it is still so.
//!
//! An entry goes in when an answer came, and out before its end is asked for. Whatever is in it must be there, always: in the
//! API whenever a stack answers, on the machine also while none runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use linux::mountinfo::MountTable;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::objects::{CLAIMS, PODS, VOLUMES, is_going, name, uid, volume_of};
use super::site::Site;

/// A claim that was answered with 201.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    pub(super) uid: String,
    /// Its volume, once it was seen Bound.
    pub(super) volume: Option<String>,
    /// Files that are on its disk, by name, and the digests of what is in them.
    pub(super) files: BTreeMap<String, [u8; 32]>,
}

/// A pod that was answered with 201.
#[derive(Debug, Clone)]
pub(super) struct Pod {
    pub(super) uid: String,
    pub(super) claim: String,
    /// Its mount, once it was seen ready.
    pub(super) mount: Option<Mounted>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mounted {
    pub(super) target: PathBuf,
    /// The kernel's number of this very mount.
    id: u64,
}

impl Mounted {
    /// What is mounted there now.
    pub(super) fn at(target: &Path) -> Option<Self> {
        let table = MountTable::read().expect("there is a mount table");
        table.top(target).map(|mount| Self { target: target.to_owned(), id: mount.id })
    }
}

#[derive(Debug, Default, Clone)]
pub(super) struct Entries {
    pub(super) claims: BTreeMap<String, Claim>,
    pub(super) pods: BTreeMap<String, Pod>,
}

impl Entries {
    pub(super) fn claim(&mut self, name: &str) -> &mut Claim {
        self.claims.get_mut(name).expect("its user put it in")
    }

    pub(super) fn pod(&mut self, name: &str) -> &mut Pod {
        self.pods.get_mut(name).expect("its user put it in")
    }
}

#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<Entries>);

impl Ledger {
    pub(super) fn open(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().expect("nobody panicked")
    }

    /// Compares everything. Users may go on meanwhile: who asks for the end of a thing is believed that it may be gone.
    pub(super) async fn check(&self, site: &Site) -> Checked {
        let told = self.open().clone();
        let claims = by_name(site.list(CLAIMS).await);
        let volumes = by_name(site.list(VOLUMES).await);
        let pods = by_name(site.list(PODS).await);
        let checked = self.check_machine(&told);
        let now = self.open().clone();
        for (name, claim) in told.claims.iter().filter(|(name, _)| now.claims.contains_key(*name)) {
            let found = claims.get(name).unwrap_or_else(|| panic!("claim {name} is lost: {claim:?}"));
            assert_eq!((uid(found), is_going(found)), (claim.uid.as_str(), false), "claim {name}");
            if let Some(volume) = &claim.volume {
                assert_eq!(volume_of(found), Some(volume.as_str()), "claim {name} was Bound: {found}");
                let found = volumes.get(volume).unwrap_or_else(|| panic!("volume {volume} of claim {name} is lost"));
                assert_eq!(found["spec"]["claimRef"]["uid"], claim.uid.as_str(), "volume {volume}");
                assert!(!is_going(found), "volume {volume} goes, and claim {name} stays");
            }
        }
        for (name, pod) in told.pods.iter().filter(|(name, _)| now.pods.contains_key(*name)) {
            let found = pods.get(name).unwrap_or_else(|| panic!("pod {name} is lost: {pod:?}"));
            assert_eq!((uid(found), is_going(found)), (pod.uid.as_str(), false), "pod {name}");
        }
        checked
    }

    /// Mounts are the same mounts, and every byte is behind them. This holds also while no stack runs.
    pub(super) fn check_machine(&self, told: &Entries) -> Checked {
        let mut checked = Checked { claims: told.claims.len(), pods: told.pods.len(), ..Checked::default() };
        for (name, pod) in &told.pods {
            let Some(mount) = &pod.mount else { continue };
            let wrong = match Mounted::at(&mount.target) {
                Some(found) if found == *mount => {
                    let files = &told.claims[&pod.claim].files;
                    checked.files += files.len();
                    files.iter().find_map(|(file, digest)| differs(&mount.target.join(file), digest))
                }
                found => Some(format!("{mount:?} is now {found:?}")),
            };
            checked.mounts += 1;
            if let Some(wrong) = wrong
                && self.open().pods.contains_key(name)
            {
                panic!("pod {name} of claim {}: {wrong}", pod.claim);
            }
        }
        checked
    }
}

/// How much was compared.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) claims: usize,
    pub(super) pods: usize,
    pub(super) mounts: usize,
    pub(super) files: usize,
}

pub(super) fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// What is wrong with a file.
fn differs(file: &Path, wanted: &[u8; 32]) -> Option<String> {
    match std::fs::read(file) {
        Ok(bytes) if digest(&bytes) == *wanted => None,
        Ok(bytes) => Some(format!("{}: {} other bytes", file.display(), bytes.len())),
        Err(error) => Some(format!("{}: {error}", file.display())),
    }
}

fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
    objects.into_iter().map(|object| (name(&object).to_owned(), object)).collect()
}
