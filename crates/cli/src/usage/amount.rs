//! Sizes as people type them: what they may have meant.

/// `; did you mean 1G or 1Gi?` for a text that is nearly a size, and nothing for one that is not.
pub(crate) fn meant(text: &str) -> String {
    match guesses(text) {
        Some(guesses) => format!("; did you mean {}?", guesses.join(" or ")),
        None => String::new(),
    }
}

fn guesses(text: &str) -> Option<Vec<String>> {
    let text = text.trim();
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim());
    let letter = unit.chars().next().filter(|letter| "kmgtpe".contains(letter.to_ascii_lowercase()))?;
    let rest = unit[1..].to_ascii_lowercase();
    if !matches!(rest.as_str(), "" | "b" | "i" | "ib") || number.is_empty() {
        return None;
    }
    let (decimal, binary) = match letter.to_ascii_lowercase() {
        'k' => ("k".to_owned(), "Ki".to_owned()),
        other => (other.to_ascii_uppercase().to_string(), format!("{}i", other.to_ascii_uppercase())),
    };
    if number.contains('.') {
        return fraction(number, &binary).map(|one| vec![one]);
    }
    match rest.starts_with('i') {
        true => Some(vec![format!("{number}{binary}")]),
        false => Some(vec![format!("{number}{decimal}"), format!("{number}{binary}")]),
    }
}

/// `1.5` of a unit in whole numbers of the next smaller one.
fn fraction(number: &str, binary: &str) -> Option<String> {
    let at = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|unit| *unit == binary)?;
    let smaller = ["", "Ki", "Mi", "Gi", "Ti", "Pi"].get(at)?;
    let whole = number.parse::<f64>().ok()? * 1024.0;
    (whole.fract() == 0.0 && whole >= 1.0).then(|| format!("{whole}{smaller}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_is_nearly_one_is_answered_with_the_ones_it_may_be() {
        let rows = [
            ("1Gb", "; did you mean 1G or 1Gi?"),
            ("10gb", "; did you mean 10G or 10Gi?"),
            ("1gi", "; did you mean 1Gi?"),
            ("1 Gi", "; did you mean 1Gi?"),
            ("500K", "; did you mean 500k or 500Ki?"),
            ("1.5Gi", "; did you mean 1536Mi?"),
            ("1.3Gi", ""),
            ("-5Gi", ""),
            ("lots", ""),
            ("Gi", ""),
            ("1é", ""),
        ];
        for (text, want) in rows {
            assert_eq!(meant(text), want, "{text}");
        }
    }
}
