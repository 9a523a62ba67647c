//! A machine: a mount namespace and a root directory, and what pods on it do with their volumes.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::core::v1::Pod;

use super::namespace::Namespace;

#[derive(Debug)]
pub(super) struct Machine {
    pub(super) name: String,
    pub(super) root: PathBuf,
    pub(super) namespace: Namespace,
}

impl Machine {
    /// Machines with these roots. Their mounts are shared with `floor`, and not with each other.
    pub(super) fn all(floor: &Namespace, named: Vec<(String, PathBuf)>) -> Vec<Self> {
        for (_, root) in &named {
            floor.run("mount", &[OsStr::new("--bind"), root.as_os_str(), root.as_os_str()], &[]);
            floor.run("mount", &[OsStr::new("--make-rshared"), root.as_os_str()], &[]);
        }
        let roots: Vec<PathBuf> = named.iter().map(|(_, root)| root.clone()).collect();
        let make = |(name, root): (String, PathBuf)| {
            let namespace = floor.sharing();
            for other in roots.iter().filter(|other| **other != root) {
                namespace.run("umount", &[other.as_os_str()], &[]);
            }
            Self { name, root, namespace }
        };
        named.into_iter().map(make).collect()
    }

    /// Runs inside.
    pub(super) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.namespace.command(words[0]);
        command.args(&words[1..]);
        command
    }

    /// Where a pod finds a volume.
    pub(super) fn mount_of(&self, pod: &Pod, volume: &str) -> PathBuf {
        self.pod(pod).join("volumes/kubernetes.io~csi").join(volume).join("mount")
    }

    /// Where a pod finds a device.
    pub(super) fn device_of(&self, pod: &Pod, volume: &str) -> PathBuf {
        self.pod(pod).join("volumeDevices/kubernetes.io~csi").join(volume)
    }

    fn pod(&self, pod: &Pod) -> PathBuf {
        self.root.join("pods").join(pod.metadata.uid.as_deref().expect("it is made"))
    }

    /// Writes to a file or a device as a program on the machine does, down to the disk.
    pub(super) fn write(&self, path: &Path, content: &str) {
        let into = [OsStr::new("of="), path.as_os_str()].into_iter().collect::<std::ffi::OsString>();
        self.namespace.run("dd", &[&into, OsStr::new("conv=notrunc,fsync")], content.as_bytes());
    }

    /// Reads so many bytes.
    pub(super) fn read(&self, path: &Path, length: usize) -> String {
        let from = [OsStr::new("if="), path.as_os_str()].into_iter().collect::<std::ffi::OsString>();
        let count = format!("count={length}");
        let read = self.namespace.run("dd", &[&from, OsStr::new("bs=1"), OsStr::new(&count)], &[]);
        String::from_utf8_lossy(&read).into_owned()
    }

    pub(super) fn is_mounted(&self, path: &Path) -> bool {
        self.namespace.mounts().at(path).next().is_some()
    }
}
