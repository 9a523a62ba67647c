//! The flags that describe how a volume is to be used: filesystem or block, and by whom at once.

use ::csi::v1::VolumeCapability;
use ::csi::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode};

/// How the volume will be used.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Use of the volume")]
pub(in crate::csi) struct CapabilityArgs {
    /// Mount the volume with this filesystem; the driver chooses one if neither this nor --block is given
    #[arg(long, value_name = "TYPE", conflicts_with = "block")]
    fs: Option<String>,
    /// Use the volume as a raw block device
    #[arg(long, conflicts_with_all = ["mount_flag", "mount_group"])]
    block: bool,
    /// Who may use the volume at once; CSI names such as SINGLE_NODE_WRITER are accepted too
    #[arg(long, value_name = "MODE", value_enum, ignore_case = true)]
    mode: Option<Mode>,
    /// Pass this option to mount; may be repeated
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    mount_flag: Vec<String>,
    /// Let the driver give the files to this group (volume_mount_group)
    #[arg(long, value_name = "GROUP")]
    mount_group: Option<String>,
}

/// Access modes under a short name; the CSI name works as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    /// SINGLE_NODE_WRITER (the default)
    #[value(name = "snw", alias = "SINGLE_NODE_WRITER")]
    SingleNodeWriter,
    /// SINGLE_NODE_READER_ONLY
    #[value(name = "snr", alias = "SINGLE_NODE_READER_ONLY")]
    SingleNodeReaderOnly,
    /// SINGLE_NODE_SINGLE_WRITER
    #[value(name = "snsw", alias = "SINGLE_NODE_SINGLE_WRITER")]
    SingleNodeSingleWriter,
    /// SINGLE_NODE_MULTI_WRITER
    #[value(name = "snmw", alias = "SINGLE_NODE_MULTI_WRITER")]
    SingleNodeMultiWriter,
    /// MULTI_NODE_READER_ONLY
    #[value(name = "mnr", alias = "MULTI_NODE_READER_ONLY")]
    MultiNodeReaderOnly,
    /// MULTI_NODE_SINGLE_WRITER
    #[value(name = "mnsw", alias = "MULTI_NODE_SINGLE_WRITER")]
    MultiNodeSingleWriter,
    /// MULTI_NODE_MULTI_WRITER
    #[value(name = "mnmw", alias = "MULTI_NODE_MULTI_WRITER")]
    MultiNodeMultiWriter,
}

impl From<Mode> for access_mode::Mode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::SingleNodeWriter => Self::SingleNodeWriter,
            Mode::SingleNodeReaderOnly => Self::SingleNodeReaderOnly,
            Mode::SingleNodeSingleWriter => Self::SingleNodeSingleWriter,
            Mode::SingleNodeMultiWriter => Self::SingleNodeMultiWriter,
            Mode::MultiNodeReaderOnly => Self::MultiNodeReaderOnly,
            Mode::MultiNodeSingleWriter => Self::MultiNodeSingleWriter,
            Mode::MultiNodeMultiWriter => Self::MultiNodeMultiWriter,
        }
    }
}

impl CapabilityArgs {
    /// For calls that need a capability: what was not said gets its default.
    pub(super) fn required(self) -> VolumeCapability {
        let Self { fs, block, mode, mount_flag, mount_group } = self;
        let access_type = if block {
            AccessType::Block(BlockVolume {})
        } else {
            AccessType::Mount(MountVolume {
                fs_type: fs.unwrap_or_default(),
                mount_flags: mount_flag,
                volume_mount_group: mount_group.unwrap_or_default(),
            })
        };
        let mode = access_mode::Mode::from(mode.unwrap_or(Mode::SingleNodeWriter));
        VolumeCapability { access_mode: Some(AccessMode { mode: mode.into() }), access_type: Some(access_type) }
    }

    /// For calls that can do without: `None` unless at least one of the flags was given.
    pub(super) fn optional(self) -> Option<VolumeCapability> {
        let Self { fs, block, mode, mount_flag, mount_group } = &self;
        let given = fs.is_some() || *block || mode.is_some() || !mount_flag.is_empty() || mount_group.is_some();
        given.then(|| self.required())
    }
}
