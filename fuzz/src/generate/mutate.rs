//! Changes to a case that was interesting: at the level of JSON where a body is JSON, else of bytes.

use serde_json::Value;

use super::{files, texts, values};
use crate::case::{Case, Part, Step};
use crate::random::Random;

pub(super) fn case(random: &mut Random, case: &mut Case, known: &[Case]) {
    for _ in 0..=random.below(3) {
        match case {
            Case::Http(steps) => of_steps(random, steps, known),
            Case::Store(edits) if random.percent(50) || edits.is_empty() => edits.extend(files::edits(random)),
            Case::Store(edits) => {
                let at = random.below(edits.len());
                drop(edits.remove(at));
            }
        }
    }
}

fn of_steps(random: &mut Random, steps: &mut Vec<Step>, known: &[Case]) {
    let at = random.below(steps.len());
    match (random.below(10), random.pick(known)) {
        // Longer cases find what needs a state, but each step costs.
        (0..=1, Case::Http(others)) if steps.len() < 8 => steps.extend(others.iter().take(4).cloned()),
        (2, _) if steps.len() > 1 => drop(steps.remove(at)),
        (3, _) if steps.len() < 8 && !steps.is_empty() => steps.push(steps[at].clone()),
        _ => steps.get_mut(at).into_iter().for_each(|step| of_step(random, step)),
    }
}

fn of_step(random: &mut Random, step: &mut Step) {
    match random.below(10) {
        0 => step.uri = String::from_utf8_lossy(&bytes(random, step.uri.clone().into_bytes())).into_owned(),
        1 => {
            step.method = (*random.pick(&["GET", "POST", "PUT", "PATCH", "DELETE"])).to_owned();
        }
        2 if !step.headers.is_empty() => {
            let at = random.below(step.headers.len());
            step.headers[at].1 = texts::any(random);
        }
        3 => step.body.iter_mut().for_each(|part| part.times = 1 + random.size(10_000)),
        _ => body(random, step),
    }
}

fn body(random: &mut Random, step: &mut Step) {
    let old = step.body();
    // Huge bodies are the business of the bombs; changing them here costs time and finds little.
    if old.len() > 1 << 18 {
        step.body.truncate(random.below(step.body.len() + 1));
        return;
    }
    step.body = match serde_json::from_slice::<Value>(&old) {
        Ok(mut value) if random.percent(85) => {
            (0..=random.below(3)).for_each(|_| values::change(random, &mut value));
            vec![Part::text(value.to_string())]
        }
        _ => vec![Part::bytes(bytes(random, old))],
    };
}

/// Bytes with some of them changed.
pub(super) fn bytes(random: &mut Random, mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        match random.below(6) {
            0 if !bytes.is_empty() => bytes[at] = random.byte(),
            1 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            2 => bytes.truncate(at),
            3 => drop(bytes.splice(at..at, texts::any(random).into_bytes())),
            4 => {
                let end = (at + random.size(64)).min(bytes.len());
                let copied = bytes[at..end].to_vec();
                drop(bytes.splice(at..at, copied));
            }
            _ => {
                let end = (at + random.size(64)).min(bytes.len());
                drop(bytes.splice(at..end, []));
            }
        }
    }
    bytes
}
