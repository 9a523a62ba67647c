//! From an image to a mounted filesystem: format once, take on an own identity, grow, mount.
//!
//! Whether to format is decided from two facts, the record and a probe, by one function without effects. A failed probe
//! is not a fact, so nothing is ever formatted on doubt.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Duration;

use driver_sdk::{Error, failpoint};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::stage::Staging;
use crate::controller::tune;
use crate::core::Core;
use crate::fault;
use crate::record::{Format, VolumeRecord};
use linux::fs::{self, FsType, GrowError, Grown, Mkfs, Probe, Uuid, UuidChange};
use linux::loopdev::{self, Attach, Attached, LoopDevice, LoopStatus};
use linux::mountinfo::MountTable;
use linux::mounts::{self, MountFlags};

/// mkfs and its kin get the time kubelet gives a call.
const TOOL_PATIENCE: Duration = Duration::from_secs(120);

/// What to do with the content of an image before it is mounted.
#[derive(Debug, PartialEq, Eq)]
enum Prepare {
    /// Format it.
    Make { fs: FsType },
    /// It holds the filesystem of another volume: give it an identity of its own.
    Adopt { fs: FsType },
    /// It is ours, and filled a device of that size.
    Ready { fs: FsType, filled: u64 },
    /// Stop, with the reason.
    Refuse(String),
}

fn decide(format: &Format, probe: &Probe, default: FsType) -> Prepare {
    let expected = |fs: FsType, then: Prepare| match probe {
        Probe::Known(found, _) if *found == fs => then,
        Probe::Known(found, _) => Prepare::Refuse(format!("it should hold {fs} and holds {found}")),
        Probe::Foreign(what) => Prepare::Refuse(format!("it should hold {fs} and holds {what}")),
        Probe::Empty => Prepare::Refuse(format!(
            "it should hold {fs} and is empty: its data is lost, and it is not formatted again"
        )),
    };
    match format {
        Format::Blank { fs } => match probe {
            Probe::Empty => Prepare::Make { fs: fs.unwrap_or(default) },
            Probe::Known(found, _) => {
                Prepare::Refuse(format!("it was never formatted by this driver and holds {found}"))
            }
            Probe::Foreign(what) => Prepare::Refuse(format!("it was never formatted by this driver and holds {what}")),
        },
        // Begun and never mounted: whatever is there is half of our own work.
        Format::Making { fs } => Prepare::Make { fs: *fs },
        Format::Made { fs, filled } => expected(*fs, Prepare::Ready { fs: *fs, filled: *filled }),
        Format::Inherited { fs } => expected(*fs, Prepare::Adopt { fs: *fs }),
    }
}

pub(super) fn prepare_and_mount(core: &Core, staging: &Staging<'_>, image: &File) -> Result<(), Error> {
    let writable = attach(&staging.record, image, false)?;
    failpoint::hit("stage.device_attached");
    let probe = fs::probe(&writable.device.path)
        .map_err(|error| Error::backend("probing the volume before mounting it", error))?;
    let prepared = decide(&staging.record.format, &probe, core.config.default_fs);
    tracing::debug!(volume = %staging.record.id, ?probe, ?prepared, "decided how to prepare the volume");
    let (fs, filled) = match prepared {
        Prepare::Refuse(why) => {
            return Err(Error::precondition(format!("volume {} cannot be mounted: {why}", staging.record.id)));
        }
        Prepare::Make { .. } if staging.read_only => {
            return Err(Error::precondition(format!(
                "volume {} was never written and is asked for read-only",
                staging.record.id
            )));
        }
        Prepare::Make { fs } => (fs, make(staging, &writable, fs)?),
        Prepare::Adopt { fs } => (fs, adopt(staging, &writable, fs)?),
        Prepare::Ready { fs, filled } => (fs, filled),
    };
    let attached = if staging.read_only {
        // After a crash the journal holds files that were synced. A read-only device does not let it be replayed.
        mounts::replay_journal(&writable.device.path, fs.name())
            .map_err(|error| refused_mount(staging, fs, "replaying the journal of the volume", error))?;
        // The device itself becomes read-only, so that nothing above can write (LOCAL-0.13).
        release(writable, image)?;
        attach(&staging.record, image, true)?
    } else {
        writable
    };
    let size = attached.device.size().map_err(fault::sys)?;
    let must_grow = !staging.read_only && filled < size;
    // ext4 grows best while nobody uses it: mounted, it needs a capability that not every node gives (LOCAL-0.19).
    if must_grow && fs == FsType::Ext4 {
        grow(staging, &attached.device, (fs, size), None)?;
    }
    tune(&attached.device, &staging.record.tuning)?;
    failpoint::hit("stage.prepared");
    mount(staging, &attached, fs)?;
    failpoint::hit("stage.mounted");
    if must_grow && fs != FsType::Ext4 {
        grow(staging, &attached.device, (fs, size), Some(staging.path)).map_err(Error::leaving_residue)?;
    }
    Ok(())
}

