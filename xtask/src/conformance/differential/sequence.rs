//! Random requests to the storage kinds, from a seed.

use serde_json::{Value, json};

use super::body;
use super::kinds::{KINDS, Kind, METADATA, Scope, Status};
use super::random::Random;
use super::script::Step;

/// Requests in one sequence.
const LENGTH: usize = 8;
/// Selectors for lists and collections, most of them sound.
const SELECTORS: [&str; 6] = [
    "labelSelector=a%3Db",
    "labelSelector=!a",
    "labelSelector=a%20in%20(b,c)",
    "fieldSelector=metadata.name%3Dx",
    "labelSelector=a%20b",
    "limit=1",
];

/// The sequence of a seed. Most of its requests are about one object, so that they depend on each other.
pub(super) fn of(seed: u64) -> Vec<Step> {
    let mut random = Random::new(seed);
    let kind = random.pick(&KINDS);
    let mut writer = Writer { random, kind };
    let mut steps = vec![writer.create()];
    while steps.len() < LENGTH {
        steps.push(writer.step());
    }
    steps
}

struct Writer {
    random: Random,
    kind: &'static Kind,
}

impl Writer {
    fn step(&mut self) -> Step {
        match self.random.below(14) {
            0 | 1 => self.create(),
            2 | 3 => self.update(),
            4..=8 => self.patch(),
            9 | 10 => self.delete(),
            11 => self.read(),
            12 => self.list(),
            _ if self.random.once_in(3) => self.delete_collection(),
            _ => self.patch(),
        }
    }

    fn create(&mut self) -> Step {
        let object = self.object();
        let query = self.query(&["", "", "", "dryRun=All", "fieldValidation=Strict", "fieldManager=m1"]);
        self.finish("POST", format!("{}{query}", self.kind.path), Some(object), &[])
    }

    fn update(&mut self) -> Step {
        let mut object = self.object();
        if self.random.once_in(2) {
            object["metadata"]["resourceVersion"] = json!("${rv}");
        } else if self.random.once_in(4) {
            object["metadata"]["resourceVersion"] = json!("1");
        } else if self.random.once_in(8) {
            object["metadata"]["uid"] = json!(self.random.pick(&["${uid}", "abc"]));
        }
        let place = self.place();
        let query = self.query(&["", "", "dryRun=All", "fieldValidation=Strict", "fieldManager=m2"]);
        self.finish("PUT", format!("{place}{query}"), Some(object), &[])
    }

    fn patch(&mut self) -> Step {
        let place = self.place();
        let kind = *self.random.pick(&["merge", "merge", "strategic", "json", "apply"]);
        let mut query = self.query(&["", "", "dryRun=All", "fieldManager=m2", "fieldManager=m3"]);
        let change = match kind {
            "json" => self.operations(),
            "apply" => {
                let manager = *self.random.pick(&["m1", "m2", "m3"]);
                let force = *self.random.pick(&["", "&force=true"]);
                query = format!("?fieldManager={manager}{force}");
                self.object()
            }
            _ => self.change(),
        };
        self.finish("PATCH", format!("{place}{query}"), Some(change), &[kind])
    }

    fn delete(&mut self) -> Step {
        let place = format!("{}/{}", self.kind.path, self.name());
        let options = [
            None,
            None,
            // Other policies leave work for a garbage collector, which only one of the servers has.
            Some(json!({"propagationPolicy": "Background"})),
            Some(json!({"propagationPolicy": "Foreground", "dryRun": ["All"]})),
            Some(json!({"propagationPolicy": "Orphan", "dryRun": ["All"]})),
            Some(json!({"gracePeriodSeconds": 0})),
            Some(json!({"dryRun": ["All"]})),
            Some(json!({"preconditions": {"uid": "abc"}})),
            Some(json!({"preconditions": {"resourceVersion": "${rv}"}})),
            Some(json!({"preconditions": {"resourceVersion": "1"}})),
        ];
        let body = self.random.pick(&options).clone();
        self.finish("DELETE", place, body, &[])
    }

    fn read(&mut self) -> Step {
        let place = format!("{}/{}", self.kind.path, self.name());
        let form = *self.random.pick(&["", "table", "partial"]);
        self.finish("GET", place, None, &[form])
    }

    /// Cluster-wide lists hold the objects of others, so they are narrowed to a name.
    fn list(&mut self) -> Step {
        let form = *self.random.pick(&["", "table", "partials"]);
        let query = match self.kind.scope {
            Scope::Namespaced => format!("?{}", self.random.pick(&SELECTORS)),
            Scope::Cluster => format!("?fieldSelector=metadata.name%3D{}", self.name()),
        };
        self.finish("GET", format!("{}{query}", self.kind.path), None, &[form])
    }

