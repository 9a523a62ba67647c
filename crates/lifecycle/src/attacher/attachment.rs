//! What to do about one VolumeAttachment (ATTACHER-3.5 to ATTACHER-3.7).
//!
//! The steps of one attachment, each a decision of its own: read what is needed, guard the volume, write down what is going
//! to be published, publish, record. And back: unpublish what was written down, let go, record.

use std::collections::BTreeMap;

use api::keys::annotation;
use api::{Attachment, CsiNode, Meta, Volume};
use serde::Deserialize;
use serde_json::Value;

use super::publication::{Described, Origin};
use super::{Attacher, Because, Handler, Publication, Target, Unfit};
use crate::attach::restored::{RestoredCluster, is_restored};
use crate::attach::target::Sharing;
use crate::attach::{self, attachment_name};
use crate::decision::{Decision, Lookup};
use crate::migration;
use crate::outcome::{Call, Code, Outcome, outcome};
use crate::provision::csi::secrets::Reference;
use crate::provision::csi::{Abilities, Ability};

/// Everything that is looked at for one attachment.
#[derive(Debug)]
pub struct Seen<'a> {
    pub attachment: &'a Attachment,
    pub attacher: &'a Attacher,
    pub has: &'a Abilities,
    /// The PersistentVolume that it names, whole, as the server has it.
    pub volume: Lookup<'a, Value>,
    /// The same as a cache holds it, if it does.
    pub cached: Option<&'a Volume>,
    /// The CSINode of its node.
    pub node: Lookup<'a, CsiNode>,
    /// The handle that the attachment's name was made of, among those that the driver lists.
    pub listed: Lookup<'a, String>,
    /// The secret that was read, and what came of it.
    pub secret: Option<(&'a Reference, SecretSeen<'a>)>,
    /// The restored nodes and all attachments, which an attachment that was restored depends on.
    pub restored: Lookup<'a, RestoredCluster>,
    pub forced: Forced,
    pub progress: &'a Progress,
}

/// What is known of a secret. Its values are not here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretSeen<'a> {
    Held,
    /// The server said that it does not exist, or what it holds cannot be given to a driver.
    Unusable(&'a str),
    /// It could not be read now.
    Unread(&'a str),
}

/// Whether the driver contradicts the attachment's status, so that the call is repeated although all seems done
/// (ATTACHER-3.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forced {
    No,
    Yes,
}

/// What the driver confirmed since this pass began.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Progress {
    #[default]
    Nothing,
    /// With what the node needs to know.
    Published {
        target: Target,
        context: BTreeMap<String, String>,
    },
    Unpublished(Target),
}

/// Which half of an attachment's life an error belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Attach,
    Detach,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Ask the server for the volume, then decide again. No write.
    ReadVolume {
        name: String,
    },
    /// Ask the server for the CSINode, then decide again. No write.
    ReadNode {
        name: String,
    },
    /// Ask the server for the nodes that were restored and for all attachments, then decide again. No write.
    ReadRestored,
    /// Look for the handle among the driver's volumes, then decide again. No write.
    FindHandle,
    /// Read the secret for the coming call, then decide again. No write.
    ReadSecret(Reference),
    /// Put our finalizer on the volume, at the revision that is known. The answer is the volume, whole.
    GuardVolume,
    /// Put our finalizer on the attachment, and what is going to be published.
    Record(Target),
    Publish(Box<Publication>, Target),
    Unpublish(Target, Origin),
    /// Say that it is attached.
    RecordAttached {
        metadata: BTreeMap<String, String>,
    },
    /// Take our finalizer off the attachment.
    LetGo,
    /// Say that it is not attached any more.
    RecordDetached,
    /// Say what is wrong, and try again later.
    Complain(Phase),
}

pub type Verdict = Decision<Action, Because>;

/// A value, or what has to be done first to have it.
type Known<T> = Result<T, Box<Verdict>>;

/// Says what to do next about an attachment.
pub fn decide(seen: &Seen<'_>) -> Verdict {
    let decided = match (seen.is_ours(), seen.attachment.meta.is_deleting(), Handler::of(seen.has)) {
        (false, _, _) => return Decision::rest(Because::NotOurs),
        (true, false, Handler::Trivial) => return seen.trivial(),
        (true, false, Handler::Csi) => seen.attach(),
        // A driver that used to publish may have left something: it is asked, whatever it says that it can do.
        (true, true, Handler::Trivial | Handler::Csi) => seen.detach(),
    };
    decided.unwrap_or_else(|first| *first)
}

fn first<T>(because: Because, action: Action) -> Known<T> {
    Err(Box::new(Decision::act(because, action)))
}

