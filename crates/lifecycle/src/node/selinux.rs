//! SELinux contexts of mounts: whether a pod's volume is mounted with one, and with which (NODE-15).
//!
//! A filesystem that is mounted with a context need not be relabelled file by file. It has that one context for everybody,
//! so that pods which want different ones have the volume one after the other, and it is staged anew between them.
//!
//! # Invariants
//! 1. A context is the same at every look: what would have to be drawn by chance is not used at all (NODE-31.34).
//! 2. A context is one mount option and nothing else, whatever a pod wrote into it.

use std::collections::BTreeSet;
use std::fmt;

use api::csi::CsiDriverSpec;
use api::{AccessMode, AccessModes};

/// The context of files: `user:role:type:level`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label(Box<str>);

impl Label {
    /// `None` if a text is no context, or one that could not stand in a mount option.
    pub fn parse(text: &str) -> Option<Self> {
        let harmless = |letter: char| letter.is_ascii_graphic() && !matches!(letter, '"' | '\\');
        let parts = text.splitn(4, ':');
        let whole = text.split(':').count() >= 3 && parts.clone().all(|part| !part.is_empty());
        (whole && text.chars().all(harmless)).then(|| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As a driver and mount(8) are told. The quotes are for the commas that a level may have.
    pub fn mount_option(&self) -> String {
        format!("context=\"{}\"", self.0)
    }

    /// What the files of a container get that asks for this: its user and its level. Role and type stay those of files.
    fn asked(&self, asked: &Asked) -> Result<Self, Flaw> {
        let Some(level) = asked.level.as_deref() else { return Err(Flaw::NoLevel) };
        let mut parts = self.0.splitn(4, ':');
        let (user, role, kind) = (parts.next(), parts.next(), parts.next());
        let user = asked.user.as_deref().or(user).unwrap_or_default();
        let text = format!("{user}:{}:{}:{level}", role.unwrap_or_default(), kind.unwrap_or_default());
        Self::parse(&text).ok_or(Flaw::NotALabel { label: text.into() })
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a container asks for, if it or its pod asks for anything. Nothing else of it matters for files.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Asked {
    pub user: Option<Box<str>>,
    pub level: Option<Box<str>>,
}

/// `seLinuxChangePolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ChangePolicy {
    #[default]
    MountOption,
    /// Whoever runs the containers relabels the files.
    Recursive,
}

/// Which volumes are mounted with contexts: `SELinuxMount`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Gate {
    /// Those for one pod.
    #[default]
    OnePod,
    All,
}

/// What the context of a pod's volume depends on.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// What files in containers have on this machine.
    pub files: &'a Label,
    /// Of the containers that mount the volume.
    pub containers: &'a [Asked],
    pub policy: ChangePolicy,
    /// The driver's object, if there is one.
    pub driver: Option<&'a CsiDriverSpec>,
    /// `None` for a volume that stands in the pod itself.
    pub access: Option<AccessModes>,
    pub gate: Gate,
}

/// What is wrong with the contexts that a pod asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// A level would have to be drawn by chance, and be another one at the next look.
    NoLevel,
    NotALabel {
        label: Box<str>,
    },
    /// Containers that want different ones.
    Several {
        labels: Box<[Label]>,
    },
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLevel => {
                write!(f, "seLinuxOptions has no level, and one that is drawn by chance would not stay the same")
            }
            Self::NotALabel { label } => write!(f, "{label:?} is no SELinux context"),
            Self::Several { labels } => {
                let all: Vec<&str> = labels.iter().map(Label::as_str).collect();
                let none = if all.len() == 1 { ", and none" } else { "" };
                write!(f, "containers of the pod want it with different SELinux contexts: {}{none}", all.join(", "))
            }
        }
    }
}

/// What a flaw does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The pod does not get the volume.
    Error,
    /// It gets it without a context.
    Warning,
}

/// The context of a pod's volume.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Judged {
    /// What it is mounted with.
    pub mount: Option<Label>,
    /// What it would be mounted with if its kind were (NODE-15.5), only to be compared with what others want.
    pub wanted: Option<Label>,
    pub flaw: Option<(Flaw, Severity)>,
}

impl Judged {
    /// The same, if the pod has the volume under another name as well, with this.
    pub fn beside(self, other: &Self) -> Self {
        if self.mount == other.mount || self.flaw.is_some() {
            return self;
        }
        let labels = [&other.mount, &self.mount].into_iter().flatten().cloned().collect();
        Self { flaw: Some((Flaw::Several { labels }, Severity::Error)), ..Self::default() }
    }
}

