//! The store against a list of everything that ever happened (API-9, points 1 to 8).

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Put {
        key: usize,
        expect: Guess,
        ttl: Option<u64>,
    },
    Delete {
        key: usize,
        expect: Guess,
    },
    /// Lists page by page at a revision this far back.
    List {
        scope: usize,
        back: u64,
        limit: usize,
    },
    Watch {
        scope: usize,
        back: u64,
    },
    Drain,
    Tick {
        millis: u64,
    },
    Restart,
}

#[derive(Debug, Clone, Copy)]
enum Guess {
    Anything,
    Absent,
    Present,
    Right,
    Wrong,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let guess = || {
        prop_oneof![
            Just(Guess::Anything),
            Just(Guess::Absent),
            Just(Guess::Present),
            Just(Guess::Right),
            Just(Guess::Wrong)
        ]
    };
    let ttl = prop_oneof![3 => Just(None), 1 => (1u64..3_000).prop_map(Some)];
    let step = prop_oneof![
        12 => (0usize..12, guess(), ttl).prop_map(|(key, expect, ttl)| Step::Put { key, expect, ttl }),
        4 => (0usize..12, guess()).prop_map(|(key, expect)| Step::Delete { key, expect }),
        4 => (0usize..6, 0u64..40, 1usize..5).prop_map(|(scope, back, limit)| Step::List { scope, back, limit }),
        2 => (0usize..6, 0u64..40).prop_map(|(scope, back)| Step::Watch { scope, back }),
        2 => Just(Step::Drain),
        2 => (0u64..800).prop_map(|millis| Step::Tick { millis }),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..120)
}

fn keys() -> Vec<Key> {
    let resources = [PODS, NODES].into_iter();
    let namespaces = resources.flat_map(|resource| ["a", "a-b"].map(|namespace| (resource, namespace)));
    namespaces.flat_map(|(resource, namespace)| ["x", "y", "z"].map(|name| key(resource, namespace, name))).collect()
}

fn scopes() -> Vec<(Scope, &'static str, Option<&'static str>)> {
    let of = |resource| {
        let within = |namespace| (Scope::namespace(resource, namespace), resource, Some(namespace));
        [(Scope::all(resource), resource, None), within("a"), within("a-b")]
    };
    [of(PODS), of(NODES)].concat()
}

/// One thing that happened.
#[derive(Debug, Clone)]
struct Fact {
    revision: Revision,
    at: u64,
    key: Key,
    value: Option<(String, Option<UnixMillis>)>,
}

/// Where the real store lives between restarts.
enum Home {
    Memory(MemoryDisk),
    Directory(TempDir),
}

impl Home {
    fn open(&self) -> Store {
        match self {
            Self::Memory(disk) => Store::on_memory(disk, small_history()),
            Self::Directory(dir) => Store::open(dir.path(), small_history()).unwrap(),
        }
    }
}

struct World {
    home: Home,
    store: Option<Store>,
    facts: Vec<Fact>,
    now: u64,
    ticked: u64,
    /// Each with its scope and the last revision it has delivered or skipped.
    watches: Vec<(Watch, usize, Revision)>,
}

