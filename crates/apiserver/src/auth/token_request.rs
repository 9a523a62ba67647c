//! `POST serviceaccounts/NAME/token`: a new token for an account, tied to an object if asked.

use serde_json::{Value, json};

use super::{Account, Bound, BoundKind, BoundObjects, Claims, ObjectRef, TokenSigner, UnixSeconds};
use crate::admission::TokenTerms;
use crate::keys::MACHINE_KEY;
use crate::kinds::read;
use crate::request::{Cause, Refusal, go_quote};
use crate::schema::time::{Moment, Precision, print};

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";
const DEFAULT_SECONDS: i64 = 60 * 60;
const MIN_SECONDS: i64 = 10 * 60;
const MAX_SECONDS: i64 = 1 << 32;
/// The time that pods ask their own tokens for. Old programs never read them again, so such a token lives a year and
/// the holder is only warned.
const POD_SECONDS: i64 = 60 * 60 + 7;
const POD_REAL_SECONDS: i64 = 365 * 24 * 60 * 60;

/// One request for a token.
#[derive(Debug, Clone, Copy)]
pub struct TokenRequest<'a> {
    /// Of the account, from the URL.
    pub namespace: &'a str,
    /// Of the account, from the URL.
    pub name: &'a str,
    pub body: &'a Value,
    /// A new UUID.
    pub id: &'a str,
    pub now: UnixSeconds,
    pub terms: TokenTerms,
}

/// A token that was made. It does not print.
#[derive(Clone, PartialEq)]
pub struct IssuedToken {
    /// The TokenRequest object to answer with, which holds the token: 201.
    pub object: Value,
    /// Said to who asked for more time than was given.
    pub warning: Option<String>,
}

impl std::fmt::Debug for IssuedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IssuedToken").field("warning", &self.warning).finish_non_exhaustive()
    }
}