/// The filesystem is mounted at its staging path already. A crash may have come between mounting and growing it.
pub(super) fn finish_growing(
    staging: &Staging<'_>,
    device: &LoopDevice,
    (fs, filled): (FsType, u64),
) -> Result<(), Error> {
    let size = device.size().map_err(fault::sys)?;
    if staging.read_only || fs == FsType::Ext4 || filled >= size {
        return Ok(());
    }
    grow(staging, device, (fs, size), Some(staging.path)).map_err(Error::leaving_residue)
}

/// Mounts a volume whose device is attached and mounted nowhere in this mount namespace. A mount of another namespace, such as
/// a container's copy of an earlier mount, holds the device; the kernel shows the same filesystem through both.
pub(super) fn mount_again(
    staging: &Staging<'_>,
    status: &LoopStatus,
    table: &MountTable,
    (fs, filled): (FsType, u64),
) -> Result<(), Error> {
    let device = &status.device;
    let holders = linux::holders::mounts_of_device(device.major, device.minor);
    if table.top(staging.path).is_some() {
        return Err(Error::precondition(format!("something else is mounted at {}", staging.path.display())));
    }
    if status.offset != 0 || status.size_limit != 0 {
        return Err(Error::precondition(format!("{} shows only a part of the volume's image", device.path.display())));
    }
    let is_read_only = status.read_only || device.is_read_only().map_err(fault::sys)?;
    if is_read_only != staging.read_only {
        let (is, asked) = if is_read_only { ("read-only", "read-write") } else { ("read-write", "read-only") };
        return Err(Error::busy(format!(
            "the volume's device {} is in use {is} and asked for {asked}: {holders}",
            device.path.display()
        )));
    }
    let Some(attached) = loopdev::reopen(status).map_err(fault::sys)? else {
        return Err(Error::busy(format!(
            "the volume's device {} has just gone; repeat the call",
            device.path.display()
        )));
    };
    tracing::warn!(
        volume = %staging.record.id,
        device = %device.path.display(),
        %holders,
        "the volume's device is still in use elsewhere; it is mounted again"
    );
    tune(&attached.device, &staging.record.tuning)?;
    mount(staging, &attached, fs)?;
    let size = attached.device.size().map_err(fault::sys)?;
    if staging.read_only || filled >= size {
        return Ok(());
    }
    // A filesystem that is mounted elsewhere is never grown as if it were not.
    grow(staging, &attached.device, (fs, size), Some(staging.path)).map_err(Error::leaving_residue)
}

fn attach(record: &VolumeRecord, image: &File, read_only: bool) -> Result<Attached, Error> {
    let how = Attach { read_only, autoclear: true, direct_io: record.tuning.direct_io, block_size: record.block_size };
    loopdev::attach(image, how).map_err(fault::sys)
}

/// Closing the last descriptor of an autoclear device detaches it; the image must be free before it is attached again.
fn release(attached: Attached, image: &File) -> Result<(), Error> {
    let backing = loopdev::BackingFile::of(image).map_err(fault::sys)?;
    let Attached { device, fd, .. } = attached;
    drop(fd);
    match loopdev::wait_until_free(backing, TOOL_PATIENCE).map_err(fault::sys)? {
        loopdev::Detach::Detached => Ok(()),
        loopdev::Detach::StillBusy => Err(Error::busy(super::seen::still_held(&device))),
    }
}

