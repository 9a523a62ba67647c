//! Mount flags as CSI hands them over, sorted into what they are for.
//!
//! A flag is an attribute of one mount (`noexec`), an option of the filesystem (`discard`), both (`ro`), or none of
//! our business. Options we do not know go to the filesystem, which knows best; options that change what is mounted
//! or reach outside the volume are refused.

use rustix::mount::MountAttrFlags;

/// A mount flag that cannot be honoured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadFlag {
    #[error("mount flags {0:?} and {1:?} contradict each other")]
    Conflict(String, String),
    #[error("mount flag {0:?} is not allowed: it changes what is mounted, not how")]
    Refused(String),
    #[error("mount flag {0:?} is malformed")]
    Malformed(String),
}

/// Whether a mount may be written through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Nobody said; writable.
    #[default]
    Unstated,
    ReadOnly,
    /// `rw` was asked for in so many words.
    ReadWrite,
}

/// Parsed mount flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountFlags {
    access: Access,
    attributes: MountAttrFlags,
    fs_options: Vec<(String, Option<String>)>,
}

impl Default for MountFlags {
    fn default() -> MountFlags {
        MountFlags { access: Access::Unstated, attributes: MountAttrFlags::empty(), fs_options: Vec::new() }
    }
}

/// Per-mount attributes: the flag, its opposite, and the bit the flag sets.
const ATTRIBUTES: [(&str, &str, MountAttrFlags); 7] = [
    ("nosuid", "suid", MountAttrFlags::MOUNT_ATTR_NOSUID),
    ("nodev", "dev", MountAttrFlags::MOUNT_ATTR_NODEV),
    ("noexec", "exec", MountAttrFlags::MOUNT_ATTR_NOEXEC),
    ("noatime", "atime", MountAttrFlags::MOUNT_ATTR_NOATIME),
    ("strictatime", "nostrictatime", MountAttrFlags::MOUNT_ATTR_STRICTATIME),
    ("nodiratime", "diratime", MountAttrFlags::MOUNT_ATTR_NODIRATIME),
    ("nosymfollow", "symfollow", MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW),
];

/// Words for mount(8) and fstab(5) that mean nothing to the kernel.
const IGNORED: [&str; 4] = ["defaults", "relatime", "_netdev", "nofail"];

/// Flags that change what is mounted, where, or who else sees it.
const REFUSED: [&str; 24] = [
    "bind",
    "rbind",
    "remount",
    "move",
    "loop",
    "offset",
    "sizelimit",
    "shared",
    "rshared",
    "private",
    "rprivate",
    "slave",
    "rslave",
    "unbindable",
    "runbindable",
    "source",
    "fstype",
    "device",
    "subvol",
    "subvolid",
    "logdev",
    "rtdev",
    "journal_dev",
    "journal_path",
];

impl MountFlags {
    /// Sorts the flags. A flag may itself be a comma-separated list, as in fstab; double quotes protect a comma, as in
    /// the SELinux `context` that the kubelet passes.
    pub fn parse<S: AsRef<str>>(flags: &[S]) -> Result<MountFlags, BadFlag> {
        let mut parsed = MountFlags::default();
        let mut seen: Vec<String> = Vec::new();
        for flag in flags.iter().flat_map(|flag| split(flag.as_ref())) {
            if let Some(opposite) = opposite(&flag).filter(|opposite| seen.iter().any(|flag| flag == opposite)) {
                return Err(BadFlag::Conflict(opposite.to_owned(), flag));
            }
            parsed.add(&flag)?;
            seen.push(flag);
        }
        Ok(parsed)
    }

    fn add(&mut self, flag: &str) -> Result<(), BadFlag> {
        if flag.chars().any(|c| c.is_control() || c.is_whitespace()) || flag.starts_with('=') {
            return Err(BadFlag::Malformed(flag.to_owned()));
        }
        let (key, value) = match flag.split_once('=') {
            Some((key, value)) => (key, Some(value.to_owned())),
            None => (flag, None),
        };
        if REFUSED.contains(&key) || key.starts_with("x-") {
            return Err(BadFlag::Refused(flag.to_owned()));
        }
        match flag {
            "ro" => self.access = Access::ReadOnly,
            "rw" => self.access = Access::ReadWrite,
            _ if IGNORED.contains(&flag) => {}
            _ => match ATTRIBUTES.iter().find(|(on, off, _)| *on == flag || *off == flag) {
                Some((on, _, bit)) if *on == flag => self.attributes |= *bit,
                // The opposite asks for the default.
                Some(_) => {}
                None => self.fs_options.push((key.to_owned(), value)),
            },
        }
        Ok(())
    }

    /// The same flags for a request that is read-only for another reason, such as its access mode.
    pub fn read_only(mut self) -> Result<MountFlags, BadFlag> {
        match self.access {
            Access::ReadWrite => Err(BadFlag::Conflict("rw".to_owned(), "readonly".to_owned())),
            Access::Unstated | Access::ReadOnly => {
                self.access = Access::ReadOnly;
                Ok(self)
            }
        }
    }

