//! Attachments to machines that were taken out of the cluster, whose attachers ran on them: they are released.

use std::sync::Arc;
use std::time::Duration;

use api::{Attachment, Key, Node};
use lifecycle::attacher::finalizer_of;
use lifecycle::node_lifecycle::attachment::{
    AttachmentHealth, AttachmentLifecycleAction, AttachmentLifecycleReason, decide,
};
use lifecycle::node_lifecycle::volume::MachineDriver;
use lifecycle::{Lookup, Reason as _};
use runtime::client::Error;
use runtime::{Cache, Change, Patch, Queue, Stop, Subscription, Verdict, queue};
use serde_json::json;

use super::times::Absences;
use super::{BACKOFF, Options, ROUNDS, notices};
use crate::{Context, Live, Notices};

#[derive(Debug)]
pub(super) struct LostAttachments {
    context: Context,
    notices: Notices,
    driver: Arc<MachineDriver>,
    attachments: Cache<Attachment>,
    nodes: Cache<Node>,
    queue: Queue<Key>,
    absences: Arc<Absences>,
    quarantine: Duration,
    workers: usize,
    _subscriptions: [Subscription; 2],
}

impl LostAttachments {
    pub(super) fn new(context: &Context, options: &Options, driver: &MachineDriver, absences: &Arc<Absences>) -> Self {
        let (attachments, nodes) = (context.cache::<Attachment>(), context.cache::<Node>());
        let driver = Arc::new(driver.clone());
        let queue = Queue::new("node_lifecycle_attachments", BACKOFF, &context.metrics, &context.entropy);
        let (keys, ours) = (queue.clone(), driver.clone());
        let attachment_news = attachments.subscribe(move |change| {
            if let Some(attachment) = change.after().filter(|attachment| ours.awaits_attacher(attachment)) {
                keys.add(attachment.meta.key.clone());
            }
        });
        let (keys, ours, held) = (queue.clone(), driver.clone(), attachments.clone());
        let node_news = nodes.subscribe(move |change| {
            let Change::Removed(node) = change else { return };
            let to_it = held.walk().filter(|attachment| *attachment.node == *node.name());
            let to_it = to_it.filter(|attachment| ours.awaits_attacher(attachment));
            to_it.for_each(|attachment| keys.add(attachment.meta.key.clone()));
        });
        Self {
            context: context.clone(),
            notices: notices(context),
            driver,
            attachments,
            nodes,
            queue,
            absences: absences.clone(),
            quarantine: options.grace,
            workers: options.workers,
            _subscriptions: [attachment_news, node_news],
        }
    }

    pub(super) async fn run(&self, stop: &Stop) {
        let synced = async {
            self.attachments.synced().await;
            self.nodes.synced().await;
        };
        tokio::select! {
            biased;
            () = stop.stopped() => return,
            () = synced => {}
        }
        let waiting = self.attachments.walk().filter(|attachment| self.driver.awaits_attacher(attachment));
        waiting.for_each(|attachment| self.queue.add(attachment.meta.key.clone()));
        queue::run(&self.queue, self.workers, stop, |key| self.pass(key)).await;
    }

    async fn pass(&self, key: Key) -> Verdict {
        let mut live: Option<Live<Node>> = None;
        for _ in 0..ROUNDS {
            let Some(attachment) = self.attachments.get(&key) else { return Verdict::Done };
            let machine = Key::cluster(&attachment.node);
            let cached = self.nodes.get(&machine);
            let node = match (&live, &cached) {
                (Some(live), _) => live.lookup(),
                (None, Some(node)) => Lookup::Found(&**node),
                (None, None) => Lookup::NotCached,
            };
            let gone_for = match node {
                Lookup::Absent => self.absences.note(&attachment.node),
                Lookup::Found(_) | Lookup::NotCached => Duration::ZERO,
            };
            let (driver, quarantine) = (&*self.driver, self.quarantine);
            let decision = decide(&AttachmentHealth { attachment: &attachment, driver, node, gone_for, quarantine });
            let acted = match decision.actions.first() {
                None => return rest(&decision.because),
                Some(AttachmentLifecycleAction::ReadNode) => match self.context.read(&machine).await {
                    Ok(read) => {
                        live = Some(read);
                        Ok(())
                    }
                    Err(error) => Err(error),
                },
                Some(AttachmentLifecycleAction::ReleaseAttachment) => {
                    self.release(&attachment, &decision.because).await
                }
            };
            if let Err(error) = acted {
                return Verdict::Failed(error.to_string());
            }
        }
        Verdict::Again(BACKOFF.start)
    }

    async fn release(&self, attachment: &Attachment, because: &AttachmentLifecycleReason) -> Result<(), Error> {
        let key = &attachment.meta.key;
        let ours = finalizer_of(&self.driver.name);
        let held = attachment.meta.finalizers.iter().map(|held| held.as_str());
        let others: Vec<&str> = held.filter(|held| *held != ours).collect();
        let metadata = json!({"uid": attachment.meta.uid.as_str(), "resourceVersion": attachment.meta.revision.to_string(),
            "finalizers": others});
        match self.context.patch::<Attachment>(key, &Patch::Merge(json!({"metadata": metadata}))).await {
            Ok(_) => {
                tracing::warn!(attachment = key.name(), node = &*attachment.node, %because, "an attachment is released");
                if let Some(notice) = because.notice() {
                    self.notices.always(attachment, &notice);
                }
                Ok(())
            }
            Err(error) => self.context.reconsider::<Attachment>(key, error).await,
        }
    }
}

fn rest(because: &AttachmentLifecycleReason) -> Verdict {
    match because {
        AttachmentLifecycleReason::AttachedMachineMissing { left } => Verdict::Again(*left),
        _ => Verdict::Done,
    }
}