/// Formats. The intent is noted before mkfs runs, and mkfs inherits the volume's lock: should we die, nobody touches
/// the volume until mkfs has ended, and then it is made anew.
///
/// The intent's directory is not synced: what mkfs writes becomes visible in the image only by changes of the pool's
/// filesystem that come after the intent's, and filesystems commit their changes in order. After a power cut the image
/// is empty or the intent is there.
fn make(staging: &Staging<'_>, device: &Attached, fs: FsType) -> Result<u64, Error> {
    let intent = VolumeRecord { format: Format::Making { fs }, ..staging.record.clone() };
    // A power cut must not leave a filesystem without the record that we are making one: it would be taken for somebody
    // else's. A journal keeps the order of our two changes by itself; btrfs may bring the image to disk before the name.
    let object = &staging.found.object;
    let noted = match staging.found.pool.features.subvolumes {
        true => object.write_record(&intent),
        false => object.draft_record(&intent),
    };
    noted.map_err(fault::sys)?;
    failpoint::hit("stage.mkfs_intended");
    let uuid = filesystem_uuid(staging);
    let how = Mkfs { uuid, sector_size: staging.record.block_size, lock: Some(staging.lock.as_fd()) };
    let made = fs::mkfs(fs, &device.device.path, &how, TOOL_PATIENCE);
    made.map_err(|error| Error::backend(format!("formatting the volume as {fs}"), error))?;
    failpoint::hit("stage.mkfs_done");
    let filled = device.device.size().map_err(fault::sys)?;
    write_format(staging, Format::Made { fs, filled })?;
    failpoint::hit("stage.format_recorded");
    Ok(filled)
}

fn write_format(staging: &Staging<'_>, format: Format) -> Result<(), Error> {
    let record = VolumeRecord { format, ..staging.record.clone() };
    staging.found.object.write_record(&record).map_err(fault::sys)
}

/// A copy has the identity of its source until now (LOCAL-0.16).
fn adopt(staging: &Staging<'_>, device: &Attached, fs: FsType) -> Result<u64, Error> {
    let uuid = filesystem_uuid(staging);
    let change = || {
        let changed = fs::new_uuid(fs, &device.device.path, uuid);
        changed.map_err(|error| Error::backend("giving the copy an identity of its own", error))
    };
    if change()? == UuidChange::LogDirty {
        // Mounting replays the journal; only then can the identity change.
        let flags = MountFlags::default().with_fs_option("nouuid");
        let mounted = mounts::mount_fs(&device.device.path, staging.path, fs.name(), &flags);
        mounted.map_err(|error| Error::backend("replaying the journal of the copy", error))?;
        failpoint::hit("stage.journal_replayed");
        super::stage::unmount(staging.path)?;
        if change()? == UuidChange::LogDirty {
            return Err(Error::precondition(
                "the copy's journal stays dirty even after a mount; check the filesystem by hand",
            ));
        }
    }
    failpoint::hit("stage.identity_changed");
    // How large the source's device was is not known here, so that it is grown once for certain.
    write_format(staging, Format::Made { fs, filled: 0 })?;
    failpoint::hit("stage.identity_recorded");
    Ok(0)
}

fn mount(staging: &Staging<'_>, device: &Attached, fs: FsType) -> Result<(), Error> {
    let flags = if staging.read_only {
        staging.flags.clone().read_only().map_err(|error| Error::invalid("mount_flags", error.to_string()))?
    } else {
        staging.flags.clone()
    };
    mounts::mount_fs(&device.device.path, staging.path, fs.name(), &flags)
        .map_err(|error| refused_mount(staging, fs, &format!("mounting the volume as {fs}"), error))
}

/// What is said of a filesystem that the kernel does not mount.
fn refused_mount(staging: &Staging<'_>, fs: FsType, doing: &str, error: mounts::MountError) -> Error {
    match error {
        mounts::MountError::BadOption { .. } => Error::invalid("mount_flags", error.to_string()),
        damaged if matches!(damaged.errno(), Some(Errno::UCLEAN | Errno::BADMSG)) => Error::precondition(format!(
            "the {fs} of volume {} is damaged; nothing is mounted, repair it with `{} {}`",
            staging.record.id,
            repair(fs),
            staging.found.object.image().display()
        ))
        .because(damaged),
        other => Error::backend(doing, other),
    }
}

