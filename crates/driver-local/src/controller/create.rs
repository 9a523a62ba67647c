//! CreateVolume: an empty volume, a restored snapshot or a clone.
//!
//! The id is derived from the name, so a repeat finds what the first call made (LOCAL-R1). Before the commit there is
//! only a draft; after it the volume is complete. There is nothing in between to recover.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use driver_sdk::{CreateVolume, Error, Source, TopologyRequirement, Volume, failpoint};

use super::copy::{Origin, open_rw};
use super::list::volume_answer;
use crate::core::{Core, Found};
use crate::fault;
use crate::params::{self, KindChoice, Spec};
use crate::pool::{Claim, Copying, Draft, Holding, Place, Pool, Promise};
use crate::record::{AccessKind, Format, Kind, Provisioning, SourceRef, VolumeRecord};
use linux::fs::FsType;
use linux::loopdev::LoopSupport;
use linux::{image, tree};

/// Logical block size of new volumes: what every filesystem here accepts, and what raw users expect of a disk.
const LOGICAL_BLOCK: u32 = 512;
/// That of volumes with a filesystem on btrfs, which buffers direct writes of parts of its own blocks. A buffered write may be
/// stored in part only (see `linux::image`).
const LOGICAL_BLOCK_ON_BTRFS: u32 = 4096;

impl Core {
    pub fn create_volume(&self, request: &CreateVolume, source: Option<&Source>) -> Result<Volume, Error> {
        let id = Self::volume_id(&request.name).into_string();
        let spec = params::spec(&request.parameters, &request.capabilities)?;
        self.check_topology(request.topology.as_ref())?;
        if let Some(found) = self.find_open(Place::Volumes, &id)? {
            return repeat(&found, request, &spec, source);
        }
        match source {
            None => self.create_empty(&id, request, &spec),
            Some(source) => {
                let (origin, lock) = self.origin(source)?;
                let volume = self.create_copy(&id, request, (&spec, source), &origin)?;
                drop(lock);
                Ok(volume)
            }
        }
    }

    /// One node has this storage. A requirement that does not name it cannot be met here.
    fn check_topology(&self, requirement: Option<&TopologyRequirement>) -> Result<(), Error> {
        let Some(requirement) = requirement else { return Ok(()) };
        let (key, node) = self.segment();
        let allowed = &requirement.requisite;
        if allowed.is_empty() || allowed.iter().any(|segments| segments.get(&key) == Some(&node)) {
            return Ok(());
        }
        Err(Error::no_space(format!("this storage is on {key}={node}, which the requisite topology does not name")))
    }

    fn create_empty(&self, id: &str, request: &CreateVolume, spec: &Spec) -> Result<Volume, Error> {
        let pool = self.choose_pool(spec)?;
        let spec = &spec.provisioned(pool.provisioning);
        let kind = choose_kind(pool, spec)?;
        let fs = self.choose_fs(kind, spec)?;
        let size =
            params::choose_size(request.capacity, params::smallest(spec.access, fs), self.config.largest_volume)?;
        let space = pool.reserve(Promise { size, need: size })?;
        failpoint::hit("create.reserved");
        let mut record = self.blank_record(id, request, spec, (size, kind, Format::Blank { fs }));
        record.block_size = logical_block(pool, spec.access);
        let draft = Draft::begin(pool, id)?;
        make_data(draft.object(), &record)?;
        failpoint::hit("create.data_made");
        draft.object().draft_record(&record).map_err(fault::sys)?;
        // Syncing the record has committed the image's metadata with it on every journaling filesystem: this is quick.
        sync_data(draft.object(), &record)?;
        failpoint::hit("create.record_written");
        draft.commit(Place::Volumes)?;
        space.settle(id, Holding { size, claim: blank_claim(kind) });
        failpoint::hit("create.committed");
        Ok(volume_answer(&record))
    }

