//! Numbers of runs, and how many runs are told as one.

/// One number of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    pub what: &'static str,
    pub total: Total,
    pub value: u64,
}

/// What many numbers come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Total {
    Sum,
    Most,
}

impl Number {
    pub fn sum(what: &'static str, value: u64) -> Self {
        Self { what, total: Total::Sum, value }
    }

    pub fn most(what: &'static str, value: u64) -> Self {
        Self { what, total: Total::Most, value }
    }

    /// Takes in the same number of another run.
    pub fn add(&mut self, other: u64) {
        self.value = match self.total {
            Total::Sum => self.value + other,
            Total::Most => self.value.max(other),
        };
    }
}