/// The command with which a person repairs a filesystem. Repairing may lose data, so it is never ours to do.
fn repair(fs: FsType) -> &'static str {
    match fs {
        FsType::Ext4 => "e2fsck -f",
        FsType::Xfs => "xfs_repair",
        FsType::Btrfs => "btrfs check",
    }
}

/// Grows the filesystem to its device and notes that it fills it.
fn grow(
    staging: &Staging<'_>,
    device: &LoopDevice,
    (fs, size): (FsType, u64),
    mounted: Option<&Path>,
) -> Result<(), Error> {
    fs::grow(fs, &device.path, mounted).map_err(|error| Error::backend("growing the filesystem", error))?;
    failpoint::hit("stage.grown");
    write_format(staging, Format::Made { fs, filled: size })
}

/// Grows a mounted filesystem to its device, for NodeExpandVolume.
pub(super) fn grow_online(fs: FsType, device: &Path, mount_point: &Path) -> Result<Grown, Error> {
    fs::grow(fs, device, Some(mount_point)).map_err(|error| match error {
        GrowError::NotWhileMounted { reason, .. } => Error::precondition(format!(
            "{fs} cannot grow while mounted here ({reason}); it grows when the volume is staged the next time"
        )),
        other => Error::backend("growing the filesystem", other),
    })
}

fn filesystem_uuid(staging: &Staging<'_>) -> Uuid {
    derive_uuid(&staging.found.pool.uuid, &staging.record.id)
}

/// A filesystem's UUID is the same if formatting is repeated. Ids are derived from names, which another pool on this
/// machine may use as well; a kernel mounts no two XFS of one UUID, so the pool counts too.
fn derive_uuid(pool: &str, id: &str) -> Uuid {
    let digest: [u8; 32] = Sha256::digest(format!("filesystem\0{pool}\0{id}")).into();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    Uuid::from_digest(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(fs: FsType) -> Probe {
        Probe::Known(fs, Uuid::from_bytes([7; 16]))
    }

    /// Rules: LOCAL-F.5, LOCAL-I4
    #[test]
    fn only_an_empty_image_that_was_never_formatted_is_formatted() {
        let foreign = Probe::Foreign("a partition table".to_owned());
        let (ext4, xfs) = (FsType::Ext4, FsType::Xfs);
        let blank = Format::Blank { fs: Some(xfs) };
        let making = Format::Making { fs: ext4 };
        let made = Format::Made { fs: ext4, filled: 9 };
        let inherited = Format::Inherited { fs: xfs };
        let refused = |format: &Format, probe: &Probe| matches!(decide(format, probe, ext4), Prepare::Refuse(_));

        assert_eq!(decide(&blank, &Probe::Empty, ext4), Prepare::Make { fs: xfs });
        assert_eq!(decide(&Format::Blank { fs: None }, &Probe::Empty, ext4), Prepare::Make { fs: ext4 });
        assert!(refused(&blank, &known(xfs)) && refused(&blank, &foreign));

        for probe in [Probe::Empty, known(ext4), known(xfs), foreign.clone()] {
            assert_eq!(
                decide(&making, &probe, ext4),
                Prepare::Make { fs: ext4 },
                "half made and never mounted: {probe:?}"
            );
        }

        assert_eq!(decide(&made, &known(ext4), ext4), Prepare::Ready { fs: ext4, filled: 9 });
        assert!(refused(&made, &Probe::Empty) && refused(&made, &known(xfs)) && refused(&made, &foreign));

        assert_eq!(decide(&inherited, &known(xfs), ext4), Prepare::Adopt { fs: xfs });
        assert!(refused(&inherited, &Probe::Empty) && refused(&inherited, &known(ext4)));
    }

    #[test]
    fn a_filesystems_uuid_is_its_own_and_always_the_same() {
        assert_eq!(derive_uuid("pool", "vol-a"), derive_uuid("pool", "vol-a"));
        assert_ne!(derive_uuid("pool", "vol-a"), derive_uuid("pool", "vol-b"));
        assert_ne!(derive_uuid("pool", "vol-a"), derive_uuid("other", "vol-a"));
    }
}
