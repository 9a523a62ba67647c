#![allow(unsafe_code)]
//! The one module of the workspace with `unsafe` in it: ioctls and one system call that no crate wraps safely.
//!
//! Why it is needed: `rustix` gives the typed machinery for ioctls but leaves it to the caller to state that a
//! request number and an argument type belong together, and it has no `mount_setattr(2)`. Every function here
//! states one such pair, takes and returns plain Rust values, and keeps no memory beyond the call.
//!
//! # Invariants an auditor checks
//! 1. The request number comes from the kernel's own headers (`linux-raw-sys`) or is written out beside its
//!    definition, and the argument type has the size that the number encodes (asserted at compile time where we
//!    declare the type ourselves).
//! 2. No pointer outlives the call; the kernel copies in and out.
//! 3. No policy: callers decide what an error number means.

use std::ffi::{CStr, OsStr, c_int, c_long, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use linux_raw_sys::general::{AT_EMPTY_PATH, mount_attr};
use linux_raw_sys::ioctl as nr;
use linux_raw_sys::loop_device as lo;
use rustix::io::{Errno, Result};
use rustix::ioctl::{Getter, IntegerSetter, Ioctl, IoctlOutput, NoArg, Opcode, Setter, Updater, ioctl};
use rustix::thread::{UnshareFlags, unshare_unsafe};

pub use linux_raw_sys::loop_device::{loop_config, loop_info64};

/// An ioctl without argument whose result is the return value of the call itself.
struct Returns<const OPCODE: Opcode>;

// SAFETY: the argument is null and never read, and the output is the plain integer the kernel returned.
unsafe impl<const OPCODE: Opcode> Ioctl for Returns<OPCODE> {
    type Output = c_int;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> Result<c_int> {
        Ok(out)
    }
}

/// `LOOP_CTL_GET_FREE` on `/dev/loop-control`: an index that was free a moment ago. It is not reserved.
pub fn loop_get_free(control: impl AsFd) -> Result<u32> {
    // SAFETY: LOOP_CTL_GET_FREE takes no argument and returns the index.
    let index = unsafe { ioctl(control, Returns::<{ lo::LOOP_CTL_GET_FREE as Opcode }>)? };
    u32::try_from(index).map_err(|_| Errno::INVAL)
}

/// `LOOP_CONFIGURE`: bind a file to a loop device with flags and block size in one step.
pub fn loop_configure(device: impl AsFd, image: BorrowedFd<'_>, flags: u32, block_size: u32) -> Result<()> {
    const { assert!(size_of::<loop_config>() == 304 && size_of::<loop_info64>() == 232) };
    let info = loop_info64 { lo_flags: flags, ..EMPTY_LOOP_INFO };
    let fd = u32::try_from(image.as_raw_fd()).map_err(|_| Errno::BADF)?;
    let config = loop_config { fd, block_size, info, __reserved: [0; 8] };
    // SAFETY: LOOP_CONFIGURE reads one `loop_config`; the image descriptor is borrowed for the whole call.
    unsafe { ioctl(device, Setter::<{ lo::LOOP_CONFIGURE as Opcode }, loop_config>::new(config)) }
}

const EMPTY_LOOP_INFO: loop_info64 = loop_info64 {
    lo_device: 0,
    lo_inode: 0,
    lo_rdevice: 0,
    lo_offset: 0,
    lo_sizelimit: 0,
    lo_number: 0,
    lo_encrypt_type: 0,
    lo_encrypt_key_size: 0,
    lo_flags: 0,
    lo_file_name: [0; 64],
    lo_crypt_name: [0; 64],
    lo_encrypt_key: [0; 32],
    lo_init: [0; 2],
};

/// `LOOP_GET_STATUS64`; `ENXIO` means that nothing is bound.
pub fn loop_status(device: impl AsFd) -> Result<loop_info64> {
    // SAFETY: LOOP_GET_STATUS64 writes one whole `loop_info64`, in which every bit pattern is valid.
    unsafe { ioctl(device, Getter::<{ lo::LOOP_GET_STATUS64 as Opcode }, loop_info64>::new()) }
}

/// `LOOP_CLR_FD`. Success on a busy device only arms autoclear (LOCAL-0.11).
pub fn loop_clear(device: impl AsFd) -> Result<()> {
    // SAFETY: LOOP_CLR_FD takes no argument.
    unsafe { ioctl(device, NoArg::<{ lo::LOOP_CLR_FD as Opcode }>::new()) }
}

/// `LOOP_SET_CAPACITY`: take over the size that the backing file has now.
pub fn loop_set_capacity(device: impl AsFd) -> Result<()> {
    // SAFETY: LOOP_SET_CAPACITY takes no argument.
    unsafe { ioctl(device, NoArg::<{ lo::LOOP_SET_CAPACITY as Opcode }>::new()) }
}

/// `LOOP_SET_DIRECT_IO`.
pub fn loop_set_direct_io(device: impl AsFd, on: bool) -> Result<()> {
    // SAFETY: LOOP_SET_DIRECT_IO takes an integer by value; 0 and 1 are its valid values.
    unsafe { ioctl(device, IntegerSetter::<{ lo::LOOP_SET_DIRECT_IO as Opcode }>::new_usize(usize::from(on))) }
}

/// `BLKROSET`: make a block device read-only, or writable again.
pub fn block_set_read_only(device: impl AsFd, read_only: bool) -> Result<()> {
    // SAFETY: BLKROSET reads one `int`.
    unsafe { ioctl(device, Setter::<{ nr::BLKROSET as Opcode }, c_int>::new(c_int::from(read_only))) }
}

/// `BLKROGET`.
pub fn block_is_read_only(device: impl AsFd) -> Result<bool> {
    // SAFETY: BLKROGET writes one `int`.
    unsafe { ioctl(device, Getter::<{ nr::BLKROGET as Opcode }, c_int>::new()).map(|flag| flag != 0) }
}

/// `BLKGETSIZE64`: the device size in bytes. (The number encodes `size_t`, the kernel always writes a `u64`.)
pub fn block_size_bytes(device: impl AsFd) -> Result<u64> {
    // SAFETY: BLKGETSIZE64 writes one `u64`.
    unsafe { ioctl(device, Getter::<{ nr::BLKGETSIZE64 as Opcode }, u64>::new()) }
}

/// `BLKRASET`: read-ahead in 512-byte sectors.
pub fn block_set_read_ahead(device: impl AsFd, sectors: u32) -> Result<()> {
    // SAFETY: BLKRASET takes an unsigned long by value and accepts every value.
    unsafe { ioctl(device, IntegerSetter::<{ nr::BLKRASET as Opcode }>::new_usize(sectors as usize)) }
}

/// `BLKRAGET`: read-ahead in 512-byte sectors.
pub fn block_read_ahead(device: impl AsFd) -> Result<u64> {
    // SAFETY: BLKRAGET writes one `long`.
    let sectors = unsafe { ioctl(device, Getter::<{ nr::BLKRAGET as Opcode }, c_long>::new())? };
    u64::try_from(sectors).map_err(|_| Errno::RANGE)
}

/// `FIFREEZE` on any file of the mount; `EBUSY` when it is frozen already.
pub fn freeze(mount: impl AsFd) -> Result<()> {
    // SAFETY: the kernel ignores the argument of FIFREEZE.
    unsafe { ioctl(mount, NoArg::<{ nr::FIFREEZE as Opcode }>::new()) }
}

/// `FITHAW`; `EINVAL` when it is not frozen.
pub fn thaw(mount: impl AsFd) -> Result<()> {
    // SAFETY: the kernel ignores the argument of FITHAW.
    unsafe { ioctl(mount, NoArg::<{ nr::FITHAW as Opcode }>::new()) }
}

/// One `struct fiemap_extent`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct FiemapExtent {
    pub logical: u64,
    pub physical: u64,
    pub length: u64,
    reserved64: [u64; 2],
    pub flags: u32,
    reserved: [u32; 3],
}

