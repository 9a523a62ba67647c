//! Requests about resources: which one, and what to do with it.

use std::sync::Arc;

use futures_util::StreamExt as _;

use super::answer::Answer;
use super::handle::Call;
use super::member::Member;
use super::questions::ask;
use super::render::Form;
use super::{containers, writes};
use crate::catalog::{Resource, Subresource};
use crate::kinds::Rules;
use crate::request::{
    Accepted, GetOptions, IncludeObject, ListOptions, Method, Offer, ResourceRequest, TableOptions, Target, Transform,
    Verb, WatchOptions, negotiate,
};
use crate::status::ApiError;
use crate::verbs::{Collection, EventForm, Outcome, Watching};

/// A request for a resource that exists.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) resource: Arc<Resource>,
    pub(crate) namespace: Option<String>,
}

impl Asked {
    pub(crate) fn collection(&self) -> Collection<'_> {
        Collection { resource: &self.resource, namespace: self.namespace.as_deref() }
    }

    /// The form in which this request is answered.
    pub(crate) fn form(&self, call: &Call, offer: Offer) -> Outcome<Form<'_>> {
        let accepted = negotiate(&call.accept, offer)?;
        Ok(Form {
            resource: &self.resource,
            accepted,
            include: include(call, accepted)?,
            layout: if accepted.pretty { super::answer::Layout::Indented } else { call.layout },
            now: call.shared.core.now(),
        })
    }

    /// As [`Asked::form`], for answers with one object.
    pub(crate) fn form_of_one(&self, call: &Call) -> Outcome<Form<'_>> {
        self.form(call, Offer::One(self.resource.flavor()))
    }

    /// How its objects behave. Only questions have no rules, and nobody asks them here.
    pub(crate) fn rules(&self) -> Outcome<&dyn Rules> {
        Ok(self.resource.rules().ok_or_else(ApiError::unknown_resource)?)
    }
}

/// What stands beside the cells; only tables have cells.
fn include(call: &Call, accepted: Accepted) -> Outcome<IncludeObject> {
    match accepted.transform {
        Some(Transform::Table(_)) => Ok(TableOptions::parse(&call.info.query)?.include),
        _ => Ok(IncludeObject::Metadata),
    }
}

pub(super) async fn serve(call: Call, request: &ResourceRequest) -> Outcome<Answer> {
    let served = call.shared.core.served();
    if served.group(&request.group).is_none() {
        return Ok(Answer::page_not_found());
    }
    let found = served.resource(&request.group, &request.version, &request.resource);
    let Some(resource) = found.filter(|_| request.tail.is_empty() && request.verb != Verb::Proxy) else {
        return Err(ApiError::unknown_resource().into());
    };
    if matches!(call.info.method, Method::Head | Method::Options | Method::Other(_)) {
        return Err(ApiError::method_not_allowed().into());
    }
    if resource.is_question() {
        return question(&call, resource, request).await;
    }
    let namespace = place(resource, request)?;
    let asked = Asked { resource: Arc::clone(resource), namespace };
    let answer = match (&request.name, &request.subresource) {
        (None, _) => collection(call, asked, request).await,
        (Some(name), None) => object(call, asked, name, request).await,
        (Some(name), Some(below_it)) => match (resource.subresource(below_it), containers::lack(resource, below_it)) {
            (Some(subresource), _) => below(call, asked, name, subresource).await,
            (None, Some(lack)) => containers::refuse(&call, &asked, name, lack).await,
            // The reference looks for custom resources in another place, which answers in other words.
            (None, None) if resource.custom().is_some() => Err(ApiError::not_found(resource.named(), name).into()),
            (None, None) => Err(ApiError::unknown_resource().into()),
        },
    }?;
    let deprecation = resource.custom().and_then(|custom| custom.deprecation());
    Ok(answer.warn(deprecation.into_iter().map(str::to_owned).collect()))
}

/// The namespace of the objects. A path with a namespace where there is none, or the reverse, names nothing.
fn place(resource: &Resource, request: &ResourceRequest) -> Outcome<Option<String>> {
    let of_namespaces = resource.plural == "namespaces" && resource.group.is_empty();
    match (&request.namespace, resource.namespaced) {
        (Some(namespace), true) => Ok(Some(namespace.clone())),
        (None, true) if request.name.is_none() => Ok(None),
        (None, false) => Ok(None),
        (Some(_), false) if of_namespaces => Ok(None),
        (Some(_), false) | (None, true) => Err(ApiError::unknown_resource().into()),
    }
}

