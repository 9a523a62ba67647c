//! What a class, a claim or a pod asks for, read from string maps. Every unknown key and every illegal value is an
//! error that names the key and what would be legal.

use driver_sdk::{Access, Capability, CapacityRange, Error, Parameters, StringMap};

use crate::keys;
use crate::record::{AccessKind, Provisioning, Tuning};
use linux::fs::FsType;

/// Sizes are whole blocks, so that every filesystem and loop device can hold them exactly.
pub const BLOCK: u64 = 4096;
/// Size of a volume for which none was asked.
pub const DEFAULT_SIZE: u64 = 1 << 30;
/// Smallest raw block volume.
const SMALLEST_BLOCK: u64 = 1 << 20;

/// How a volume's data is kept, as far as the request says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KindChoice {
    Image,
    Directory,
    /// Nothing asked: an image where loop devices work, else a directory.
    Whatever,
}

/// A volume as asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    pub pool: Option<String>,
    pub kind: KindChoice,
    pub access: AccessKind,
    /// The filesystem that was named, if any.
    pub fs: Option<FsType>,
    /// The provisioning that was named, if any.
    pub provisioning: Option<Provisioning>,
    pub tuning: Tuning,
}

impl Spec {
    /// The same request for an image in a pool that provisions so unless another way is named.
    pub fn provisioned(&self, default: Provisioning) -> Self {
        let tuning = Tuning { provisioning: self.provisioning.unwrap_or(default), ..self.tuning.clone() };
        Self { tuning, ..self.clone() }
    }
}

/// Reads a request for a volume.
pub fn spec(parameters: &Parameters, capabilities: &[Capability]) -> Result<Spec, Error> {
    refuse_unknown(&parameters.fixed, &keys::CLASS, "parameters")?;
    let access = access_of(capabilities)?;
    let kind = match parameters.get(keys::KIND) {
        None => KindChoice::Whatever,
        Some("image") => KindChoice::Image,
        Some("directory") if access == AccessKind::Block => {
            return Err(Error::invalid("parameters", "kind \"directory\" cannot be a block volume; use \"image\""));
        }
        Some("directory") => KindChoice::Directory,
        Some(other) => return Err(illegal(keys::KIND, other, "image or directory")),
    };
    let tuning = tuning(parameters)?;
    Ok(Spec {
        pool: parameters.get(keys::POOL).map(str::to_owned),
        kind,
        access,
        fs: fs_of(parameters, capabilities)?,
        provisioning: parameters.get(keys::PROVISIONING).map(|_| tuning.provisioning),
        tuning,
    })
}

/// Are these all keys that may change, with legal values?
pub fn check_mutable(changes: &StringMap) -> Result<(), Error> {
    refuse_unknown(changes, &keys::MUTABLE, "mutable_parameters")?;
    tuning(&Parameters { fixed: StringMap::new(), mutable: changes.clone() }).map(drop)
}

/// The tuning of a volume after some changes. The changes passed [`check_mutable`].
pub fn retune(now: &Tuning, changes: &StringMap) -> Result<Tuning, Error> {
    let asked = tuning(&Parameters { fixed: StringMap::new(), mutable: changes.clone() })?;
    let changed = |key: &str| changes.contains_key(key);
    Ok(Tuning {
        provisioning: if changed(keys::PROVISIONING) { asked.provisioning } else { now.provisioning },
        direct_io: if changed(keys::DIRECT_IO) { asked.direct_io } else { now.direct_io },
        read_ahead_kib: if changed(keys::READ_AHEAD_KIB) { asked.read_ahead_kib } else { now.read_ahead_kib },
    })
}

fn tuning(parameters: &Parameters) -> Result<Tuning, Error> {
    let provisioning = match parameters.get(keys::PROVISIONING) {
        None | Some("thin") => Provisioning::Thin,
        Some("thick") => Provisioning::Thick,
        Some(other) => return Err(illegal(keys::PROVISIONING, other, "thin or thick")),
    };
    let direct_io = match parameters.get(keys::DIRECT_IO) {
        None | Some("true") => true,
        Some("false") => false,
        Some(other) => return Err(illegal(keys::DIRECT_IO, other, "true or false")),
    };
    let read_ahead_kib = match parameters.get(keys::READ_AHEAD_KIB) {
        None => None,
        Some(text) => match text.parse::<u32>() {
            Ok(kib) if kib <= 65536 => Some(kib),
            _ => return Err(illegal(keys::READ_AHEAD_KIB, text, "a number of KiB from 0 to 65536")),
        },
    };
    Ok(Tuning { provisioning, direct_io, read_ahead_kib })
}

fn refuse_unknown(map: &StringMap, known: &[&str], field: &'static str) -> Result<(), Error> {
    let unknown = |key: &&String| !known.contains(&key.as_str()) && !key.starts_with(keys::CALLER_PREFIX);
    match map.keys().find(unknown) {
        None => Ok(()),
        Some(key) => Err(Error::invalid(field, format!("unknown key {key:?}; known are {}", known.join(", ")))),
    }
}

