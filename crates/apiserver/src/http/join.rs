//! `POST /orlop/join`: a machine asks for the certificates that it works with.
//!
//! Who has a join token gets them for a name that no machine has; who has them already gets new ones for the same name.
//! There are two, for one key that never leaves the machine: the node's own, and that of what stands beside its driver
//! and needs other rights than a node has.
//!
//! # Invariants
//! 1. A token counts on this path and nowhere else.
//! 2. A name belongs to the first key that joined under it: the Node is made here, with the key's hash, before anything is
//!    signed. Who asks again with the same key gets the same answer, and a machine whose name was given to another key
//!    gets nothing more under it.
//! 3. What was signed counts for as long as that Node stands with that key ([`member`](super::member)): deleting it ends
//!    the machine's access. A key that was revoked is let in under no name and with no token.
//! 4. Who is refused often has to wait ([`attempts`](super::attempts)), and every attempt is in the audit log with the id of
//!    its token and the name it asked for.

use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::Answer;
use super::handle::Call;
use crate::audit::AuditNotes;
use crate::auth::{
    CertificateSigner, JoinRefusal, KeyHash, SigningRequest, Subject, TOKEN_NAMESPACE, UnixSeconds, User, join,
    revocation_name,
};
use crate::catalog::{self, Resource};
use crate::keys::MACHINE_KEY;
use crate::kinds::{Endpoint, Rules, read};
use crate::request::Method;
use crate::status::{ApiError, Reason};
use crate::verbs::{Core, Failure, Outcome, Replacement, Write};

const NEWCOMER: &str = "system:bootstrap:";
const NEWCOMERS: &str = "system:bootstrappers";
pub(super) const NODE: &str = "system:node:";
const NODES: &str = "system:nodes";
/// Who stands beside the driver of a machine, and all of them.
pub(super) const MACHINE: &str = "orlop:machine:";
const MACHINES: &str = "orlop:machines";
/// A node's name is also the value of a label.
const LONGEST_NAME: usize = 63;

/// What a machine sends.
#[derive(Deserialize)]
struct Asked {
    /// The name of its Node.
    node: String,
    /// A certificate signing request, of which the key counts.
    request: String,
}

fn refused(code: u16, reason: Reason, message: impl Into<String>) -> Failure {
    ApiError { code, reason, message: message.into(), details: None }.into()
}

fn no_entry(refusal: &JoinRefusal) -> Failure {
    refused(401, Reason::Unauthorized, refusal.to_string())
}

/// The holder of the join token that a request shows, if it shows something like one.
pub(super) fn newcomer(core: &Core, headers: &HeaderMap, notes: &AuditNotes) -> Outcome<Option<User>> {
    let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let credential =
        shown.and_then(|shown| shown.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let Some((id, secret)) = credential.and_then(|(_, token)| join::split_credential(token.trim())) else {
        return Ok(None);
    };
    notes.add("orlop.dev/join-token", id);
    let record = token(core, id)?;
    join::check_secret(record.as_ref(), secret, now(core)).map_err(|refusal| no_entry(&refusal))?;
    Ok(Some(User { name: format!("{NEWCOMER}{id}"), groups: vec![NEWCOMERS.to_owned()], ..User::default() }))
}

fn now(core: &Core) -> UnixSeconds {
    UnixSeconds(core.now().seconds())
}

pub(super) fn kind(plural: &str) -> Outcome<(&'static Arc<Resource>, &'static dyn Rules)> {
    let resource = catalog::built_in().resource("", "v1", plural);
    let found = resource.and_then(|resource| Some((resource, resource.rules()?)));
    Ok(found.ok_or_else(ApiError::unknown_resource)?)
}

fn token(core: &Core, id: &str) -> Outcome<Option<Value>> {
    let (resource, _) = kind("secrets")?;
    Ok(core.load(resource, Some(TOKEN_NAMESPACE), &join::token_record(id)).map(|live| live.object))
}

/// Whether the key of this hash counts no more.
pub(super) fn is_revoked(core: &Core, key: &str) -> bool {
    let name = revocation_name(key);
    kind("configmaps").is_ok_and(|(resource, _)| core.find(resource, Some(TOKEN_NAMESPACE), &name).is_some())
}

/// The requests that the machine of a revoked key can still make.
pub(super) fn revoked_message(node: &str) -> String {
    format!(
        "the key of the machine {node:?} was revoked: to let it in again, remove the folder `machine` of its data \
         directory, so that it makes a new key, and make a token on the server with `orlop token create --node {node}`"
    )
}

pub(super) async fn serve(call: &Call) -> Outcome<Answer> {
    let core = &call.shared.core;
    let Some(authority) = call.shared.machines.get() else {
        let why = "this server takes no other machines: start it with `orlop up --serve-machines ADDRESS`";
        return Err(refused(404, Reason::NotFound, why));
    };
    if call.info.method != Method::Post {
        return Err(ApiError::method_not_allowed().into());
    }
    let asked: Asked = serde_json::from_slice(&call.body)
        .map_err(|error| ApiError::bad_request(format!("the request to join cannot be read: {error}")))?;
    let request = SigningRequest::read(&asked.request)
        .map_err(|error| ApiError::bad_request(format!("the certificate signing request: {error}")))?;
    check_name(&asked.node)?;
    call.notes.add("orlop.dev/join-machine", &asked.node);
    if is_revoked(core, &request.key().to_string()) {
        return Err(refused(403, Reason::Forbidden, revoked_message(&asked.node)));
    }
    match standing(&call.user) {
        Standing::Newcomer { token } => welcome(core, token, (&asked.node, &request.key())).await?,
        Standing::Member { node } if node == asked.node => still_its_name(core, node, &request.key())?,
        Standing::Member { node } => {
            return Err(ApiError::forbidden_path(&format!("the machine {node:?} may not ask for another")).into());
        }
        Standing::Stranger => {
            let why =
                "joining needs a join token: make one on the server's machine with `orlop token create --data DIR`";
            return Err(refused(401, Reason::Unauthorized, why));
        }
    }
    tracing::info!(node = asked.node, by = call.user.name, "a machine gets its certificates");
    Ok(Answer::json(201, &certificates(authority, &request, (&asked.node, now(core)))?, call.layout))
}

/// Who asks.
enum Standing<'a> {
    Newcomer { token: &'a str },
    Member { node: &'a str },
    Stranger,
}

fn standing(user: &User) -> Standing<'_> {
    let is_in = |wanted: &str| user.groups.iter().any(|group| group == wanted);
    match (user.name.strip_prefix(NEWCOMER), user.name.strip_prefix(NODE)) {
        (Some(token), _) if is_in(NEWCOMERS) => Standing::Newcomer { token },
        (_, Some(node)) if is_in(NODES) => Standing::Member { node },
        _ => Standing::Stranger,
    }
}

fn check_name(name: &str) -> Outcome<()> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let label = |part: &str| {
        let ends = [part.bytes().next(), part.bytes().last()];
        ends.into_iter().all(|end| end.is_some_and(inner)) && part.bytes().all(|byte| inner(byte) || byte == b'-')
    };
    if name.len() <= LONGEST_NAME && name.split('.').all(label) {
        return Ok(());
    }
    let why = format!(
        "{name:?} cannot be the name of a machine: give --node-name with at most {LONGEST_NAME} small letters, digits, \
         dots and dashes, which starts and ends with a letter or digit"
    );
    Err(ApiError::bad_request(why).into())
}