/// Makes a token.
pub fn request_token(
    signer: &TokenSigner,
    request: &TokenRequest<'_>,
    objects: &dyn BoundObjects,
) -> Result<IssuedToken, Refusal> {
    let TokenRequest { namespace, name, body, id, now, terms } = *request;
    let metadata = &body["metadata"];
    let same = |field: &str, expected: &str| match metadata[field].as_str() {
        None | Some("") => Ok(()),
        Some(given) if given == expected => Ok(()),
        Some(given) => {
            let why = format!("must match the service account {field} if specified");
            Err(invalid(name, Cause::invalid(&format!("metadata.{field}"), go_quote(given), why)))
        }
    };
    same("name", name)?;
    same("namespace", namespace)?;
    let account = find(objects, BoundKind::ServiceAccount, namespace, name)?;
    if metadata["uid"].as_str().is_some_and(|given| !given.is_empty() && given != account.uid) {
        let given = metadata["uid"].as_str().unwrap_or_default();
        let why = format!(
            "the UID in the token request ({given}) does not match the UID of the service account ({})",
            account.uid
        );
        return Err(Refusal::Conflict { group: GROUP.into(), resource: KIND.into(), name: name.into(), why });
    }
    let spec = &body["spec"];
    let asked = spec["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS);
    check_seconds(asked)?;
    let (seconds, longest) = match terms {
        TokenTerms::AsAsked => (asked, POD_REAL_SECONDS),
        TokenTerms::AtMost(longest) => (asked.min(longest), POD_REAL_SECONDS.min(longest)),
    };
    let mut audiences: Vec<String> =
        spec["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    if audiences.is_empty() {
        audiences.push(signer.issuer().to_owned());
    }
    let bound = bound(&spec["boundObjectRef"], (namespace, name), objects)?;
    let is_pods_own = matches!(bound, Some(Bound::Pod { .. })) && audiences.iter().all(|one| one == signer.issuer());
    let (lives, warn_after) = if is_pods_own && seconds == POD_SECONDS {
        (longest, Some(UnixSeconds(now.0 + seconds)))
    } else {
        (seconds, None)
    };
    let claims = Claims {
        account: Account { namespace: namespace.into(), object: account.clone() },
        bound,
        audiences: audiences.clone(),
        issued: now,
        expires: UnixSeconds(now.0 + lives),
        warn_after,
        id: id.into(),
    };
    let token =
        signer.sign(&claims).map_err(|error| Refusal::Internal(format!("failed to generate token: {error}")))?;
    let object = json!({
        "kind": KIND,
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {
            "name": name, "namespace": namespace, "uid": account.uid, "creationTimestamp": timestamp(now.0),
        },
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": spec["boundObjectRef"]},
        "status": {"token": token.reveal(), "expirationTimestamp": timestamp(now.0 + seconds)},
    });
    let shortened = || format!("requested expiration of {asked} seconds shortened to {seconds} seconds");
    Ok(IssuedToken { object, warning: (seconds < asked).then(shortened) })
}

fn check_seconds(seconds: i64) -> Result<(), Refusal> {
    let why = if seconds < MIN_SECONDS {
        "may not specify a duration less than 10 minutes"
    } else if seconds > MAX_SECONDS {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(());
    };
    Err(invalid("", Cause::invalid("spec.expirationSeconds", seconds, why)))
}

fn bound(
    reference: &Value,
    (namespace, account): (&str, &str),
    objects: &dyn BoundObjects,
) -> Result<Option<Bound>, Refusal> {
    if reference.is_null() {
        return Ok(None);
    }
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let (kind, version, name) = (text("kind"), text("apiVersion"), text("name"));
    let bound = match (version, kind) {
        ("v1" | "", "Secret") => Bound::Secret(find(objects, BoundKind::Secret, namespace, name)?),
        ("v1" | "", "Node") => Bound::Node(find(objects, BoundKind::Node, "", name)?),
        ("v1" | "", "Pod") => {
            let pod = find(objects, BoundKind::Pod, namespace, name)?;
            let (node, on_machine) = pod_facts(objects, (namespace, account), name)?;
            Bound::Pod { pod, node, on_machine }
        }
        _ => {
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let shown = format!("{group}/{version}, Kind={kind}");
            return Err(Refusal::BadRequest(format!("cannot bind token to object of type {shown}")));
        }
    };
    let (Bound::Pod { pod: found, .. } | Bound::Secret(found) | Bound::Node(found)) = &bound;
    let wanted = text("uid");
    if !wanted.is_empty() && wanted != found.uid {
        let why = format!(
            "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have \
             been deleted and then recreated"
        );
        return Err(Refusal::Conflict { group: String::new(), resource: kind.into(), name: name.into(), why });
    }
    Ok(Some(bound))
}

/// The node that a pod runs on, and whether it is a machine that joined. A pod of another account cannot carry this one's
/// token.
fn pod_facts(
    objects: &dyn BoundObjects,
    (namespace, account): (&str, &str),
    pod: &str,
) -> Result<(Option<ObjectRef>, bool), Refusal> {
    let Some(pod) = objects.find(BoundKind::Pod, namespace, pod) else { return Ok((None, false)) };
    if pod["spec"]["serviceAccountName"] != account {
        let account = go_quote(account);
        return Err(Refusal::BadRequest(format!(
            "cannot bind token for serviceaccount {account} to pod running with different serviceaccount name."
        )));
    }
    let Some(name) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) else {
        return Ok((None, false));
    };
    let node = objects.find(BoundKind::Node, "", name);
    let on_machine = node.as_deref().is_some_and(|node| read::annotation(node, MACHINE_KEY).is_some());
    let uid = node.as_deref().map(|node| read::text(node, "/metadata/uid")).unwrap_or_default().to_owned();
    Ok((Some(ObjectRef { name: name.to_owned(), uid }), on_machine))
}

fn find(objects: &dyn BoundObjects, kind: BoundKind, namespace: &str, name: &str) -> Result<ObjectRef, Refusal> {
    let resource = match kind {
        BoundKind::ServiceAccount => "serviceaccounts",
        BoundKind::Pod => "pods",
        BoundKind::Secret => "secrets",
        BoundKind::Node => "nodes",
    };
    let object = objects.find(kind, namespace, name).ok_or_else(|| Refusal::NotFound {
        group: String::new(),
        resource: resource.into(),
        name: name.into(),
    })?;
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    Ok(ObjectRef { name: name.to_owned(), uid })
}

fn invalid(name: &str, cause: Cause) -> Refusal {
    Refusal::Invalid { group: GROUP, kind: KIND, name: name.to_owned(), causes: vec![cause] }
}

pub(super) fn timestamp(seconds: i64) -> String {
    print(Moment { seconds, nanos: 0 }, Precision::Seconds)
}
