//! Values as Go prints them: some messages of the protocol quote values in that form, such as `map[spec:map[foo:1]]`.

use serde_json::{Number, Value};

/// A value as `%v` prints it.
pub(crate) fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(_) => value.to_string(),
        Value::Number(number) => go_number(number),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_text).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}:{}", go_text(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
    }
}

/// A value as `%#v` prints it.
pub(crate) fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Bool(_) | Value::String(_) => value.to_string(),
        Value::Number(number) => go_number(number),
        Value::Array(items) => {
            format!("[]interface {{}}{{{}}}", items.iter().map(go_syntax).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| format!("{name:?}:{}", go_syntax(value));
            format!("map[string]interface {{}}{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
    }
}

/// Floats have an exponent from 21 digits on and no fraction when it is zero.
fn go_number(number: &Number) -> String {
    match (number.as_i64(), number.as_f64()) {
        (Some(whole), _) => whole.to_string(),
        (None, Some(float)) if float.abs() < 1e21 && float.abs() >= 1e-4 => float.to_string(),
        (None, Some(float)) => float_with_exponent(float),
        (None, None) => number.to_string(),
    }
}

fn float_with_exponent(float: f64) -> String {
    if float == 0.0 {
        return "0".to_owned();
    }
    let text = format!("{float:e}");
    match text.split_once('e') {
        Some((digits, exponent)) => match exponent.strip_prefix('-') {
            Some(below) => format!("{digits}e-{below:0>2}"),
            None => format!("{digits}e+{exponent:0>2}"),
        },
        None => text,
    }
}
