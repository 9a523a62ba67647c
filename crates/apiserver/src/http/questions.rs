//! Reviews: questions that are answered and forgotten.

use super::answer::Answer;
use super::handle::Call;
use crate::auth::{
    UnixSeconds, local_subject_access_review, self_subject_access_review, self_subject_review,
    self_subject_rules_review, subject_access_review,
};
use crate::catalog::Resource;
use crate::request::{Offer, ResourceFlavor, WriteOptions, body_type, negotiate};
use crate::status::ApiError;
use crate::verbs::{BodyKind, Given, Outcome};

/// Answers a POST to a review.
pub(super) fn ask(call: &Call, resource: &Resource, namespace: Option<&str>) -> Outcome<Answer> {
    negotiate(&call.accept, Offer::One(ResourceFlavor::BuiltIn))?;
    let given = Given { bytes: &call.body, written: body_type(&call.content_type, ResourceFlavor::BuiltIn)? };
    let options = WriteOptions::parse_create(&call.info.query)?;
    let schema = resource.table().ok_or_else(ApiError::unknown_resource)?;
    let kind = BodyKind { api_version: &resource.api_version, kind: &resource.kind, schema };
    let (body, problems) = given.decode(kind, options.field_validation)?;
    let core = &call.shared.core;
    let user = &call.user;
    let answer = match resource.kind.as_str() {
        "SelfSubjectReview" => self_subject_review(user, UnixSeconds(core.now().seconds())),
        "TokenReview" => call.shared.gate.review_token(core, &body)?,
        "SelfSubjectAccessReview" => {
            core.with_authority(|authority| self_subject_access_review(authority, user, &body))?
        }
        "SelfSubjectRulesReview" => {
            core.rights.with(&core.store, |rbac| self_subject_rules_review(rbac, user, &body))?
        }
        "SubjectAccessReview" => core.with_authority(|authority| subject_access_review(authority, &body))?,
        "LocalSubjectAccessReview" => {
            let namespace = namespace.unwrap_or_default();
            core.with_authority(|authority| local_subject_access_review(authority, namespace, &body))?
        }
        _ => return Err(ApiError::unknown_resource().into()),
    };
    let warnings = problems.iter().map(ToString::to_string).collect();
    Ok(Answer::json(201, &answer, call.layout).warn(warnings))
}
