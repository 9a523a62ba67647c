//! A protobuf answer as JSON, without knowing its types: field numbers to values, so that two of them can be compared.

use serde_json::{Map, Value, json};

/// `None` if the bytes are no message.
pub(super) fn decode(mut bytes: &[u8]) -> Option<Value> {
    let mut fields = Map::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let value = match key & 7 {
            0 => json!(varint(&mut bytes)?),
            1 => fixed(&mut bytes, 8)?,
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                let (value, rest) = (bytes.get(..length)?, bytes.get(length..)?);
                bytes = rest;
                nested(value)
            }
            5 => fixed(&mut bytes, 4)?,
            _ => return None,
        };
        if key >> 3 == 0 {
            return None;
        }
        // Empty values may be written or left out; both mean the same.
        if value == json!("") || value == json!(0) || value == json!({}) {
            continue;
        }
        let list = fields.entry((key >> 3).to_string()).or_insert_with(|| json!([]));
        list.as_array_mut()?.push(value);
    }
    Some(Value::Object(fields))
}

/// Text if it can be read, a message if it cannot, and bytes as the last resort. Short messages may read as text; they
/// do so on both sides.
fn nested(value: &[u8]) -> Value {
    match std::str::from_utf8(value) {
        Ok(text) if !text.chars().any(|letter| letter.is_control() && letter != '\n' && letter != '\t') => json!(text),
        _ => decode(value).unwrap_or_else(|| json!(value)),
    }
}

fn fixed(bytes: &mut &[u8], size: usize) -> Option<Value> {
    let (value, rest) = (bytes.get(..size)?, bytes.get(size..)?);
    *bytes = rest;
    Some(json!(value))
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            *bytes = &bytes[at + 1..];
            return Some(value);
        }
    }
    None
}
