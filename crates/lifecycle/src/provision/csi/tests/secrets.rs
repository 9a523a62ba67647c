use api::Pairs;
use api::keys::{Parameter, parameter};
use serde_json::json;

use super::super::parameters::Parameters;
use super::super::secrets::{BadSecret, ClaimNames, Names, Purpose, Reference, resolve, resolve_all};
use super::super::unfit::Standing;
use super::*;

fn given(pairs: &[(String, &str)]) -> Parameters {
    pairs.iter().map(|(key, value)| (key.as_str().into(), (*value).into())).collect()
}

fn named(stem: Parameter, name: &'static str, namespace: &'static str) -> [(String, &'static str); 2] {
    [(format!("{stem}-name"), name), (format!("{stem}-namespace"), namespace)]
}

fn provision(pairs: &[(String, &str)]) -> Result<Option<Reference>, BadSecret> {
    let annotations: Pairs = [("team", "red"), ("dotted.example/key", "blue")].into_iter().collect();
    let claim = ClaimNames { namespace: "shop", name: "data", annotations: Some(&annotations) };
    resolve(&given(pairs), Purpose::Provision, &Names { volume: "pvc-1", claim: Some(claim) })
}

fn is(namespace: &str, name: &str) -> Option<Reference> {
    Some(Reference { namespace: namespace.to_owned(), name: name.to_owned() })
}

/// Rule: PROVISION-2.7
#[test]
fn a_class_that_names_no_secret_has_none() {
    assert_eq!(provision(&[]), Ok(None));
}

/// Rule: PROVISION-2.7
#[test]
fn names_and_namespaces_are_made_from_their_own_tokens() {
    let stem = parameter::PROVISIONER_SECRET;
    let full = named(stem, "${pvc.namespace}-${pvc.name}-${pv.name}-${pvc.annotations['team']}", "ns-${pvc.namespace}");
    assert_eq!(provision(&full), Ok(is("ns-shop", "shop-data-pvc-1-red")));
    let dotted = named(stem, "${pvc.annotations['dotted.example/key']}", "${pv.name}");
    assert_eq!(provision(&dotted), Ok(is("pvc-1", "blue")));
}

/// Rule: PROVISION-2.7
#[test]
fn what_a_user_controls_cannot_choose_a_namespace() {
    for template in ["${pvc.name}", "${pvc.annotations['team']}"] {
        let refused = provision(&named(parameter::PROVISIONER_SECRET, "s", template));
        assert!(matches!(refused, Err(BadSecret::Tokens { .. })), "{template} {refused:?}");
    }
}

/// Rule: SIDECAR-1.9
#[test]
fn unknown_tokens_are_all_named() {
    let refused = provision(&named(parameter::PROVISIONER_SECRET, "${a}-$b-${pvc.annotations['none']}", "n"));
    let Err(BadSecret::Tokens { tokens, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(tokens, "${a}, ${b}, ${pvc.annotations['none']}");
}

/// Rule: SIDECAR-1.9
#[test]
fn a_template_that_is_not_one_is_refused_instead_of_shortened() {
    for template in ["${pvc.name", "a$", "a$-b", "${}"] {
        let refused = provision(&named(parameter::PROVISIONER_SECRET, template, "n"));
        assert!(matches!(refused, Err(BadSecret::Syntax { .. })), "{template} {refused:?}");
    }
}

/// Rule: SIDECAR-1.9
#[test]
fn what_comes_out_must_be_valid_names() {
    let stem = parameter::PROVISIONER_SECRET;
    for (name, namespace) in [("UP", "n"), ("a..b", "n"), ("ok", "a.b"), ("ok", "-x"), ("-a", "n")] {
        let refused = provision(&named(stem, name, namespace));
        assert!(matches!(refused, Err(BadSecret::Invalid { .. })), "{name} {namespace} {refused:?}");
    }
    assert_eq!(provision(&named(stem, "a.b-c", "n")), Ok(is("n", "a.b-c")), "a name may have dots");
}

/// Rule: SIDECAR-1.9
#[test]
fn both_keys_or_none_and_neither_empty() {
    let stem = parameter::PROVISIONER_SECRET;
    let [name, namespace] = named(stem, "s", "n");
    assert!(matches!(provision(std::slice::from_ref(&name)), Err(BadSecret::Half { .. })));
    assert!(matches!(provision(&[namespace]), Err(BadSecret::Half { .. })));
    assert!(matches!(provision(&named(stem, "", "n")), Err(BadSecret::Empty { .. })));
}

/// Rule: PROVISION-2.7
#[test]
fn the_old_key_counts_and_both_are_too_many() {
    let old = parameter::OLD_PROVISIONER_SECRET;
    let old = [(format!("{old}Name"), "s"), (format!("{old}Namespace"), "n")];
    assert_eq!(provision(&old), Ok(is("n", "s")));
    let both: Vec<_> = old.into_iter().chain(named(parameter::PROVISIONER_SECRET, "s", "n")).collect();
    assert!(matches!(provision(&both), Err(BadSecret::Twice { .. })));
}

/// Rule: PROVISION-2.7
#[test]
fn the_default_secret_stands_in_for_every_purpose_that_has_none() {
    let stage = named(parameter::NODE_STAGE_SECRET, "stage", "n");
    let all: Vec<_> = named(parameter::DEFAULT_SECRET, "any", "n").into_iter().chain(stage).collect();
    let names = Names { volume: "pvc-1", claim: None };
    let secrets = resolve_all(&given(&all), &names).unwrap();
    assert_eq!(secrets.node_stage, is("n", "stage"));
    let others = [
        secrets.provision,
        secrets.controller_publish,
        secrets.node_publish,
        secrets.controller_expand,
        secrets.node_expand,
        secrets.controller_modify,
    ];
    assert!(others.iter().all(|secret| *secret == is("n", "any")), "{others:?}");
}

/// Rule: PROVISION-2.11
#[test]
fn without_the_claim_its_tokens_are_unknown() {
    let pairs = given(&named(parameter::PROVISIONER_SECRET, "${pvc.annotations['team']}", "n"));
    let claim = ClaimNames { namespace: "shop", name: "data", annotations: None };
    let refused = resolve(&pairs, Purpose::Provision, &Names { volume: "pvc-1", claim: Some(claim) });
    assert!(matches!(refused, Err(BadSecret::Tokens { .. })));
}

/// Rule: PROVISION-2.6
#[test]
fn a_bad_secret_reference_is_waited_for() {
    let class = class(json!({format!("{}-name", parameter::PROVISIONER_SECRET): "s"}));
    let unfit = outlined(&claim(json!({})), &class, &all_abilities(), &Options::default()).unwrap_err();
    assert_eq!(unfit.standing(), Standing::NotYet);
}
