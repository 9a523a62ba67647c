//! Texts that parsers trip over.

use crate::random::Random;

const NUMBERS: [&str; 24] = [
    "0",
    "-0",
    "1",
    "-1",
    "00",
    "0x10",
    "1e3",
    "1e999999",
    "-1e-999999",
    "1.5",
    ".5",
    "5.",
    "NaN",
    "Infinity",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "2147483648",
    "1_000",
    "+1",
    "1e-1",
];
const QUANTITIES: [&str; 18] = [
    "1Gi",
    "1",
    "0",
    "-1Gi",
    "1e3",
    "1E9999",
    "1Ei",
    "999999999999Ei",
    "9223372036854775807Ei",
    "0.1n",
    "1e-99999",
    "1.0000000000000000001",
    ".5Gi",
    "1ki",
    "1 Gi",
    "--1",
    "1e9223372036854775807",
    "170141183460469231731687303715884105728",
];
const TIMES: [&str; 12] = [
    "2026-01-01T00:00:00Z",
    "0001-01-01T00:00:00Z",
    "0000-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "10000-01-01T00:00:00Z",
    "2026-02-30T00:00:00Z",
    "2026-01-01T00:00:00.999999999999Z",
    "0000-01-01T00:00:00+24:59",
    "2026-01-01T24:60:60Z",
    "2026-01-01t00:00:00z",
    "é026-01-01T00:00:00Z",
    "9999-12-31T23:59:59-24:59",
];
const DURATIONS: [&str; 10] = [
    "1s",
    "-1s",
    "99999999999h",
    "1h1m1s",
    "1.5h",
    "1ns",
    "s",
    "9223372036854775807ns",
    "1e9s",
    "0.0000000000000000001h",
];
const NAMES: [&str; 22] = [
    "a",
    "b",
    "f",
    "claim",
    "default",
    "kube-system",
    "n",
    "x.io",
    "x.io/y",
    "A",
    "",
    ".",
    "..",
    "a..b",
    "-a",
    "a/b",
    "%2e%2e",
    "foos.conf.io",
    "system:masters",
    "kubernetes.io/hostname",
    "storage",
    "Foo",
];
const ODD: [&str; 16] = [
    "\0",
    "\u{feff}",
    "\u{202e}",
    "é",
    "𝔘",
    "\u{10ffff}",
    "\n",
    "\r\n",
    "\t",
    "\"",
    "\\",
    "~1",
    "~0",
    "$patch",
    "*",
    "null",
];

/// A text of any of the kinds that fields hold.
pub(super) fn any(random: &mut Random) -> String {
    match random.below(16) {
        0 => number(random),
        1 => quantity(random),
        2 => time(random),
        3 => duration(random),
        4 => (*random.pick(&ODD)).to_owned(),
        5 => random.pick(&["x", "é", "a.", "a/", "\\", "%41", "["]).repeat(random.size(30_000)),
        6 => (0..random.below(5)).map(|_| any(random)).collect(),
        7 => selector(random),
        _ => name(random),
    }
}

pub(super) fn number(random: &mut Random) -> String {
    (*random.pick(&NUMBERS)).to_owned()
}

pub(super) fn quantity(random: &mut Random) -> String {
    (*random.pick(&QUANTITIES)).to_owned()
}

pub(super) fn time(random: &mut Random) -> String {
    (*random.pick(&TIMES)).to_owned()
}

pub(super) fn duration(random: &mut Random) -> String {
    (*random.pick(&DURATIONS)).to_owned()
}

pub(super) fn name(random: &mut Random) -> String {
    (*random.pick(&NAMES)).to_owned()
}

/// A label or field selector, or something near it.
pub(super) fn selector(random: &mut Random) -> String {
    const WORDS: [&str; 22] = [
        "a",
        "b",
        "in",
        "notin",
        "=",
        "==",
        "!=",
        "!",
        "(",
        ")",
        ",",
        ">",
        "<",
        " ",
        "1",
        "metadata.name",
        "metadata.namespace",
        "x.io/y",
        "\\,",
        "\\=",
        "spec.a",
        "é",
    ];
    if random.percent(40) {
        let terms =
            ["a=b", "a!=b", "a", "!a", "a in (b,c)", "a notin (b)", "a>1", "metadata.name=f", "spec.nodeName=n"];
        return (0..=random.below(3)).map(|_| *random.pick(&terms)).collect::<Vec<_>>().join(",");
    }
    (0..random.size(3_000)).map(|_| *random.pick(&WORDS)).collect()
}
