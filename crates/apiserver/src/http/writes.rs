//! Requests that write.

use serde_json::Value;

use super::answer::Answer;
use super::handle::Call;
use super::render::{Form, deleted_list};
use super::resources::Asked;
use crate::apply::Force;
use crate::kinds::{DeleteAnswer, Endpoint, read};
use crate::request::{DryRun, ListOptions, PatchOptions, WriteOptions, body_type, field_manager, patch_type};
use crate::status;
use crate::verbs::{
    BodyKind, Created, Deleted, Deletion, Effect, Given, Outcome, PatchBody, Patching, Replacement, Updated, Warnings,
    Write, delete_options,
};

const TOKEN_REQUEST: BodyKind<'static> = BodyKind {
    api_version: "authentication.k8s.io/v1",
    kind: "TokenRequest",
    schema: &crate::schema::tables::authentication::TOKEN_REQUEST,
};

/// The body of a request that is not a patch.
fn given<'a>(call: &'a Call, asked: &Asked) -> Outcome<Given<'a>> {
    Ok(Given { bytes: &call.body, written: body_type(&call.content_type, asked.resource.flavor())? })
}

/// What all writes of a request share. The manager's name outlives it.
fn write_of<'a>(call: &'a Call, asked: &'a Asked, options: &WriteOptions, manager: &'a str) -> Outcome<Write<'a>> {
    Ok(Write {
        resource: &asked.resource,
        rules: asked.rules()?,
        endpoint: Endpoint::Main,
        namespace: asked.namespace.as_deref(),
        user: &call.user,
        effect: match options.dry_run {
            DryRun::Off => Effect::Stored,
            DryRun::All => Effect::DryRun,
        },
        manager,
        validation: options.field_validation,
        now: call.shared.core.now(),
        warnings: Warnings::default(),
    })
}

fn manager_of(call: &Call, options: &WriteOptions) -> String {
    field_manager(options.field_manager.as_deref(), &call.user_agent)
}

/// Sends the warnings of a write along, also when it failed.
fn warned(call: &Call, write: &Write<'_>, outcome: Outcome<Answer>) -> Answer {
    let answer = outcome.unwrap_or_else(|failure| Answer::failure(&failure, call.errors_in, call.layout));
    answer.warn(write.warnings.take())
}

pub(super) async fn create(call: &Call, asked: &Asked) -> Outcome<Answer> {
    let form = asked.form_of_one(call)?;
    let given = given(call, asked)?;
    let options = WriteOptions::parse_create(&call.info.query)?;
    let manager = manager_of(call, &options);
    let write = write_of(call, asked, &options, &manager)?;
    let work = async {
        let object = given.object(&write)?;
        let created = call.shared.core.create(&write, object).await?;
        Ok(created_answer(&form, created))
    };
    Ok(warned(call, &write, work.await))
}

fn created_answer(form: &Form<'_>, created: Created) -> Answer {
    match &created.stored {
        Some(stored) => form.stored(201, stored),
        None => form.one(201, created.object),
    }
}

fn updated_answer(form: &Form<'_>, updated: Updated) -> Answer {
    match updated {
        Updated::Created(created) => created_answer(form, created),
        Updated::Stored(stored) => form.stored(200, &stored),
        Updated::Submitted(object) => form.one(200, object),
    }
}

pub(super) async fn update(call: &Call, asked: &Asked, name: &str) -> Outcome<Answer> {
    put(call, asked, name, Endpoint::Main).await
}

pub(super) async fn update_status(call: &Call, asked: &Asked, name: &str) -> Outcome<Answer> {
    put(call, asked, name, Endpoint::Status).await
}

async fn put(call: &Call, asked: &Asked, name: &str, endpoint: Endpoint) -> Outcome<Answer> {
    let form = asked.form_of_one(call)?;
    let given = given(call, asked)?;
    let options = WriteOptions::parse_update(&call.info.query)?;
    let manager = manager_of(call, &options);
    let write = Write { endpoint, ..write_of(call, asked, &options, &manager)? };
    let work = async {
        let mut object = given.object(&write)?;
        settle(asked, &mut object, name)?;
        Ok(updated_answer(&form, call.shared.core.update(&write, name, &Replacement(object)).await?))
    };
    Ok(warned(call, &write, work.await))
}

/// The body must agree with the URL before anything is looked up.
fn settle(asked: &Asked, object: &mut Value, name: &str) -> Outcome<()> {
    let namespace = asked.namespace.as_deref().unwrap_or_default();
    crate::kinds::meta::settle_namespace(object, asked.resource.scope(), namespace)?;
    Ok(crate::kinds::meta::check_name(object, name)?)
}

pub(super) async fn patch(call: &Call, asked: &Asked, name: &str) -> Outcome<Answer> {
    patch_at(call, asked, name, Endpoint::Main).await
}

pub(super) async fn patch_status(call: &Call, asked: &Asked, name: &str) -> Outcome<Answer> {
    patch_at(call, asked, name, Endpoint::Status).await
}

