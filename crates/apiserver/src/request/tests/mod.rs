//! Tables of requests and the answers that kube-apiserver gives to them.

mod fuzz;
mod info;
mod media;
mod options;
mod selectors;

use super::{Query, Refusal};

fn query(text: &str) -> Query {
    Query::parse(text).unwrap()
}

/// Code, reason and message, the three parts that every client reads.
fn shown<T: std::fmt::Debug>(result: Result<T, Refusal>) -> String {
    match result {
        Ok(value) => format!("accepted: {value:?}"),
        Err(refusal) => format!("{} {}: {refusal}", refusal.code(), refusal.reason()),
    }
}
