//! Events from reasons: told when they change, not each time somebody looks.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::events::{self, Recorder};
use api::{Object, Uid};
use lifecycle::{Notice, Reason, Severity, Standing};

/// What one controller has told about each object.
#[derive(Debug)]
pub struct Notices {
    recorder: Recorder,
    told: Mutex<BTreeMap<Uid, Notice>>,
}

impl Notices {
    pub fn new(recorder: Recorder) -> Self {
        Self { recorder, told: Mutex::default() }
    }

    /// Tells the reason's event, unless it was the last that was told about this object.
    pub fn tell(&self, about: &impl Object, because: &impl Reason) {
        match because.notice() {
            Some(notice) => self.say(about, notice),
            // On the way to a reason, such as a look at the server: what was told still holds.
            None if because.standing() == Standing::Moving => {}
            // The matter is over: if it comes back, that is news again.
            None => self.forget(&about.meta().uid),
        }
    }

    /// Tells a notice, unless it was the last that was told about this object.
    pub fn say(&self, about: &impl Object, notice: Notice) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.get(&about.meta().uid) == Some(&notice) {
            return;
        }
        self.always(about, &notice);
        told.insert(about.meta().uid.clone(), notice);
    }

    /// Tells a notice each time: for what happens, not for what is.
    pub fn always<T: Object>(&self, about: &T, notice: &Notice) {
        let severity = match notice.severity {
            Severity::Normal => events::Severity::Normal,
            Severity::Warning => events::Severity::Warning,
        };
        self.recorder.record(about, severity, notice.reason, &notice.message);
    }

    /// The object is gone, or all is well with it.
    pub fn forget(&self, uid: &Uid) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }
}
