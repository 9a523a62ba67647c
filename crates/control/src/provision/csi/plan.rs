//! From a wish to a plan: what has to be asked for is asked for, and the source is guarded (PROVISION-2.6).

use std::collections::BTreeMap;
use std::sync::Arc;

use api::class::TopologyTerm;
use api::{AttributesClass, BindingMode, Claim, Grant, Key, Kind, Snapshot, SnapshotContent, Source, Volume};
use lifecycle::Notice;
use lifecycle::migration;
use lifecycle::outcome::Retry;
use lifecycle::provision::csi::outline::{self, Findings, Outline, Seen};
use lifecycle::provision::csi::source::{self, CloneSeen, Content, SnapshotSeen, Wanted};
use lifecycle::provision::csi::topology::{self, NoPlace};
use lifecycle::provision::csi::{Plan, Standing, Unfit};
use runtime::client::{Error, Selection};
use runtime::csi::Facts;

use super::waiting::What;
use super::{Inner, secret, wire};
use crate::capacity::Changed;
use crate::provision::{Settled, Unplanned, Wish};
use crate::{Context, Live};

fn not_yet(message: impl Into<String>) -> Unplanned {
    Unplanned::NotYet { message: message.into() }
}

/// How a refusal to plan is told to the engine.
fn unplanned(unfit: &Unfit) -> Unplanned {
    let message = unfit.to_string();
    match unfit.standing() {
        Standing::Ignored => {
            let notice = Some(Notice::normal(
                "Provisioning",
                format!("Assuming an external populator will provision the volume: {message}"),
            ));
            Unplanned::Ignored { message, notice }
        }
        Standing::Wrong => Unplanned::Refused { message, retry: Retry::Later },
        Standing::NotYet => Unplanned::NotYet { message },
        Standing::Elsewhere => Unplanned::Refused { message, retry: Retry::Elsewhere },
    }
}

fn from_unfit(unfit: impl Into<Unfit>) -> Unplanned {
    unplanned(&unfit.into())
}

impl Inner {
    pub(super) async fn plan(&self, wish: &Wish) -> Result<Plan, Unplanned> {
        // A wait is noted before the look, so that what comes in between is not missed.
        self.waiting.claim(What::Driver, wish.claim.uid());
        let Some(facts) = self.driver.facts() else {
            return Err(not_yet("the driver is not connected"));
        };
        self.waiting.served(&What::Driver, wish.claim.uid());
        let node = self.our_turn(wish)?;
        let grants = self.grants(&wish.claim).await?;
        let outline = self.outline(wish, &facts, &grants).map_err(|unfit| unplanned(&unfit))?;
        let findings = Findings {
            content: self.content(wish, &outline.wanted).await?,
            topology: match outline.placed {
                true => self.place(wish, &outline.allowed, node.as_deref()).await?,
                false => None,
            },
            mutable: self.mutable(&outline.attributes_class).await?,
        };
        if let Some(reference) = outline.secret() {
            // Only whether it is there: the values are read for the call itself.
            secret::read(&self.context.client, reference).await.map_err(|error| not_yet(error.to_string()))?;
        }
        let plan = outline.plan(findings);
        self.guard(&plan).await?;
        Ok(plan)
    }

    /// In node mode a claim is ours if our node was selected; for one that nobody has, we may compete (PROVISION-2.13).
    fn our_turn(&self, wish: &Wish) -> Result<Option<Box<str>>, Unplanned> {
        let Some(contest) = &self.contest else {
            return Ok(wish.node.clone());
        };
        let ignored = |message: String| Unplanned::Ignored { message, notice: None };
        match &wish.node {
            Some(node) if **node == *contest.node().name => Ok(wish.node.clone()),
            Some(node) => Err(ignored(format!("the node {node} was selected"))),
            None if wish.class.volume_binding_mode == Some(BindingMode::Immediate) && contest.node().immediate => {
                contest.enter(&wish.claim);
                Err(ignored("whoever has room takes it".to_owned()))
            }
            None => Err(ignored("no node was selected".to_owned())),
        }
    }

    pub(super) fn outline(&self, wish: &Wish, facts: &Facts, grants: &[Grant]) -> Result<Outline, Unfit> {
        let abilities = wire::abilities(&facts.capabilities);
        outline::outline(&Seen {
            claim: &wish.claim,
            class: &wish.class,
            volume_name: &wish.volume_name,
            driver: self.name(),
            abilities: &abilities,
            options: &self.options.plans,
            grants,
        })
    }

    /// The grants that decide whether the claim may use a source of another namespace.
    async fn grants(&self, claim: &Claim) -> Result<Vec<Grant>, Unplanned> {
        let Some(namespace) = source::crosses(claim, self.options.plans.crossing) else {
            return Ok(Vec::new());
        };
        let selection = Selection { namespace: Some(namespace.to_owned()), ..Selection::default() };
        let listed = self.context.client.list::<Grant>(Kind::REFERENCE_GRANT, &selection, 0, None).await;
        listed
            .map(|page| page.items)
            .map_err(|error| not_yet(format!("the grants of {namespace} are not known: {error}")))
    }

