//! The files of a store after somebody changed them: opened, served from, salvaged and restored.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::OnceLock;

use apiserver::store::{Backup, Expect, History, Key, Options, Store, UnixMillis, Write, restore, salvage};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rusqlite::{Connection, named_params};
use tempfile::TempDir;

use crate::case::{Edit, Row, Step};

const FILES: [&str; 3] = ["store.db", "store.db-wal", "acknowledged"];

/// How a store with changed files was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reception {
    /// What opening, salvaging and restoring said, in short.
    pub said: Vec<String>,
}

/// The files of a small store that was killed: some of it in the database, some in the write-ahead file.
fn files() -> &'static [(&'static str, Vec<u8>)] {
    static BASE: OnceLock<Vec<(&'static str, Vec<u8>)>> = OnceLock::new();
    BASE.get_or_init(|| {
        let folder = TempDir::new().expect("temporary folders can be made");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime without a network can always be made").block_on(async {
            for session in 0..2 {
                let store = Store::open(folder.path(), options()).expect("an empty folder takes a new store");
                for round in 0..12 {
                    let key = Key::new("configmaps", Some("default"), &format!("m{round}")).expect("the name is plain");
                    let value = format!(
                        r#"{{"metadata":{{"name":"m{round}","namespace":"default"}},"data":{{"s":"{session}"}}}}"#
                    );
                    store.commit(Write::put(key, Expect::Anything, value)).await.expect("a new store takes writes");
                }
                if session == 1 {
                    let read = |file| fs::read(folder.path().join(file)).expect("an open store has its files");
                    return FILES.map(|file| (file, read(file))).to_vec();
                }
            }
            Vec::new()
        })
    })
}

fn options() -> Options {
    let history = History { min_age_millis: 1_000, min_events: 3, max_events: 20, max_bytes: 1 << 20 };
    Options { history, ..Options::default() }
}

/// Changes the files of a store and uses it.
pub fn run(edits: &[Edit]) -> io::Result<Reception> {
    let folder = TempDir::new()?;
    let (dir, saved, restored) =
        (folder.path().join("store"), folder.path().join("saved"), folder.path().join("restored"));
    fs::create_dir(&dir)?;
    for (file, bytes) in files() {
        fs::write(dir.join(file), bytes)?;
    }
    for edit in edits {
        apply(&dir, edit)?;
    }
    let mut said = Vec::new();
    said.push(
        salvage(&dir, &saved, NOW)
            .map_or_else(|error| short(&error.to_string()), |salvaged| format!("saved {}", salvaged.objects)),
    );
    for dir in [&dir, &saved] {
        if !dir.exists() {
            continue;
        }
        match Store::open(dir, options()) {
            Ok(store) => {
                said.push(carry(&store, &restored));
                said.extend(serve(store));
            }
            Err(error) => said.push(short(&error.to_string())),
        }
    }
    Ok(Reception { said })
}

/// The time of a salvage or a restore.
const NOW: UnixMillis = UnixMillis(1_800_000_000_000);

/// What could be opened is backed up, and restored from its backup unless that is refused.
fn carry(store: &Store, to: &Path) -> String {
    if to.exists() {
        return "restored before".to_owned();
    }
    let bytes: Vec<u8> = store.snapshot().into_pieces().flatten().collect();
    match Backup::read(bytes.as_slice()) {
        Ok(backup) => match restore(&backup.snapshot, to, NOW) {
            Ok(_) => "restored".to_owned(),
            Err(error) => short(&error.to_string()),
        },
        // Rows that somebody made up, checksums and all, can contradict each other: then the backup says which.
        Err(error) => short(&error.to_string()),
    }
}

