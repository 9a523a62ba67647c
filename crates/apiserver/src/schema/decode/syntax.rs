//! JSON syntax errors in the words that clients of the reference server see.

/// Rewords an error of the JSON reader.
pub(super) fn message(error: &serde_json::Error, body: &[u8]) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let text = error.to_string();
    let situation = [
        ("expected value", "looking for beginning of value"),
        ("trailing comma", "looking for beginning of value"),
        ("key must be a string", "looking for beginning of object key string"),
        ("expected `,` or `}`", "after object key:value pair"),
        ("expected `,` or `]`", "after array element"),
        ("expected `:`", "after object key"),
        ("trailing characters", "after top-level value"),
        ("invalid escape", "in string escape code"),
        ("control character", "in string literal"),
        ("invalid number", "in numeric literal"),
    ]
    .into_iter()
    .find(|(ours, _)| text.starts_with(ours));
    match (situation, character(body, error.line(), error.column())) {
        (Some((_, situation)), Some(found)) => format!("invalid character {found:?} {situation}"),
        _ => text,
    }
}

/// The character a position names: lines from one, columns in bytes from one.
fn character(body: &[u8], line: usize, column: usize) -> Option<char> {
    let row = body.split(|byte| *byte == b'\n').nth(line.checked_sub(1)?)?;
    let rest = row.get(column.checked_sub(1)?..)?;
    let head = &rest[..rest.len().min(4)];
    match std::str::from_utf8(head) {
        Ok(text) => text.chars().next(),
        Err(error) => std::str::from_utf8(&head[..error.valid_up_to()]).ok()?.chars().next(),
    }
}
