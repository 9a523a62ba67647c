//! YAML request bodies, read the way the reference server reads them: to untyped values first, with the booleans and
//! octal numbers of YAML 1.1 (`yes`, `off`, `0644`), then as JSON.

use serde_json::{Map, Number, Value};
use serde_saphyr::{DuplicateKeyPolicy, Options};

use super::Problem;

/// Why a body is not YAML.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    #[error("error converting YAML to JSON: yaml: invalid UTF-8")]
    NotText,
    #[error("error converting YAML to JSON: yaml: {0}")]
    Syntax(String),
}

/// One YAML document as JSON. Of a key given twice the last value counts, and the first such key is reported.
pub fn parse(body: &[u8]) -> Result<(Value, Vec<Problem>), YamlError> {
    let text = std::str::from_utf8(body).map_err(|_| YamlError::NotText)?;
    let lenient: Value = serde_saphyr::from_str_with_options(text, options(DuplicateKeyPolicy::LastWins))
        .map_err(|error| YamlError::Syntax(first_line(&error)))?;
    let strict: Result<Value, _> = serde_saphyr::from_str_with_options(text, options(DuplicateKeyPolicy::Error));
    let problems = strict.err().and_then(|error| duplicate(&error)).into_iter().collect();
    Ok((whole_numbers(lenient), problems))
}

fn options(duplicate_keys: DuplicateKeyPolicy) -> Options {
    serde_saphyr::options! {
        duplicate_keys: duplicate_keys,
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

fn first_line(error: &serde_saphyr::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// The only way in which the strict reading of a readable document can fail.
fn duplicate(error: &serde_saphyr::Error) -> Option<Problem> {
    match error {
        serde_saphyr::Error::DuplicateMappingKey { key, location } => {
            Some(Problem::DuplicateLine { line: location.line(), key: key.clone().unwrap_or_default() })
        }
        _ => None,
    }
}

/// YAML has one kind of number: `12e3` is as whole as `12000`.
fn whole_numbers(value: Value) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT => {
                Value::Number(Number::from(float as i64))
            }
            _ => Value::Number(number),
        },
        Value::Array(items) => items.into_iter().map(whole_numbers).collect(),
        Value::Object(entries) => {
            Value::Object(entries.into_iter().map(|(key, value)| (key, whole_numbers(value))).collect::<Map<_, _>>())
        }
        other => other,
    }
}
