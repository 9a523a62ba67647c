//! What operators see of the binder (CTRL-17).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use api::{Claim, Class, Source, Uid, Volume, VolumePhase};
use lifecycle::bind::claim::Because;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use runtime::Metrics;
use runtime::client::Error;
use runtime::metrics::VolumeOperation;
use tokio::time::Instant;

use crate::Context;

type Labels = Vec<(&'static str, String)>;

/// Counters, and when what began.
#[derive(Debug)]
pub(super) struct BinderMetrics {
    metrics: Metrics,
    classified: Counter,
    classify_failed: Counter,
    /// Claims that somebody was asked to make a volume for: since when, and whom.
    provisions: Mutex<BTreeMap<Uid, (Instant, String)>>,
    /// Volumes that are being deleted: since when.
    deletions: Mutex<BTreeMap<Uid, Instant>>,
}

impl BinderMetrics {
    pub(super) fn new(context: &Context) -> Self {
        let metrics = context.metrics.clone();
        let counter = |name: &str, help: &str| metrics.register(name, help, Counter::default());
        let classified = counter("retroactive_storageclass", "Claims that were given the default class later");
        let classify_failed = counter("retroactive_storageclass_errors", "Failures to give the default class later");
        collect(context);
        Self { metrics, classified, classify_failed, provisions: Mutex::default(), deletions: Mutex::default() }
    }

    pub(super) fn classified(&self) {
        self.classified.inc();
    }

    pub(super) fn classify_ended<T>(&self, ended: &Result<T, Error>) {
        if ended.is_err() {
            self.classify_failed.inc();
        }
    }

    /// A provisioner is asked for a claim.
    pub(super) fn asked(&self, claim: &Claim, provisioner: &str) {
        let mut provisions = self.provisions.lock().unwrap_or_else(PoisonError::into_inner);
        provisions.entry(claim.uid().clone()).or_insert_with(|| (Instant::now(), provisioner.to_owned()));
    }

    /// A pass over a claim has nothing to do.
    pub(super) fn rested(&self, claim: &Claim, because: &Because, class: Option<&Class>) {
        match because {
            Because::AwaitingProvisioner { provisioner, .. } if class.is_some() => self.asked(claim, provisioner),
            Because::Bound { .. } => {
                if let Some((since, plugin_name)) = self.ended(claim.uid()) {
                    let labels = VolumeOperation { plugin_name, operation_name: "provision" };
                    self.metrics.volume_operations.get_or_create(&labels).observe(since.elapsed().as_secs_f64());
                }
            }
            _ => {}
        }
    }

    /// A write for a claim failed.
    pub(super) fn failed(&self, claim: &Claim) {
        let provisions = self.provisions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, plugin)) = provisions.get(claim.uid()) {
            let labels = VolumeOperation { plugin_name: plugin.clone(), operation_name: "provision" };
            self.metrics.volume_operation_errors.get_or_create(&labels).inc();
        }
    }

    pub(super) fn claim_gone(&self, claim: &Claim) {
        self.ended(claim.uid());
    }

    fn ended(&self, claim: &Uid) -> Option<(Instant, String)> {
        self.provisions.lock().unwrap_or_else(PoisonError::into_inner).remove(claim)
    }

    /// A volume is being reclaimed by deleting it.
    pub(super) fn deleting(&self, volume: &Volume) {
        let mut deletions = self.deletions.lock().unwrap_or_else(PoisonError::into_inner);
        deletions.entry(volume.meta.uid.clone()).or_insert_with(Instant::now);
    }

    pub(super) fn volume_gone(&self, volume: &Volume) {
        let since = self.deletions.lock().unwrap_or_else(PoisonError::into_inner).remove(&volume.meta.uid);
        if let Some(since) = since {
            let labels = VolumeOperation { plugin_name: plugin(volume), operation_name: "delete" };
            self.metrics.volume_operations.get_or_create(&labels).observe(since.elapsed().as_secs_f64());
        }
    }
}

/// The name of a volume's plugin as upstream's collector says it.
fn plugin(volume: &Volume) -> String {
    match &volume.source {
        Source::Csi { driver, .. } => format!("{}:{driver}", api::keys::provisioner::CSI),
        Source::HostPath { .. } => api::keys::provisioner::HOST_PATH.to_owned(),
        Source::Local { .. } => api::keys::provisioner::LOCAL.to_owned(),
        Source::Nfs { .. } => api::keys::provisioner::NFS.to_owned(),
        Source::Other { .. } | Source::Missing => "N/A".to_owned(),
    }
}

/// `pv_collector_*`: counted when somebody looks.
fn collect(context: &Context) {
    let register = |name: &str, help: &str| context.metrics.register(name, help, Family::<Labels, Gauge>::default());
    let total = register("pv_collector_total_pv_count", "PersistentVolumes by plugin and mode");
    let bound_volumes = register("pv_collector_bound_pv_count", "Bound PersistentVolumes by class");
    let unbound_volumes = register("pv_collector_unbound_pv_count", "Unbound PersistentVolumes by class");
    let bound_claims = register("pv_collector_bound_pvc_count", "Bound PersistentVolumeClaims by namespace");
    let unbound_claims = register("pv_collector_unbound_pvc_count", "Unbound PersistentVolumeClaims by namespace");
    let (volumes, claims) = (context.cache::<Volume>(), context.cache::<Claim>());
    context.metrics.before_encoding(move || {
        [&total, &bound_volumes, &unbound_volumes, &bound_claims, &unbound_claims]
            .iter()
            .for_each(|family| family.clear());
        for volume in volumes.walk() {
            let mode = volume.mode.name().to_owned();
            total.get_or_create(&vec![("plugin_name", plugin(&volume)), ("volume_mode", mode)]).inc();
            let class = volume.class_field.as_deref().unwrap_or_default().to_owned();
            let family = if volume.phase == VolumePhase::Bound { &bound_volumes } else { &unbound_volumes };
            family.get_or_create(&vec![("storage_class", class)]).inc();
        }
        for claim in claims.walk() {
            let class = claim.class_field.as_deref().unwrap_or_default().to_owned();
            let labels = vec![
                ("namespace", claim.namespace().to_owned()),
                ("storage_class", class),
                ("volume_attributes_class", claim.attributes_class().to_owned()),
            ];
            let bound = claim.phase == api::ClaimPhase::Bound;
            let family = if bound { &bound_claims } else { &unbound_claims };
            family.get_or_create(&labels).inc();
        }
    });
}