    fn delete_collection(&mut self) -> Step {
        let query = match self.kind.scope {
            Scope::Namespaced => format!("?{}", self.random.pick(&SELECTORS)),
            Scope::Cluster => format!("?fieldSelector=metadata.name%3D{}", self.name()),
        };
        self.finish("DELETE", format!("{}{query}", self.kind.path), None, &[])
    }

    fn finish(&self, method: &str, path: String, body: Option<Value>, flags: &[&str]) -> Step {
        let mut options: Vec<(String, String)> =
            flags.iter().filter(|flag| !flag.is_empty()).map(|flag| (flag.to_string(), String::new())).collect();
        // What an answer does not hold keeps its last value, so that refusals do not spoil the next request.
        options.push(("keep:rv".to_owned(), "/metadata/resourceVersion".to_owned()));
        options.push(("keep:uid".to_owned(), "/metadata/uid".to_owned()));
        Step { method: method.to_owned(), path, body: body.map(|body| body.to_string()), options }
    }

    /// The object's address or, now and then, that of its status.
    fn place(&mut self) -> String {
        let status = self.kind.status == Status::Served && self.random.once_in(3);
        format!("{}/{}{}", self.kind.path, self.name(), if status { "/status" } else { "" })
    }

    fn name(&mut self) -> &'static str {
        if self.random.once_in(12) { "${ns}-y" } else { "${ns}-x" }
    }

    fn query(&mut self, choices: &[&str]) -> String {
        match *self.random.pick(choices) {
            "" => String::new(),
            chosen => format!("?{chosen}"),
        }
    }

    /// A valid object with up to two fields set to something.
    fn object(&mut self) -> Value {
        let mut object = body::base(self.kind.template).unwrap_or_default();
        object["metadata"]["name"] = json!(self.name());
        for _ in 0..self.random.below(3) {
            let (pointer, value) = self.field();
            set(&mut object, &pointer, value);
        }
        object
    }

    /// A merge patch of one or two fields.
    fn change(&mut self) -> Value {
        let mut change = json!({});
        for _ in 0..=self.random.below(2) {
            let (pointer, value) = self.field();
            set(&mut change, &pointer, value);
        }
        if self.random.once_in(8) {
            set(&mut change, "/metadata/resourceVersion", json!(self.random.pick(&["${rv}", "1"])));
        }
        change
    }

    fn operations(&mut self) -> Value {
        let count = 1 + self.random.below(2);
        (0..count)
            .map(|_| {
                let (path, value) = self.field();
                match self.random.below(6) {
                    0 => json!({"op": "remove", "path": path}),
                    1 => json!({"op": "replace", "path": path, "value": value}),
                    2 => json!({"op": "test", "path": path, "value": value}),
                    _ => json!({"op": "add", "path": path, "value": value}),
                }
            })
            .collect()
    }

    fn field(&mut self) -> (String, Value) {
        let fields = if self.random.once_in(3) { METADATA } else { self.kind.fields };
        let (pointer, values) = self.random.pick(fields);
        let text = *self.random.pick(values);
        let value = serde_json::from_str(text).unwrap_or_default();
        ((*pointer).to_owned(), value)
    }
}

/// Sets what a pointer names and makes the objects on the way.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut place = object;
    for step in pointer.split('/').skip(1) {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[step];
    }
    *place = value;
}

/// The shortest list that still fails, found by leaving out one request after another.
pub(super) async fn shrink<F>(mut steps: Vec<Step>, mut fails: F) -> Vec<Step>
where
    F: AsyncFnMut(&[Step]) -> bool,
{
    let mut at = steps.len();
    while at > 0 {
        at -= 1;
        let mut shorter = steps.clone();
        shorter.remove(at);
        if !shorter.is_empty() && fails(&shorter).await {
            steps = shorter;
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_requests() {
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
    }

    #[test]
    fn every_value_of_the_tables_is_json() {
        for kind in &KINDS {
            assert!(body::base(kind.template).is_some(), "{}", kind.template);
            for (pointer, values) in kind.fields.iter().chain(METADATA) {
                for value in *values {
                    assert!(serde_json::from_str::<Value>(value).is_ok(), "{pointer} {value}");
                }
            }
        }
    }

    #[tokio::test]
    async fn a_failing_sequence_is_made_short() {
        let steps = of(3);
        let guilty = steps[4].clone();
        let short = shrink(steps, async |steps: &[Step]| steps.contains(&guilty)).await;
        assert_eq!(short, [guilty]);
    }
}
