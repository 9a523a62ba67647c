//! Get and list.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Core, FRESHNESS_WAIT, Failure, Outcome, codec, shown};
use crate::catalog::Resource;
use crate::request::{
    ContinueAt, ContinueToken, FieldLabels, FieldSelector, Freshness, LabelSelector, ListOptions, ListRead,
};
use crate::status::ApiError;
use crate::store::{At, List, ReadError, Revision, Scope, Stored};

const PAGE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can \
    start a new list without the continue parameter, or use the continue token in this response to retrieve the \
    remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were \
    created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";
const VERSION_EXPIRED: &str = "The resourceVersion for the provided list is too old.";

/// The objects of a resource, in one namespace or in all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Collection<'a> {
    pub(crate) resource: &'a Arc<Resource>,
    pub(crate) namespace: Option<&'a str>,
}

impl<'a> Collection<'a> {
    pub(crate) fn scope(&self) -> Scope {
        match self.namespace {
            Some(namespace) => Scope::namespace(&self.resource.stored_as, namespace),
            None => Scope::all(&self.resource.stored_as),
        }
    }

    /// The path behind which a token goes on.
    fn path_after(&self, token: &ContinueToken) -> String {
        let start = token.start.strip_suffix('\0').unwrap_or(&token.start);
        match self.namespace {
            Some(namespace) => format!("{namespace}/{start}"),
            None => start.to_owned(),
        }
    }

    fn token_after(&self, at: ContinueAt, path: &str) -> String {
        let relative = match self.namespace {
            Some(namespace) => path.strip_prefix(namespace).and_then(|rest| rest.strip_prefix('/')).unwrap_or(path),
            None => path,
        };
        ContinueToken::after(at, relative).encode()
    }
}

/// Which objects a list or a watch shows.
#[derive(Debug, Clone)]
pub(crate) struct Selection {
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
    pub(crate) known: FieldLabels,
}

impl Selection {
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether an object is selected, as its resource shows it. What needs no look into the object takes none.
    pub(crate) fn matches_stored(&self, resource: &Resource, stored: &Stored) -> bool {
        match self.labels.is_empty().then(|| self.fields.matches_place(&stored.key)).flatten() {
            Some(answer) => answer,
            None => self.matches(&shown(resource, codec::decode(stored))),
        }
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.labels.matches_object(object) && self.fields.matches_object(&self.known, object)
    }
}

/// One page of a list.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) revision: Revision,
    /// As stored, all of one moment.
    pub(crate) items: Vec<Arc<Stored>>,
    resource: Arc<Resource>,
    next: Option<String>,
    remaining: Option<usize>,
}

impl Listed {
    pub(crate) fn resource(&self) -> &Arc<Resource> {
        &self.resource
    }

    /// The objects as their resource shows them.
    pub(crate) fn objects(&self) -> impl Iterator<Item = Value> + '_ {
        self.items.iter().map(|stored| shown(&self.resource, codec::decode(stored)))
    }

    /// The list's own metadata.
    pub(crate) fn metadata(&self) -> Value {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if let Some(next) = &self.next {
            metadata["continue"] = next.as_str().into();
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        metadata
    }
}

/// Where a list reads.
struct Position {
    at: At,
    after: Option<String>,
}

impl Core {
    pub(crate) async fn get(&self, collection: Collection<'_>, name: &str, read: Freshness) -> Outcome<Arc<Stored>> {
        self.wait_for(read).await?;
        let Collection { resource, namespace } = collection;
        let stored = self.find(resource, namespace, name);
        stored.ok_or_else(|| ApiError::not_found(resource.named(), name).into())
    }

    /// Waits until the store is as recent as a read wants it.
    pub(super) async fn wait_for(&self, read: Freshness) -> Outcome<()> {
        match read {
            Freshness::Newest | Freshness::Any => Ok(()),
            Freshness::NotOlderThan(revision) => self.reach(revision).await,
        }
    }