fn illegal(key: &str, value: &str, legal: &str) -> Error {
    Error::invalid("parameters", format!("{key} is {value:?}; it must be {legal}"))
}

/// Block or mount: one volume cannot be both.
pub fn access_of(capabilities: &[Capability]) -> Result<AccessKind, Error> {
    let kind = |capability: &Capability| match capability.access {
        Access::Block => AccessKind::Block,
        Access::Mount(_) => AccessKind::Mount,
    };
    let mut kinds = capabilities.iter().map(kind);
    let first = kinds.next().ok_or_else(|| Error::invalid("volume_capabilities", "at least one is required"))?;
    if kinds.any(|other| other != first) {
        return Err(Error::invalid("volume_capabilities", "a volume is either block or mount, not both"));
    }
    Ok(first)
}

/// The filesystem the request names, if it names one: the capability's word, then the class's.
fn fs_of(parameters: &Parameters, capabilities: &[Capability]) -> Result<Option<FsType>, Error> {
    let mut named = None;
    for capability in capabilities {
        if let Access::Mount(options) = &capability.access
            && let Some(name) = &options.fs_type
        {
            let fs = parse_fs("volume_capabilities", name)?;
            if named.is_some_and(|other| other != fs) {
                return Err(Error::invalid("volume_capabilities", "two different filesystems are named"));
            }
            named = Some(fs);
        }
    }
    let parameter = parameters.get(keys::FS_TYPE).or_else(|| parameters.get(keys::CALLER_FS_TYPE));
    match (named, parameter) {
        (Some(fs), _) => Ok(Some(fs)),
        (None, Some(name)) if !name.is_empty() => parse_fs("parameters", name).map(Some),
        (None, _) => Ok(None),
    }
}

pub fn parse_fs(field: &'static str, name: &str) -> Result<FsType, Error> {
    name.parse().map_err(|_| Error::invalid(field, format!("filesystem {name:?} is not one of ext4, xfs, btrfs")))
}

/// The smallest volume of a sort.
pub fn smallest(access: AccessKind, fs: Option<FsType>) -> u64 {
    match (access, fs) {
        (AccessKind::Block, _) => SMALLEST_BLOCK,
        (AccessKind::Mount, Some(fs)) => fs.minimum_bytes(),
        // A directory has no size of its own.
        (AccessKind::Mount, None) => BLOCK,
    }
}

/// A number of bytes for people: in the largest unit that leaves a whole number before the point.
pub fn shown(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = (1..=UNITS.len()).rev().find(|power| bytes >> (10 * power) > 0);
    match unit {
        None => format!("{bytes} bytes"),
        Some(power) => {
            let shift = 10 * power;
            // Tenths are rounded down: what is said to fit fits.
            let tenths = (u128::from(bytes) * 10) >> shift;
            match tenths % 10 {
                0 => format!("{} {}", tenths / 10, UNITS[power - 1]),
                rest => format!("{}.{rest} {}", tenths / 10, UNITS[power - 1]),
            }
        }
    }
}

/// The size a volume gets: what is asked for and at least the smallest of its sort, in whole blocks. A caller's
/// `required_bytes` is a lower bound, so a request for less than a filesystem needs gets what it needs; its limit and the
/// driver's own are kept.
pub fn choose_size(range: CapacityRange, smallest: u64, largest: u64) -> Result<u64, Error> {
    let limit = range.limit.unwrap_or(largest).min(largest);
    let wish = match range.required {
        0 => DEFAULT_SIZE.min(limit / BLOCK * BLOCK),
        required => required,
    };
    let size = wish.max(smallest).div_ceil(BLOCK).saturating_mul(BLOCK);
    if size <= limit {
        return Ok(size);
    }
    Err(Error::out_of_range(if wish < smallest {
        format!(
            "this kind of volume needs at least {smallest} bytes ({}), which is above the limit of {limit} ({})",
            shown(smallest),
            shown(limit)
        )
    } else {
        format!(
            "{wish} bytes ({}) in whole blocks of {BLOCK} are above the limit of {limit} ({})",
            shown(wish),
            shown(limit)
        )
    }))
}

