//! One pass over a claim: look, decide, do the one thing, look again.

use std::sync::Arc;
use std::time::Duration;

use api::{Claim, ClaimPhase, Class, ClassName, Key, Pod, Volume, VolumePhase, Word};
use lifecycle::bind::claim::{self, Action, Because, ClassSeen, Seen, Supply, VolumeSeen};
use lifecycle::bind::shelf::Offer;
use lifecycle::{Lookup, Reason as _, migration};
use runtime::client::Error;
use runtime::{Verdict, work};

use super::reclaim::{self, Trouble};
use super::{Inner, MOST_ROUNDS, patches, wake};
use crate::Live;
use runtime::handoff::Asked;
use tracing::Instrument as _;

/// Works on one claim until there is nothing to do for it.
pub(super) async fn pass(inner: &Inner, key: Key) -> Verdict {
    let mut tried = Vec::new();
    match Box::pin(rounds(inner, &key, &mut tried)).instrument(work::on_claim("bind", &key)).await {
        Ok(verdict) => {
            wake::pass_over(inner, &key, &tried);
            verdict
        }
        // What was offered to it stays offered: it comes back when the server answers again.
        Err(error) => Verdict::Failed(error.to_string()),
    }
}

async fn rounds(inner: &Inner, key: &Key, tried: &mut Vec<Word>) -> Result<Verdict, Error> {
    let mut live: Option<Live<Volume>> = None;
    for _ in 0..MOST_ROUNDS {
        let Some(claim) = inner.claims.get(key) else { return Ok(Verdict::Done) };
        let observed = Observed::of(inner, &claim, live.take());
        tried.extend(observed.held.iter().map(|held| held.name.clone()));
        let verdict = observed.decide(&claim);
        observed.tell(&claim, &verdict);
        let Some(action) = verdict.actions.first() else {
            inner.metrics.rested(&claim, &verdict.because, observed.class.get());
            observed.hand_over(&claim, &verdict.because);
            if let Because::Bound { .. } = verdict.because {
                inner.context.handoff.forget(claim.uid());
            }
            return Ok(Verdict::Done);
        };
        if let Action::ReadVolume { name } = action {
            live = Some(inner.context.read::<Volume>(&Key::cluster(name)).await?);
        } else if let (Action::Provision { .. }, ClassAt::Found(class, _)) = (action, &observed.class) {
            match reclaim::provision(inner, &claim, class).await {
                Ok(()) | Err(Trouble::Changed) => {}
                Err(Trouble::Api(error)) => inner.context.reconsider::<Claim>(key, error).await?,
                Err(Trouble::Plugin(why)) => return Ok(Verdict::Failed(why)),
                Err(Trouble::NotNow) => return Ok(Verdict::Done),
            }
        } else if let Err(error) = act(inner, &claim, action, &observed).await {
            inner.metrics.failed(&claim);
            reconsider(inner, &claim, action, error).await?;
        }
    }
    Ok(Verdict::Again(Duration::ZERO))
}

/// What the caches say about one claim at one moment.
struct Observed<'a> {
    inner: &'a Inner,
    volume: VolumeAt,
    class: ClassAt,
    pods: Vec<Box<str>>,
    /// A free volume that is off the shelf, so that no other pass chooses it.
    held: Option<Held<'a>>,
}

enum VolumeAt {
    Cached(Option<Arc<Volume>>),
    Live(Live<Volume>),
    Open(Offer),
}

enum ClassAt {
    Unset(Option<Arc<Class>>),
    None,
    Missing(Box<str>),
    Found(Arc<Class>, Supply),
}

impl ClassAt {
    fn get(&self) -> Option<&Class> {
        match self {
            Self::Found(class, _) => Some(class),
            Self::Unset(_) | Self::None | Self::Missing(_) => None,
        }
    }
}

/// Puts a volume back on the shelf, in whatever state it is by then.
struct Held<'a> {
    inner: &'a Inner,
    name: Word,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(volume) = self.inner.volumes.get(&Key::cluster(&self.name)) {
            self.inner.shelf().put(volume);
        }
    }
}

impl<'a> Observed<'a> {
    fn of(inner: &'a Inner, claim: &Claim, live: Option<Live<Volume>>) -> Self {
        let (volume, held) = match (&*claim.volume_name, live) {
            ("", _) => {
                let (offer, held) = take(inner, claim);
                (VolumeAt::Open(offer), held)
            }
            (_, Some(live)) => (VolumeAt::Live(live), None),
            (name, None) => (VolumeAt::Cached(inner.volumes.get(&Key::cluster(name))), None),
        };
        let class = match claim.class() {
            ClassName::Unset => ClassAt::Unset(inner.default_class()),
            ClassName::None => ClassAt::None,
            ClassName::Named(name) => match inner.classes.get(&Key::cluster(name)) {
                Some(class) => {
                    let supply = inner.supply(&class);
                    ClassAt::Found(class, supply)
                }
                None => ClassAt::Missing(name.into()),
            },
        };
        let waiting = |pod: &Arc<Pod>| !pod.scheduled() && !pod.terminated();
        let pods = match class.get().is_some_and(Class::delayed) {
            true => {
                let pods = inner.pods.all(&claim.key().to_string());
                pods.iter().filter(|pod| waiting(pod)).map(|pod| pod.name().into()).collect()
            }
            false => Vec::new(),
        };
        Self { inner, volume, class, pods, held }
    }

