//! What the cluster shows while one life of `orlop up` lasts, from the outside, as any client sees it.
//!
//! Each life gets a view of its own, since a new one knows at once what an old one would find again after a pause. What
//! was told is remembered across them: every sentence is said once. All of this is one thread's work, so that a stage which
//! waits for something ends after it was told.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use api::{Attachment, Claim, Object, Pod, Volume};
use runtime::{Cache, Caches, Change, Client, Entropy, Stopper, Subscription};
use tokio::sync::Notify;

use super::show::Show;
use crate::cluster::ClusterArgs;

/// No stage takes this long on a machine that works. The longest wait is for a loop device that a mount namespace which was
/// made meanwhile holds a copy of.
const PATIENCE: Duration = Duration::from_secs(120);

/// Says each sentence once.
#[derive(Debug, Clone)]
pub(super) struct Teller {
    show: Show,
    told: Arc<Mutex<BTreeSet<String>>>,
}

impl Teller {
    pub(super) fn new(show: &Show) -> Self {
        Self { show: show.clone(), told: Arc::default() }
    }

    fn tell(&self, what: String) {
        let new = self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(what.clone());
        if new {
            self.show.tell(&what);
        }
    }
}

/// The objects of the demonstration, followed.
#[derive(Debug)]
pub(super) struct View {
    pub(super) client: Client,
    pub(super) claims: Cache<Claim>,
    pub(super) volumes: Cache<Volume>,
    pub(super) pods: Cache<Pod>,
    pub(super) attachments: Cache<Attachment>,
    news: Arc<Notify>,
    _subscriptions: Vec<Subscription>,
    /// Following ends with the view.
    following: Stopper,
}

impl View {
    pub(super) async fn open(kubeconfig: &Path, teller: &Teller) -> anyhow::Result<Self> {
        let args = ClusterArgs { kubeconfig: Some(kubeconfig.to_owned()), context: None };
        let client = args.connect("orlop-demo").await?.client;
        let caches = Caches::new(&client, &Entropy::from_system());
        let (following, stop) = Stopper::new();
        let mut view = Self {
            claims: caches.of(),
            volumes: caches.of(),
            pods: caches.of(),
            attachments: caches.of(),
            client,
            news: Arc::new(Notify::new()),
            _subscriptions: Vec::new(),
            following,
        };
        view._subscriptions = view.follow(teller);
        tokio::spawn({
            let caches = caches.clone();
            async move { caches.run(&stop).await }
        });
        tokio::time::timeout(PATIENCE, caches.synced()).await.context("the API server does not answer")?;
        Ok(view)
    }

    /// Waits until the objects are as `done` wants them.
    pub(super) async fn until<T>(&self, what: &str, done: impl Fn(&Self) -> Option<T>) -> anyhow::Result<T> {
        let wait = async {
            loop {
                if let Some(found) = done(self) {
                    return found;
                }
                self.news.notified().await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.with_context(|| format!("waited {PATIENCE:?} until {what}"))
    }

    fn follow(&self, teller: &Teller) -> Vec<Subscription> {
        let claims = self.each(&self.claims, teller, |change| match change {
            Change::Added(claim) => vec![format!("claim {} is {}", claim.key(), claim.phase.name())],
            Change::Changed { old, new } if old.phase != new.phase => {
                vec![format!("claim {} is {}", new.key(), new.phase.name())]
            }
            Change::Changed { .. } => Vec::new(),
            Change::Removed(claim) => vec![format!("claim {} is gone", claim.key())],
        });
        let volumes = self.each(&self.volumes, teller, |change| match change {
            Change::Added(volume) => vec![format!("PersistentVolume {} is there", volume.name())],
            Change::Changed { old, new } if old.phase != new.phase => {
                vec![format!("PersistentVolume {} is {}", new.name(), new.phase.name())]
            }
            Change::Changed { .. } => Vec::new(),
            Change::Removed(volume) => vec![format!("PersistentVolume {} is gone", volume.name())],
        });
        let pods = self.each(&self.pods, teller, pod_news);
        let attachments = self.each(&self.attachments, teller, |change| match change.after() {
            Some(now) if now.attached => vec![format!("the volume is attached to node {}", now.node)],
            Some(_) => Vec::new(),
            None => vec!["the volume is detached".to_owned()],
        });
        vec![claims, volumes, pods, attachments]
    }

    fn each<T: Object>(&self, cache: &Cache<T>, teller: &Teller, news: fn(&Change<T>) -> Vec<String>) -> Subscription {
        let (teller, wake) = (teller.clone(), self.news.clone());
        cache.subscribe(move |change| {
            news(change).into_iter().for_each(|sentence| teller.tell(sentence));
            wake.notify_one();
        })
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.following.stop();
    }
}

/// Whether the agent says that the pod has its volumes.
pub(super) fn has_its_volumes(pod: &Pod) -> bool {
    pod.volumes_ready.as_ref().is_some_and(|said| said.ready)
}

fn pod_news(change: &Change<Pod>) -> Vec<String> {
    let pod = change.key();
    let Some(now) = change.after() else { return vec![format!("pod {pod} is gone")] };
    let mut news = vec![format!("pod {pod} is there")];
    if !now.node.is_empty() {
        news.push(format!("pod {pod} is scheduled to node {}", now.node));
    }
    if has_its_volumes(now) {
        news.push(format!("pod {pod} has its volume"));
    }
    news
}
