//! What each kind does, as tables that name the checks of the conformance list they stand for.

mod claims;
mod junk;
mod metadata;
mod others;
mod pods;
mod storage;
mod volumes;

use super::testing::{NOW, cells, claim, create, merge, message, patch, rules, update, volume};
use super::{Endpoint, rules_for};
