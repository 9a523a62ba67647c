//! SELinux, as far as a policy's files tell what volumes need: whether it is on, and what files in containers have.

use std::path::{Path, PathBuf};

use rustix::fs::{XattrFlags, lsetxattr, statfs};
use rustix::io::Errno;

use super::super::{HostError, Selinux};
use super::isolate::Call;

/// Names the policy that is loaded.
pub(super) const CONFIG: &str = "/etc/selinux/config";
const FILESYSTEM: &str = "/sys/fs/selinux";
/// What `statfs` says of a filesystem that the SELinux of this kernel answers on.
const MAGIC: u64 = 0xf97c_ff8c;
/// Where contexts for containers are if the policy itself has none.
const SHARED: &str = "/usr/share/containers/selinux/contexts";

pub(super) fn read(call: &Call) -> Result<Selinux, HostError> {
    match statfs(FILESYSTEM) {
        Ok(found) if found.f_type as u64 & 0xffff_ffff == MAGIC => {}
        Ok(_) | Err(Errno::NOENT) => return Ok(Selinux::Off),
        Err(errno) => return Err(call.refused(errno.raw_os_error(), std::io::Error::from(errno).to_string())),
    }
    let files = file_label(Path::new(CONFIG), Path::new(SHARED));
    files.map(|files| Selinux::On { files }).map_err(|error| {
        let errno = error.raw_os_error().unwrap_or(0);
        call.refused(errno, error.to_string())
    })
}

/// The context of files in containers: what the policy that `config` names says, else what all policies share.
fn file_label(config: &Path, shared: &Path) -> std::io::Result<Option<String>> {
    let policy = text(config)?.and_then(|config| value(&config, "SELINUXTYPE").map(str::to_owned));
    // It is one name below a directory of the system, and not a way out of it.
    let policy = policy.filter(|name| !name.contains('/') && !name.starts_with('.'));
    let own = policy.map(|policy| {
        let directory: PathBuf = config.parent().unwrap_or(Path::new("/")).join(policy);
        directory.join("contexts/lxc_contexts")
    });
    for path in own.as_deref().into_iter().chain([shared]) {
        if let Some(label) = text(path)?.as_deref().and_then(|contexts| value(contexts, "file")) {
            return Ok(Some(label.to_owned()));
        }
    }
    Ok(None)
}

fn text(path: &Path) -> std::io::Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The value of `key = "value"`; comments and quotes are passed over.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let pairs =
        text.lines().map(str::trim).filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
    let mut found = pairs.filter(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().trim_matches('"'));
    found.next_back().filter(|value| !value.is_empty())
}

pub(super) fn set(call: &Call, label: &str) -> Result<(), HostError> {
    // The kernel stores it with its final zero, as its own tools do.
    let context = [label.as_bytes(), b"\0"].concat();
    lsetxattr(&call.path, "security.selinux", &context, XattrFlags::empty())
        .map_err(|errno| call.refused(errno.raw_os_error(), std::io::Error::from(errno).to_string()))
}

#[cfg(test)]
mod tests {
    use super::super::{LinuxHost, Options};
    use super::*;
    use crate::host::Host as _;

    const LABEL: &str = "system_u:object_r:container_file_t:s0";

    /// Rule: NODE-15.1
    #[test]
    fn the_loaded_policy_says_what_files_in_containers_have() {
        let folder = tempfile::tempdir().unwrap();
        let (config, shared) = (folder.path().join("config"), folder.path().join("shared"));
        assert_eq!(file_label(&config, &shared).unwrap(), None, "nothing says so");
        std::fs::write(&shared, format!("process = \"p\"\nfile = \"{LABEL}\"\n")).unwrap();
        assert_eq!(file_label(&config, &shared).unwrap().as_deref(), Some(LABEL), "what all share");
        std::fs::write(&config, "# SELINUXTYPE=minimum\nSELINUX=enforcing\nSELINUXTYPE=targeted\n").unwrap();
        let contexts = folder.path().join("targeted/contexts");
        std::fs::create_dir_all(&contexts).unwrap();
        let own = "process = \"system_u:system_r:svirt_lxc_net_t:s0\"\nfile = \"u:object_r:own_t:s0\"\n";
        std::fs::write(contexts.join("lxc_contexts"), own).unwrap();
        assert_eq!(file_label(&config, &shared).unwrap().as_deref(), Some("u:object_r:own_t:s0"));
        std::fs::write(&config, "SELINUXTYPE=../targeted\n").unwrap();
        assert_eq!(file_label(&config, &shared).unwrap().as_deref(), Some(LABEL), "a policy is a name");
        std::fs::write(&shared, [0xff, 0xfe]).unwrap();
        assert!(file_label(&config, &shared).is_err(), "what cannot be read is not nothing");
    }

    /// Rule: NODE-2
    #[tokio::test]
    async fn a_directory_gets_a_context_where_the_filesystem_has_them() {
        let folder = tempfile::tempdir().unwrap();
        match LinuxHost::new(Options::default()).set_label(folder.path(), LABEL).await {
            Ok(()) => {
                let mut stored = [0; 64];
                let length = rustix::fs::lgetxattr(folder.path(), "security.selinux", &mut stored).unwrap();
                assert_eq!(&stored[..length], format!("{LABEL}\0").as_bytes());
            }
            Err(HostError::Refused { errno, .. })
                if [Errno::OPNOTSUPP, Errno::PERM, Errno::ACCESS].map(Errno::raw_os_error).contains(&errno) =>
            {
                println!("skipped: files of this machine get no contexts (errno {errno})");
            }
            Err(error) => panic!("{error}"),
        }
    }
}