    async fn content(&self, wish: &Wish, wanted: &Wanted) -> Result<Option<Content>, Unplanned> {
        match wanted {
            Wanted::Nothing => Ok(None),
            Wanted::Clone(key) => self.clone_of(wish, key).await.map(Some),
            Wanted::Snapshot(key) => self.snapshot_of(wish, key).await.map(Some),
        }
    }

    async fn clone_of(&self, wish: &Wish, key: &Key) -> Result<Content, Unplanned> {
        self.waiting.claim(What::Claim(key.clone()), wish.claim.uid());
        let source = found::<Claim>(&self.context, key).await?;
        let name = source.lookup().found().map(|source| source.volume_name.clone()).filter(|name| !name.is_empty());
        let volume = match name {
            // Always asked: the volume's own words decide, and the cache may be behind them.
            Some(name) => native(live(self.context.read::<Volume>(&Key::cluster(&name)).await)?),
            None => Live::Absent,
        };
        let seen = CloneSeen {
            claim: &wish.claim,
            class: &wish.class,
            driver: self.name(),
            source: source.lookup(),
            volume: volume.lookup(),
        };
        let content = source::clone(&seen, key).map_err(from_unfit)?;
        self.waiting.served(&What::Claim(key.clone()), wish.claim.uid());
        Ok(content)
    }

    async fn snapshot_of(&self, wish: &Wish, key: &Key) -> Result<Content, Unplanned> {
        self.waiting.claim(What::Snapshot(key.clone()), wish.claim.uid());
        let snapshot = live(asked::<Snapshot>(&self.context, Kind::SNAPSHOT, key).await)?;
        let bound = snapshot.lookup().found().and_then(|snapshot| snapshot.content.clone());
        let content = match bound {
            Some(name) => {
                let key = Key::cluster(&name);
                live(asked::<SnapshotContent>(&self.context, Kind::SNAPSHOT_CONTENT, &key).await)?
            }
            None => Live::Absent,
        };
        let seen = SnapshotSeen {
            claim: &wish.claim,
            driver: self.name(),
            modes: self.options.plans.modes,
            snapshot: snapshot.lookup(),
            content: content.lookup(),
        };
        let content = source::snapshot(&seen, key).map_err(from_unfit)?;
        self.waiting.served(&What::Snapshot(key.clone()), wish.claim.uid());
        Ok(content)
    }

    async fn place(
        &self,
        wish: &Wish,
        allowed: &[TopologyTerm],
        node: Option<&str>,
    ) -> Result<Option<topology::Requirement>, Unplanned> {
        self.waiting.claim(What::Nodes, wish.claim.uid());
        let around = self.places.around(&self.driver, node, self.options.timeout).await;
        let around = around.map_err(|error| not_yet(error.to_string()))?;
        let seen = topology::Seen {
            driver: self.name(),
            claim_name: wish.claim.name(),
            allowed,
            selected: around.selected(node),
            strictness: self.options.plans.strictness,
            immediate: self.options.plans.immediate,
            nodes: around.nodes(),
        };
        let requirement = topology::requirement(&seen).map_err(|no: NoPlace| from_unfit(no))?;
        self.waiting.served(&What::Nodes, wish.claim.uid());
        Ok(requirement)
    }

    async fn mutable(&self, name: &str) -> Result<BTreeMap<String, String>, Unplanned> {
        if name.is_empty() {
            return Ok(BTreeMap::new());
        }
        let class = live(asked::<AttributesClass>(&self.context, Kind::ATTRIBUTES_CLASS, &Key::cluster(name)).await)?;
        outline::mutable(name, self.name(), class.lookup()).map_err(|unfit| unplanned(&unfit))
    }

    /// Whether an attempt left or took room, and whether its source may go.
    pub(super) fn settled(&self, plan: &Plan, end: Settled<'_>) {
        self.holds.release(plan);
        match end {
            Settled::Stored(volume) => self.refresh(&Changed::Volume(volume)),
            Settled::Nothing => self.refresh(&Changed::Class(&plan.class)),
        }
    }
}

/// A volume of a plugin that a driver took over, as the driver's.
fn native(volume: Live<Volume>) -> Live<Volume> {
    let Live::Found(found) = &volume else { return volume };
    match migration::csi_source(found) {
        Ok(Some(source)) => {
            let source = Source::Csi { driver: source.driver.as_str().into(), handle: source.volume_handle.into() };
            Live::Found(Arc::new(Volume { source, ..(**found).clone() }))
        }
        Ok(None) | Err(_) => volume,
    }
}

/// The object from the cache, or else from the server.
async fn found<T: api::Object + Clone>(context: &Context, key: &Key) -> Result<Live<T>, Unplanned> {
    match context.cache::<T>().get(key) {
        Some(object) => Ok(Live::Found(object)),
        None => live(context.read::<T>(key).await),
    }
}

/// The object from the server, of a kind that nobody here watches.
async fn asked<T: serde::de::DeserializeOwned>(context: &Context, kind: Kind, key: &Key) -> Result<Live<T>, Error> {
    match context.client.get::<T>(kind, key).await {
        Ok(object) => Ok(Live::Found(Arc::new(object))),
        Err(error) if error.is_not_found() => Ok(Live::Absent),
        Err(error) => Err(error),
    }
}

fn live<T>(asked: Result<Live<T>, Error>) -> Result<Live<T>, Unplanned> {
    asked.map_err(|error| not_yet(error.to_string()))
}
