//! JSON without a table: the bodies of custom resources. Keys that are given twice are reported and the last one counts,
//! as for the kinds that have one.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::{DecodeError, Problem, syntax};
use crate::schema::trail::Trail;

/// As many problems as the reference server reports.
const MAX_PROBLEMS: usize = 100;

/// A JSON text and the keys that it has twice, in the order of the text.
pub fn parse(body: &[u8]) -> Result<(Value, Vec<Problem>), DecodeError> {
    let mut problems = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(body);
    let seed = Free { path: Trail::Root, problems: &mut problems };
    let value = seed.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    let value = value.map_err(|error| DecodeError::Syntax(syntax::message(&error, body)))?;
    Ok((value, problems))
}

struct Free<'a> {
    path: Trail<'a>,
    problems: &'a mut Vec<Problem>,
}

impl<'de> DeserializeSeed<'de> for Free<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Free<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let path = Trail::Item(&self.path, list.len());
            match items.next_element_seed(Free { path, problems: &mut *self.problems })? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let path = Trail::Field(&self.path, &key);
            if self.problems.len() < MAX_PROBLEMS && object.contains_key(&key) {
                let problem = Problem::Duplicate(path.to_string());
                if !self.problems.contains(&problem) {
                    self.problems.push(problem);
                }
            }
            let value = entries.next_value_seed(Free { path, problems: &mut *self.problems })?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_that_is_given_twice_is_told_with_its_path_and_the_last_one_counts() {
        let (value, problems) = parse(br#"{"a": 1, "l": [{"b": 1, "b": 2, "b": 3}], "a": -1.5}"#).expect("it is JSON");
        assert_eq!(value, json!({"a": -1.5, "l": [{"b": 3}]}));
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["duplicate field \"l[0].b\"", "duplicate field \"a\""]);
    }

    #[test]
    fn what_is_read_is_what_the_plain_reader_reads() {
        for text in [r#"{"a":[1,-2,3.5,null,true,"x\n"],"b":{"c":18446744073709551615}}"#, "[]", "1e3"] {
            let plain: Value = serde_json::from_str(text).expect("it is JSON");
            assert_eq!(parse(text.as_bytes()), Ok((plain, Vec::new())));
        }
        assert!(parse(b"{\"a\": }").is_err() && parse(b"{} {}").is_err());
        assert!(parse("[".repeat(100_000).as_bytes()).is_err());
    }
}