    async fn reach(&self, revision: u64) -> Outcome<()> {
        match self.store.wait_for(Revision(revision), FRESHNESS_WAIT).await {
            Ok(_) => Ok(()),
            Err(behind) => Err(ApiError::version_too_large(behind.requested.0, behind.current.0).into()),
        }
    }

    pub(crate) async fn list(&self, collection: Collection<'_>, options: &ListOptions) -> Outcome<Listed> {
        let known = collection.resource.field_labels();
        let selection = Selection { labels: options.labels.clone(), fields: options.fields.clone(), known };
        let position = self.position(collection, &options.read).await?;
        let limit = options.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let scope = collection.scope();
        let mut read = Page::new(&scope, position);
        let mut found = Vec::new();
        loop {
            let wanted = limit.map(|limit| limit - found.len());
            let mut items = self.page(&mut read, wanted).map_err(|error| expired(collection, &options.read, error))?;
            items.retain(|stored| selection.matches_stored(collection.resource, stored));
            found.append(&mut items);
            if !read.more || limit.is_some_and(|limit| found.len() >= limit) {
                break;
            }
        }
        let (mut next, mut remaining) = (None, None);
        if read.more
            && let Some(last) = &read.after
        {
            next = Some(collection.token_after(ContinueAt::Revision(read.revision.0), last));
            if selection.is_everything() {
                let rest = List { scope: &scope, at: read.at, limit: None, after: Some(last) };
                remaining = self.store.count(&rest).ok();
            }
        }
        let resource = Arc::clone(collection.resource);
        Ok(Listed { revision: read.revision, items: found, resource, next, remaining })
    }

    async fn position(&self, collection: Collection<'_>, read: &ListRead) -> Outcome<Position> {
        Ok(match read {
            ListRead::At(freshness) => {
                self.wait_for(*freshness).await?;
                Position { at: At::Latest, after: None }
            }
            ListRead::Exactly(revision) => {
                self.reach(*revision).await?;
                Position { at: At::Exact(Revision(*revision)), after: None }
            }
            ListRead::Continue(token) => {
                let after = Some(collection.path_after(token));
                match token.at {
                    ContinueAt::Newest => Position { at: At::Latest, after },
                    ContinueAt::Revision(revision) => {
                        self.reach(revision).await?;
                        Position { at: At::Exact(Revision(revision)), after }
                    }
                }
            }
        })
    }

    fn page(&self, read: &mut Page<'_>, limit: Option<usize>) -> Result<Vec<Arc<Stored>>, ReadError> {
        let page = self.store.list(&List { scope: read.scope, at: read.at, limit, after: read.after.as_deref() })?;
        read.revision = page.revision;
        // Later reads of this list must show the same state.
        read.at = At::Exact(page.revision);
        read.more = page.more;
        if let Some(last) = page.items.last() {
            read.after = Some(last.key.path().to_owned());
        }
        Ok(page.items)
    }
}

/// A list in progress.
struct Page<'a> {
    scope: &'a Scope,
    at: At,
    after: Option<String>,
    revision: Revision,
    more: bool,
}

impl<'a> Page<'a> {
    fn new(scope: &'a Scope, position: Position) -> Self {
        Self { scope, at: position.at, after: position.after, revision: Revision::default(), more: false }
    }
}

fn expired(collection: Collection<'_>, read: &ListRead, error: ReadError) -> Failure {
    match (error, read) {
        (ReadError::TooOld(_), ListRead::Continue(token)) => {
            let token = collection.token_after(ContinueAt::Newest, &collection.path_after(token));
            Failure::expired_page(PAGE_EXPIRED, &token)
        }
        (ReadError::TooOld(_), _) => ApiError::expired(VERSION_EXPIRED).into(),
        (ReadError::Future { requested, current }, _) => ApiError::version_too_large(requested.0, current.0).into(),
    }
}
