//! Asks a driver how the volumes of claims are, and writes it into the claims (external-health-monitor's role). What is
//! decided is in [`lifecycle::health`].
//!
//! A driver is asked for all its volumes at once, or, if it cannot list them or the listing fails, for one after the other.
//! The claim's condition is the only memory: it is written when it differs from what the driver says, and whoever comes
//! after a crash compares again.
//!
//! # Invariants
//! 1. Nothing follows from a driver that does not answer, or does not know a volume.
//! 2. An instance that serves one machine asks about volumes of that machine only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::keys::condition;
use api::{Claim, Key, Source, Volume, VolumePhase};
use csi::v1;
use futures_util::stream::{self, StreamExt as _};
use lifecycle::Reason as _;
use lifecycle::health::{self, DriverWord, HealthAction, HealthReason};
use lifecycle::provision::csi::{Abilities, Ability};
use runtime::csi::{CallError, Driver};
use runtime::{Cache, Patch, Stop};
use serde_json::json;
use tokio::time::sleep;

use crate::provision::csi::wire;
use crate::{Context, Notices};

/// How many volumes a driver is asked about at once.
const AT_ONCE: usize = 8;

/// How a driver is asked.
#[derive(Debug, Clone)]
pub struct MonitorOptions {
    /// How often: `--monitor-interval`.
    pub interval: Duration,
    /// How long one call may take: `--timeout`.
    pub timeout: Duration,
    /// Whether this instance serves only the machine that its driver runs on.
    pub only_here: bool,
}

/// Follows the condition of one driver's volumes.
#[derive(Debug)]
pub struct Monitor {
    context: Context,
    driver: Driver,
    name: String,
    options: MonitorOptions,
    volumes: Cache<Volume>,
    claims: Cache<Claim>,
    notices: Notices,
}

/// A volume of a claim.
type Subject = (Arc<Volume>, String);

impl Monitor {
    /// A monitor for the driver of this name. Nothing happens until [`Monitor::run`].
    pub fn new(context: &Context, driver: &Driver, name: &str, options: MonitorOptions) -> Self {
        Self {
            context: context.clone(),
            driver: driver.clone(),
            name: name.to_owned(),
            options,
            volumes: context.cache(),
            claims: context.cache(),
            notices: Notices::new(context.recorder.named(name)),
        }
    }

    /// Asks at once and then again and again, until `stop`.
    pub async fn run(&self, stop: &Stop) {
        let synced = async {
            self.volumes.synced().await;
            self.claims.synced().await;
        };
        tokio::select! {
            biased;
            () = stop.stopped() => return,
            () = synced => {}
        }
        loop {
            let look = async {
                self.look().await;
                sleep(self.context.entropy.longer(self.options.interval, 0.1)).await;
            };
            tokio::select! {
                biased;
                () = stop.stopped() => return,
                () = look => {}
            }
        }
    }

    async fn look(&self) {
        let Some(facts) = self.driver.facts() else { return };
        let has = wire::abilities(&facts.capabilities);
        if !has.contains(&Ability::VolumeCondition) {
            return;
        }
        let subjects = match self.subjects().await {
            Ok(subjects) if subjects.is_empty() => return,
            Ok(subjects) => subjects,
            Err(error) => {
                tracing::debug!(%error, "the driver does not say which machine it is on");
                return;
            }
        };
        for (volume, word) in self.ask(&has, subjects).await {
            self.tell(&volume, &word).await;
        }
    }

    /// Volumes of this driver that claims have, with their handles.
    async fn subjects(&self) -> Result<Vec<Subject>, CallError> {
        let place = match self.options.only_here {
            false => None,
            true => {
                let info = self.driver.node_get_info(v1::NodeGetInfoRequest {}, self.options.timeout).await?;
                Some(info.accessible_topology.map(|place| place.segments).unwrap_or_default())
            }
        };
        let here = |volume: &Volume| match &place {
            Some(segments) => volume.reachable_from("", &segments.iter().collect()),
            None => true,
        };
        let bound = self.volumes.walk().filter(|volume| volume.phase == VolumePhase::Bound && here(volume));
        Ok(bound.filter_map(|volume| handle(&volume, &self.name).map(|handle| (volume, handle))).collect())
    }

    async fn ask(&self, has: &Abilities, subjects: Vec<Subject>) -> Vec<(Arc<Volume>, DriverWord)> {
        if has.contains(&Ability::ListVolumes) {
            match self.list().await {
                Ok(words) => {
                    let word = |handle: &str| words.get(handle).cloned().unwrap_or(DriverWord::Unknown);
                    return subjects.into_iter().map(|(volume, handle)| (volume, word(&handle))).collect();
                }
                Err(error) => tracing::debug!(error, "the driver does not list its volumes; each is asked for"),
            }
        }
        if !has.contains(&Ability::GetVolume) {
            return Vec::new();
        }
        let asked = stream::iter(subjects).map(|(volume, handle)| async move { (volume, self.word(handle).await) });
        asked.buffered(AT_ONCE).collect().await
    }

