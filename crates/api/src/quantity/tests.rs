use std::cmp::Ordering;

use proptest::prelude::*;

use super::{Format, MILLI, Quantity, QuantityError};

fn printed(text: &str) -> String {
    Quantity::parse(text).map_or_else(|error| error.to_string(), |quantity| quantity.to_string())
}

/// Section 2.
#[test]
fn the_canonical_form_has_no_fraction_and_the_largest_suffix() {
    for (text, canonical) in [
        ("1024Ki", "1Mi"),
        ("1.5Gi", "1536Mi"),
        ("1000M", "1G"),
        ("1000000", "1M"),
        ("0.5", "500m"),
        ("1.25Ki", "1280"),
        ("0.1Ki", "102400m"),
        ("1e9", "1e9"),
        ("0.5Mi", "512Ki"),
        ("0.0001Ki", "102400u"),
        ("1.00000000001Gi", "1073741824010737419n"),
        ("0", "0"),
        ("0Ki", "0"),
        ("-0.0", "0"),
        ("+", "0"),
        (".5", "500m"),
    ] {
        assert_eq!(printed(text), canonical, "{text}");
    }
}

#[test]
fn a_text_that_looks_canonical_is_kept_as_it_is() {
    for text in ["+1", "007", "7Ki", "1000Ki", "1e+3", "1E-3", "12E", "1.", "9223372036854775807", "7Ei"] {
        assert_eq!(printed(text), text);
    }
    assert_eq!(printed("8Ki"), "8Ki", "rewritten to the same text");
    assert_eq!(printed("+8Ki"), "8Ki", "divisible by eight, so rewritten");
}

#[test]
fn too_fine_numbers_are_rounded_up_and_too_large_binary_ones_are_capped() {
    assert_eq!(printed("0.0000000001"), "1n");
    assert_eq!(printed("-0.0000000001"), "-1n");
    assert_eq!(printed("8Ei"), "9223372036854775807");
    assert_eq!(printed("-100Ei"), "-9223372036854775807");
    assert_eq!(printed("99999999999999999999999999999999Ei"), "9223372036854775807");
    assert_eq!(printed("1000E"), "1e21", "no suffix reaches this far");
}

#[test]
fn resource_lists_keep_thousandths() {
    for (text, rounded) in
        [("1u", "1m"), ("1500u", "2m"), ("-1u", "-1m"), ("0.0001Ki", "103m"), ("5m", "5m"), ("+1", "+1")]
    {
        assert_eq!(Quantity::parse(text).unwrap().round_up(MILLI).to_string(), rounded, "{text}");
    }
}

#[test]
fn texts_that_are_no_quantities_are_refused() {
    for (text, error) in [
        ("", QuantityError::Format),
        ("1Zi", QuantityError::Format),
        ("1 ", QuantityError::Format),
        ("1..2", QuantityError::Format),
        ("é", QuantityError::Format),
        ("1e", QuantityError::Suffix),
        ("1ki", QuantityError::Suffix),
        ("1e99999999999", QuantityError::Suffix),
        ("1234567890123456789012345678901234567890", QuantityError::Numeric),
    ] {
        assert_eq!(Quantity::parse(text).unwrap_err(), error, "{text}");
    }
}

#[test]
fn sums_are_printed_like_their_first_term() {
    let sum = |left: &str, right: &str| {
        Quantity::parse(left).unwrap().checked_add(&Quantity::parse(right).unwrap()).unwrap().to_string()
    };
    assert_eq!(sum("1Gi", "1G"), "2073741824");
    assert_eq!(sum("2Gi", "3Gi"), "5Gi");
    assert_eq!(sum("0", "3Gi"), "3Gi");
    assert_eq!(sum("1G", "500m"), "1000000000500m");
    let difference = Quantity::parse("5Gi").unwrap().checked_sub(&Quantity::parse("1Gi").unwrap()).unwrap();
    assert_eq!(difference.to_string(), "4Gi");
    assert_eq!(difference.format(), Format::BinarySi);
    assert!(Quantity::parse("1e100").unwrap().checked_add(&Quantity::parse("1n").unwrap()).is_none());
}

#[test]
fn numbers_far_apart_are_still_compared() {
    let compare = |left: &str, right: &str| Quantity::parse(left).unwrap().cmp(&Quantity::parse(right).unwrap());
    assert_eq!(compare("1e100", "1n"), Ordering::Greater);
    assert_eq!(compare("-1e100", "1n"), Ordering::Less);
    assert_eq!(compare("1Ki", "1024"), Ordering::Equal);
    assert_eq!(compare("0.1", "100m"), Ordering::Equal);
    assert_eq!(compare("99999999999999999999999999999999999999", "1e38"), Ordering::Less);
    assert_eq!(Quantity::parse("1500m").unwrap().to_integer(), Some(2));
    assert_eq!(Quantity::parse("2Gi").unwrap().to_integer(), Some(2 << 30));
    assert_eq!(Quantity::parse("1e60").unwrap().to_integer(), None);
    assert_eq!(Quantity::zero(), Quantity::from_integer(0, Format::BinarySi));
}

fn text() -> impl Strategy<Value = String> {
    let suffix = prop::sample::select(vec!["", "n", "u", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti", "e3", "e-2"]);
    ("-?[0-9]{1,9}(\\.[0-9]{0,4})?", suffix).prop_map(|(number, suffix)| format!("{number}{suffix}"))
}

proptest! {
    #[test]
    fn printing_and_reading_keeps_the_value_and_is_stable(text in text()) {
        let quantity = Quantity::parse(&text).unwrap();
        let again = Quantity::parse(&quantity.to_string()).unwrap();
        prop_assert_eq!(&again, &quantity);
        prop_assert_eq!(again.to_string(), quantity.to_string());
    }

    #[test]
    fn addition_agrees_with_order(left in text(), right in text()) {
        let (left, right) = (Quantity::parse(&left).unwrap(), Quantity::parse(&right).unwrap());
        let sum = left.checked_add(&right).unwrap();
        prop_assert_eq!(&sum, &right.checked_add(&left).unwrap());
        prop_assert_eq!(sum.cmp(&left), right.cmp(&Quantity::zero()));
        prop_assert_eq!(&sum.checked_sub(&right).unwrap(), &left);
        prop_assert_eq!(left.cmp(&right), right.cmp(&left).reverse());
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,40}") {
        if let Ok(quantity) = Quantity::parse(&text) {
            let _ = (quantity.to_string(), quantity.to_integer(), quantity.clone().round_up(MILLI));
        }
    }
}