    fn create_copy(
        &self,
        id: &str,
        request: &CreateVolume,
        (spec, source): (&Spec, &Source),
        origin: &Origin<'_>,
    ) -> Result<Volume, Error> {
        origin.check_fits(spec)?;
        let pool = self.pool_for_copy(spec, origin)?;
        // A copy that shares its blocks is instant, and has none of its own until it is written to.
        let spec = &spec.provisioned(match pool.features.copying {
            Copying::Reflink => Provisioning::Thin,
            Copying::Full => pool.provisioning,
        });
        let size = self.size_of_copy(request, spec, origin)?;
        let space = pool.reserve(Promise { size, need: size })?;
        failpoint::hit("copy.reserved");
        let format = origin.format.inherited();
        let source_ref = match source {
            Source::Snapshot(id) => SourceRef::Snapshot(id.as_str().to_owned()),
            Source::Volume(id) => SourceRef::Volume(id.as_str().to_owned()),
        };
        let made = Made { size, kind: origin.kind, format, source: Some(source_ref) };
        let mut record = self.volume_record(id, request, spec, made);
        record.block_size = origin.block_size;
        let draft = self.draft_copy(pool, id, origin, spec.tuning.provisioning)?;
        if record.kind == Kind::Image {
            let file = open_rw(&draft.object().image())?;
            image::grow(&file, size, spec.tuning.provisioning.into()).map_err(fault::sys)?;
            file.sync_all().map_err(|error| fault::io("syncing the copy", error))?;
        }
        failpoint::hit("copy.grown");
        draft.object().draft_record(&record).map_err(fault::sys)?;
        failpoint::hit("copy.record_written");
        draft.commit(Place::Volumes)?;
        origin.found.pool.mark_shared(&origin.id);
        space.settle(id, Holding { size, claim: pool.copied_claim(record.kind) });
        failpoint::hit("copy.committed");
        Ok(volume_answer(&record))
    }

    /// A copy is at least as large as its source. One that asks for less is refused, unless that is only because the source
    /// itself asked for less than its filesystem needs.
    fn size_of_copy(&self, request: &CreateVolume, spec: &Spec, origin: &Origin<'_>) -> Result<u64, Error> {
        let smallest = params::smallest(spec.access, origin.format.fs());
        let range = request.capacity_for_copy(origin.size);
        let size = params::choose_size(range, smallest, self.config.largest_volume)?;
        if size < origin.size {
            return Err(Error::out_of_range(format!("{size} bytes are too few: the source has {}", origin.size)));
        }
        Ok(size)
    }

    /// A record for a volume that copies nothing.
    pub(crate) fn blank_record(
        &self,
        id: &str,
        request: &CreateVolume,
        spec: &Spec,
        (size, kind, format): (u64, Kind, Format),
    ) -> VolumeRecord {
        self.volume_record(id, request, spec, Made { size, kind, format, source: None })
    }

    fn volume_record(&self, id: &str, request: &CreateVolume, spec: &Spec, made: Made) -> VolumeRecord {
        let Made { size, kind, format, source } = made;
        VolumeRecord {
            id: id.to_owned(),
            name: request.name.clone(),
            created_ms: self.config.clock.now_ms(),
            size,
            kind,
            access: spec.access,
            format,
            block_size: LOGICAL_BLOCK,
            tuning: spec.tuning.clone(),
            source,
            asked_parameters: request.parameters.fixed.clone(),
            asked_mutable: request.parameters.mutable.clone(),
            inline: None,
        }
    }

    /// The named pool, or the one that can promise most.
    pub(crate) fn choose_pool(&self, spec: &Spec) -> Result<&Pool, Error> {
        if let Some(name) = &spec.pool {
            return self.pool_named(name);
        }
        let mut best: Option<(u64, &Pool)> = None;
        for slot in &self.pools {
            // A volume of this name may be in a pool that is missing: a second one must not be made elsewhere.
            let pool = self.pool(slot)?;
            let left = pool.available()?;
            if best.is_none_or(|(most, _)| left > most) {
                best = Some((left, pool));
            }
        }
        best.map(|(_, pool)| pool).ok_or_else(|| Error::unavailable("no pool is open"))
    }

    /// A copy stays in its source's pool unless another is named; directories cannot leave it.
    fn pool_for_copy<'a>(&'a self, spec: &Spec, origin: &Origin<'a>) -> Result<&'a Pool, Error> {
        let Some(name) = &spec.pool else { return Ok(origin.found.pool) };
        let pool = self.pool_named(name)?;
        if origin.kind == Kind::Subvolume && pool.root != origin.found.pool.root {
            return Err(Error::invalid("parameters", "a subvolume can only be copied within its own pool"));
        }
        Ok(pool)
    }

    /// The filesystem of an image volume for mounting. Its tools must be here, or the first stage would fail.
    pub(crate) fn choose_fs(&self, kind: Kind, spec: &Spec) -> Result<Option<FsType>, Error> {
        if kind != Kind::Image || spec.access == AccessKind::Block {
            return Ok(None);
        }
        let fs = spec.fs.unwrap_or(self.config.default_fs);
        match fs.missing_tools().first() {
            None => Ok(Some(fs)),
            Some(missing) => {
                Err(Error::invalid("parameters", format!("{fs} cannot be used on this machine: {missing}")))
            }
        }
    }
}

struct Made {
    size: u64,
    kind: Kind,
    format: Format,
    source: Option<SourceRef>,
}

trait ForCopy {
    fn capacity_for_copy(&self, origin: u64) -> driver_sdk::CapacityRange;
}