/// Decides about one volume of one pod.
pub fn judge(question: &Question<'_>) -> Judged {
    let used = mounts(question.driver) && question.policy == ChangePolicy::MountOption;
    let supported = supports(question.access, question.gate);
    match label(question) {
        Ok(label) => {
            let wanted = label.filter(|_| used);
            Judged { mount: wanted.clone().filter(|_| supported), wanted, flaw: None }
        }
        // Nobody was going to use it.
        Err(Flaw::NoLevel) if !used || !supported => Judged::default(),
        Err(Flaw::NoLevel) => Judged { flaw: Some((Flaw::NoLevel, Severity::Warning)), ..Judged::default() },
        Err(flaw) => {
            let severity = if used && supported { Severity::Error } else { Severity::Warning };
            Judged { flaw: Some((flaw, severity)), ..Judged::default() }
        }
    }
}

/// The one context that the containers agree on (NODE-15.1, NODE-15.3).
fn label(question: &Question<'_>) -> Result<Option<Label>, Flaw> {
    let mut labels = BTreeSet::new();
    let mut flaw = None;
    for asked in question.containers {
        match question.files.asked(asked) {
            Ok(label) => drop(labels.insert(label)),
            Err(found) => flaw = flaw.or(Some(found)),
        }
    }
    match (labels.len(), flaw) {
        (2.., _) => Err(Flaw::Several { labels: labels.into_iter().collect() }),
        (_, Some(flaw)) => Err(flaw),
        (_, None) => Ok(labels.pop_first()),
    }
}

/// Whether a driver passes contexts on to mount(8). Without its object it does not (NODE-15.2).
pub fn mounts(driver: Option<&CsiDriverSpec>) -> bool {
    driver.is_some_and(|spec| spec.se_linux_mount == Some(true))
}

/// Whether volumes of this kind are mounted with contexts (NODE-15.5).
pub fn supports(access: Option<AccessModes>, gate: Gate) -> bool {
    let Some(access) = access else { return false };
    gate == Gate::All || (!access.has_unknown() && access.iter().eq([AccessMode::ReadWriteOncePod]))
}

