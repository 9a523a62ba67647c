//! Until everything is known that has to be known before anything is taken away.

use api::{Attachment, CsiDriver, Key, Kind, Node};
use futures_util::stream::{self, StreamExt as _};
use lifecycle::attach::attachment_name;
use runtime::Verdict;
use tokio::time::sleep;

use super::{Agent, BACKOFF, PAUSE, Unread};
use crate::actual::{Attachable, What};

/// How many pods are looked up at once.
const LOOKUPS: usize = 16;

impl Agent {
    /// Resolves every pod once and reads the node, and then allows taking away (NODE-5.1, NODE-7.1, NODE-21.5).
    pub(super) async fn learn(&self) {
        self.pods.synced().await;
        self.context.cache::<CsiDriver>().synced().await;
        self.context.cache::<api::Claim>().synced().await;
        self.context.cache::<api::Volume>().synced().await;
        let pods = stream::iter(self.pods.walk());
        pods.for_each_concurrent(LOOKUPS, |pod| async move {
            while let Verdict::Failed(why) = self.resolve_pod(&pod.meta.key).await {
                tracing::warn!(pod = %pod.meta.key, why, "a pod's volumes cannot be looked up yet");
                sleep(PAUSE).await;
            }
        })
        .await;
        let found = self.world().actual.values().any(|entry| entry.attachable == Attachable::Unknown);
        if found {
            self.learn_attached().await;
        }
        self.retry_unread().await;
        self.tell_unread().await;
        self.world().known = true;
        tracing::info!("the pods of this node and what it holds are known");
        self.wake_all();
        // Pods that ended before this could not be let go of.
        for pod in self.pods.walk() {
            self.pod_queue.add(pod.meta.key.clone());
        }
        self.sweep_orphans().await;
        self.mend().await;
    }

    /// What could not be understood at the start is tried again: when a volume changes, and less and less often without
    /// that (NODE-31.8).
    async fn mend(&self) {
        let named: Vec<Key> = self.world().unread.iter().filter_map(Unread::volume).collect();
        // An agent that keeps only what its pods need hears of these, too.
        let _followed: Vec<_> = named.iter().map(|key| self.context.cache::<api::Volume>().want(key)).collect();
        let mut wait = BACKOFF.start;
        while !self.world().unread.is_empty() {
            tokio::select! {
                biased;
                // Where volumes change all the time, one search is for all that changed meanwhile.
                () = self.volume_news.notified() => sleep(PAUSE).await,
                () = sleep(wait) => wait = (wait * 2).min(BACKOFF.max),
            }
            self.retry_unread().await;
        }
    }

    /// What was found on disk is in use if the node's status says that it is attached, or was in use. A Node that was made
    /// anew has lost what the old one said; what its driver attaches is in use all the same, until it is gone from here.
    async fn learn_attached(&self) {
        let key = Key::cluster(&self.options.node);
        let node = loop {
            match self.context.client.get::<Node>(Kind::NODE, &key).await {
                Ok(node) => break node,
                Err(error) => {
                    tracing::warn!(%error, "the node cannot be read; nothing is unmounted before that");
                    sleep(PAUSE).await;
                }
            }
        };
        let mut world = self.world();
        for (id, entry) in &mut world.actual {
            if entry.attachable == Attachable::Unknown {
                let listed = node.reports_attached(id.as_str()) || node.uses(id.as_str());
                entry.attachable = if listed { Attachable::Yes } else { self.attachable(&entry.what) };
            }
        }
    }

    /// Whether a driver's volumes have to be attached. Without its object they have to.
    pub(crate) fn attaches(&self, driver: &str) -> bool {
        let object = self.context.cache::<CsiDriver>().get(&Key::cluster(driver));
        lifecycle::node::terms::attaches(object.as_deref().map(|object| &object.spec))
    }

    pub(crate) fn attachable(&self, what: &What) -> Attachable {
        match what {
            What::Csi { driver, .. } if !what.is_inline() && self.attaches(driver.as_str()) => Attachable::Yes,
            // The driver has stopped asking for attachments, and this one is still there: it goes after the mount.
            What::Csi { driver, handle, .. } if !what.is_inline() && self.has_attachment(driver.as_str(), handle) => {
                Attachable::Yes
            }
            What::Csi { .. } | What::InTree { .. } | What::LocalDevice { .. } => Attachable::No,
        }
    }

    fn has_attachment(&self, driver: &str, handle: &str) -> bool {
        let name = attachment_name(driver, handle, &self.options.node);
        self.context.cache::<Attachment>().get(&Key::cluster(&name)).is_some()
    }
}
