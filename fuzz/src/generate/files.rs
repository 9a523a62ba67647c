//! Changes to the files of a store: bytes as a disk damages them, and rows as a program of another mind writes them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::{bodies, mutate, texts, values};
use crate::case::{Edit, Row};
use crate::random::Random;

const FILES: [&str; 3] = ["store.db", "store.db-wal", "acknowledged"];

pub(super) fn edits(random: &mut Random) -> Vec<Edit> {
    (0..=random.below(4)).map(|_| edit(random)).collect()
}

fn edit(random: &mut Random) -> Edit {
    let file = (*random.pick(&FILES)).to_owned();
    match random.below(14) {
        0..=3 => {
            let bytes = (0..random.within(1..9)).map(|_| *random.pick(&[0, 1, 0x7f, 0x80, 0xff, 13])).collect();
            Edit::Overwrite { file, at: place(random), bytes }
        }
        4 => {
            Edit::Overwrite { file, at: place(random), bytes: (0..random.size(9_000)).map(|_| random.byte()).collect() }
        }
        5 => Edit::Truncate { file, to: place(random) },
        6 => Edit::Append { file, bytes: vec![random.byte(); 8], times: random.size(4_000) },
        7 => Edit::Copy { file, from: random.below(40) * 4096, to: random.below(40) * 4096, length: 4096 },
        8 => Edit::Remove { file },
        9 => Edit::Mark { revision: number(random) },
        10 => Edit::Meta { body: meta(random) },
        11 => Edit::Sql { statement: statement(random) },
        _ => Edit::Row(row(random)),
    }
}

/// The first bytes of a file and of its pages say the most.
fn place(random: &mut Random) -> usize {
    match random.below(3) {
        0 => random.below(128),
        1 => random.below(20) * 4096 + random.below(32),
        _ => random.below(1 << 20),
    }
}

fn number(random: &mut Random) -> u64 {
    *random.pick(&[0, 1, 5, 40, 1 << 31, 1 << 62, i64::MAX.unsigned_abs(), 1 << 63, u64::MAX - 1, u64::MAX])
}

fn meta(random: &mut Random) -> String {
    let mut meta = json!({
        "format": 1, "uuid": "u", "revision": number(random), "tally": {"rows": number(random), "sum": number(random)},
        "floor": number(random), "floors": {"configmaps": number(random)},
    });
    (0..random.below(2)).for_each(|_| values::change(random, &mut meta));
    match random.below(5) {
        0 => String::from_utf8_lossy(&mutate::bytes(random, meta.to_string().into_bytes())).into_owned(),
        _ => meta.to_string(),
    }
}

fn row(random: &mut Random) -> Row {
    let resource = bodies::resource(random);
    let mut object = bodies::object(random, resource);
    values::change(random, &mut object);
    let stored = resource.map_or("conf.io/foos", |resource| resource.stored_as.as_str()).to_owned();
    let value = match random.below(5) {
        0 => mutate::bytes(random, object.to_string().into_bytes()),
        _ => object.to_string().into_bytes(),
    };
    Row {
        revision: number(random).cast_signed(),
        resource: if random.percent(90) { stored } else { texts::any(random) },
        path: if random.percent(80) { format!("default/{}", texts::name(random)) } else { texts::any(random) },
        created: number(random).cast_signed(),
        expires: random.percent(30).then(|| number(random).cast_signed()),
        value: random.percent(90).then(|| STANDARD.encode(value)),
    }
}

fn statement(random: &mut Random) -> String {
    const STATEMENTS: [&str; 12] = [
        "DROP TABLE log",
        "DROP TABLE meta",
        "DELETE FROM log",
        "DELETE FROM meta",
        "UPDATE log SET value = 'text'",
        "UPDATE log SET checksum = NULL, created = 'x'",
        "UPDATE log SET path = x'ff00ff'",
        "UPDATE log SET revision = -revision",
        "ALTER TABLE log RENAME TO gol",
        "CREATE TRIGGER t AFTER INSERT ON log BEGIN DELETE FROM log; END",
        "CREATE VIEW v AS SELECT * FROM log",
        "PRAGMA user_version = -1",
    ];
    (*random.pick(&STATEMENTS)).to_owned()
}
