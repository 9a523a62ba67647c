//! The newest form of everything that is drawn, with a version per item.
//!
//! A viewer is a position: it asks what is newer than it has seen. However slow it is, nothing queues up for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::diary::Diary;

/// How many items that are gone are remembered for those who have not heard of it.
const REMEMBERED: usize = 1_000;

/// The board. Its items are JSON texts, by id.
#[derive(Debug)]
pub(super) struct Board {
    state: Mutex<State>,
    version: watch::Sender<u64>,
    viewers: watch::Sender<usize>,
    /// Counts reasons to paint that are not marks: a room was asked for, a moment was noted.
    bell: watch::Sender<u64>,
    diary: Diary,
}

#[derive(Debug, Default)]
struct State {
    version: u64,
    items: BTreeMap<String, Item>,
    gone: BTreeMap<String, u64>,
    /// Who has not seen this version has to start over.
    forgotten: u64,
}

#[derive(Debug)]
struct Item {
    version: u64,
    text: Arc<str>,
}

/// What a viewer has not seen.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct News {
    /// Everything is in it: what is not is gone.
    pub(super) whole: bool,
    pub(super) items: Vec<Arc<str>>,
    pub(super) gone: Vec<String>,
    pub(super) version: u64,
}

impl Default for Board {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            version: watch::Sender::new(0),
            viewers: watch::Sender::new(0),
            bell: watch::Sender::new(0),
            diary: Diary::default(),
        }
    }
}

/// Somebody who looks, for as long as this lives.
#[derive(Debug)]
pub(super) struct Looking(Arc<Board>);

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.viewers.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// Changes that appear at once.
#[derive(Debug)]
pub(super) struct Edit<'a> {
    state: MutexGuard<'a, State>,
    version: u64,
    changed: bool,
}

impl Board {
    pub(super) fn look(self: &Arc<Self>) -> Looking {
        self.viewers.send_modify(|count| *count += 1);
        Looking(Arc::clone(self))
    }

    /// How many look.
    pub(super) fn viewers(&self) -> watch::Receiver<usize> {
        self.viewers.subscribe()
    }

    /// Changes with every version.
    pub(super) fn versions(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    pub(super) fn ring(&self) {
        self.bell.send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(super) fn bell(&self) -> watch::Receiver<u64> {
        self.bell.subscribe()
    }

    /// What was seen to happen to the things on the board.
    pub(super) fn diary(&self) -> &Diary {
        &self.diary
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the board; viewers are told when all is changed.
    pub(super) fn edit(&self, change: impl FnOnce(&mut Edit<'_>)) {
        let state = self.state();
        let mut edit = Edit { version: state.version + 1, state, changed: false };
        change(&mut edit);
        let Edit { mut state, version, changed } = edit;
        if changed {
            state.version = version;
            drop(state);
            self.version.send_replace(version);
        }
    }

    /// What is newer than a position; everything for who has none.
    pub(super) fn since(&self, position: Option<u64>) -> News {
        let state = self.state();
        let from = position.filter(|position| *position >= state.forgotten);
        let new = |version: u64| from.is_none_or(|from| version > from);
        News {
            whole: from.is_none(),
            items: state.items.values().filter(|item| new(item.version)).map(|item| Arc::clone(&item.text)).collect(),
            gone: match from {
                None => Vec::new(),
                Some(_) => state.gone.iter().filter(|(_, at)| new(**at)).map(|(id, _)| id.clone()).collect(),
            },
            version: state.version,
        }
    }
}

impl Edit<'_> {
    /// Puts an item up, unless it hangs there already.
    pub(super) fn put(&mut self, id: &str, text: String) {
        if self.state.items.get(id).is_some_and(|held| *held.text == *text) {
            return;
        }
        self.changed = true;
        self.state.gone.remove(id);
        self.state.items.insert(id.to_owned(), Item { version: self.version, text: text.into() });
    }

    /// Takes an item down.
    pub(super) fn remove(&mut self, id: &str) {
        if self.state.items.remove(id).is_none() {
            return;
        }
        self.changed = true;
        self.state.gone.insert(id.to_owned(), self.version);
        while self.state.gone.len() > REMEMBERED {
            let oldest = self.state.gone.iter().min_by_key(|(_, version)| **version);
            let Some((id, version)) = oldest.map(|(id, version)| (id.clone(), *version)) else { break };
            self.state.gone.remove(&id);
            self.state.forgotten = self.state.forgotten.max(version);
        }
    }

    /// The ids that begin so.
    pub(super) fn ids(&self, prefix: &str) -> Vec<String> {
        let from = self.state.items.range(prefix.to_owned()..);
        from.map(|(id, _)| id).take_while(|id| id.starts_with(prefix)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(news: &News) -> Vec<&str> {
        news.items.iter().map(|text| &**text).collect()
    }

    #[test]
    fn a_viewer_gets_everything_first_and_then_the_newest_of_what_changed() {
        let board = Board::default();
        board.edit(|edit| {
            edit.put("a", "a1".to_owned());
            edit.put("b", "b1".to_owned());
        });
        let first = board.since(None);
        assert_eq!((first.whole, texts(&first)), (true, vec!["a1", "b1"]));
        board.edit(|edit| edit.put("a", "a2".to_owned()));
        board.edit(|edit| edit.put("a", "a3".to_owned()));
        board.edit(|edit| edit.remove("b"));
        let next = board.since(Some(first.version));
        assert_eq!((next.whole, texts(&next), next.gone.clone()), (false, vec!["a3"], vec!["b".to_owned()]));
        assert_eq!(board.since(Some(next.version)).items.len(), 0);
    }

    #[test]
    fn what_stays_the_same_is_no_news() {
        let board = Board::default();
        board.edit(|edit| edit.put("a", "same".to_owned()));
        let version = board.since(None).version;
        board.edit(|edit| edit.put("a", "same".to_owned()));
        board.edit(|edit| edit.remove("never there"));
        assert_eq!(board.since(None).version, version);
    }

    #[test]
    fn who_slept_through_more_than_is_remembered_starts_over() {
        let board = Board::default();
        board.edit(|edit| (0..REMEMBERED + 5).for_each(|number| edit.put(&format!("{number}"), "x".to_owned())));
        let position = board.since(None).version;
        for number in 0..REMEMBERED + 5 {
            board.edit(|edit| edit.remove(&format!("{number}")));
        }
        assert!(board.since(Some(position)).whole);
        assert!(!board.since(Some(position + 10)).whole);
    }

    #[test]
    fn viewers_are_counted_while_they_look() {
        let board = Arc::new(Board::default());
        let looking = board.look();
        assert_eq!(*board.viewers().borrow(), 1);
        drop(looking);
        assert_eq!(*board.viewers().borrow(), 0);
    }
}