async fn patch_at(call: &Call, asked: &Asked, name: &str, endpoint: Endpoint) -> Outcome<Answer> {
    let kind = patch_type(&call.content_type, asked.resource.flavor())?;
    let form = asked.form_of_one(call)?;
    let options = PatchOptions::parse(&call.info.query, kind)?;
    let manager = manager_of(call, &options.write);
    let write = Write { endpoint, ..write_of(call, asked, &options.write, &manager)? };
    let force = if options.force { Force::TakeOver } else { Force::Refuse };
    let work = async {
        let body = PatchBody::decode(kind, &call.body, &write)?;
        Ok(updated_answer(&form, call.shared.core.update(&write, name, &Patching { body, force }).await?))
    };
    Ok(warned(call, &write, work.await))
}

/// A DELETE of one object.
pub(super) async fn delete(call: &Call, asked: &Asked, name: &str) -> Outcome<Answer> {
    let form = asked.form_of_one(call)?;
    let options = delete_options(given(call, asked)?, &call.info.query, &asked.resource.api_version)?;
    let deletion = Deletion {
        resource: &asked.resource,
        rules: asked.rules()?,
        namespace: asked.namespace.as_deref(),
        user: &call.user,
        options: &options,
    };
    // Only the old way of asking for background deletion is told that it takes time.
    let marked = if options.orphan_dependents == Some(false) { 202 } else { 200 };
    Ok(match call.shared.core.delete(&deletion, name).await? {
        Deleted::Marked(stored) => form.stored(marked, &stored),
        Deleted::WouldMark(object) => form.one(marked, object),
        Deleted::Removed(object) => match asked.rules()?.policy().delete_answer {
            DeleteAnswer::Object => form.one(200, object),
            DeleteAnswer::Status => {
                let uid = read::text(&object, "/metadata/uid");
                form.status(200, status::deleted(asked.resource.named(), name, uid))
            }
        },
    })
}

pub(super) async fn delete_collection(call: &Call, asked: &Asked) -> Outcome<Answer> {
    let form = asked.form_of_one(call)?;
    let options = delete_options(given(call, asked)?, &call.info.query, &asked.resource.api_version)?;
    let known = asked.resource.field_labels();
    let list = ListOptions::parse(&call.info.query, &known)?;
    let listed = call.shared.core.list(asked.collection(), &list).await?;
    let revision = listed.revision.to_string();
    let mut gone = Vec::new();
    for object in listed.objects() {
        let deletion = Deletion {
            resource: &asked.resource,
            rules: asked.rules()?,
            namespace: Some(read::namespace(&object)).filter(|namespace| !namespace.is_empty()),
            user: &call.user,
            options: &options,
        };
        match call.shared.core.delete(&deletion, read::name(&object)).await {
            // The answer shows what was there, not what became of it.
            Ok(Deleted::Marked(_) | Deleted::WouldMark(_) | Deleted::Removed(_)) => gone.push(object),
            // Somebody else deleted it meanwhile.
            Err(failure) if failure.code == 404 => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(deleted_list(&form, gone, &revision))
}

/// PUT of a namespace's finalizers.
pub(super) async fn finalize(call: &Call, asked: &Asked, name: &str) -> Outcome<Answer> {
    let form = asked.form_of_one(call)?;
    let given = given(call, asked)?;
    let options = WriteOptions::parse_update(&call.info.query)?;
    let manager = manager_of(call, &options);
    let write = write_of(call, asked, &options, &manager)?;
    let work = async {
        let mut object = given.object(&write)?;
        settle(asked, &mut object, name)?;
        let finalized = call.shared.core.finalize(&write, name, object).await?;
        Ok(form.one(200, finalized))
    };
    Ok(warned(call, &write, work.await))
}

pub(super) async fn bind(call: &Call, asked: &Asked, name: &str) -> Outcome<Answer> {
    let given = given(call, asked)?;
    let options = WriteOptions::parse_create(&call.info.query)?;
    let manager = manager_of(call, &options);
    let write = write_of(call, asked, &options, &manager)?;
    let work = async {
        call.shared.core.bind(&write, name, given).await?;
        let status = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
        });
        Ok(Answer::json(201, &status, call.layout))
    };
    Ok(warned(call, &write, work.await))
}

/// A polite delete of a pod. There are no disruption budgets here, so nothing stands against it.
pub(super) async fn evict(call: &Call, asked: &Asked, name: &str) -> Outcome<Answer> {
    let given = given(call, asked)?;
    let options = WriteOptions::parse_create(&call.info.query)?;
    let manager = manager_of(call, &options);
    let write = write_of(call, asked, &options, &manager)?;
    let work = async {
        call.shared.core.evict(&write, name, given).await?;
        let status = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
        });
        Ok(Answer::json(201, &status, call.layout))
    };
    Ok(warned(call, &write, work.await))
}

/// A new token for a service account.
pub(super) async fn token(call: &Call, asked: &Asked, name: &str) -> Outcome<Answer> {
    let given = given(call, asked)?;
    let options = WriteOptions::parse_create(&call.info.query)?;
    let (body, problems) = given.decode(TOKEN_REQUEST, options.field_validation)?;
    let place = (asked.namespace.as_deref().unwrap_or_default(), name);
    let issued = call.shared.gate.request_token(&call.shared.core, &call.user, place, &body)?;
    let warnings = problems.iter().map(ToString::to_string).chain(issued.warning).collect();
    Ok(Answer::json(201, &issued.object, call.layout).warn(warnings))
}
