//! What the store promises, on both of its records.

mod backup;
mod clock;
mod copies;
mod crash;
mod damage;
mod full;
mod group;
mod model;
mod power;
mod watching;

use std::path::Path;

use tempfile::TempDir;

use super::*;

const PODS: &str = "pods";
const NODES: &str = "nodes";
/// The time of restores: in 2023.
const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

fn key(resource: &str, namespace: &str, name: &str) -> Key {
    Key::new(resource, Some(namespace), name).unwrap()
}

fn pod(name: &str) -> Key {
    key(PODS, "default", name)
}

fn put(key: Key, value: &str) -> Write {
    Write::put(key, Expect::Anything, value.as_bytes().to_vec())
}

fn open(dir: &Path) -> Store {
    Store::open(dir, Options::default()).unwrap()
}

/// Everything a client could read: the revision and each object with its versions.
fn content(store: &Store) -> (Revision, Vec<Arc<Stored>>) {
    let of = |resource| store.list(&List::latest(&Scope::all(resource))).unwrap().items;
    (store.revision(), [of(PODS), of(NODES)].concat())
}

fn small_history() -> Options {
    let history = History { min_age_millis: 1_000, min_events: 3, max_events: 20, max_bytes: 1 << 20 };
    Options { history, ..Options::default() }
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

#[test]
fn a_name_cannot_reach_into_another_namespace() {
    assert!(Key::new(PODS, Some("a"), "b/c").is_err());
    assert!(Key::new(PODS, Some("a/b"), "c").is_err());
    assert!(Key::new(PODS, None, "").is_err());
    let key = key(PODS, "a", "c");
    assert_eq!((key.namespace(), key.name(), key.path()), (Some("a"), "c", "a/c"));
}

#[tokio::test]
async fn lists_are_in_the_order_of_kubernetes_storage_keys() {
    let store = Store::memory(Options::default());
    for namespace in ["a", "a-b", "ab"] {
        store.commit(put(key(PODS, namespace, "x"), "1")).await.unwrap();
    }
    let paths = |scope: Scope| -> Vec<String> {
        let page = store.list(&List::latest(&scope)).unwrap();
        page.items.iter().map(|stored| stored.key.path().to_owned()).collect()
    };
    assert_eq!(paths(Scope::all(PODS)), ["a-b/x", "a/x", "ab/x"]);
    assert_eq!(paths(Scope::namespace(PODS, "a")), ["a/x"], "a namespace is not a prefix of another");
    assert!(paths(Scope::all(NODES)).is_empty());
}

#[tokio::test]
async fn conditions_are_checked_and_a_refusal_takes_no_revision() {
    let store = Store::memory(Options::default());
    let created = store.commit(Write::put(pod("a"), Expect::Absent, "1")).await.unwrap();
    assert_eq!(created.revision, Revision(1));
    let again = store.commit(Write::put(pod("a"), Expect::Absent, "2")).await.unwrap_err();
    assert!(matches!(again, CommitError::Exists { ref current } if current.revision == Revision(1)));
    let missing = store.commit(Write::put(pod("b"), Expect::Present, "2")).await.unwrap_err();
    assert_eq!(missing, CommitError::Missing { key: pod("b") });
    let absent = store.commit(Write::delete(pod("b"), Expect::Anything)).await.unwrap_err();
    assert_eq!(absent, CommitError::Missing { key: pod("b") });
    let stale = store.commit(Write::delete(pod("a"), Expect::At(Revision(7)))).await.unwrap_err();
    assert!(matches!(stale, CommitError::Changed { expected: Revision(7), .. }));
    assert_eq!(store.revision(), Revision(1));

    let updated = store.commit(Write::put(pod("a"), Expect::At(Revision(1)), "2")).await.unwrap();
    let stored = updated.stored.unwrap();
    assert_eq!((stored.revision, stored.created), (Revision(2), Revision(1)));
    let deleted = store.commit(Write::delete(pod("a"), Expect::At(Revision(2)))).await.unwrap();
    assert_eq!((deleted.revision, deleted.stored), (Revision(3), None), "a delete is a revision of its own");
    let reborn = store.commit(Write::put(pod("a"), Expect::Absent, "3")).await.unwrap().stored.unwrap();
    assert_eq!(reborn.created, Revision(4));
}

#[test]
fn values_do_not_reach_logs() {
    let write = put(pod("a"), "s3cret");
    assert!(!format!("{write:?}").contains("s3cret"));
    let store = Store::memory(Options::default());
    let committed = block_on(store.commit(write)).unwrap();
    assert!(!format!("{committed:?} {store:?}").contains("s3cret"));
}

#[tokio::test]
async fn what_was_written_is_there_after_reopening() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path());
    for name in ["a", "b", "c"] {
        store.commit(put(pod(name), name)).await.unwrap();
    }
    store.commit(put(pod("a"), "again").expiring(UnixMillis(77))).await.unwrap();
    store.commit(Write::delete(pod("b"), Expect::Present)).await.unwrap();
    let (before, uuid) = (content(&store), store.uuid().to_owned());
    drop(store);

    let store = open(dir.path());
    assert_eq!(content(&store), before);
    assert_eq!(store.uuid(), uuid);
    assert_eq!(store.get(&pod("a")).unwrap().expires, Some(UnixMillis(77)));
    let old = store.list(&List::at(&Scope::all(PODS), At::Exact(Revision(3)))).unwrap();
    assert_eq!(old.items.len(), 3, "history survives a restart too");
    let next = store.commit(put(pod("d"), "d")).await.unwrap();
    assert_eq!(next.revision, Revision(6));
}