/// The widest access mode, as metrics name it.
pub fn widest(access: Option<AccessModes>) -> &'static str {
    let Some(access) = access else { return "inline" };
    let names = [
        (AccessMode::ReadWriteMany, "RWX"),
        (AccessMode::ReadOnlyMany, "ROX"),
        (AccessMode::ReadWriteOnce, "RWO"),
        (AccessMode::ReadWriteOncePod, "RWOP"),
    ];
    names.into_iter().find(|(mode, _)| access.contains(*mode)).map_or("", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: &str = "system_u:object_r:container_file_t:s0";

    fn asks(level: &str) -> Asked {
        Asked { user: None, level: Some(level.into()) }
    }

    fn driver(mounts: Option<bool>) -> CsiDriverSpec {
        CsiDriverSpec { se_linux_mount: mounts, ..CsiDriverSpec::default() }
    }

    /// A pod whose volume is mounted with a context, but for what a test changes.
    struct Case {
        containers: Vec<Asked>,
        policy: ChangePolicy,
        driver: Option<CsiDriverSpec>,
        access: Option<AccessModes>,
        gate: Gate,
    }

    impl Default for Case {
        fn default() -> Self {
            Self {
                containers: vec![asks("s0:c1,c2")],
                policy: ChangePolicy::MountOption,
                driver: Some(driver(Some(true))),
                access: Some(AccessModes::of(&[AccessMode::ReadWriteOncePod])),
                gate: Gate::OnePod,
            }
        }
    }

    impl Case {
        fn judged(&self) -> Judged {
            let files = Label::parse(FILES).unwrap();
            judge(&Question {
                files: &files,
                containers: &self.containers,
                policy: self.policy,
                driver: self.driver.as_ref(),
                access: self.access,
                gate: self.gate,
            })
        }

        fn mounted(&self) -> Option<String> {
            self.judged().mount.map(|label| label.to_string())
        }
    }

    /// Rule: NODE-15.1
    #[test]
    fn user_and_level_come_from_the_container_and_the_rest_from_the_machine() {
        assert_eq!(Case::default().mounted().as_deref(), Some("system_u:object_r:container_file_t:s0:c1,c2"));
        let user = Asked { user: Some("staff_u".into()), level: Some("s0".into()) };
        let case = Case { containers: vec![user], ..Case::default() };
        assert_eq!(case.mounted().as_deref(), Some("staff_u:object_r:container_file_t:s0"));
        assert_eq!(Case { containers: Vec::new(), ..Case::default() }.judged(), Judged::default(), "nobody asks");
    }

    /// Rule: NODE-31.34
    #[test]
    fn a_level_is_never_drawn_by_chance() {
        let case = Case { containers: vec![Asked::default()], ..Case::default() };
        let judged = case.judged();
        assert_eq!((judged.mount, judged.flaw), (None, Some((Flaw::NoLevel, Severity::Warning))));
        let unused = Case { policy: ChangePolicy::Recursive, ..case };
        assert_eq!(unused.judged(), Judged::default(), "who does not use contexts is told nothing about them");
    }

    /// Rule: NODE-15.2
    #[test]
    fn a_driver_has_to_say_that_it_can() {
        for object in [None, Some(driver(None)), Some(driver(Some(false)))] {
            assert_eq!(Case { driver: object, ..Case::default() }.judged(), Judged::default());
        }
    }

    /// Rule: NODE-15.3
    #[test]
    fn containers_that_differ_keep_the_volume_from_the_pod_where_it_matters() {
        let containers = vec![asks("s0:c1"), asks("s0:c2"), asks("s0:c1")];
        let flaw =
            |case: Case| case.judged().flaw.map(|(flaw, severity)| (matches!(flaw, Flaw::Several { .. }), severity));
        let case = || Case { containers: containers.clone(), ..Case::default() };
        assert_eq!(flaw(case()), Some((true, Severity::Error)));
        let shared = Some(AccessModes::of(&[AccessMode::ReadWriteOnce]));
        assert_eq!(flaw(Case { access: shared, ..case() }), Some((true, Severity::Warning)));
        assert_eq!(flaw(Case { driver: None, ..case() }), Some((true, Severity::Warning)));
        let same = Case { containers: vec![asks("s0:c1"), asks("s0:c1")], ..Case::default() };
        assert!(same.mounted().is_some(), "the same twice is one");
        let doubtful = Case { containers: vec![asks("s0:c1"), Asked::default()], ..Case::default() };
        assert_eq!(doubtful.judged().flaw, Some((Flaw::NoLevel, Severity::Warning)));
    }

    /// Rule: NODE-15.3
    #[test]
    fn one_volume_under_two_names_has_one_context() {
        let (with, without) = (Case::default().judged(), Judged::default());
        assert_eq!(with.clone().beside(&with), with);
        let flaw = without.beside(&with).flaw;
        assert!(matches!(&flaw, Some((Flaw::Several { labels }, Severity::Error)) if labels.len() == 1), "{flaw:?}");
    }

    /// Rule: NODE-15.4
    #[test]
    fn a_pod_may_want_its_files_relabelled() {
        assert_eq!(Case { policy: ChangePolicy::Recursive, ..Case::default() }.judged(), Judged::default());
    }

    /// Rules: NODE-15.5, NODE-15.6
    #[test]
    fn only_volumes_for_one_pod_have_contexts_unless_the_agent_is_told_otherwise() {
        use AccessMode::{ReadWriteOnce, ReadWriteOncePod};
        let modes = |modes: &[AccessMode]| Some(AccessModes::of(modes));
        for (access, gate, mounted) in [
            (modes(&[ReadWriteOncePod]), Gate::OnePod, true),
            (modes(&[ReadWriteOncePod, ReadWriteOnce]), Gate::OnePod, false),
            (modes(&[ReadWriteOnce]), Gate::OnePod, false),
            (modes(&[ReadWriteOnce]), Gate::All, true),
            (None, Gate::All, false),
        ] {
            let judged = Case { access, gate, ..Case::default() }.judged();
            assert_eq!(judged.mount.is_some(), mounted, "{access:?} {gate:?}");
            assert!(judged.wanted.is_some(), "what the pod wants is compared with others all the same (NODE-15.6)");
        }
    }

    /// Rule: NODE-15.7
    #[test]
    fn a_context_is_one_quoted_mount_option() {
        let label = Case::default().judged().mount.unwrap();
        assert_eq!(label.mount_option(), r#"context="system_u:object_r:container_file_t:s0:c1,c2""#);
        for level in ["s0\",rw,exec=\"", "s0 c1", "", "s0\n", "s0\\"] {
            let judged = Case { containers: vec![asks(level)], ..Case::default() }.judged();
            assert!(matches!(judged.flaw, Some((Flaw::NotALabel { .. }, Severity::Error))), "{level:?}: {judged:?}");
        }
    }

    /// Rule: NODE-15
    #[test]
    fn metrics_name_the_widest_access_mode() {
        use AccessMode::{ReadOnlyMany, ReadWriteMany, ReadWriteOnce, ReadWriteOncePod};
        for (modes, name) in [
            (&[ReadWriteOnce, ReadWriteMany][..], "RWX"),
            (&[ReadWriteOnce, ReadOnlyMany], "ROX"),
            (&[ReadWriteOncePod, ReadWriteOnce], "RWO"),
            (&[ReadWriteOncePod], "RWOP"),
        ] {
            assert_eq!(widest(Some(AccessModes::of(modes))), name);
        }
        assert_eq!(widest(None), "inline");
    }
}