/// How many extents one call fetches: 7 KiB of buffer.
pub const FIEMAP_BATCH: usize = 128;

#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [FiemapExtent; FIEMAP_BATCH],
}

/// `FS_IOC_FIEMAP` with `FIEMAP_FLAG_SYNC`: up to [`FIEMAP_BATCH`] extents that overlap `start..start + length`.
pub fn fiemap(file: impl AsFd, start: u64, length: u64) -> Result<Vec<FiemapExtent>> {
    const FIEMAP_FLAG_SYNC: u32 = 1;
    const { assert!(size_of::<FiemapExtent>() == 56 && size_of::<Fiemap>() == 32 + 56 * FIEMAP_BATCH) };
    let mut map = Fiemap {
        start,
        length,
        flags: FIEMAP_FLAG_SYNC,
        mapped_extents: 0,
        extent_count: FIEMAP_BATCH as u32,
        reserved: 0,
        extents: [FiemapExtent::default(); FIEMAP_BATCH],
    };
    // SAFETY: FS_IOC_FIEMAP reads the 32-byte header and writes at most `extent_count` extents behind it, which is
    // the length of the array that follows the header.
    unsafe { ioctl(file, Updater::<{ nr::FS_IOC_FIEMAP as Opcode }, Fiemap>::new(&mut map))? };
    let mapped = (map.mapped_extents as usize).min(FIEMAP_BATCH);
    Ok(map.extents[..mapped].to_vec())
}

/// `struct btrfs_ioctl_vol_args_v2`, for creation: the unions we leave zero are flattened to bytes.
#[repr(C)]
struct BtrfsVolArgsV2 {
    fd: i64,
    transid: u64,
    flags: u64,
    unused: [u64; 4],
    name: [u8; 4040],
}

/// `struct btrfs_ioctl_vol_args`.
#[repr(C)]
struct BtrfsVolArgs {
    fd: i64,
    name: [u8; 4088],
}

const _: () = assert!(size_of::<BtrfsVolArgsV2>() == 4096 && size_of::<BtrfsVolArgs>() == 4096);