/// What is known after a call to take a volume back failed.
///
/// A driver that says that it publishes nothing, and does not know the call, has nothing published.
pub fn not_unpublished(handler: Handler, code: Code) -> Outcome {
    match (handler, code) {
        (Handler::Trivial, Code::Unimplemented) => Outcome::Done,
        (Handler::Trivial | Handler::Csi, code) => outcome(Call::ControllerUnpublish, code),
    }
}

/// Whether an attachment's name was made of this handle.
pub fn is_named_after(attachment: &Attachment, handle: &str) -> bool {
    attachment_name(&attachment.attacher, handle, &attachment.node) == attachment.name()
}

/// What an attachment says was published, or was going to be; none without our finalizer.
pub fn recorded(attachment: &Attachment, finalizer: &str) -> Option<Target> {
    let noted = |key| attachment.meta.annotation(key).filter(|value| !value.is_empty());
    if !attachment.meta.has_finalizer(finalizer) {
        return None;
    }
    let (node_id, handle) = (noted(annotation::NODE_ID)?, noted(annotation::PUBLISHED_HANDLE)?);
    let secret = noted(annotation::PUBLISH_SECRET).and_then(|text| text.split_once('/'));
    let secret = secret.map(|(namespace, name)| Reference { namespace: namespace.to_owned(), name: name.to_owned() });
    Some(Target { handle: handle.to_owned(), node_id: node_id.to_owned(), secret })
}

impl<'a> Seen<'a> {
    fn is_ours(&self) -> bool {
        *self.attachment.attacher == *self.attacher.name
    }

    fn held(&self) -> bool {
        self.attachment.meta.has_finalizer(&self.attacher.finalizer)
    }