/// A size as people write it: `64Mi`, `1G`, `4096`.
pub fn parse_size(text: &str) -> Result<u64, Error> {
    const UNITS: [(&str, u64); 11] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("Pi", 1 << 50),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
        ("P", 1_000_000_000_000_000),
        ("", 1),
    ];
    let split = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let bytes = number.parse::<u64>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    bytes.ok_or_else(|| illegal(keys::SIZE, text, "a number of bytes or one with Ki, Mi, Gi, Ti, Pi, k, M, G, T or P"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use driver_sdk::{AccessMode, MountOptions};

    fn map(entries: &[(&str, &str)]) -> StringMap {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn bytes_are_shown_in_the_unit_that_people_think_in() {
        let rows =
            [(0, "0 bytes"), (1023, "1023 bytes"), (1 << 20, "1 MiB"), (1536, "1.5 KiB"), (u64::MAX, "15.9 EiB")];
        for (bytes, want) in rows {
            assert_eq!(shown(bytes), want);
        }
    }

    fn mount(fs: Option<&str>) -> Capability {
        let options = MountOptions { fs_type: fs.map(str::to_owned), ..Default::default() };
        Capability { access: Access::Mount(options), mode: AccessMode::SingleNodeWriter }
    }

    fn block() -> Capability {
        Capability { access: Access::Block, mode: AccessMode::SingleNodeWriter }
    }

    fn fixed(entries: &[(&str, &str)]) -> Parameters {
        Parameters { fixed: map(entries), mutable: StringMap::new() }
    }

    #[test]
    fn an_unknown_key_is_refused_by_name_and_a_callers_own_key_is_not() {
        let error = spec(&fixed(&[("fstype", "xfs")]), &[mount(None)]).unwrap_err();
        assert!(error.to_string().contains("\"fstype\""), "{error}");
        let callers_own = format!("{}pvc/name", keys::CALLER_PREFIX);
        spec(&fixed(&[(&callers_own, "c")]), &[mount(None)]).unwrap();
        assert!(check_mutable(&map(&[("XXX_FakeKey", "v")])).is_err());
        assert!(check_mutable(&map(&[("pool", "a")])).is_err(), "a volume cannot change its pool");
    }

    #[test]
    fn the_pool_says_how_a_volume_is_provisioned_unless_the_class_does() {
        for (named, default, want) in [
            (None, Provisioning::Thick, Provisioning::Thick),
            (None, Provisioning::Thin, Provisioning::Thin),
            (Some("thin"), Provisioning::Thick, Provisioning::Thin),
            (Some("thick"), Provisioning::Thin, Provisioning::Thick),
        ] {
            let parameters: Vec<(&str, &str)> = named.map(|named| ("provisioning", named)).into_iter().collect();
            let found = spec(&fixed(&parameters), &[mount(None)]).unwrap().provisioned(default);
            assert_eq!(found.tuning.provisioning, want, "{named:?} in a pool with {default:?}");
        }
    }

    #[test]
    fn the_capability_names_the_filesystem_before_the_class_does() {
        let found = spec(&fixed(&[("fsType", "ext4")]), &[mount(Some("xfs"))]).unwrap();
        assert_eq!(found.fs, Some(FsType::Xfs));
        assert!(spec(&fixed(&[("fsType", "ntfs")]), &[mount(None)]).is_err());
    }

    #[test]
    fn block_and_mount_do_not_mix() {
        assert!(spec(&fixed(&[]), &[mount(None), block()]).is_err());
        assert!(spec(&fixed(&[("kind", "directory")]), &[block()]).is_err());
    }

    /// Rule: LOCAL-0.4
    #[test]
    fn sizes_are_whole_blocks_within_the_range() {
        let range = |required, limit| CapacityRange { required, limit };
        let most = 1 << 40;
        assert_eq!(choose_size(range(0, None), 1, most).unwrap(), DEFAULT_SIZE);
        assert_eq!(choose_size(range(5000, None), 1, most).unwrap(), 8192);
        assert_eq!(
            choose_size(range(8192, Some(8192)), 1, most).unwrap(),
            8192,
            "LOCAL-0.4: exact when required is the limit"
        );
        assert_eq!(choose_size(range(0, Some(10_000)), 1, most).unwrap(), 8192);
        assert!(choose_size(range(5000, Some(5000)), 1, most).is_err(), "rounding up must not pass the limit");
        assert!(choose_size(range(u64::MAX, None), 1, most).is_err());
        assert_eq!(choose_size(range(0, None), 1, 1 << 20).unwrap(), 1 << 20, "no size asked: what can be had");
    }

    #[test]
    fn too_small_a_request_gets_the_smallest_volume_unless_its_limit_forbids() {
        let range = |required, limit| CapacityRange { required, limit };
        let (least, most) = (32 << 20, 1 << 40);
        for asked in [1, 4096, least - 1, least] {
            assert_eq!(choose_size(range(asked, None), least, most).unwrap(), least, "{asked}");
            assert_eq!(choose_size(range(asked, Some(least)), least, most).unwrap(), least, "{asked}");
        }
        for limited in [range(1, Some(least - 1)), range(0, Some(4096)), range(4096, Some(4096))] {
            let error = choose_size(limited, least, most).unwrap_err().to_string();
            assert!(error.contains("at least 33554432 bytes (32 MiB)"), "{error}");
        }
        assert!(choose_size(range(1, None), least, least / 2).is_err(), "the driver's own limit counts as well");
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(parse_size("64Mi").unwrap(), 64 << 20);
        assert_eq!(parse_size("4096").unwrap(), 4096);
        assert_eq!(parse_size("1G").unwrap(), 1_000_000_000);
        for wrong in ["", "Mi", "64mi", "1.5Gi", "-1", "99999999999Pi", "64 Mi"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn retuning_changes_only_what_is_named() {
        let now = Tuning { provisioning: Provisioning::Thick, direct_io: false, read_ahead_kib: Some(64) };
        let after = retune(&now, &map(&[("readAheadKiB", "512")])).unwrap();
        assert_eq!(after, Tuning { read_ahead_kib: Some(512), ..now });
    }
}
