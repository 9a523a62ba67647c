//! Backups: the live objects of a store at one revision, and the files that belong to them, as one run of records.
//!
//! # Format
//! A magic number and the format's version; then records, each with its length, its kind and a checksum of both and of
//! its content. The first is the header, the last is the end, which has a SHA-256 of everything before it. So a backup
//! without its end was cut off, and one that has it is complete.
//!
//! # Invariants
//! 1. What [`Backup::read`] accepts is what was written, object for object; anything else says what is wrong and where.
//! 2. A backup has no history: who makes a store of it starts a new one, behind every revision that clients may have
//!    seen (`sqlite::restore`).
//! 3. Objects and files can be secret, so neither is ever shown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::key::Key;
use super::object::{Revision, Stored, UnixMillis};

const MAGIC: [u8; 8] = *b"ORLOPBAK";
/// Counted up when the format changes. A program refuses a higher one than its own.
const FORMAT: u32 = 1;
/// Content of a record at most; objects are limited to far less where they come in.
const MAX_RECORD: usize = 64 << 20;
/// Revisions of a store stay below this, also after the leap of a restore.
const MAX_REVISION: u64 = 1 << 62;
/// Records are gathered to pieces of about this size.
const PIECE: usize = 64 << 10;

const HEADER: u8 = b'H';
const FILE: u8 = b'F';
const OBJECT: u8 = b'O';
const END: u8 = b'E';

/// The live objects of a store at one revision, in the order of their own revisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Tells the store from every other.
    pub uuid: String,
    pub revision: Revision,
    pub objects: Vec<Arc<Stored>>,
}

/// Everything that is needed to come back: objects, and files such as keys by their names.
#[derive(Clone, PartialEq, Eq)]
pub struct Backup {
    pub snapshot: Snapshot,
    pub files: BTreeMap<String, Vec<u8>>,
}

impl fmt::Debug for Backup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.files.keys().collect();
        f.debug_struct("Backup").field("snapshot", &self.snapshot).field("files", &names).finish()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("it is not a backup: it does not start like one")]
    Foreign,
    #[error("it has format {found}; this program knows formats up to {FORMAT}: use a newer one")]
    Newer { found: u32 },
    #[error("it is cut off at byte {at}: the end of the backup is missing")]
    CutOff { at: u64 },
    #[error("it is damaged near byte {at}: {problem}")]
    Damaged { at: u64, problem: String },
    #[error("it cannot be read")]
    Io(#[source] io::Error),
}

#[derive(Serialize, Deserialize)]
struct Header {
    uuid: String,
    revision: u64,
    objects: u64,
    files: u64,
}

impl Snapshot {
    /// The backup of these objects alone, piece by piece as it is asked for.
    pub fn into_pieces(self) -> impl Iterator<Item = Bytes> + Send + 'static {
        let header = header(&self, 0);
        let objects = self.objects.into_iter().map(|stored| object(&stored));
        Pieces { records: std::iter::once(header).chain(objects), sum: Sha256::new(), state: State::Fresh }
    }
}

impl Backup {
    /// Writes all of it. It is complete only when this returns.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let header = std::iter::once(header(&self.snapshot, self.files.len()));
        let files = self.files.iter().map(|(name, content)| file(name, content));
        let objects = self.snapshot.objects.iter().map(|stored| object(stored));
        let records = header.chain(files).chain(objects);
        let mut pieces = Pieces { records, sum: Sha256::new(), state: State::Fresh };
        pieces.try_for_each(|piece| to.write_all(&piece))
    }

    /// Reads and checks all of it.
    pub fn read(from: impl Read) -> Result<Self, BackupError> {
        let mut records = Records { from, at: 0, sum: Sha256::new() };
        records.preamble()?;
        let header = match records.next()? {
            (HEADER, content) => records.json::<Header>(&content)?,
            (kind, _) => return Err(records.damaged(format!("the first record is of kind {kind}"))),
        };
        if header.revision >= MAX_REVISION {
            return Err(records.damaged(format!("revision {} is too large", header.revision)));
        }
        let mut content = Content { header, files: BTreeMap::new(), objects: Vec::new(), keys: BTreeSet::new() };
        loop {
            let sum = records.sum.clone();
            let (kind, record) = records.next()?;
            let taken = match kind {
                FILE => content.take_file(&record),
                OBJECT => content.take_object(&record),
                END if record == sum.finalize().as_slice() => break,
                END => Err("the checksum of the whole is wrong".to_owned()),
                other => Err(format!("a record is of unknown kind {other}")),
            };
            taken.map_err(|problem| records.damaged(problem))?;
        }
        records.nothing_left()?;
        content.complete().map_err(|problem| records.damaged(problem))
    }
}