/// A directory entry name as the fixed, zero-terminated array the kernel wants; no separator may hide in it.
fn entry_name<const N: usize>(name: &OsStr) -> Result<[u8; N]> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.contains(&b'/') || bytes.contains(&0) {
        return Err(Errno::INVAL);
    }
    if bytes.len() >= N {
        return Err(Errno::NAMETOOLONG);
    }
    let mut array = [0; N];
    array[..bytes.len()].copy_from_slice(bytes);
    Ok(array)
}

/// `BTRFS_IOC_SUBVOL_CREATE_V2`: a new empty subvolume `name` in the directory `parent`.
pub fn btrfs_subvolume_create(parent: impl AsFd, name: &OsStr) -> Result<()> {
    let mut args = BtrfsVolArgsV2 { fd: 0, transid: 0, flags: 0, unused: [0; 4], name: entry_name(name)? };
    // SAFETY: BTRFS_IOC_SUBVOL_CREATE_V2 reads, and on old kernels writes back, one 4096-byte argument.
    unsafe { ioctl(parent, Updater::<{ nr::BTRFS_IOC_SUBVOL_CREATE_V2 as Opcode }, BtrfsVolArgsV2>::new(&mut args)) }
}

/// `BTRFS_IOC_SNAP_CREATE_V2`: a snapshot of the subvolume `source` as `name` in the directory `parent`.
pub fn btrfs_snapshot_create(parent: impl AsFd, source: BorrowedFd<'_>, name: &OsStr, read_only: bool) -> Result<()> {
    const BTRFS_SUBVOL_RDONLY: u64 = 1 << 1;
    let flags = if read_only { BTRFS_SUBVOL_RDONLY } else { 0 };
    let fd = i64::from(source.as_raw_fd());
    let mut args = BtrfsVolArgsV2 { fd, transid: 0, flags, unused: [0; 4], name: entry_name(name)? };
    // SAFETY: as above; the source descriptor inside the argument is borrowed for the whole call.
    unsafe { ioctl(parent, Updater::<{ nr::BTRFS_IOC_SNAP_CREATE_V2 as Opcode }, BtrfsVolArgsV2>::new(&mut args)) }
}

/// `BTRFS_IOC_SNAP_DESTROY`: removes the subvolume or snapshot `name` of the directory `parent`.
pub fn btrfs_subvolume_destroy(parent: impl AsFd, name: &OsStr) -> Result<()> {
    let args = BtrfsVolArgs { fd: 0, name: entry_name(name)? };
    // SAFETY: BTRFS_IOC_SNAP_DESTROY reads one 4096-byte argument.
    unsafe { ioctl(parent, Setter::<{ nr::BTRFS_IOC_SNAP_DESTROY as Opcode }, BtrfsVolArgs>::new(args)) }
}

/// `BTRFS_IOC_SYNC` on any file of the filesystem; `EROFS` when the kernel has ended its work after an error.
pub fn btrfs_sync(file: impl AsFd) -> Result<()> {
    // SAFETY: the kernel ignores the argument of BTRFS_IOC_SYNC.
    unsafe { ioctl(file, NoArg::<{ nr::BTRFS_IOC_SYNC as Opcode }>::new()) }
}

/// The head of `struct xfs_fsop_geom_v1`, which is all of it that we read.
#[repr(C)]
struct XfsGeometryV1 {
    block_size: u32,
    unused_a: [u32; 7],
    data_blocks: u64,
    unused_b: [u64; 3],
    uuid: [u8; 16],
    unused_c: [u32; 8],
}

/// `XFS_IOC_FSGEOMETRY_V1` = `_IOR('X', 100, 112 bytes)`: the size in bytes of the data section of a mounted XFS.
///
/// The superblock on disk lags behind a mounted XFS, so this is the only truth after an online grow.
pub fn xfs_data_bytes(mount: impl AsFd) -> Result<u64> {
    const { assert!(size_of::<XfsGeometryV1>() == 112) };
    const REQUEST: Opcode = rustix::ioctl::opcode::read::<XfsGeometryV1>(b'X', 100);
    // SAFETY: XFS_IOC_FSGEOMETRY_V1 writes one 112-byte structure of integers; other filesystems refuse the number.
    let geometry = unsafe { ioctl(mount, Getter::<REQUEST, XfsGeometryV1>::new())? };
    Ok(geometry.data_blocks * u64::from(geometry.block_size))
}

/// `unshare(2)`: a mount namespace for this thread, and for the threads and children it starts from now on.
pub fn own_mount_namespace() -> Result<()> {
    // SAFETY: what makes unshare(2) unsafe is a file descriptor table of its own, which is not asked for.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }
}

/// `mount_setattr(2)` on the mount that `tree` refers to, not on mounts below it.
pub fn mount_set_attributes(tree: BorrowedFd<'_>, set: u64) -> Result<()> {
    const EMPTY: &CStr = c"";
    let attr = mount_attr { attr_set: set, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: the arguments are those of mount_setattr(2): a borrowed descriptor, a terminated empty path, flags, a
    // live `mount_attr` and its size. The kernel only reads them.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            EMPTY.as_ptr(),
            AT_EMPTY_PATH,
            &raw const attr,
            size_of::<mount_attr>(),
        )
    };
    if answer == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}