/// Lets a machine in: the name is its own from here on.
async fn welcome(core: &Core, id: &str, (node, key): (&str, &KeyHash)) -> Outcome<()> {
    let mut record = token(core, id)?.ok_or_else(|| no_entry(&JoinRefusal::Unknown))?;
    let used = join::check_machine(&record, node, key).map_err(|refusal| no_entry(&refusal))?;
    let known = holder(core, node, key)?;
    if (used, known) == (join::Use::Again, Holder::Nobody) {
        // Its Node was made when it used the token, and somebody has deleted it.
        return Err(no_entry(&JoinRefusal::TakenOut(node.to_owned())));
    }
    let user = User::loopback();
    if used == join::Use::First {
        join::note_use(&mut record, node, key);
        let write =
            Write { namespace: Some(TOKEN_NAMESPACE), ..Write::own(core, kind("secrets")?, Endpoint::Main, &user) };
        // The record's own version stands in it: of two that use a token at once, one is told to ask again.
        core.update(&write, &join::token_record(id), &Replacement(record)).await?;
    }
    if known == Holder::Nobody {
        let object = json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": node, "annotations": {MACHINE_KEY: key.to_string()}}});
        let created = core.create(&Write::own(core, kind("nodes")?, Endpoint::Main, &user), object).await;
        match created {
            Ok(_) => {}
            // Somebody was faster; perhaps we ourselves, whose first answer was lost.
            Err(Failure { code: 409, .. }) => {
                holder(core, node, key)?;
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

/// Whose a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Nobody,
    Asker,
}

fn holder(core: &Core, node: &str, key: &KeyHash) -> Outcome<Holder> {
    match core.load(kind("nodes")?.0, None, node) {
        None => Ok(Holder::Nobody),
        Some(live) if read::deleting(&live.object) => Err(refused(409, Reason::Conflict, leaving(node))),
        Some(live) if read::annotation(&live.object, MACHINE_KEY) == Some(&key.to_string()) => Ok(Holder::Asker),
        Some(_) => {
            let why = format!(
                "there is a machine named {node:?} already: give this one another name with --node-name. If it is that \
                 machine with a new data directory, take the old one out first: kubectl delete node {node}"
            );
            Err(refused(409, Reason::AlreadyExists, why))
        }
    }
}

fn leaving(node: &str) -> String {
    format!(
        "the machine {node:?} is being taken out, and its Node waits for finalizers: see `kubectl get node {node} -o yaml`, \
         and join again when it is gone"
    )
}

/// What was signed by an earlier version counts whatever its Node says. Once its name is another's, it gets no new one.
fn still_its_name(core: &Core, node: &str, key: &KeyHash) -> Outcome<()> {
    let live = core.load(kind("nodes")?.0, None, node);
    if live.as_ref().is_some_and(|live| read::deleting(&live.object)) {
        return Err(refused(403, Reason::Forbidden, leaving(node)));
    }
    match live.as_ref().and_then(|live| read::annotation(&live.object, MACHINE_KEY)) {
        Some(owner) if owner != key.to_string() => {
            let why = format!(
                "the name {node:?} belongs to another machine now: remove the folder `machine` of this one's data \
                 directory, and join again with another --node-name and a token"
            );
            Err(refused(403, Reason::Forbidden, why))
        }
        Some(_) | None => Ok(()),
    }
}

fn certificates(
    authority: &CertificateSigner,
    request: &SigningRequest,
    (node, now): (&str, UnixSeconds),
) -> Outcome<Value> {
    let sign = |prefix: &str, group| {
        let name = format!("{prefix}{node}");
        let signed = authority.sign(request, &Subject { name: &name, group }, now);
        signed.map_err(|error| refused(500, Reason::InternalError, format!("no certificate for {name}: {error}")))
    };
    Ok(json!({
        "node": node,
        "authority": authority.ca_pem(),
        "certificates": {"node": sign(NODE, NODES)?, "machine": sign(MACHINE, MACHINES)?},
    }))
}
