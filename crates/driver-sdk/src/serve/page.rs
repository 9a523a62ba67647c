//! Pages of a listing, and the tokens between them.
//!
//! A token names the last id given out. It stays right when objects come and go between two pages, and it survives a
//! restart (LOCAL-0.25, LOCAL-R15).

use prost::Message;

use super::Result;
use crate::error::Reason;
use crate::id::{hex, unhex};
use crate::validate::bug;

const VERSION: &str = "v1.";

/// The most that one page holds when the caller sets no limit. A caller gets a token for the rest.
const MOST_ENTRIES: usize = 10_000;

/// Callers refuse messages above 4 MiB, so a page ends well before.
const MOST_BYTES: usize = 3 << 20;

/// The id after which a page begins.
pub(super) fn parse_token(token: &str) -> Result<Option<String>> {
    if token.is_empty() {
        return Ok(None);
    }
    let id = token.strip_prefix(VERSION).and_then(unhex).and_then(|bytes| String::from_utf8(bytes).ok());
    match id {
        Some(id) if !id.is_empty() => Ok(Some(id)),
        _ => Err(Reason::BadToken(token.chars().take(128).collect()).into()),
    }
}

fn token_after(id: &str) -> String {
    format!("{VERSION}{}", hex(id.as_bytes()))
}

/// How many entries one page has.
pub(super) fn page_size(max_entries: Option<usize>) -> usize {
    max_entries.unwrap_or(MOST_ENTRIES).min(MOST_ENTRIES)
}

/// One page out of what the driver answered.
pub(super) struct Cut<T> {
    pub(super) entries: Vec<T>,
    /// Empty when nothing is left.
    pub(super) next_token: String,
}

/// Cuts `found`, for which the driver was asked one entry more than `size`, and checks the driver's order.
pub(super) fn cut<T>(mut found: Vec<T>, size: usize, after: Option<&str>, id: impl Fn(&T) -> &str) -> Result<Cut<T>> {
    let in_order = found.windows(2).all(|pair| id(&pair[0]) < id(&pair[1]));
    let after_start = after.is_none_or(|after| found.first().is_none_or(|first| id(first) > after));
    if !in_order || !after_start {
        return Err(bug("a listing is not in ascending order of ids after the given one"));
    }
    let more = found.len() > size;
    found.truncate(size);
    let next_token = found.last().filter(|_| more).map(|last| token_after(id(last))).unwrap_or_default();
    Ok(Cut { entries: found, next_token })
}

/// Shortens a page of finished entries until it fits a message.
pub(super) fn fit<W: Message>(entries: Vec<(String, W)>, next_token: String) -> (Vec<W>, String) {
    let mut size = 0;
    let mut page = Vec::with_capacity(entries.len());
    let mut last: Option<String> = None;
    for (id, entry) in entries {
        // A few bytes of framing per entry do not matter at this distance from the limit.
        size += entry.encoded_len();
        if let Some(last) = &last
            && size > MOST_BYTES
        {
            return (page, token_after(last));
        }
        page.push(entry);
        last = Some(id);
    }
    (page, next_token)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules: LOCAL-0.25, LOCAL-R15
    #[test]
    fn a_token_brings_back_its_id_and_others_are_aborted() {
        let token = token_after("vol-é/1");
        assert_eq!(parse_token(&token).unwrap().as_deref(), Some("vol-é/1"));
        assert_eq!(parse_token("").unwrap(), None);
        for bad in ["invalid-token", "v1.", "v1.zz", "v1.f", "v2.61", "v1.ff"] {
            assert_eq!(parse_token(bad).unwrap_err().code(), tonic::Code::Aborted, "{bad}");
        }
    }

    /// Rule: LOCAL-0.25
    #[test]
    fn a_page_has_a_token_only_when_more_is_left() {
        let ids = || vec!["a", "b", "c"];
        let whole = cut(ids(), 3, None, |id| id).unwrap();
        assert_eq!((whole.entries.len(), whole.next_token.as_str()), (3, ""));
        let part = cut(ids(), 2, None, |id| id).unwrap();
        assert_eq!((part.entries.len(), part.next_token), (2, token_after("b")));
    }

    #[test]
    fn a_listing_out_of_order_is_a_bug_and_not_final() {
        for (found, after) in [(vec!["b", "a"], None), (vec!["a", "a"], None), (vec!["a"], Some("a"))] {
            let error = cut(found, 9, after, |id| id).err().unwrap();
            assert_eq!(error.code(), tonic::Code::Aborted);
        }
    }

    #[test]
    fn a_page_ends_before_it_outgrows_a_message() {
        let entry = |id: &str| (id.to_owned(), "x".repeat(2 << 20));
        let (page, token) = fit(vec![entry("a"), entry("b")], String::new());
        assert_eq!((page.len(), token), (1, token_after("a")));
    }
}
