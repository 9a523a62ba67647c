//! Inline volumes: made by publishing, destroyed by unpublishing, known to nobody else.
//!
//! No other call ever comes for them, so removal must be certain: before anything is unmounted the volume is marked as
//! doomed, and a start finishes what a crash interrupted.

use std::fs;
use std::path::Path;

use driver_sdk::{
    CapacityRange, CreateVolume, Error, Inline, Parameters, PublishEphemeral, PublishVolume, Secrets, StageVolume,
    VolumeId, failpoint,
};

use super::settled;
use super::stage::unmount;
use crate::controller::{blank_claim, choose_kind, logical_block, make_data, sync_data};
use crate::core::{Core, is_ours};
use crate::fault;
use crate::keys;
use crate::params::{self, DEFAULT_SIZE};
use crate::pool::{DOOMED, Draft, Hold, Holding, Place, Promise};
use crate::record::{self, Format, VolumeRecord};
use linux::{durable, mounts};

impl Core {
    pub fn publish_inline(&self, request: &PublishEphemeral) -> Result<(), Error> {
        let id = Self::inline_id(&request.volume);
        let target = settled(&request.target)?;
        match self.find(Place::Volumes, &id)? {
            None => self.create_inline(&id, request, &target)?,
            Some(found) if found.object.dir().join(DOOMED).exists() => {
                return Err(Error::busy("an inline volume of this id is being removed; repeat the call"));
            }
            Some(found) => {
                let record: VolumeRecord = found.object.record().map_err(fault::record)?;
                let known = record.inline.map(|inline| inline.target);
                if known.as_deref() != Some(&target) {
                    return Err(Error::exists(format!(
                        "this inline volume is published at {}",
                        known.unwrap_or_default().display()
                    )));
                }
            }
        }
        failpoint::hit("inline.created");
        let volume = VolumeId::new(&id);
        let staging = self.pools_object(&id)?.private_staging();
        self.stage(&StageVolume {
            volume: volume.clone(),
            staging: staging.clone(),
            capability: request.capability.clone(),
            publish_context: Default::default(),
            volume_context: Default::default(),
            secrets: Secrets::default(),
        })?;
        failpoint::hit("inline.staged");
        self.publish(&PublishVolume {
            volume,
            target: request.target.clone(),
            staging: Some(staging),
            capability: request.capability.clone(),
            readonly: request.readonly,
            publish_context: Default::default(),
            volume_context: Default::default(),
            secrets: Secrets::default(),
            fingerprint: String::new(),
        })
    }

    fn pools_object(&self, id: &str) -> Result<crate::pool::Object, Error> {
        let found = self.find(Place::Volumes, id)?.ok_or_else(|| Error::not_found(driver_sdk::Kind::Volume, id))?;
        Ok(found.object)
    }

    fn create_inline(&self, id: &str, request: &PublishEphemeral, target: &Path) -> Result<(), Error> {
        let attributes =
            request.attributes.iter().filter(|(key, _)| !key.starts_with(keys::CALLER_PREFIX) && *key != keys::SIZE);
        let fixed = attributes.map(|(key, value)| (key.clone(), value.clone())).collect();
        let parameters = Parameters { fixed, mutable: Default::default() };
        let spec = params::spec(&parameters, std::slice::from_ref(&request.capability))?;
        let required = request.attributes.get(keys::SIZE).map_or(Ok(DEFAULT_SIZE), |text| params::parse_size(text))?;
        let asked = CreateVolume {
            name: request.volume.as_str().to_owned(),
            capacity: CapacityRange { required, limit: None },
            capabilities: vec![request.capability.clone()],
            parameters,
            secrets: Secrets::default(),
            topology: None,
        };
        let pool = self.choose_pool(&spec)?;
        let spec = spec.provisioned(pool.provisioning);
        let kind = choose_kind(pool, &spec)?;
        let fs = self.choose_fs(kind, &spec)?;
        let size = params::choose_size(asked.capacity, params::smallest(spec.access, fs), self.config.largest_volume)?;
        let space = pool.reserve(Promise { size, need: size })?;
        let mut record = self.blank_record(id, &asked, &spec, (size, kind, Format::Blank { fs }));
        record.block_size = logical_block(pool, spec.access);
        record.inline = Some(record::Inline { target: target.to_owned() });
        let draft = Draft::begin(pool, id)?;
        make_data(draft.object(), &record)?;
        fs::create_dir(draft.object().private_staging())
            .map_err(|error| fault::io("making the staging directory", error))?;
        draft.object().draft_record(&record).map_err(fault::sys)?;
        sync_data(draft.object(), &record)?;
        draft.commit(Place::Volumes)?;
        space.settle(id, Holding { size, claim: blank_claim(kind) });
        Ok(())
    }

    pub fn unpublish_inline(&self, volume: &VolumeId, target: &Path) -> Result<Inline, Error> {
        let id = Self::inline_id(volume);
        // Ids of other volumes are ours, and are looked for by the caller. Any other id can only be an inline volume's, and its
        // pool may be missing.
        let found = if is_ours(volume.as_str()) {
            self.find_open(Place::Volumes, &id)?
        } else {
            self.find(Place::Volumes, &id)?
        };
        let Some(found) = found else { return Ok(Inline::NotInline) };
        let lock = self.hold(&found, Hold::Exclusive)?;
        durable::write_file_atomic(found.object.dir(), DOOMED.as_ref(), b"", 0o600).map_err(fault::sys)?;
        failpoint::hit("inline.doomed");
        drop(lock);
        // From here on a failure leaves a doomed volume, which a repeat or a start finishes.
        let inline = VolumeId::new(&id);
        self.unpublish(&inline, target).map_err(Error::leaving_residue)?;
        failpoint::hit("inline.unpublished");
        let staging = found.object.private_staging();
        if mounts::is_mount_point(&staging)
            .map_err(|error| Error::backend("reading the mount table", error).leaving_residue())?
        {
            unmount(&staging)?;
        }
        self.unstage(&inline, &staging).map_err(Error::leaving_residue)?;
        failpoint::hit("inline.unstaged");
        let trashed = found.pool.discard(Place::Volumes, &id)?;
        found.pool.forget(&id);
        trashed.remove();
        Ok(Inline::Gone)
    }
}
