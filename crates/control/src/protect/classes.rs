//! Attributes classes stay while a claim or a volume refers to them (PROTECT-8.3).

use api::keys::finalizer;
use api::{AttributesClass, Claim, Key, Volume};
use lifecycle::protect::{self, Action, Users};
use runtime::client::Error;
use runtime::{Cache, Lookup, Queue, Stop, Subscription, Verdict, queue};

use super::finalizer::{Turn, held, matters, write};
use super::{BACKOFF, LOOK_AGAIN, Options, ROUNDS, live};
use crate::{Context, index};

#[derive(Debug)]
pub(super) struct Classes {
    context: Context,
    classes: Cache<AttributesClass>,
    claims: Lookup<Claim>,
    volumes: Lookup<Volume>,
    queue: Queue<Key>,
    options: Options,
    _subscriptions: [Subscription; 3],
}

/// What the server said about a class' users.
enum Asked {
    Nobody,
    /// He is in the cache now.
    Somebody,
}

impl Classes {
    pub(super) fn new(context: &Context, options: Options) -> Self {
        let classes = context.cache::<AttributesClass>();
        let queue = Queue::new("vacprotection", BACKOFF, &context.metrics, &context.entropy);
        let keys = queue.clone();
        let class_news = classes.subscribe(move |change| {
            if let Some(class) = change.after()
                && matters(&class.meta, finalizer::VAC_PROTECTION)
            {
                keys.add(class.meta.key.clone());
            }
        });
        // Only what somebody let go of can change the answer, also when he is gone altogether (CTRL-14.55).
        let wake = Wake { classes: classes.clone(), queue: queue.clone() };
        let claim_news = context.cache::<Claim>().subscribe({
            let wake = wake.clone();
            move |change| {
                change.before().into_iter().flat_map(|claim| protect::classes_of(claim)).for_each(|n| wake.up(n))
            }
        });
        let volume_news = context.cache::<Volume>().subscribe(move |change| {
            if let Some(volume) = change.before() {
                wake.up(volume.attributes_class());
            }
        });
        let claims = context.cache::<Claim>().index(index::CLAIMS_BY_ATTRIBUTES_CLASS);
        let volumes = context.cache::<Volume>().index(index::VOLUMES_BY_ATTRIBUTES_CLASS);
        let subscriptions = [class_news, claim_news, volume_news];
        Self { context: context.clone(), classes, claims, volumes, queue, options, _subscriptions: subscriptions }
    }

    pub(super) async fn run(&self, stop: &Stop) {
        let synced = async {
            self.classes.synced().await;
            self.context.cache::<Claim>().synced().await;
            self.context.cache::<Volume>().synced().await;
        };
        tokio::select! {
            biased;
            () = stop.stopped() => return,
            () = synced => {}
        }
        queue::run(&self.queue, self.options.workers, stop, |key| self.pass(key)).await;
    }

    async fn pass(&self, key: Key) -> Verdict {
        for _ in 0..ROUNDS {
            let Some(class) = self.classes.get(&key) else { return Verdict::Done };
            let step = match self.decide(&class, None) {
                Some(Action::ListUsers) => match self.ask(key.name()).await {
                    Ok(asked) => self.decide(&class, Some(asked)),
                    Err(error) => return Verdict::Failed(error.to_string()),
                },
                known => known,
            };
            let turn = match step {
                Some(Action::AddFinalizer) => Turn::On,
                Some(Action::RemoveFinalizer) => Turn::Off,
                // A user that the server showed has gone since.
                Some(Action::ListUsers | Action::ListPods) => return Verdict::Again(LOOK_AGAIN),
                None => return Verdict::Done,
            };
            if let Err(error) =
                write::<AttributesClass>(&self.context, &class.meta, finalizer::VAC_PROTECTION, turn).await
            {
                return Verdict::Failed(error.to_string());
            }
        }
        Verdict::Again(std::time::Duration::ZERO)
    }

    fn decide(&self, class: &AttributesClass, asked: Option<Asked>) -> Option<Action> {
        let name = class.meta.key.name();
        let (claim, volume) = (self.claims.first(name), self.volumes.first(name));
        let (claim, volume) = (claim.as_deref(), volume.as_deref());
        let users = match asked {
            Some(Asked::Nobody) => Users::Live { claim, volume },
            Some(Asked::Somebody) | None => Users::Cached { claim, volume },
        };
        protect::attributes_class(class, users).actions.first().copied()
    }

    /// Looks for a user on the server, all namespaces, and lets the cache know him.
    async fn ask(&self, name: &str) -> Result<Asked, Error> {
        let client = &self.context.client;
        let volume = live::find::<Volume>(client, |volume| volume.attributes_class() == name).await?;
        if let Some(volume) = volume {
            self.context.cache::<Volume>().wrote(volume);
            return Ok(Asked::Somebody);
        }
        let refers = |claim: &Claim| protect::classes_of(claim).any(|class| class == name);
        match live::find::<Claim>(client, refers).await? {
            Some(claim) => {
                self.context.cache::<Claim>().wrote(claim);
                Ok(Asked::Somebody)
            }
            None => Ok(Asked::Nobody),
        }
    }
}

/// Looks again at a class that somebody may have let go of.
#[derive(Clone)]
struct Wake {
    classes: Cache<AttributesClass>,
    queue: Queue<Key>,
}

impl Wake {
    fn up(&self, name: &str) {
        let key = Key::cluster(name);
        if self.classes.get(&key).is_some_and(|class| held(&class.meta, finalizer::VAC_PROTECTION)) {
            self.queue.add(key);
        }
    }
}
