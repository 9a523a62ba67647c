//! The audit log: one line of JSON per request, who did what to what and with which outcome, as `audit.k8s.io/v1` events
//! at the level Metadata. Bodies are never part of it, and so neither are secrets; nor are credentials, which travel in
//! headers.
//!
//! A request is noted when its answer is ready, a watch when it starts. A line that cannot be written is reported once
//! and does not hold up the request.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::auth::User;
use crate::kinds::Timestamp;
use crate::request::{RequestInfo, Target, Verb};

/// Where lines go.
pub struct AuditLog {
    out: Mutex<Box<dyn Write + Send>>,
    failing: AtomicBool,
}

/// Why there can be no log.
#[derive(Debug, thiserror::Error)]
pub enum AuditLogError {
    #[error("{} cannot be opened for appending", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("{} is not a regular file", path.display())]
    NotAFile { path: PathBuf },
    #[error("{} can be read by others (mode {mode:03o}); make it private with chmod 600", path.display())]
    NotPrivate { path: PathBuf, mode: u32 },
}

impl std::fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuditLog")
    }
}

impl AuditLog {
    /// A log that goes on at the end of a file, which is made if it does not exist. Only its owner may read it.
    pub fn file(path: &Path) -> Result<Self, AuditLogError> {
        let open = |source| AuditLogError::Open { path: path.to_owned(), source };
        let file: File = OpenOptions::new().append(true).create(true).mode(0o600).open(path).map_err(open)?;
        let metadata = file.metadata().map_err(open)?;
        if !metadata.is_file() {
            return Err(AuditLogError::NotAFile { path: path.to_owned() });
        }
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(AuditLogError::NotPrivate { path: path.to_owned(), mode });
        }
        Ok(Self::to(Box::new(file)))
    }

    /// A log to anything that takes bytes, such as the standard output.
    pub fn to(out: Box<dyn Write + Send>) -> Self {
        Self { out: Mutex::new(out), failing: AtomicBool::new(false) }
    }

    pub(crate) fn write(&self, event: &Value) {
        let mut line = event.to_string();
        line.push('\n');
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        match out.write_all(line.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => self.failing.store(false, Ordering::Relaxed),
            Err(error) if !self.failing.swap(true, Ordering::Relaxed) => {
                tracing::error!(%error, "the audit log cannot be written; requests go on without it");
            }
            Err(_) => {}
        }
    }
}

/// What is known about a request when it has been answered. What failed early has less.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) info: Option<Arc<RequestInfo>>,
    pub(crate) user: Option<Arc<User>>,
    /// Whom the user acts as.
    pub(crate) impersonated: Option<Arc<User>>,
    /// Why the request was let in.
    pub(crate) allowed: Option<String>,
    /// Whether it was kept out.
    pub(crate) forbidden: bool,
    pub(crate) notes: AuditNotes,
}

/// Annotations that a request gets while it is worked on. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct AuditNotes(Arc<Mutex<Vec<(&'static str, String)>>>);

impl AuditNotes {
    pub(crate) fn add(&self, key: &'static str, value: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((key, value.to_owned()));
    }

    fn write_to(&self, event: &mut Value) {
        for (key, value) in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            event["annotations"][*key] = value.as_str().into();
        }
    }
}

/// A request and its answer, for one line.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) id: &'a str,
    pub(crate) uri: String,
    pub(crate) method: &'a str,
    pub(crate) user_agent: String,
    pub(crate) source: Option<IpAddr>,
    pub(crate) code: u16,
    pub(crate) received: Timestamp,
    pub(crate) answered: Timestamp,
}

impl Entry<'_> {
    pub(crate) fn event(&self, seen: &Seen) -> Value {
        let request = seen.info.as_ref().and_then(|info| match &info.target {
            Target::Resource(request) => Some(request),
            Target::Endpoint(_) => None,
        });
        let lasting = request.is_some_and(|request| request.verb == Verb::Watch);
        let verb = request.map_or_else(|| self.method.to_lowercase(), |request| request.verb.as_str().to_owned());
        let mut event = json!({
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Metadata",
            "auditID": self.id,
            "stage": if lasting { "ResponseStarted" } else { "ResponseComplete" },
            "requestURI": self.uri,
            "verb": verb,
            "user": shown(seen.user.as_deref().unwrap_or(&User::default())),
            "userAgent": self.user_agent,
            "responseStatus": {"metadata": {}, "code": self.code},
            "requestReceivedTimestamp": self.received.to_micro_string(),
            "stageTimestamp": self.answered.to_micro_string(),
        });
        if let Some(source) = self.source {
            event["sourceIPs"] = json!([source.to_string()]);
        }
        if let Some(user) = &seen.impersonated {
            event["impersonatedUser"] = shown(user);
        }
        if let Some(request) = request {
            event["objectRef"] = object_reference(request);
        }
        let decision = match (&seen.allowed, seen.forbidden) {
            (Some(reason), _) => Some(("allow", reason.as_str())),
            (None, true) => Some(("forbid", "")),
            (None, false) => None,
        };
        if let Some((decision, reason)) = decision {
            event["annotations"] =
                json!({"authorization.k8s.io/decision": decision, "authorization.k8s.io/reason": reason});
        }
        seen.notes.write_to(&mut event);
        event
    }
}

fn object_reference(request: &crate::request::ResourceRequest) -> Value {
    let fields = [
        ("resource", request.resource.as_str()),
        ("namespace", request.namespace.as_deref().unwrap_or_default()),
        ("name", request.name.as_deref().unwrap_or_default()),
        ("apiGroup", request.group.as_str()),
        ("apiVersion", request.version.as_str()),
        ("subresource", request.subresource.as_deref().unwrap_or_default()),
    ];
    let filled = fields.into_iter().filter(|(_, value)| !value.is_empty());
    filled.map(|(field, value)| (field.to_owned(), Value::from(value))).collect::<serde_json::Map<_, _>>().into()
}

fn shown(user: &User) -> Value {
    let mut shown = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        shown["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        shown["extra"] = json!(user.extra);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_made_private_and_one_that_is_not_is_refused() {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let path = directory.path().join("audit.log");
        AuditLog::file(&path).expect("a new file can be made").write(&json!({"a": 1}));
        AuditLog::file(&path).expect("it can be gone on with").write(&json!({"b": 2}));
        assert_eq!(std::fs::read_to_string(&path).expect("it can be read"), "{\"a\":1}\n{\"b\":2}\n");
        let mode = |path: &Path| std::fs::metadata(path).map(|found| found.permissions().mode() & 0o777);
        assert_eq!(mode(&path).expect("it is there"), 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("the mode can be set");
        let refused = AuditLog::file(&path).expect_err("others can read it");
        assert!(refused.to_string().contains("chmod 600"), "{refused}");
        assert!(matches!(AuditLog::file(directory.path()), Err(AuditLogError::Open { .. })));
    }
}
