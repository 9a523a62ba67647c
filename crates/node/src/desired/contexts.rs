//! The SELinux contexts that pods' volumes are to be mounted with (NODE-15), and what is told and counted about them.

use std::sync::Arc;

use api::CsiDriver;
use lifecycle::Notice;
use lifecycle::node::Because;
use lifecycle::node::selinux::{self, Flaw, Gate, Judged, Label, Question, Severity};
use runtime::Notices;

use super::{DesiredPod, Wish};
use crate::Agent;
use crate::actual::{Shape, What};
use crate::host::Selinux;
use crate::layout::Plugin;
use crate::metrics::{Of, SelinuxMetrics};
use crate::pods::PodVolume;

/// What sockets and directories of drivers have, so that containers may reach them (NODE-2).
const OF_DRIVERS: &str = "system_u:object_r:container_file_t:s0";

/// How contexts are given on a machine that has them.
pub(crate) struct Contexts<'a> {
    /// What files in containers have.
    files: &'a Label,
    gate: Gate,
    metrics: &'a SelinuxMetrics,
    notices: &'a Notices,
}

impl Contexts<'_> {
    /// Decides with which context a pod's volume is mounted, given its driver's object and what was decided about the pod's
    /// volumes so far. What is news since `before` is told.
    pub(crate) fn give(
        &self,
        wish: Wish,
        volume: &PodVolume,
        driver: Option<&CsiDriver>,
        (before, sofar): (Option<&Result<Arc<Wish>, Because>>, &DesiredPod),
    ) -> Result<Wish, Because> {
        let What::Csi { shape, .. } = &wish.what else { return Ok(wish) };
        let access = match shape {
            Shape::Filesystem => Some(wish.access),
            Shape::Inline => None,
            Shape::Block { .. } => return Ok(wish),
        };
        let mut judged = selinux::judge(&Question {
            files: self.files,
            containers: &volume.contexts,
            policy: wish.pod.relabelling,
            driver: driver.map(|driver| &driver.spec),
            access,
            gate: self.gate,
        });
        // One claim may be two volumes of a pod.
        let others = sofar.volumes.values().flatten().filter(|other| other.id == wish.id);
        for other in others {
            judged = judged.beside(&other.selinux);
        }
        if is_news(before, &judged) {
            self.tell(&wish, &judged);
        }
        match judged.flaw {
            Some((flaw, Severity::Error)) => Err(Because::BadContext { volume: volume.name.clone(), flaw }),
            Some((_, Severity::Warning)) | None => Ok(Wish { selinux: judged, ..wish }),
        }
    }

    fn tell(&self, wish: &Wish, judged: &Judged) {
        let of = of(wish);
        if judged.mount.is_some() {
            self.metrics.admitted(&of);
        }
        let Some((flaw, severity)) = &judged.flaw else { return };
        self.metrics.flawed(&of, flaw, *severity);
        if *flaw == Flaw::NoLevel {
            let message = format!("volume {:?} is mounted without an SELinux context: {flaw}", wish.volume);
            self.notices.always(&*wish.pod, &Notice::warning("SELinuxContextNotUsed", message));
        }
    }
}

fn is_news(before: Option<&Result<Arc<Wish>, Because>>, judged: &Judged) -> bool {
    match (before, &judged.flaw) {
        (Some(Ok(before)), _) => before.selinux != *judged,
        (Some(Err(Because::BadContext { flaw: before, .. })), Some((flaw, Severity::Error))) => before != flaw,
        (Some(Err(_)) | None, _) => true,
    }
}

/// A volume as metrics name it.
fn of(wish: &Wish) -> Of {
    let driver = wish.what.driver().map(|driver| driver.as_str()).unwrap_or_default();
    let access = (!wish.what.is_inline()).then_some(wish.access);
    Of { plugin: format!("{}/{driver}", Plugin::Csi.name()), access: selinux::widest(access) }
}

impl Agent {
    /// Finds out whether this machine has SELinux, once.
    pub(crate) async fn learn_selinux(&self) {
        if self.selinux.get().is_some() {
            return;
        }
        let files = match self.host.selinux().await {
            Ok(Selinux::Off) => None,
            Ok(Selinux::On { files }) => {
                self.label_drivers().await;
                let label = files.as_deref().and_then(Label::parse);
                if label.is_none() {
                    let why = "the policy does not say what files in containers have";
                    tracing::warn!(?files, "SELinux is on, and volumes are mounted without contexts: {why}");
                }
                label
            }
            Err(error) => {
                tracing::warn!(%error, "whether SELinux is on is not known: volumes are mounted without contexts");
                None
            }
        };
        // Nobody else sets it.
        let _ = self.selinux.set(files);
    }

    async fn label_drivers(&self) {
        for path in [self.options.layout.plugins(), self.options.layout.registry()] {
            if let Err(error) = self.host.set_label(&path, OF_DRIVERS).await {
                tracing::warn!(%error, "containers may not reach what is in it");
            }
        }
    }

    pub(crate) fn contexts(&self) -> Option<Contexts<'_>> {
        let files = self.selinux.get()?.as_ref()?;
        Some(Contexts { files, gate: self.options.selinux, metrics: &self.metrics.selinux, notices: &self.notices })
    }

    /// Counts volumes that a pod wants with another context than the pods before it (NODE-15.6).
    pub(crate) fn count_mismatches(&self, desired: &DesiredPod) {
        let world = self.world();
        let known = world.desired.pod(desired.pod.uid());
        for (name, wish) in &desired.volumes {
            let Ok(wish) = wish else { continue };
            if known.is_some_and(|known| !is_news(known.volumes.get(name), &wish.selinux)) {
                continue;
            }
            let others = world.desired.wishes(&wish.id).into_iter().filter(|other| other.pod.uid() != wish.pod.uid());
            let mut differing = others.filter(|other| other.selinux.wanted != wish.selinux.wanted).peekable();
            if differing.peek().is_some() {
                let mounted = wish.selinux.mount.is_some() || differing.any(|other| other.selinux.mount.is_some());
                let severity = if mounted { Severity::Error } else { Severity::Warning };
                self.metrics.selinux.mismatched(&of(wish), severity);
            }
        }
    }
}