impl ForCopy for CreateVolume {
    /// Nothing asked means as large as the source.
    fn capacity_for_copy(&self, origin: u64) -> driver_sdk::CapacityRange {
        let mut range = self.capacity;
        if range.required == 0 {
            range.required = origin;
        }
        range
    }
}

pub(crate) fn choose_kind(pool: &Pool, spec: &Spec) -> Result<Kind, Error> {
    let directory = if pool.features.subvolumes { Kind::Subvolume } else { Kind::Directory };
    match (spec.kind, spec.access, &pool.features.loop_devices) {
        (KindChoice::Directory, _, _) => Ok(directory),
        (KindChoice::Image | KindChoice::Whatever, _, LoopSupport::Yes) => Ok(Kind::Image),
        (KindChoice::Whatever, AccessKind::Mount, LoopSupport::No(_)) => Ok(directory),
        (KindChoice::Image, _, LoopSupport::No(why))
        | (KindChoice::Whatever, AccessKind::Block, LoopSupport::No(why)) => {
            Err(Error::invalid("parameters", format!("image and block volumes need loop devices, and {why}")))
        }
    }
}

/// The logical block size of a new volume of this pool that copies nothing.
pub(crate) fn logical_block(pool: &Pool, access: AccessKind) -> u32 {
    match access {
        AccessKind::Mount if pool.features.subvolumes => LOGICAL_BLOCK_ON_BTRFS,
        AccessKind::Mount | AccessKind::Block => LOGICAL_BLOCK,
    }
}

/// What a volume that shares nothing may still have to take from free space.
pub(crate) fn blank_claim(kind: Kind) -> Claim {
    match kind {
        Kind::Image => Claim::Unwritten,
        Kind::Directory | Kind::Subvolume => Claim::Everything,
    }
}

/// Makes sure that a new volume's data is on disk.
pub(crate) fn sync_data(object: &crate::pool::Object, record: &VolumeRecord) -> Result<(), Error> {
    let path = match record.kind {
        Kind::Image => object.image(),
        Kind::Directory | Kind::Subvolume => object.data(),
    };
    let synced = fs::File::open(&path).and_then(|file| file.sync_all());
    synced.map_err(|error| fault::io("syncing the new volume", error))
}

/// Makes an empty volume's data.
pub(crate) fn make_data(object: &crate::pool::Object, record: &VolumeRecord) -> Result<(), Error> {
    match (record.kind, record.tuning.provisioning) {
        (Kind::Image, provisioning) => {
            let image = match provisioning {
                Provisioning::Thin => image::create_sparse(&object.image(), record.size),
                Provisioning::Thick => image::create_thick(&object.image(), record.size),
            };
            image.map(drop).map_err(fault::sys)
        }
        (Kind::Subvolume, _) => {
            tree::subvolume_create(object.dir(), "data".as_ref()).map_err(fault::sys)?;
            open_to_all(&object.data())
        }
        (Kind::Directory, _) => {
            let data = object.data();
            fs::create_dir(&data).map_err(|error| fault::io(format!("making {}", data.display()), error))?;
            open_to_all(&data)
        }
    }
}

/// The root of a directory volume looks like that of a fresh filesystem.
fn open_to_all(path: &Path) -> Result<(), Error> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .map_err(|error| fault::io(format!("setting the mode of {}", path.display()), error))
}

/// The volume of this name is there: is it what is asked for?
fn repeat(found: &Found<'_>, request: &CreateVolume, spec: &Spec, source: Option<&Source>) -> Result<Volume, Error> {
    let record: VolumeRecord = found.object.record().map_err(fault::record)?;
    let asked = request.capacity;
    let source = source.map(|source| match source {
        Source::Snapshot(id) => SourceRef::Snapshot(id.as_str().to_owned()),
        Source::Volume(id) => SourceRef::Volume(id.as_str().to_owned()),
    });
    let fs_differs = spec.fs.is_some_and(|fs| record.format.fs().is_some_and(|now| now != fs));
    let differs = [
        (record.name != request.name, "its name"),
        (record.size < asked.required || asked.limit.is_some_and(|limit| record.size > limit), "its size"),
        (record.access != spec.access, "block or mount"),
        (fs_differs, "its filesystem"),
        (record.asked_parameters != request.parameters.fixed, "its parameters"),
        (record.asked_mutable != request.parameters.mutable, "its mutable parameters"),
        (record.source != source, "its source"),
    ];
    match differs.iter().find(|(differs, _)| *differs) {
        None => Ok(volume_answer(&record)),
        Some((_, what)) => Err(Error::exists(format!(
            "a volume named {:?} exists with {} bytes and differs in {what}; delete it or use another name",
            request.name, record.size
        ))),
    }
}
