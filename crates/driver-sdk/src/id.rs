//! Ids made from names.
//!
//! A derived id needs no index: the same name gives the same id on every attempt, before and after a crash, so a
//! repeated create finds what the first one made. It is safe as a file name, a device-mapper name and a label value.

use sha2::{Digest as _, Sha256};

const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Characters of the hash that are kept: 130 bits, far beyond an accident. Keep the full name in the record anyway.
const LENGTH: usize = 26;

/// `prefix` and 26 characters of base32 over SHA-256 of `kind`, a zero byte and `name`.
///
/// `kind` keeps a volume and a snapshot of one name apart.
pub fn derive_id(prefix: &str, kind: &str, name: &str) -> String {
    let digest = Sha256::new().chain_update(kind).chain_update([0]).chain_update(name).finalize();
    let mut id = String::with_capacity(prefix.len() + LENGTH);
    id.push_str(prefix);
    let (mut buffer, mut bits) = (0u32, 0u32);
    let mut bytes = digest.iter();
    for _ in 0..LENGTH {
        if bits < 5 {
            buffer = (buffer << 8) | u32::from(*bytes.next().expect("26 characters use 17 of the 32 bytes"));
            bits += 8;
        }
        bits -= 5;
        id.push(char::from(ALPHABET[(buffer >> bits) as usize & 31]));
    }
    id
}

/// Lower-case hex, as fingerprints and page tokens use it.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of lower-case or upper-case hex; `None` for anything else.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_name_gives_the_same_id_and_a_known_one() {
        // sha256("volume\0pvc-1") in RFC 4648 base32, computed with coreutils: sha256sum and base32.
        assert_eq!(derive_id("v-", "volume", "pvc-1"), "v-u3q3s7zv6fphgw2of3iu77gskr");
    }

    #[test]
    fn kinds_and_names_cannot_be_confused() {
        assert_ne!(derive_id("", "volume", "a"), derive_id("", "snapshot", "a"));
        assert_ne!(derive_id("", "a", "b"), derive_id("", "", "ab"));
        assert_ne!(derive_id("", "volume", "a"), derive_id("", "volume", "A"));
    }

    #[test]
    fn an_id_is_a_safe_file_name() {
        let id = derive_id("vol-", "volume", "../../etc/passwd\n");
        assert_eq!(id.len(), 30);
        assert!(id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
    }

    #[test]
    fn hex_goes_both_ways_and_refuses_the_rest() {
        assert_eq!(unhex(&hex(&[0, 15, 255])), Some(vec![0, 15, 255]));
        for bad in ["0", "0g", "é0"] {
            assert_eq!(unhex(bad), None, "{bad}");
        }
    }
}
