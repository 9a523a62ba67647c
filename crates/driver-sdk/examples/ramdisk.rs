//! A whole CSI driver: volumes in memory, gone with the machine. `ramdisk ENDPOINT NODE DIRECTORY`, as root.

use std::path::{Path, PathBuf};
use std::{ffi::CString, fs, io, os::unix::fs::MetadataExt as _, sync::Arc, time::Duration};

use driver_sdk::{csi::Endpoint, csi::Listener, csi::SocketMode, *};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount};

struct Ramdisk {
    root: PathBuf,
    node: String,
}

impl Ramdisk {
    /// Where a volume is. Ids come from callers, so one that is not ours is no path at all.
    fn path(&self, id: &VolumeId) -> Option<PathBuf> {
        let path = self.root.join(id.as_str());
        (id.as_str().starts_with("ram-") && path.parent() == Some(&self.root)).then_some(path)
    }

    fn find(&self, id: &VolumeId) -> Result<PathBuf, Error> {
        let found = self.path(id).filter(|path| is_mounted(path));
        found.ok_or_else(|| Error::not_found(Kind::Volume, id.as_str()))
    }
}

fn is_mounted(path: &Path) -> bool {
    let device = |path: &Path| path.metadata().map(|metadata| metadata.dev()).ok();
    device(path).is_some_and(|here| path.parent().and_then(device) != Some(here))
}

fn failed<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Error {
    move |error| Error::backend(doing, error.into()).leaving_residue()
}

fn wants_block(capabilities: &[Capability]) -> bool {
    capabilities.iter().any(|capability| capability.access == Access::Block)
}

fn clear(path: &Path) -> Result<(), Error> {
    if is_mounted(path) {
        unmount(path, UnmountFlags::empty()).map_err(failed("unmounting"))?;
    }
    if path.exists() { fs::remove_dir(path).map_err(failed("removing the directory")) } else { Ok(()) }
}

#[async_trait]
impl Provisioner for Ramdisk {
    fn volume_id(&self, name: &str) -> Option<VolumeId> {
        Some(VolumeId::new(derive_id("ram-", "volume", name)))
    }

    async fn create(&self, request: CreateVolume) -> Result<Volume, Error> {
        if wants_block(&request.capabilities) {
            return Err(Error::invalid("volume_capabilities", "memory is no block device"));
        }
        let id = VolumeId::new(derive_id("ram-", "volume", &request.name));
        let path = self.root.join(id.as_str());
        if !is_mounted(&path) {
            let size = format!("size={}", request.capacity.required.max(1 << 20));
            let size = CString::new(size).map_err(failed("naming the size"))?;
            fs::create_dir_all(&path).map_err(failed("making the directory"))?;
            mount("tmpfs", &path, "tmpfs", MountFlags::empty(), &*size).map_err(failed("mounting"))?;
        }
        let size = rustix::fs::statvfs(&path).map_err(failed("reading the size"))?;
        Ok(Volume { id, capacity: size.f_blocks * size.f_frsize, context: StringMap::new(), source: None })
    }

    async fn delete(&self, volume: VolumeId, _: Secrets) -> Result<(), Error> {
        self.path(&volume).map_or(Ok(()), |path| clear(&path))
    }

    async fn validate(&self, request: ValidateVolume) -> Result<Support, Error> {
        self.find(&request.volume)?;
        let block = wants_block(&request.capabilities);
        Ok(if block { Support::No("memory is no block device".into()) } else { Support::Yes })
    }
}

#[async_trait]
impl NodePublisher for Ramdisk {
    fn info(&self) -> NodeInfo {
        NodeInfo { id: NodeId::new(&*self.node), max_volumes: None }
    }

    async fn publish(&self, request: PublishVolume) -> Result<(), Error> {
        let source = self.find(&request.volume)?;
        fs::create_dir_all(&request.target).map_err(failed("making the target"))?;
        if !is_mounted(&request.target) {
            mount_bind(&source, &request.target).map_err(failed("binding"))?;
        }
        let access = if request.readonly { MountFlags::RDONLY } else { MountFlags::empty() };
        mount_remount(&request.target, MountFlags::BIND | access, c"").map_err(failed("setting the access"))
    }

    async fn unpublish(&self, _: VolumeId, target: &Path) -> Result<(), Error> {
        clear(target)
    }
}

pub fn driver(root: PathBuf, node: String) -> Result<Driver, Box<dyn std::error::Error>> {
    let ramdisk = Arc::new(Ramdisk { root, node });
    let controller = ControllerSlots::new(ramdisk.clone()).provisioner();
    let builder = Driver::builder(Identity::new("ramdisk.csi.example", "1.0")?).controller(controller);
    Ok(builder.node(NodeSlots::new(ramdisk)).build()?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [endpoint, node, root] = std::env::args().skip(1).collect::<Vec<_>>().try_into().map_err(|_| "see the top")?;
    let listener = Listener::bind(&endpoint.parse::<Endpoint>()?, SocketMode::default())?;
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    Ok(driver(root.into(), node)?.serve([listener], Mode::All, stop, Duration::from_secs(30)).await?)
}