    /// The conditions that the driver reports for all its volumes, by handle.
    async fn list(&self) -> Result<BTreeMap<String, DriverWord>, String> {
        let (mut words, mut tokens, mut starting_token) = (BTreeMap::new(), BTreeSet::new(), String::new());
        loop {
            let request = v1::ListVolumesRequest { max_entries: 0, starting_token };
            let page =
                self.driver.list_volumes(request, self.options.timeout).await.map_err(|error| error.to_string())?;
            for entry in page.entries {
                let said = entry.status.and_then(|status| status.volume_condition);
                words.extend(entry.volume.map(|volume| (volume.volume_id, word_of(said))));
            }
            if page.next_token.is_empty() {
                return Ok(words);
            }
            if !tokens.insert(page.next_token.clone()) {
                return Err(format!("the driver gave the page {:?} twice", page.next_token));
            }
            starting_token = page.next_token;
        }
    }

    async fn word(&self, volume_id: String) -> DriverWord {
        let request = v1::ControllerGetVolumeRequest { volume_id };
        match self.driver.controller_get_volume(request, self.options.timeout).await {
            Ok(answer) => word_of(answer.status.and_then(|status| status.volume_condition)),
            // A refusal may say what is wrong with the volume, such as that its pool is missing.
            Err(error) => match health::known_words(error.message()) {
                Some(words) => DriverWord::Abnormal(words.to_owned()),
                None => DriverWord::Unknown,
            },
        }
    }

    /// Makes the claim say what the driver says.
    async fn tell(&self, volume: &Volume, word: &DriverWord) {
        let Some(owner) = volume.claim.as_deref() else { return };
        let Some(claim) = self.claims.get(&owner.key) else { return };
        if owner.uid.as_ref() != Some(claim.uid()) || *claim.volume_name != *volume.name() {
            return;
        }
        let decision = health::decide(&claim, word);
        let Some(action) = decision.actions.first() else { return };
        match self.write(&claim, action).await {
            Ok(_) => self.told(&claim, volume, &decision.because),
            // Another claim of that name, or none.
            Err(error) if error.is_conflict() || error.is_not_found() => {}
            Err(error) => tracing::warn!(claim = %claim.key(), %error, "the condition of its volume cannot be written"),
        }
    }

    async fn write(&self, claim: &Claim, action: &HealthAction) -> Result<Option<Arc<Claim>>, runtime::client::Error> {
        let now = self.context.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut said = match action {
            HealthAction::Mark { reason, message } => {
                json!({"type": condition::VOLUME_ABNORMAL, "status": "True", "reason": reason, "message": message})
            }
            HealthAction::Clear => json!({"type": condition::VOLUME_ABNORMAL, "status": "False",
                "reason": health::NORMAL_EVENT, "message": health::WELL_AGAIN}),
        };
        // Other words for what is still wrong do not change since when it is.
        if claim.status.abnormal.is_none() || *action == HealthAction::Clear {
            said["lastTransitionTime"] = now.into();
        }
        let body = json!({"metadata": {"uid": claim.uid().as_str()}, "status": {"conditions": [said]}});
        let key: &Key = claim.key();
        self.context.patch_status::<Claim>(key, &Patch::Strategic(body)).await
    }

    fn told(&self, claim: &Claim, volume: &Volume, because: &HealthReason) {
        let (key, volume) = (claim.key(), volume.name());
        match because {
            HealthReason::Abnormal { message } => {
                tracing::warn!(claim = %key, volume, said = message, "a volume is not well")
            }
            HealthReason::Well | HealthReason::NotKnown | HealthReason::WellAgain => {
                tracing::info!(claim = %key, volume, "{because}");
            }
        }
        if let Some(notice) = because.notice() {
            self.notices.always(claim, &notice);
        }
    }
}

fn handle(volume: &Volume, driver: &str) -> Option<String> {
    match &volume.source {
        Source::Csi { driver: of, handle } if **of == *driver => Some(handle.to_string()),
        _ => None,
    }
}

fn word_of(said: Option<v1::VolumeCondition>) -> DriverWord {
    match said {
        Some(said) if said.abnormal => DriverWord::Abnormal(said.message),
        Some(_) => DriverWord::Normal,
        None => DriverWord::Unknown,
    }
}
