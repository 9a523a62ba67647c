//! Where entries go, as data. What the server does to writes is tested on a server, in `sim`.

use super::*;

fn owner() -> Owner {
    Owner::new("n", "d", None)
}

fn change(text: Option<&str>) -> Change {
    Change { text: text.map(Into::into), due: Instant::now(), told: Vec::new() }
}

/// Writes everything that waits, as a server would that takes it.
fn write(state: &mut State) -> usize {
    let (due, _) = state.take(Instant::now());
    let written = due.len();
    for batch in due {
        let mut held = batch.held.clone();
        for (key, change) in &batch.changes {
            match &change.text {
                Some(text) => drop(held.insert(key.clone(), text.clone())),
                None => drop(held.remove(key)),
            }
        }
        let meta = Meta::new(api::Key::namespaced("n", &batch.name));
        assert!(state.settle(batch, Ok(Written { meta, held, strangers: Vec::new() })).is_empty());
    }
    written
}

fn open(state: &mut State, key: &str, text: &str) -> Result<Box<str>, NotWritten> {
    let page = state.place(&owner(), key, text)?;
    state.wait(&page, key, change(Some(text)));
    Ok(page)
}

#[tokio::test(start_paused = true)]
async fn what_waits_goes_into_one_write_and_pages_come_when_they_are_needed() {
    let mut state = State::default();
    let text = "x".repeat(1000);
    for number in 0..50 {
        open(&mut state, &format!("uid-{number}"), &text).unwrap();
    }
    assert_eq!((state.pages.len(), write(&mut state), write(&mut state)), (1, 1, 0));
    for number in 50..100 {
        open(&mut state, &format!("uid-{number}"), &text).unwrap();
    }
    assert_eq!((state.pages.len(), write(&mut state)), (2, 2));
    assert!(state.pages.values().all(|page| page.size() <= COMFORTABLE));
    for number in 0..100 {
        let page = state.ours(&format!("uid-{number}")).expect("it is there");
        state.wait(&page, &format!("uid-{number}"), change(None));
    }
    assert_eq!(write(&mut state), 2);
    assert!(state.places.is_empty() && state.pages.values().all(|page| page.size() == 0));
}

#[tokio::test(start_paused = true)]
async fn a_full_journal_refuses_and_says_so() {
    let mut state = State::default();
    let large = "x".repeat(LARGEST - 100);
    for number in 0..MOST_PAGES {
        open(&mut state, &format!("uid-{number}"), &large).unwrap();
    }
    assert_eq!(
        open(&mut state, "one-more", "of a few letters").map_err(|error| error == NotWritten::Full),
        Ok("orlop-intents-d-0".into())
    );
    write(&mut state);
    let refused = open(&mut state, "and-another", &"x".repeat(100)).unwrap_err();
    assert_eq!(refused, NotWritten::Full);
    assert!(refused.to_string().contains("full"), "{refused}");
    let oversized = open(&mut state, "oversized", &"x".repeat(LARGEST)).unwrap_err();
    assert!(matches!(oversized, NotWritten::TooLarge { .. }));
    assert_eq!(
        open(&mut state, "uid-3", &large).as_deref(),
        Ok("orlop-intents-d-3"),
        "what is there may be written again"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_left_alone_is_not_closed() {
    let mut state = State::default();
    open(&mut state, "strange", "?").unwrap();
    write(&mut state);
    state.alone.insert("strange".into());
    assert_eq!(state.ours("strange"), None);
}
