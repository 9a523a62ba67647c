//! The files of the page, in the program itself.

/// What a browser is told it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asset {
    pub(super) kind: &'static str,
    pub(super) text: &'static str,
}

/// The page.
pub(super) const PAGE: Asset = Asset { kind: "text/html; charset=utf-8", text: include_str!("index.html") };
/// What strangers see. `{where}` is where the token is.
pub(super) const LOCKED: Asset = Asset { kind: "text/html; charset=utf-8", text: include_str!("locked.html") };

const STYLE: Asset = Asset { kind: "text/css; charset=utf-8", text: include_str!("page.css") };
const SCRIPT: Asset = Asset { kind: "text/javascript; charset=utf-8", text: include_str!("page.js") };
const ICON: Asset = Asset { kind: "image/svg+xml", text: include_str!("icon.svg") };

/// Files that tell nothing about the cluster, by path.
pub(super) fn public(path: &str) -> Option<Asset> {
    match path {
        "/page.css" => Some(STYLE),
        "/page.js" => Some(SCRIPT),
        "/icon.svg" => Some(ICON),
        _ => None,
    }
}