async fn question(call: &Call, resource: &Resource, request: &ResourceRequest) -> Outcome<Answer> {
    if request.name.is_some() || request.namespace.is_some() != resource.namespaced {
        return Err(ApiError::unknown_resource().into());
    }
    match call.info.method {
        Method::Post => ask(call, resource, request.namespace.as_deref()),
        _ => Err(ApiError::method_not_allowed().into()),
    }
}

async fn collection(call: Call, asked: Asked, request: &ResourceRequest) -> Outcome<Answer> {
    match (request.verb, &call.info.method) {
        (Verb::Watch, Method::Get) => watch(&call, &asked, None).await,
        (Verb::List, Method::Get) => list(&call, &asked).await,
        (_, Method::Post) if asked.resource.namespaced && asked.namespace.is_none() => {
            Err(ApiError::method_not_allowed().into())
        }
        (_, Method::Post) => writes::create(&call, &asked).await,
        (_, Method::Delete) if asked.resource.allows("deletecollection") => {
            writes::delete_collection(&call, &asked).await
        }
        _ => Err(ApiError::method_not_allowed().into()),
    }
}

async fn object(call: Call, asked: Asked, name: &str, request: &ResourceRequest) -> Outcome<Answer> {
    match call.info.method {
        Method::Get if request.verb == Verb::Watch => watch(&call, &asked, Some(name)).await,
        Method::Get => get(&call, &asked, name).await,
        Method::Put => writes::update(&call, &asked, name).await,
        Method::Patch => writes::patch(&call, &asked, name).await,
        Method::Delete => writes::delete(&call, &asked, name).await,
        _ => Err(ApiError::method_not_allowed().into()),
    }
}

async fn below(call: Call, asked: Asked, name: &str, subresource: Subresource) -> Outcome<Answer> {
    match (subresource, &call.info.method) {
        (Subresource::Status, Method::Get) => get(&call, &asked, name).await,
        (Subresource::Status, Method::Put) => writes::update_status(&call, &asked, name).await,
        (Subresource::Status, Method::Patch) => writes::patch_status(&call, &asked, name).await,
        (Subresource::Finalize, Method::Put) => writes::finalize(&call, &asked, name).await,
        (Subresource::Binding, Method::Post) => writes::bind(&call, &asked, name).await,
        (Subresource::Eviction, Method::Post) => writes::evict(&call, &asked, name).await,
        (Subresource::Token, Method::Post) => writes::token(&call, &asked, name).await,
        _ => Err(ApiError::method_not_allowed().into()),
    }
}

async fn get(call: &Call, asked: &Asked, name: &str) -> Outcome<Answer> {
    let form = asked.form_of_one(call)?;
    let options = GetOptions::parse(&call.info.query)?;
    let stored = call.shared.core.get(asked.collection(), name, options.read).await?;
    Ok(form.stored(200, &stored))
}

async fn list(call: &Call, asked: &Asked) -> Outcome<Answer> {
    let form = asked.form(call, Offer::List(asked.resource.flavor()))?;
    let known = asked.resource.field_labels();
    let options = ListOptions::parse(&call.info.query, &known)?;
    let listed = call.shared.core.list(asked.collection(), &options).await?;
    Ok(form.list(&listed))
}

async fn watch(call: &Call, asked: &Asked, name: Option<&str>) -> Outcome<Answer> {
    let form = asked.form(call, Offer::Watch(asked.resource.flavor()))?;
    let known = asked.resource.field_labels();
    let options = WatchOptions::parse(&call.info.query, &known, name)?;
    let encoding = form.accepted.encoding;
    let event_form = match form.accepted.transform {
        None => EventForm::Plain(encoding),
        Some(Transform::Table(_)) => EventForm::Table(form.include),
        Some(Transform::PartialObjectMetadata(_) | Transform::PartialObjectMetadataList(_)) => {
            EventForm::Partial(encoding)
        }
    };
    let watching = Watching { collection: asked.collection(), options, form: event_form };
    let lines = call.shared.core.watch(watching).await?;
    let counted = match &call.info.target {
        Target::Resource(request) => {
            let running = call.shared.metrics.watch(request);
            Box::pin(lines.inspect(move |_| running.event()))
        }
        Target::Endpoint(_) => lines,
    };
    // A watch outlives the moment in which its reader was let in.
    let followed = match Member::of(&call.user) {
        Some(member) => Box::pin(counted.take_until(member.leaves(Arc::clone(&call.shared.core)))),
        None => counted,
    };
    Ok(Answer::watch(followed, encoding))
}
