//! Which of several words somebody may have meant.

/// The word that is nearest, if any is near: a third of its letters may differ.
pub(crate) fn nearest<'a>(given: &str, words: &[&'a str]) -> Option<&'a str> {
    let given = given.to_lowercase();
    let far = |word: &str| distance(&given, &word.to_lowercase());
    let best = words.iter().min_by_key(|word| far(word))?;
    (far(best) <= best.chars().count() / 3).then_some(*best)
}

/// How many letters have to be changed, added or taken away (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let change = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_with_a_few_wrong_letters_is_found_and_a_strange_one_is_not() {
        let words = ["Topology", "VolumeAttributesClass"];
        assert_eq!(nearest("Topolgy", &words), Some("Topology"));
        assert_eq!(nearest("topology", &words), Some("Topology"));
        assert_eq!(nearest("Snapshots", &words), None);
        assert_eq!(nearest("x", &[]), None);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