    fn recorded_node(&self) -> Option<&'a str> {
        self.attachment.meta.annotation(annotation::NODE_ID).filter(|id| !id.is_empty())
    }

    /// ATTACHER-3.5
    fn trivial(&self) -> Verdict {
        match self.attachment.attached && self.attachment.attach_error.is_none() {
            true => Decision::rest(Because::Attached),
            false => Decision::act(Because::NothingToDo, Action::RecordAttached { metadata: BTreeMap::new() }),
        }
    }

    /// ATTACHER-3.6
    fn attach(&self) -> Known<Verdict> {
        let confirmed = match self.progress {
            Progress::Published { target, context }
                if recorded(self.attachment, &self.attacher.finalizer).as_ref() == Some(target) =>
            {
                Some(context)
            }
            Progress::Published { .. } | Progress::Unpublished(_) | Progress::Nothing => None,
        };
        match (confirmed, self.attachment.attached, self.forced) {
            (Some(context), _, _) if self.told(context) => return Ok(Decision::rest(Because::Attached)),
            (Some(context), _, _) => {
                return Ok(Decision::act(Because::Published, Action::RecordAttached { metadata: context.clone() }));
            }
            (None, true, Forced::No) if self.attachment.attach_error.is_none() => {
                return Ok(Decision::rest(Because::Attached));
            }
            // An earlier process complained, and then saw it attached: the complaint is over.
            (None, true, Forced::No) => {
                let metadata = &self.attachment.metadata;
                let metadata = metadata.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
                return Ok(Decision::act(Because::Attached, Action::RecordAttached { metadata }));
            }
            (None, true, Forced::Yes) | (None, false, _) => {}
        }
        if let Some(node) = self.awaited_node()? {
            return Ok(Decision::rest(Because::AwaitsReport { node }));
        }
        if self.may_guard_unread() {
            return Ok(Decision::act(Because::Unguarded, Action::GuardVolume));
        }
        let described = self.described(Phase::Attach)?;
        let publication = described.publication(self.attacher, self.has);
        let publication = publication.or_else(|unfit| self.refuse(Phase::Attach, unfit))?;
        let target = Target {
            handle: publication.handle.clone(),
            node_id: self.registered(Phase::Attach)?.to_owned(),
            secret: publication.secret.clone(),
        };
        self.secret(Phase::Attach, target.secret.as_ref())?;
        if let Some(earlier) = self.elsewhere(&publication, &target) {
            self.secret(Phase::Attach, earlier.secret.as_ref())?;
            let because = Because::Moved { from: earlier.node_id.clone(), to: target.node_id };
            return Ok(Decision::act(because, Action::Unpublish(earlier, publication.origin)));
        }
        if self.attachment.volume.is_some() && !self.guarded() {
            return Ok(Decision::act(Because::Unguarded, Action::GuardVolume));
        }
        if recorded(self.attachment, &self.attacher.finalizer).as_ref() != Some(&target) {
            return Ok(Decision::act(Because::Unrecorded, Action::Record(target)));
        }
        Ok(Decision::act(
            Because::Wanted { node_id: target.node_id.clone() },
            Action::Publish(Box::new(publication), target),
        ))
    }

    /// The node that a restored attachment waits for: its volume may be there by now.
    fn awaited_node(&self) -> Known<Option<Box<str>>> {
        let is_doubtful = is_restored(self.attachment) && !self.attachment.attached;
        let target = self.cached.and_then(|volume| attach::Target::of_volume(volume).ok()?);
        let is_shared = target.as_ref().is_some_and(|target| target.sharing == Sharing::ManyNodes);
        if !is_doubtful || is_shared {
            return Ok(None);
        }
        let unique = attach::published(self.attachment).or_else(|| target.map(|target| target.unique()));
        match (unique, self.restored) {
            // Without a volume nothing is published.
            (None, _) | (_, Lookup::Absent) => Ok(None),
            (Some(_), Lookup::NotCached) => first(Because::ReportsUnread, Action::ReadRestored),
            (Some(unique), Lookup::Found(cluster)) => Ok(cluster.awaited_node(self.attachment, &unique)),
        }
    }

    /// Whether the status says what the driver last answered.
    fn told(&self, context: &BTreeMap<String, String>) -> bool {
        let Attachment { attached, metadata, attach_error, .. } = self.attachment;
        let same = metadata.iter().eq(context.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        *attached && attach_error.is_none() && same
    }

    /// An earlier attempt may have published the volume under another name of the node, which the coming record would
    /// forget (SIDECAR-A5).
    fn elsewhere(&self, publication: &Publication, wanted: &Target) -> Option<Target> {
        let earlier = recorded(self.attachment, &self.attacher.finalizer).or_else(|| {
            // Upstream's attacher writes down the node only.
            let node_id = self.recorded_node().filter(|_| self.held())?.to_owned();
            Some(Target { node_id, handle: publication.handle.clone(), secret: publication.secret.clone() })
        })?;
        let same = earlier.node_id == wanted.node_id && earlier.handle == wanted.handle;
        let undone = matches!(self.progress, Progress::Unpublished(done) if *done == earlier);
        (!same && !undone).then_some(earlier)
    }

    /// ATTACHER-3.7
    fn detach(&self) -> Known<Verdict> {
        let recorded = recorded(self.attachment, &self.attacher.finalizer);
        if let Progress::Unpublished(done) = self.progress
            && recorded.as_ref().is_none_or(|now| now == done)
        {
            let Attachment { attached, metadata, detach_error, .. } = self.attachment;
            let told = !attached && metadata.is_empty() && detach_error.is_none();
            // The finalizer first: a status that says so while the finalizer stays would be followed by a second call.
            return Ok(match (self.held(), told) {
                (true, _) => Decision::act(Because::Unpublished, Action::LetGo),
                (false, false) => Decision::act(Because::Unpublished, Action::RecordDetached),
                (false, true) => Decision::rest(Because::Detached),
            });
        }
        if !self.held() && (self.forced == Forced::No || Handler::of(self.has) == Handler::Trivial) {
            return Ok(Decision::rest(Because::Detached));
        }
        let (target, origin) = match recorded {
            Some(target) => (target, self.origin()),
            None => self.derived()?,
        };
        if let Some((_, SecretSeen::Unusable(_))) = self.known_secret(target.secret.as_ref())? {
            // A secret that is gone does not keep a volume on a node: the driver decides (SIDECAR-13.16).
            return Ok(Decision::act(Because::LeavingWithoutSecret, Action::Unpublish(target, origin)));
        }
        self.secret(Phase::Detach, target.secret.as_ref())?;
        Ok(Decision::act(Because::Leaving, Action::Unpublish(target, origin)))
    }

    /// What was published, for an attachment that does not say it all: upstream's attacher wrote it.
    fn derived(&self) -> Known<(Target, Origin)> {
        let (handle, secret, origin) = match self.described(Phase::Detach) {
            Err(decided) if matches!(decided.because, Because::Unfit(Unfit::VolumeMissing { .. })) => {
                (self.found_handle()?, None, self.origin())
            }
            described => {
                let described = described?;
                let secret = described.secret().or_else(|unfit| self.refuse(Phase::Detach, unfit))?;
                (described.source.volume_handle, secret, described.origin)
            }
        };
        // Where it was published counts, not what the node is called now (SIDECAR-A5, SIDECAR-13.15).
        let node_id = match self.recorded_node() {
            Some(id) => id,
            None => self.registered(Phase::Detach)?,
        };
        Ok((Target { handle, node_id: node_id.to_owned(), secret }, origin))
    }

    /// The volume's object is gone, and nobody wrote its handle down. The attachment's name is a hash of it: one of the
    /// driver's volumes may be the one (SIDECAR-A7).
    fn found_handle(&self) -> Known<String> {
        match self.listed {
            Lookup::Found(handle) => Ok(handle.clone()),
            Lookup::NotCached if self.has.contains(&Ability::ListVolumes) => {
                first(Because::HandleUnread, Action::FindHandle)
            }
            Lookup::NotCached | Lookup::Absent => {
                let name = self.attachment.volume.as_deref().unwrap_or_default().to_owned();
                self.refuse(Phase::Detach, Unfit::HandleUnknown { name, finalizer: self.attacher.finalizer.clone() })
            }
        }
    }

    /// Steps 1, 2 and 4: the volume, as far as it is known.
    fn described(&self, phase: Phase) -> Known<Described> {
        let described = match (self.attachment.volume.as_deref(), self.attachment.inline.as_deref()) {
            (None, None) => Err(Unfit::NoSource),
            (Some(_), Some(_)) => Err(Unfit::TwoSources),
            (None, Some(spec)) => Described::inline(spec, self.attacher),
            (Some(name), None) => match self.volume {
                Lookup::NotCached => {
                    return first(Because::VolumeUnread, Action::ReadVolume { name: name.to_owned() });
                }
                Lookup::Absent => Err(Unfit::VolumeMissing { name: name.to_owned() }),
                Lookup::Found(pv) if phase == Phase::Attach && is_going(pv) => {
                    Err(Unfit::VolumeGoing { name: name.to_owned() })
                }
                Lookup::Found(pv) => Described::volume(pv, self.attacher),
            },
        };
        described.or_else(|unfit| self.refuse(phase, unfit))
    }

    /// Step 8: what the driver calls the node, as it registered there.
    fn registered(&self, phase: Phase) -> Known<&'a str> {
        let name = || self.attachment.node.to_string();
        match self.node {
            Lookup::NotCached => first(Because::NodeUnread, Action::ReadNode { name: name() }),
            Lookup::Absent => self.refuse(phase, Unfit::NodeMissing { node: name() }),
            Lookup::Found(node) => match node.driver(&self.attacher.name).filter(|driver| !driver.node_id.is_empty()) {
                Some(driver) => Ok(&driver.node_id),
                None => {
                    let driver = self.attacher.name.clone();
                    self.refuse(phase, Unfit::DriverNotOnNode { node: name(), driver })
                }
            },
        }
    }

    /// What was read of this secret; first it is read.
    fn known_secret(&self, wanted: Option<&Reference>) -> Known<Option<(&'a Reference, SecretSeen<'a>)>> {
        match (wanted, self.secret) {
            (None, _) => Ok(None),
            (Some(wanted), Some((held, seen))) if held == wanted => Ok(Some((held, seen))),
            (Some(wanted), _) => first(Because::SecretUnread, Action::ReadSecret(wanted.clone())),
        }
    }

    /// Step 7: the secret's values are at hand, or none are needed.
    fn secret(&self, phase: Phase, wanted: Option<&Reference>) -> Known<()> {
        match self.known_secret(wanted)? {
            None | Some((_, SecretSeen::Held)) => Ok(()),
            Some((_, SecretSeen::Unusable(why) | SecretSeen::Unread(why))) => {
                self.refuse(phase, Unfit::Secret { why: why.to_owned() })
            }
        }
    }

    /// Whether the volume can be guarded without being read first: the write names the revision that the cache holds, so that
    /// it fails on a volume that changed since, and its answer is what a read would have given.
    fn may_guard_unread(&self) -> bool {
        let (Lookup::NotCached, Some(volume), Lookup::Found(node)) = (self.volume, self.cached, self.node) else {
            return false;
        };
        !volume.meta.has_finalizer(&self.attacher.finalizer)
            && Target::foreseen(volume, node, self.attacher, self.has).is_some_and(|target| target.secret.is_none())
    }

    fn guarded(&self) -> bool {
        let meta = self.volume.found().and_then(|pv| Meta::deserialize(&pv["metadata"]).ok());
        meta.is_some_and(|meta| meta.has_finalizer(&self.attacher.finalizer))
    }

    /// Whether the volume was an in-tree plugin's, from what the attachment alone says: metrics ask.
    fn origin(&self) -> Origin {
        match self.attachment.inline.is_some() && migration::plugin_of(&self.attacher.name).is_some() {
            true => Origin::Migrated,
            false => Origin::Csi,
        }
    }

    fn refuse<T>(&self, phase: Phase, unfit: Unfit) -> Known<T> {
        first(Because::Unfit(unfit), Action::Complain(phase))
    }
}

fn is_going(pv: &Value) -> bool {
    pv.pointer("/metadata/deletionTimestamp").is_some_and(|moment| !moment.is_null())
}