    fn decide(&self, claim: &Claim) -> claim::Verdict {
        let volume = match &self.volume {
            VolumeAt::Cached(Some(volume)) => VolumeSeen::Named(Lookup::Found(volume)),
            VolumeAt::Cached(None) => VolumeSeen::Named(Lookup::NotCached),
            VolumeAt::Live(live) => VolumeSeen::Named(live.lookup()),
            VolumeAt::Open(offer) => VolumeSeen::Open(offer.clone()),
        };
        let class = match &self.class {
            ClassAt::Unset(default) => ClassSeen::Unset { default: default.as_deref() },
            ClassAt::None => ClassSeen::None,
            ClassAt::Missing(name) => ClassSeen::Missing { name },
            ClassAt::Found(class, supply) => ClassSeen::Found { class, supply: *supply },
        };
        claim::decide(&Seen { claim, volume, class, pods: &self.pods })
    }

    /// Tells users. That a claim is lost is told when it happens, not each time somebody looks; that somebody external is
    /// waited for is not true of a provisioner in this process, which tells of its work itself.
    fn tell(&self, claim: &Claim, verdict: &claim::Verdict) {
        let because = &verdict.because;
        let old_news = match because {
            Because::LostPointer | Because::LostVolume { .. } | Because::Misbound { .. } => verdict.is_rest(),
            Because::AwaitingProvisioner { .. } => matches!(self.class, ClassAt::Found(_, Supply::Beside)),
            _ => false,
        };
        if !old_news {
            self.inner.notices.tell(claim, because);
        }
        tracing::debug!(claim = %claim.key(), because = because.code(), actions = ?verdict.actions, "decided");
    }

    /// A provisioner of this process is told what others read in an annotation.
    fn hand_over(&self, claim: &Claim, because: &Because) {
        if let (Because::AwaitingProvisioner { provisioner, .. }, ClassAt::Found(_, Supply::Beside)) =
            (because, &self.class)
        {
            let name = migration::driver_of(provisioner).unwrap_or(provisioner);
            self.inner.context.handoff.ask(name, &Asked { claim: claim.key().clone(), uid: claim.uid().clone() });
        }
    }

    /// Who made the claim's volume without having been asked by annotation: somebody of this process.
    fn maker(&self, claim: &Claim, volume: &str) -> Option<Word> {
        let ClassAt::Found(_, Supply::Beside | Supply::Plugin) = &self.class else { return None };
        let volume = self.inner.volumes.get(&Key::cluster(volume))?;
        let maker = volume.provisioned_by().filter(|_| claim.provisioner().is_none())?;
        Some(Word::new(migration::driver_of(maker).unwrap_or(maker)))
    }
}

/// What the shelf has for a claim. A free volume leaves the shelf for as long as the answer is held.
fn take<'a>(inner: &'a Inner, claim: &Claim) -> (Offer, Option<Held<'a>>) {
    let mut shelf = inner.shelf();
    let offer = shelf.offer(claim);
    let held = match &offer {
        Offer::Free(volume) => {
            shelf.remove(volume.name());
            let name = Word::new(volume.name());
            Some(Held { inner, name })
        }
        Offer::Designated(_) | Offer::Unsuitable(..) | Offer::Nothing => None,
    };
    (offer, held)
}

/// Does the one thing.
async fn act(inner: &Inner, claim: &Claim, action: &Action, observed: &Observed<'_>) -> Result<(), Error> {
    let (context, key) = (&inner.context, claim.key());
    match action {
        Action::ReadVolume { .. } => {}
        Action::Migrate(mark) => drop(context.patch::<Claim>(key, &patches::mark(&claim.meta, *mark)).await?),
        Action::Reserve { volume, chosen } => {
            let patch = patches::reserve(claim, volume, *chosen);
            context.patch::<Volume>(&Key::cluster(&volume.name), &patch).await?;
        }
        Action::MarkBound { volume } => {
            let patch = patches::phase(volume, VolumePhase::Bound.name(), "");
            context.patch_status::<Volume>(&Key::cluster(&volume.name), &patch).await?;
        }
        Action::Point { volume, chosen } => {
            let patch = patches::point(claim, volume, *chosen, observed.maker(claim, volume).as_ref());
            context.patch::<Claim>(key, &patch).await?;
        }
        Action::SetStatus(status) => {
            drop(context.patch_status::<Claim>(key, &patches::status(claim, status)).await?);
            if status.phase == ClaimPhase::Bound && claim.phase != ClaimPhase::Bound {
                work::is_about_volume(&claim.volume_name);
                tracing::info!("the claim is bound");
            }
        }
        Action::Classify { class } => {
            inner.metrics.classified();
            let written = context.patch::<Claim>(key, &patches::classify(claim, class)).await;
            inner.metrics.classify_ended(&written);
            written?;
        }
        Action::Ask { provisioner } => {
            inner.metrics.asked(claim, provisioner);
            context.patch::<Claim>(key, &patches::ask(claim, provisioner)).await?;
        }
        Action::Provision { .. } => {}
    }
    Ok(())
}

/// After a write that failed: what was written to is read again.
async fn reconsider(inner: &Inner, claim: &Claim, action: &Action, error: Error) -> Result<(), Error> {
    match action {
        Action::Reserve { volume, .. } | Action::MarkBound { volume } => {
            inner.context.reconsider::<Volume>(&Key::cluster(&volume.name), error).await
        }
        Action::ReadVolume { .. }
        | Action::Migrate(_)
        | Action::Point { .. }
        | Action::SetStatus(_)
        | Action::Classify { .. }
        | Action::Ask { .. }
        | Action::Provision { .. } => inner.context.reconsider::<Claim>(claim.key(), error).await,
    }
}

impl Inner {
    /// The default class of this moment (BIND-4.8).
    fn default_class(&self) -> Option<Arc<Class>> {
        let defaults: Vec<Arc<Class>> = self.classes.walk().filter(|class| class.is_default()).collect();
        let name = claim::default_class(defaults.iter().map(|class| &**class))?.name().to_owned();
        defaults.into_iter().find(|class| class.name() == name)
    }
}