fn header(snapshot: &Snapshot, files: usize) -> (u8, Vec<u8>) {
    let header = Header {
        uuid: snapshot.uuid.clone(),
        revision: snapshot.revision.0,
        objects: snapshot.objects.len() as u64,
        files: files as u64,
    };
    (HEADER, serde_json::to_vec(&header).expect("a struct of text and numbers is JSON"))
}

fn file(name: &str, content: &[u8]) -> (u8, Vec<u8>) {
    let mut record = Vec::with_capacity(name.len() + content.len() + 4);
    put_text(&mut record, name);
    record.extend_from_slice(content);
    (FILE, record)
}

fn object(stored: &Stored) -> (u8, Vec<u8>) {
    let mut record = Vec::with_capacity(stored.value.len() + 128);
    record.put_u64_le(stored.revision.0);
    record.put_u64_le(stored.created.0);
    record.put_u8(stored.expires.is_some().into());
    record.put_u64_le(stored.expires.map_or(0, |at| at.0));
    put_text(&mut record, stored.key.resource());
    put_text(&mut record, stored.key.path());
    record.extend_from_slice(&stored.value);
    (OBJECT, record)
}

fn put_text(record: &mut Vec<u8>, text: &str) {
    record.put_u32_le(text.len() as u32);
    record.extend_from_slice(text.as_bytes());
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Fresh,
    Running,
    Ended,
}

/// Records as bytes, with the preamble before them and the end behind them.
struct Pieces<I> {
    records: I,
    sum: Sha256,
    state: State,
}

impl<I: Iterator<Item = (u8, Vec<u8>)>> Iterator for Pieces<I> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut piece = BytesMut::new();
        if self.state == State::Fresh {
            piece.extend_from_slice(&MAGIC);
            piece.put_u32_le(FORMAT);
            self.state = State::Running;
        }
        while self.state == State::Running && piece.len() < PIECE {
            match self.records.next() {
                Some((kind, content)) => put_record(&mut piece, kind, &content),
                None => {
                    self.sum.update(&piece);
                    put_record(&mut piece, END, &self.sum.clone().finalize());
                    self.state = State::Ended;
                    return Some(piece.freeze());
                }
            }
        }
        self.sum.update(&piece);
        (!piece.is_empty()).then(|| piece.freeze())
    }
}

fn put_record(piece: &mut BytesMut, kind: u8, content: &[u8]) {
    piece.put_u32_le(content.len() as u32);
    piece.put_u8(kind);
    piece.put_u32_le(checksum(kind, content));
    piece.extend_from_slice(content);
}

fn checksum(kind: u8, content: &[u8]) -> u32 {
    let head = crc32c::crc32c(&(content.len() as u64).to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(head, &[kind]), content)
}

/// The records of a backup, in order, with a sum of all bytes so far.
struct Records<R> {
    from: R,
    at: u64,
    sum: Sha256,
}

impl<R: Read> Records<R> {
    fn preamble(&mut self) -> Result<(), BackupError> {
        let foreign = |error| if matches!(error, BackupError::CutOff { .. }) { BackupError::Foreign } else { error };
        if self.array().map_err(foreign)? != MAGIC {
            return Err(BackupError::Foreign);
        }
        match u32::from_le_bytes(self.array()?) {
            FORMAT => Ok(()),
            found if found > FORMAT => Err(BackupError::Newer { found }),
            found => Err(self.damaged(format!("there is no format {found}"))),
        }
    }

