//! Base64 with the standard alphabet and padding, as JSON carries byte strings.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group =
            chunk.iter().chain(std::iter::repeat(&0)).take(3).fold(0_u32, |sum, byte| (sum << 8) | u32::from(*byte));
        for position in 0..4 {
            if position <= chunk.len() {
                text.push(char::from(ALPHABET[(group >> (18 - 6 * position)) as usize & 63]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

/// Decodes text; line breaks are skipped. The error is the offset of the first bad byte.
pub fn decode(text: &str) -> Result<Vec<u8>, usize> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut group, mut filled, mut padding) = (0_u32, 0, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'\r' | b'\n' => continue,
            b'=' if filled >= 2 && filled + padding < 4 => {
                padding += 1;
                continue;
            }
            _ if padding > 0 => return Err(at),
            _ => {}
        }
        group = (group << 6) | u32::from(digit(byte).ok_or(at)?);
        filled += 1;
        if filled == 4 {
            bytes.extend_from_slice(&group.to_be_bytes()[1..]);
            (group, filled) = (0, 0);
        }
    }
    if filled == 0 {
        return Ok(bytes);
    }
    if filled + padding != 4 {
        return Err(text.len());
    }
    let tail = (group << (6 * padding)).to_be_bytes();
    bytes.extend_from_slice(&tail[1..4 - padding]);
    Ok(bytes)
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}
