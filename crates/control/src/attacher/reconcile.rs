//! The driver is asked what is published where, and attachments that it contradicts are carried out again
//! (ATTACHER-3.9). Nothing is written here.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::{Attachment, Key};
use csi::v1;
use csi::v1::list_volumes_response::Entry;
use lifecycle::attacher::attachment::is_named_after;
use lifecycle::attacher::listing::{Agreement, Listing, compare};
use lifecycle::attacher::lists_publications;
use runtime::csi::CallError;
use runtime::{Stop, Verdict};
use tokio::time::{Instant, sleep};

use super::Attacher;
use super::pass::Step;
use super::round::Round;
use crate::Live;
use crate::provision::csi::wire;

/// Why there is no listing.
#[derive(Debug, thiserror::Error)]
enum Unlisted {
    #[error("{0}")]
    Call(CallError),
    #[error("the driver gave the page {token:?} twice")]
    Circle { token: String },
}

impl Attacher {
    /// Asks at once and then again and again; a driver that cannot say is asked nothing.
    pub(super) async fn reconcile(&self, stop: &Stop) {
        loop {
            tokio::select! {
                biased;
                () = stop.stopped() => return,
                () = self.compare_all() => {}
            }
            tokio::select! {
                biased;
                () = stop.stopped() => return,
                () = sleep(self.options.reconcile) => {}
            }
        }
    }

    async fn compare_all(&self) {
        let lists = |facts: &runtime::csi::Facts| lists_publications(&wire::abilities(&facts.capabilities));
        if !self.driver.facts().is_some_and(|facts| lists(&facts)) {
            return;
        }
        let ours = |attachment: &Arc<Attachment>| self.board.is_ours(attachment, &self.about);
        let attachments: Vec<Arc<Attachment>> = self.attachments.walk().filter(ours).collect();
        let listing = match self.listing().await {
            Ok(listing) => listing,
            Err(error) => {
                tracing::warn!(%error, "the driver does not say what is published; asked again later");
                return;
            }
        };
        for attachment in attachments {
            // What changed while the driver answered is compared next time (SIDECAR-A8).
            let now = self.attachments.get(&attachment.meta.key);
            if now.is_some_and(|now| now.meta.revision == attachment.meta.revision) {
                self.compare(&attachment, &listing);
            }
        }
    }

    fn compare(&self, attachment: &Attachment, listing: &Listing) {
        let volume = attachment.volume.as_deref().and_then(|name| self.volumes.get(&Key::cluster(name)));
        let node = self.nodes.get().and_then(|nodes| nodes.get(&Key::cluster(&attachment.node)));
        match compare(attachment, &self.about, (volume.as_deref(), node.as_deref()), listing) {
            Agreement::Contradicted => {
                let (key, attached) = (&attachment.meta.key, attachment.attached);
                tracing::warn!(attachment = %key, attached, "the driver says otherwise; it is asked again");
                self.board.contradict(attachment);
            }
            Agreement::Agreed | Agreement::Unknown => {}
        }
    }

    async fn listing(&self) -> Result<Listing, Unlisted> {
        let mut listing = Listing::default();
        self.each_listed(|entry| {
            if let (Some(volume), Some(status)) = (entry.volume, entry.status) {
                listing.add(volume.volume_id, status.published_node_ids);
            }
        })
        .await?;
        Ok(listing)
    }

    /// Looks for the volume that an attachment was named after, whose object is gone (SIDECAR-A7).
    pub(super) async fn find_handle(&self, attachment: &Attachment, round: &mut Round) -> Step {
        let mut found = Live::Absent;
        let listed = self.each_listed(|entry| {
            if let Some(volume) = entry.volume.filter(|volume| is_named_after(attachment, &volume.volume_id)) {
                found = Live::Found(Arc::new(volume.volume_id));
            }
        });
        match listed.await {
            Ok(()) => {
                round.listed = Some(found);
                Step::On
            }
            Err(error) => {
                tracing::warn!(attachment = %attachment.meta.key, %error, "the driver does not list its volumes");
                Step::Over(Verdict::Failed(error.to_string()))
            }
        }
    }

    /// Visits what is on all pages; the time of one call is for all of them.
    async fn each_listed(&self, mut visit: impl FnMut(Entry)) -> Result<(), Unlisted> {
        let until = Instant::now() + self.options.timeout;
        let (mut starting_token, mut tokens) = (String::new(), BTreeSet::new());
        loop {
            let request = v1::ListVolumesRequest { max_entries: self.options.max_entries, starting_token };
            let left = until.saturating_duration_since(Instant::now());
            let page = self.driver.list_volumes(request, left).await.map_err(Unlisted::Call)?;
            page.entries.into_iter().for_each(&mut visit);
            if page.next_token.is_empty() {
                return Ok(());
            }
            if !tokens.insert(page.next_token.clone()) {
                return Err(Unlisted::Circle { token: page.next_token });
            }
            starting_token = page.next_token;
        }
    }
}