    /// Adds an option for the filesystem that the driver itself needs, such as `nouuid`.
    pub fn with_fs_option(mut self, key: &str) -> MountFlags {
        if !self.fs_options.iter().any(|(known, _)| known == key) {
            self.fs_options.push((key.to_owned(), None));
        }
        self
    }

    pub fn is_read_only(&self) -> bool {
        self.access == Access::ReadOnly
    }

    /// The part of the flags that a bind mount can carry.
    pub fn bind_options(&self) -> BindOptions {
        let has = |bit| self.attributes.contains(bit);
        BindOptions {
            read_only: self.is_read_only(),
            no_exec: has(MountAttrFlags::MOUNT_ATTR_NOEXEC),
            no_suid: has(MountAttrFlags::MOUNT_ATTR_NOSUID),
            no_dev: has(MountAttrFlags::MOUNT_ATTR_NODEV),
        }
    }

    /// Attributes of the mount, read-only included.
    pub(super) fn mount_attributes(&self) -> MountAttrFlags {
        match self.access {
            Access::ReadOnly => self.attributes | MountAttrFlags::MOUNT_ATTR_RDONLY,
            Access::Unstated | Access::ReadWrite => self.attributes,
        }
    }

    /// Options for the filesystem, in the order given.
    pub(super) fn fs_options(&self) -> &[(String, Option<String>)] {
        &self.fs_options
    }
}

/// The flags of a comma-separated list, without the quotes.
fn split(list: &str) -> Vec<String> {
    let mut flags = vec![String::new()];
    let mut quoted = false;
    for c in list.chars() {
        match (c, flags.last_mut()) {
            ('"', _) => quoted = !quoted,
            (',', _) if !quoted => flags.push(String::new()),
            (c, Some(flag)) => flag.push(c),
            (_, None) => {}
        }
    }
    flags.retain(|flag| !flag.is_empty());
    flags
}

fn opposite(flag: &str) -> Option<&'static str> {
    match flag {
        "ro" => Some("rw"),
        "rw" => Some("ro"),
        _ => ATTRIBUTES.iter().find_map(|(on, off, _)| match flag {
            _ if flag == *on => Some(*off),
            _ if flag == *off => Some(*on),
            _ => None,
        }),
    }
}

/// What a bind mount adds to the attributes of the mount it is taken from. Nothing is ever taken away, so `nosuid`
/// and `nodev` of the source are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BindOptions {
    pub read_only: bool,
    pub no_exec: bool,
    pub no_suid: bool,
    pub no_dev: bool,
}

impl BindOptions {
    pub(super) fn attributes(self) -> MountAttrFlags {
        [
            (self.read_only, MountAttrFlags::MOUNT_ATTR_RDONLY),
            (self.no_exec, MountAttrFlags::MOUNT_ATTR_NOEXEC),
            (self.no_suid, MountAttrFlags::MOUNT_ATTR_NOSUID),
            (self.no_dev, MountAttrFlags::MOUNT_ATTR_NODEV),
        ]
        .into_iter()
        .filter_map(|(wanted, bit)| wanted.then_some(bit))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_sorted_into_mount_and_filesystem() {
        let flags = MountFlags::parse(&["noexec,nosuid", "discard", "commit=30", "defaults", "ro"]).unwrap();
        let expected =
            MountAttrFlags::MOUNT_ATTR_NOEXEC | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_RDONLY;
        assert_eq!(flags.mount_attributes(), expected);
        let options = [("discard".to_owned(), None), ("commit".to_owned(), Some("30".to_owned()))];
        assert_eq!(flags.fs_options(), options);
        assert_eq!(flags.bind_options(), BindOptions { read_only: true, no_exec: true, no_suid: true, no_dev: false });
    }

    #[test]
    fn a_quoted_comma_does_not_end_a_flag() {
        let flags = MountFlags::parse(&[r#"context="system_u:object_r:file_t:s0:c1,c2",noexec"#]).unwrap();
        assert_eq!(flags.fs_options(), [("context".to_owned(), Some("system_u:object_r:file_t:s0:c1,c2".to_owned()))]);
        assert!(flags.bind_options().no_exec);
    }

    #[test]
    fn contradictions_are_refused() {
        for pair in [["ro", "rw"], ["rw", "ro"], ["exec", "noexec"], ["noatime", "atime"]] {
            let conflict = BadFlag::Conflict(pair[0].to_owned(), pair[1].to_owned());
            assert_eq!(MountFlags::parse(&pair), Err(conflict));
        }
        let explicit_rw = MountFlags::parse(&["rw"]).unwrap();
        assert!(matches!(explicit_rw.read_only(), Err(BadFlag::Conflict(..))));
        assert!(MountFlags::default().read_only().unwrap().is_read_only());
    }

    #[test]
    fn flags_that_change_what_is_mounted_are_refused() {
        for flag in
            ["bind", "remount", "move", "loop", "loop=/dev/loop9", "subvol=/x", "logdev=/dev/sda", "x-initrd.mount"]
        {
            assert_eq!(MountFlags::parse(&[flag]), Err(BadFlag::Refused(flag.to_owned())));
        }
        for flag in ["=x", "a b", "a\nb"] {
            assert_eq!(MountFlags::parse(&[flag]), Err(BadFlag::Malformed(flag.to_owned())));
        }
    }
}
