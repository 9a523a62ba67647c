//! What the kernel shows of a volume.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use driver_sdk::Error;

use crate::core::Found;
use crate::fault;
use linux::loopdev::{self, BackingFile, LoopDevice, LoopStatus};
use linux::mountinfo::{Mount, MountTable};

/// A volume's image and the loop device on it.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) backing: BackingFile,
    pub(super) attached: Option<LoopStatus>,
}

/// Finds the one device of an image. Two would be two views of one filesystem, and are refused (LOCAL-0.10).
pub(super) fn device_of(image: &File) -> Result<Device, Error> {
    let backing = BackingFile::of(image).map_err(fault::sys)?;
    let mut found = loopdev::find(backing).map_err(fault::sys)?;
    let attached = found.pop();
    match (found.pop(), &attached) {
        (Some(other), Some(one)) => Err(Error::precondition(format!(
            "the volume's image has two loop devices, {} and {}; detach the one that is not Orlop's",
            other.device.path.display(),
            one.device.path.display()
        ))),
        _ => Ok(Device { backing, attached }),
    }
}

/// What is said of a device that does not let go: who holds it (NODE-31.26).
pub(crate) fn still_held(device: &LoopDevice) -> String {
    let holders = linux::holders::of_device(device.major, device.minor);
    format!("the volume's device {} is still in use: {holders}", device.path.display())
}

/// Mounts of the filesystem on a loop device. btrfs hides its device number and shows the path instead.
pub(crate) fn mounts_of_loop<'t>(
    table: &'t MountTable,
    device: &LoopDevice,
) -> impl Iterator<Item = &'t Mount> + use<'t> {
    let (major, minor, path) = (device.major, device.minor, device.path.clone());
    table.iter().filter(move |mount| {
        (mount.major, mount.minor) == (major, minor) || (mount.fs_type == "btrfs" && path.as_os_str() == mount.source)
    })
}

/// Where a directory volume is bind-mounted.
pub(crate) fn shown_directories(found: &Found<'_>, table: &MountTable) -> Result<Vec<PathBuf>, Error> {
    Ok(directory_mounts(found, table).map(|mount| mount.mount_point.clone()).collect())
}

/// Mounts of a directory volume's data: the same filesystem and the same place in it as the data itself.
pub(super) fn directory_mounts<'t>(
    found: &Found<'_>,
    table: &'t MountTable,
) -> impl Iterator<Item = &'t Mount> + use<'t> {
    let data = found.object.data();
    let home = table
        .iter()
        .filter(|mount| data.starts_with(&mount.mount_point))
        .max_by_key(|mount| mount.mount_point.components().count());
    let place = home.and_then(|home| {
        let below = data.strip_prefix(&home.mount_point).ok()?;
        Some((home.major, home.minor, home.root.join(below)))
    });
    table.iter().filter(move |mount| {
        place
            .as_ref()
            .is_some_and(|(major, minor, root)| (mount.major, mount.minor) == (*major, *minor) && mount.root == *root)
    })
}

/// Every place where a volume is mounted or shown, staging included. Its record is not asked: what is shown must be
/// found, and taken down, also when the record is damaged.
pub(crate) fn all_mounts(found: &Found<'_>, table: &MountTable) -> Result<Vec<PathBuf>, Error> {
    let mut places = shown_directories(found, table)?;
    let image = match File::open(found.object.image()) {
        Ok(image) => image,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(places),
        Err(error) => return Err(fault::io("opening the volume's image", error)),
    };
    let backing = BackingFile::of(&image).map_err(fault::sys)?;
    for LoopStatus { device, .. } in loopdev::find(backing).map_err(fault::sys)? {
        places.extend(mounts_of_loop(table, &device).map(|mount| mount.mount_point.clone()));
        places.extend(table.of_block_node(device.major, device.minor).map(|mount| mount.mount_point.clone()));
    }
    Ok(places)
}
