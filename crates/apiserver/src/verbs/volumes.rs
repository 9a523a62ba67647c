//! Volumes that are being created: which driver and handle each of them is to have.
//!
//! A machine must not make a volume of something that another volume is made of. Admission sees the volumes that are stored;
//! this adds those that are about to be. A volume is entered before admission looks at the store, and leaves once its write
//! is visible there, so that of two creates with one handle the later one finds the earlier one in either place.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::catalog::Resource;
use crate::kinds::read::text;

/// A driver and a handle.
type Source = (String, String);

/// How many creates there are of each driver and handle.
#[derive(Debug, Default, Clone)]
pub(crate) struct VolumesInCreation(Arc<Mutex<BTreeMap<Source, usize>>>);

/// One volume on its way into the store. It leaves when this is dropped.
#[derive(Debug)]
pub(crate) struct VolumeInCreation {
    all: VolumesInCreation,
    source: Source,
    is_first: bool,
}

impl VolumesInCreation {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Source, usize>> {
        // No code that holds this lock can panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a new object, if it is a volume of a CSI driver.
    pub(super) fn enter(&self, resource: &Resource, object: &Value) -> Option<Arc<VolumeInCreation>> {
        if !resource.group.is_empty() || resource.plural != "persistentvolumes" {
            return None;
        }
        let part = |pointer: &str| Some(text(object, pointer).to_owned()).filter(|text| !text.is_empty());
        let source = (part("/spec/csi/driver")?, part("/spec/csi/volumeHandle")?);
        let mut creates = self.lock();
        let count = creates.entry(source.clone()).or_default();
        *count += 1;
        let is_first = *count == 1;
        drop(creates);
        Some(Arc::new(VolumeInCreation { all: self.clone(), source, is_first }))
    }
}

impl VolumeInCreation {
    /// Whether no other volume with the same driver and handle was being created when this one was entered.
    pub(super) fn is_first(&self) -> bool {
        self.is_first
    }
}

impl Drop for VolumeInCreation {
    fn drop(&mut self) {
        let mut creates = self.all.lock();
        if let Some(count) = creates.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                creates.remove(&self.source);
            }
        }
    }
}