    fn next(&mut self) -> Result<(u8, Vec<u8>), BackupError> {
        let length = u32::from_le_bytes(self.array()?) as usize;
        let [kind] = self.array()?;
        let expected = u32::from_le_bytes(self.array()?);
        if length > MAX_RECORD {
            return Err(self.damaged(format!("a record of {length} bytes")));
        }
        let content = self.bytes(length)?;
        match checksum(kind, &content) == expected {
            true => Ok((kind, content)),
            false => Err(self.damaged("the checksum of a record is wrong".to_owned())),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BackupError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// Grows with what is really there: a damaged length must not cost memory.
    fn bytes(&mut self, length: usize) -> Result<Vec<u8>, BackupError> {
        let mut content = Vec::new();
        (&mut self.from).take(length as u64).read_to_end(&mut content).map_err(BackupError::Io)?;
        self.at += content.len() as u64;
        self.sum.update(&content);
        match content.len() == length {
            true => Ok(content),
            false => Err(BackupError::CutOff { at: self.at }),
        }
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), BackupError> {
        let read = self.bytes(bytes.len())?;
        bytes.copy_from_slice(&read);
        Ok(())
    }

    fn json<T: serde::de::DeserializeOwned>(&self, content: &[u8]) -> Result<T, BackupError> {
        serde_json::from_slice(content).map_err(|error| self.damaged(format!("the header: {error}")))
    }

    fn nothing_left(&mut self) -> Result<(), BackupError> {
        match self.bytes(1) {
            Err(BackupError::CutOff { .. }) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(self.damaged("something follows its end".to_owned())),
        }
    }

    fn damaged(&self, problem: String) -> BackupError {
        BackupError::Damaged { at: self.at, problem }
    }
}

/// What a backup has brought so far.
struct Content {
    header: Header,
    files: BTreeMap<String, Vec<u8>>,
    objects: Vec<Arc<Stored>>,
    keys: BTreeSet<Key>,
}

impl Content {
    fn take_file(&mut self, record: &[u8]) -> Result<(), String> {
        let mut fields = Fields(record);
        let name = fields.text()?.to_owned();
        match self.files.insert(name, fields.0.to_vec()) {
            None => Ok(()),
            Some(_) => Err("a file comes twice".to_owned()),
        }
    }

    fn take_object(&mut self, record: &[u8]) -> Result<(), String> {
        let mut fields = Fields(record);
        let (revision, created) = (Revision(fields.number()?), Revision(fields.number()?));
        let expires = match (fields.take(1)?, fields.number()?) {
            ([0], _) => None,
            (_, at) => Some(UnixMillis(at)),
        };
        let (resource, path) = (fields.text()?, fields.text()?);
        let (namespace, name) = match path.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, path),
        };
        let key = Key::new(resource, namespace, name).map_err(|error| error.to_string())?;
        let before = self.objects.last().map_or(Revision(0), |stored| stored.revision);
        if revision <= before || revision.0 > self.header.revision || created > revision {
            return Err(format!("{key} has revision {revision}, which is out of order"));
        }
        if !self.keys.insert(key.clone()) {
            return Err(format!("{key} comes twice"));
        }
        let value = Bytes::copy_from_slice(fields.0);
        self.objects.push(Arc::new(Stored { key, value, revision, created, expires }));
        Ok(())
    }

    fn complete(self) -> Result<Backup, String> {
        let (objects, files) = (self.objects.len() as u64, self.files.len() as u64);
        if (objects, files) != (self.header.objects, self.header.files) {
            return Err(format!(
                "it has {objects} objects and {files} files instead of {} and {}",
                self.header.objects, self.header.files
            ));
        }
        let snapshot =
            Snapshot { uuid: self.header.uuid, revision: Revision(self.header.revision), objects: self.objects };
        Ok(Backup { snapshot, files: self.files })
    }
}

/// The fields of one record, taken from its front.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (field, rest) = self.0.split_at_checked(length).ok_or("a record is too short")?;
        self.0 = rest;
        Ok(field)
    }

    fn number(&mut self) -> Result<u64, String> {
        let bytes = self.take(8)?.try_into().map_err(|_| "a record is too short")?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn text(&mut self) -> Result<&'a str, String> {
        let length = self.take(4)?.try_into().map_err(|_| "a record is too short")?;
        let length = u32::from_le_bytes(length) as usize;
        std::str::from_utf8(self.take(length)?).map_err(|_| "a name is not text".to_owned())
    }
}