/// What the rows hold is decoded when somebody asks for it.
fn serve(store: Store) -> Vec<String> {
    let mut steps: Vec<Step> = apiserver::catalog::built_in()
        .stored()
        .map(|resource| match resource.group.as_str() {
            "" => format!("/api/{}/{}", resource.version, resource.plural),
            group => format!("/apis/{group}/{}/{}", resource.version, resource.plural),
        })
        .map(|path| Step::new("GET", path))
        .collect();
    let one = "/api/v1/namespaces/default/configmaps/m1";
    steps.push(Step::new("GET", one));
    let label = vec![crate::case::Part::text(r#"{"metadata":{"labels":{"a":"b"}}}"#)];
    steps.push(Step::new("PATCH", one).with_body("application/merge-patch+json", label));
    steps.push(Step::new("DELETE", one));
    let answers = crate::http::run_on(store, &steps);
    answers.into_iter().map(|answer| answer.code.to_string()).collect()
}

fn short(text: &str) -> String {
    text.chars().filter(|letter| letter.is_alphabetic() || *letter == ' ').take(120).collect()
}

fn apply(dir: &Path, edit: &Edit) -> io::Result<()> {
    match edit {
        Edit::Overwrite { file, at, bytes } => change(dir, file, |content| {
            let at = at % content.len().max(1);
            content.iter_mut().skip(at).zip(bytes).for_each(|(old, new)| *old = *new);
        }),
        Edit::Truncate { file, to } => change(dir, file, |content| content.truncate(to % (content.len() + 1))),
        Edit::Append { file, bytes, times } => {
            change(dir, file, |content| content.extend(bytes.repeat((*times).min(1 << 16))))
        }
        Edit::Copy { file, from, to, length } => change(dir, file, |content| {
            let from = from % (content.len() + 1);
            let copied: Vec<u8> = content.iter().skip(from).take(*length).copied().collect();
            let to = to % content.len().max(1);
            content.iter_mut().skip(to).zip(copied).for_each(|(old, new)| *old = new);
        }),
        Edit::Remove { file } => match fs::remove_file(dir.join(known(file))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        },
        Edit::Mark { revision } => fs::write(dir.join("acknowledged"), mark(*revision)),
        Edit::Meta { body } => {
            let sum = crc32c::crc32c(body.as_bytes());
            in_database(dir, |db| db.execute("UPDATE meta SET body = ?1, checksum = ?2", (body, sum)).map(drop));
            Ok(())
        }
        Edit::Row(row) => {
            in_database(dir, |db| insert(db, row));
            Ok(())
        }
        Edit::Sql { statement } => {
            in_database(dir, |db| db.execute_batch(statement));
            Ok(())
        }
    }
}

/// Only the store's own files are touched, whatever a corpus file says.
fn known(file: &str) -> &'static str {
    FILES.into_iter().find(|known| *known == file).unwrap_or(FILES[0])
}

fn change(dir: &Path, file: &str, change: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
    let path = dir.join(known(file));
    // A file that an earlier edit removed is changed from nothing.
    let mut content = fs::read(&path).unwrap_or_default();
    change(&mut content);
    fs::write(path, content)
}

/// A database that was damaged before may take no statement; then it stays as it is.
fn in_database(dir: &Path, work: impl FnOnce(&Connection) -> rusqlite::Result<()>) {
    let Ok(db) = Connection::open(dir.join(FILES[0])) else { return };
    let _ = work(&db);
}

fn mark(revision: u64) -> Vec<u8> {
    let mut bytes = b"ORLOPACK".to_vec();
    bytes.extend(revision.to_le_bytes());
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

fn insert(db: &Connection, row: &Row) -> rusqlite::Result<()> {
    let value = row.value.as_ref().map(|text| STANDARD.decode(text).unwrap_or_default());
    let statement = "INSERT OR REPLACE INTO log (revision, resource, path, created, expires, value, checksum)
        VALUES (:revision, :resource, :path, :created, :expires, :value, :checksum)";
    let parameters = named_params! {
        ":revision": row.revision, ":resource": row.resource, ":path": row.path, ":created": row.created,
        ":expires": row.expires, ":value": value, ":checksum": checksum(row, value.as_deref()),
    };
    db.execute(statement, parameters).map(drop)
}

/// As the format says: every column, with lengths.
fn checksum(row: &Row, value: Option<&[u8]>) -> u32 {
    let number = |sum, number: i64| crc32c::crc32c_append(sum, &number.to_le_bytes());
    let text = |sum, text: &[u8]| crc32c::crc32c_append(number(sum, i64::try_from(text.len()).unwrap_or(0)), text);
    let optional = |sum, present: bool| crc32c::crc32c_append(sum, &[present.into()]);
    let mut sum = number(number(0, row.revision), row.created);
    sum = text(text(sum, row.resource.as_bytes()), row.path.as_bytes());
    sum = number(optional(sum, row.expires.is_some()), row.expires.unwrap_or(0));
    text(optional(sum, value.is_some()), value.unwrap_or_default())
}
