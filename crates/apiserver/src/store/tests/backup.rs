//! The format of backups: what comes back is what went in, or an error that says where it is wrong.

use proptest::prelude::*;

use super::*;

async fn sample() -> Backup {
    let store = Store::memory(Options::default());
    for number in 0..30 {
        store.commit(put(pod(&number.to_string()), &"v".repeat(number * 300))).await.unwrap();
        store.commit(put(key(NODES, "x", &number.to_string()), "")).await.unwrap();
    }
    store.commit(put(Key::new("csidrivers", None, "d").unwrap(), "x").expiring(UnixMillis(7))).await.unwrap();
    store.commit(Write::delete(pod("3"), Expect::Present)).await.unwrap();
    let files = [("ca.key".to_owned(), b"s3cret".to_vec()), ("ca.crt".to_owned(), Vec::new())].into();
    Backup { snapshot: store.snapshot(), files }
}

fn written(backup: &Backup) -> Vec<u8> {
    let mut bytes = Vec::new();
    backup.write(&mut bytes).unwrap();
    bytes
}

fn read(bytes: &[u8]) -> Result<Backup, BackupError> {
    Backup::read(bytes)
}

#[tokio::test]
async fn a_backup_reads_back_as_it_was_written() {
    let backup = sample().await;
    assert_eq!(read(&written(&backup)).unwrap(), backup);
    let empty = Backup { snapshot: Store::memory(Options::default()).snapshot(), files: [].into() };
    assert_eq!(read(&written(&empty)).unwrap(), empty);
    assert!(!format!("{backup:?}").contains("s3cret"));
}

#[tokio::test]
async fn a_running_store_gives_the_same_bytes_in_pieces() {
    let backup = Backup { files: [].into(), ..sample().await };
    let pieces: Vec<_> = backup.snapshot.clone().into_pieces().collect();
    assert!(pieces.len() > 1 && pieces.iter().all(|piece| piece.len() < 128 << 10), "{} pieces", pieces.len());
    assert_eq!(pieces.concat(), written(&backup));
}

#[tokio::test]
async fn every_cut_is_noticed() {
    let bytes = written(&sample().await);
    for cut in (0..bytes.len()).step_by(97).chain(bytes.len() - 50..bytes.len()) {
        let error = read(&bytes[..cut]).unwrap_err();
        match cut {
            0..8 => assert!(matches!(error, BackupError::Foreign), "{cut}: {error}"),
            _ => assert!(matches!(error, BackupError::CutOff { .. }), "{cut}: {error}"),
        }
    }
    assert!(matches!(read(&[&bytes[..], b"x"].concat()).unwrap_err(), BackupError::Damaged { .. }));
}

#[tokio::test]
async fn every_changed_bit_is_noticed() {
    let bytes = written(&sample().await);
    for at in (0..200).chain((200..bytes.len()).step_by(331)).chain(bytes.len() - 50..bytes.len()) {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        assert!(read(&changed).is_err(), "a change at {at}");
    }
}

#[tokio::test]
async fn a_newer_format_and_a_foreign_file_are_told_apart_from_damage() {
    let mut bytes = written(&sample().await);
    bytes[8] = 2;
    assert!(matches!(read(&bytes).unwrap_err(), BackupError::Newer { found: 2 }));
    assert!(matches!(read(b"SQLite format 3\0").unwrap_err(), BackupError::Foreign));
    assert!(matches!(read(b"").unwrap_err(), BackupError::Foreign));
}

proptest! {
    /// Whatever follows the first bytes: an error, no panic, and no memory for lengths that are not there.
    #[test]
    fn noise_is_refused(noise in prop::collection::vec(any::<u8>(), 0..300)) {
        let bytes = [b"ORLOPBAK\x01\0\0\0".as_slice(), &noise].concat();
        prop_assert!(read(&bytes).is_err());
    }
}