impl World {
    fn new(home: Home) -> Self {
        let store = Some(home.open());
        Self { home, store, facts: Vec::new(), now: 0, ticked: 0, watches: Vec::new() }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn revision(&self) -> Revision {
        Revision(self.facts.len() as u64)
    }

    fn state_at(&self, revision: Revision) -> BTreeMap<&Key, &Fact> {
        let mut state = BTreeMap::new();
        for fact in self.facts.iter().take_while(|fact| fact.revision <= revision) {
            match fact.value {
                Some(_) => state.insert(&fact.key, fact),
                None => state.remove(&fact.key),
            };
        }
        state
    }

    fn note(&mut self, key: &Key, value: Option<(String, Option<UnixMillis>)>) -> Revision {
        let revision = self.revision().next();
        self.facts.push(Fact { revision, at: self.now, key: key.clone(), value });
        revision
    }

    async fn write(&mut self, key: &Key, guess: Guess, value: Option<(String, Option<UnixMillis>)>) {
        let current = self.state_at(self.revision()).get(key).map(|fact| fact.revision);
        let expect = match (guess, current) {
            (Guess::Anything, _) => Expect::Anything,
            (Guess::Absent, _) => Expect::Absent,
            (Guess::Present, _) => Expect::Present,
            (Guess::Right, current) => Expect::At(current.unwrap_or(Revision(1))),
            (Guess::Wrong, current) => Expect::At(Revision(current.unwrap_or_default().0 + 1)),
        };
        let allowed = match expect {
            Expect::Anything => value.is_some() || current.is_some(),
            Expect::Absent => current.is_none() && value.is_some(),
            Expect::Present => current.is_some(),
            Expect::At(revision) => current == Some(revision),
        };
        let write = match &value {
            Some((text, Some(at))) => Write::put(key.clone(), expect, text.clone()).expiring(*at),
            Some((text, None)) => Write::put(key.clone(), expect, text.clone()),
            None => Write::delete(key.clone(), expect),
        };
        let outcome = self.store().commit(write).await;
        assert_eq!(outcome.is_ok(), allowed, "{key} {expect:?} at {current:?}: {outcome:?}");
        if let Ok(committed) = outcome {
            assert_eq!(committed.previous.map(|old| old.revision), current);
            assert_eq!(committed.revision, self.note(key, value));
            assert_eq!(self.store().get(key), committed.stored, "a write is read back at once");
        }
    }

    fn list(&self, scope: usize, back: u64, limit: usize) {
        let (scope, resource, namespace) = &scopes()[scope];
        let at = Revision(self.revision().0.saturating_sub(back));
        let state = self.state_at(at);
        let wanted = state.iter().filter(|(key, _)| {
            key.resource() == *resource && namespace.is_none_or(|namespace| key.namespace() == Some(namespace))
        });
        let wanted: Vec<_> = wanted.map(|(key, fact)| ((*key).clone(), fact.revision)).collect();
        let mut got: Vec<Arc<Stored>> = Vec::new();
        loop {
            let after = got.last().map(|stored| stored.key.path().to_owned());
            let list = List { scope, at: At::Exact(at), limit: Some(limit), after: after.as_deref() };
            let page = match self.store().list(&list) {
                Ok(page) => page,
                Err(ReadError::TooOld(_)) => return self.assert_may_be_gone(resource, at),
                Err(error) => panic!("{error}"),
            };
            assert_eq!(page.revision, at);
            assert_eq!(self.store().count(&list).unwrap(), wanted.len() - got.len());
            got.extend(page.items);
            if !page.more {
                break;
            }
        }
        let got: Vec<_> = got.iter().map(|stored| (stored.key.clone(), stored.revision)).collect();
        assert_eq!(got, wanted);
    }

    /// History may only be gone behind what the options promise to keep.
    fn assert_may_be_gone(&self, resource: &str, revision: Revision) {
        let history = small_history().history;
        let mut later = self.facts.iter().filter(|fact| fact.revision > revision && fact.key.resource() == resource);
        let first = later.next().expect("something of the resource came later");
        let count = later.count() + 1;
        let aged = first.at + history.min_age_millis <= self.ticked && count > history.min_events;
        assert!(aged || count > history.max_events, "revision {revision} of {resource} was dropped too early");
    }

    fn watch(&mut self, scope: usize, after: Revision) {
        match self.store().watch(scopes()[scope].0.clone(), Start::After(after)) {
            Ok(watch) => self.watches.push((watch, scope, after)),
            Err(TooOld { .. }) => self.assert_may_be_gone(scopes()[scope].1, after),
        }
    }

    fn drain(&mut self) {
        for (mut watch, scope, mut seen) in std::mem::take(&mut self.watches) {
            let (_, resource, namespace) = scopes()[scope];
            let ended = loop {
                let event = match watch.try_next() {
                    Ok(Some(event)) => event,
                    Ok(None) => break None,
                    Err(end) => break Some(end),
                };
                let mut rest = self.facts.iter().filter(|fact| fact.revision > seen && fact.key.resource() == resource);
                let expected = rest.find(|fact| namespace.is_none_or(|name| fact.key.namespace() == Some(name)));
                let expected = expected.expect("an event has its fact");
                assert_eq!((event.revision, &event.key), (expected.revision, &expected.key));
                let value = event.new_version().map(|new| String::from_utf8(new.value.to_vec()).unwrap());
                assert_eq!(value, expected.value.as_ref().map(|(text, _)| text.clone()));
                let before = self.state_at(Revision(event.revision.0 - 1)).get(&event.key).map(|fact| fact.revision);
                assert_eq!(event.old_version().map(|old| old.revision), before);
                seen = event.revision;
            };
            match ended {
                None => {
                    let progress = watch.progress().unwrap();
                    assert!(progress >= self.revision(), "a drained watch is complete");
                    self.watches.push((watch, scope, progress));
                }
                Some(WatchEnd::Lagged { .. }) => self.assert_may_be_gone(resource, seen),
                Some(WatchEnd::Closed) => panic!("the store is open"),
            }
        }
    }

    async fn tick(&mut self, millis: u64) {
        self.now += millis;
        self.ticked = self.now;
        let due = |fact: &&Fact| Some(fact.value.as_ref()?.1?).filter(|at| at.0 <= self.now);
        let mut expired: Vec<_> = self.state_at(self.revision()).into_values().collect();
        expired.retain(|fact| due(fact).is_some());
        expired.sort_by_key(|fact| (due(fact), fact.key.clone()));
        let expired: Vec<_> = expired.into_iter().map(|fact| fact.key.clone()).collect();
        let ticked = self.store().tick(UnixMillis(self.now)).await.unwrap();
        assert_eq!(ticked.expired, expired.len());
        for key in expired {
            self.note(&key, None);
        }
    }

    fn restart(&mut self) {
        self.store = None;
        self.store = Some(self.home.open());
        for (_, scope, seen) in std::mem::take(&mut self.watches) {
            self.watch(scope, seen);
        }
    }

    async fn run(mut self, steps: Vec<Step>) {
        let keys = keys();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Put { key, expect, ttl } => {
                    let expires = ttl.map(|ttl| UnixMillis(self.now + ttl));
                    self.write(&keys[key], expect, Some((format!("value {number}"), expires))).await;
                }
                Step::Delete { key, expect } => self.write(&keys[key], expect, None).await,
                Step::List { scope, back, limit } => self.list(scope, back, limit),
                Step::Watch { scope, back } => self.watch(scope, Revision(self.revision().0.saturating_sub(back))),
                Step::Drain => self.drain(),
                Step::Tick { millis } => self.tick(millis).await,
                Step::Restart => self.restart(),
            }
            assert_eq!(self.store().revision(), self.revision());
        }
        self.drain();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_in_memory_does_what_the_list_of_facts_says(steps in steps()) {
        block_on(World::new(Home::Memory(MemoryDisk::default())).run(steps));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_on_disk_does_what_the_list_of_facts_says(steps in steps()) {
        block_on(World::new(Home::Directory(TempDir::new().unwrap())).run(steps));
    }
}
