//! How a volume is used: access modes and volume modes.

use std::fmt;

use serde::{Deserialize, Deserializer};

/// One access mode, in the order in which sets of them are printed and compared (BIND-4.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessMode {
    ReadWriteOnce,
    ReadOnlyMany,
    ReadWriteMany,
    ReadWriteOncePod,
}

impl AccessMode {
    pub const ALL: [Self; 4] = [Self::ReadWriteOnce, Self::ReadOnlyMany, Self::ReadWriteMany, Self::ReadWriteOncePod];

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == text)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::ReadWriteOnce => "ReadWriteOnce",
            Self::ReadOnlyMany => "ReadOnlyMany",
            Self::ReadWriteMany => "ReadWriteMany",
            Self::ReadWriteOncePod => "ReadWriteOncePod",
        }
    }
}

impl fmt::Display for AccessMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Access modes in the order they were written, and as a set. A mode we do not know is kept aside: nothing satisfies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AccessModes {
    /// Four places of three bits: the written order, zero for an empty place.
    order: u16,
    unknown: bool,
}

impl AccessModes {
    /// Repetitions count once.
    pub fn of(modes: &[AccessMode]) -> Self {
        let mut all = Self::default();
        for mode in modes {
            all.push(*mode);
        }
        all
    }

    fn push(&mut self, mode: AccessMode) {
        if !self.contains(mode) {
            let place = self.len() * 3;
            self.order |= (mode as u16 + 1) << place;
        }
    }

    /// As written.
    pub fn iter(self) -> impl Iterator<Item = AccessMode> {
        (0..4).map_while(move |place| {
            let value = usize::from((self.order >> (place * 3)) & 7);
            value.checked_sub(1).map(|index| AccessMode::ALL[index])
        })
    }

    pub fn len(self) -> usize {
        self.iter().count()
    }

    pub fn is_empty(self) -> bool {
        self.order == 0
    }

    pub fn contains(self, mode: AccessMode) -> bool {
        self.iter().any(|held| held == mode)
    }

    /// Whether every mode of `wanted` is offered. A wanted mode that nobody knows is not.
    pub fn contains_all(self, wanted: Self) -> bool {
        !wanted.unknown && wanted.iter().all(|mode| self.contains(mode))
    }

    /// The set without its order, for indexes.
    pub fn set(self) -> u8 {
        self.iter().fold(0, |set, mode| set | 1 << mode as u8)
    }

    /// Whether a mode stood there that this program does not know.
    pub fn has_unknown(self) -> bool {
        self.unknown
    }
}

impl<'de> Deserialize<'de> for AccessModes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let texts = Option::<Vec<Box<str>>>::deserialize(deserializer)?.unwrap_or_default();
        let mut modes = Self::default();
        for text in &texts {
            match AccessMode::parse(text) {
                Some(mode) => modes.push(mode),
                None => modes.unknown = true,
            }
        }
        Ok(modes)
    }
}

/// A filesystem or a raw device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
pub enum VolumeMode {
    /// What an absent field means.
    #[default]
    Filesystem,
    Block,
}

impl VolumeMode {
    pub fn name(self) -> &'static str {
        match self {
            Self::Filesystem => "Filesystem",
            Self::Block => "Block",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::AccessMode::{ReadOnlyMany, ReadWriteMany, ReadWriteOnce};
    use super::*;

    #[test]
    fn modes_keep_their_written_order_and_count_once() {
        let modes: AccessModes = serde_json::from_str(r#"["ReadWriteMany","ReadWriteOnce","ReadWriteMany"]"#).unwrap();
        assert_eq!(modes.iter().collect::<Vec<_>>(), [ReadWriteMany, ReadWriteOnce]);
        assert_eq!(modes.set(), AccessModes::of(&[ReadWriteOnce, ReadWriteMany]).set());
    }

    #[test]
    fn a_set_offers_its_subsets_only() {
        let offered = AccessModes::of(&[ReadWriteOnce, ReadOnlyMany]);
        assert!(offered.contains_all(AccessModes::of(&[ReadOnlyMany])));
        assert!(!offered.contains_all(AccessModes::of(&[ReadOnlyMany, ReadWriteMany])));
    }

    #[test]
    fn a_mode_nobody_knows_is_never_offered() {
        let strange: AccessModes = serde_json::from_str(r#"["ReadWriteTwice"]"#).unwrap();
        assert!(strange.has_unknown());
        assert!(!AccessModes::of(&AccessMode::ALL).contains_all(strange));
    }
}
