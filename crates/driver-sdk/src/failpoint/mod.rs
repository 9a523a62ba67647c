//! Named places where a test may stop the program.
//!
//! A driver marks every step of a mutating call with [`hit`] (or the [`failpoint!`](crate::failpoint!) macro). In a
//! build without debug assertions the mark compiles to nothing. In a debug build two environment variables, read once
//! per process, and [`arm`] decide what a mark does:
//!
//! - `ORLOP_FAILPOINT=name` or `name:3` kills the process with SIGKILL at the first or third hit of that name. Nothing
//!   runs after it, no destructor and no flush, so what is on disk then is what a power cut of the process leaves.
//! - `ORLOP_FAILPOINT_LOG=FILE` appends each name to the file the first time it is hit, one per line: so a test
//!   learns which names a call passes.
//!
//! # Invariants
//! 1. A mark that nobody armed does nothing, and costs one atomic load once the environment was read.
//! 2. [`Action::Error`] only acts at marks that can return an error ([`try_hit`]).

#[cfg(debug_assertions)]
mod armed;

/// What an armed failpoint does to the code that reaches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Panics there.
    Panic,
    /// Answers with an error there: only at marks made with [`try_hit`]; [`hit`] passes over it.
    Error,
}

/// An armed failpoint stopped the operation here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("failpoint {name} is armed with an error")]
pub struct Injected {
    pub name: &'static str,
}

impl From<Injected> for crate::Error {
    /// Whoever injects an error means "something broke half way", so it never claims that nothing is left.
    fn from(injected: Injected) -> Self {
        Self::backend("an injected failure", injected).leaving_residue()
    }
}

/// Marks a place that cannot fail: it may be killed or panic here, and otherwise goes on.
#[inline]
pub fn hit(name: &'static str) {
    #[cfg(debug_assertions)]
    armed::hit(name);
    #[cfg(not(debug_assertions))]
    let _ = name;
}

/// Marks a place that can fail: as [`hit`], and [`Action::Error`] makes it answer with an error.
#[inline]
pub fn try_hit(name: &'static str) -> Result<(), Injected> {
    #[cfg(debug_assertions)]
    {
        armed::try_hit(name)
    }
    #[cfg(not(debug_assertions))]
    {
        let _ = name;
        Ok(())
    }
}

/// Arms a failpoint in this process until the guard is dropped. Without debug assertions it does nothing.
///
/// Names are process-wide: two tests that run at once must arm different names.
#[must_use = "the failpoint is disarmed when the guard is dropped"]
pub fn arm(name: &'static str, action: Action) -> Armed {
    #[cfg(debug_assertions)]
    armed::arm(name, action);
    #[cfg(not(debug_assertions))]
    let _ = action;
    Armed { name }
}

/// Keeps a failpoint armed.
#[derive(Debug)]
pub struct Armed {
    name: &'static str,
}

impl Armed {
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        armed::disarm(self.name);
    }
}

/// Marks a place for tests to stop at: see [`failpoint`](mod@crate::failpoint).
#[macro_export]
macro_rules! failpoint {
    ($name:literal) => {
        $crate::failpoint::hit($name)
    };
}
