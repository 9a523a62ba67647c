//! `azure-file`: shares, whose handle names group, account, share, volume and the secret's namespace.

use api::keys::annotation::AZURE_FILE_RESOURCE_GROUP;
use api::{AccessMode, Class};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::source::{self, Back, CsiSource, Inline, SecretReference, Synthetic, is_false};
use super::volume::Parts;
use super::{Translator, Untranslatable};

const DRIVER: &str = "file.csi.azure.com";
const FIELD: &str = "azureFile";
const SHARE: &str = "sharename";
const DEFAULT_NAMESPACE: &str = "default";

pub(super) struct AzureFile;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Share {
    secret_name: String,
    share_name: String,
    #[serde(skip_serializing_if = "is_false")]
    read_only: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret_namespace: Option<String>,
}

/// The account in `azure-storage-account-ACCOUNT-secret`; another secret's name stands for its account.
fn account_of(secret: &str) -> &str {
    let account = secret.split_once("azure-storage-account-").and_then(|(_, rest)| rest.rsplit_once("-secret"));
    account.map(|(account, _)| account).filter(|account| !account.is_empty()).unwrap_or(secret)
}

/// Where a share is: what its handle says beside the share itself.
struct Place<'a> {
    group: &'a str,
    volume: &'a str,
    namespace: &'a str,
}

fn csi(share: &Share, place: &Place<'_>) -> CsiSource {
    let (account, name) = (account_of(&share.secret_name), &share.share_name);
    let handle = format!("{}#{account}#{name}#{}#{}", place.group, place.volume, place.namespace);
    let secret = SecretReference { name: share.secret_name.clone(), namespace: place.namespace.to_owned() };
    let csi = CsiSource::new(DRIVER, handle).attribute(SHARE, name.as_str());
    CsiSource { read_only: share.read_only, node_stage_secret_ref: Some(secret), ..csi }
}

impl Translator for AzureFile {
    fn short(&self) -> &'static str {
        "azure-file"
    }

    fn driver(&self) -> &'static str {
        DRIVER
    }

    fn field(&self) -> &'static str {
        FIELD
    }

    fn class(&self, class: Class) -> Result<Class, Untranslatable> {
        Ok(class)
    }

    fn source(&self, parts: &Parts, source: &Value) -> Result<CsiSource, Untranslatable> {
        let share: Share = source::read(FIELD, source)?;
        // A pod cannot be asked: the volume may be handled without one.
        let namespace = share.secret_namespace.as_ref().or(parts.claim_namespace.as_ref());
        let namespace = namespace.filter(|namespace| !namespace.is_empty()).ok_or(Untranslatable::NoSecretNamespace)?;
        let group = parts.annotations.get(AZURE_FILE_RESOURCE_GROUP.text()).map(String::as_str).unwrap_or_default();
        Ok(csi(&share, &Place { group, volume: &parts.name, namespace }))
    }

    fn inline(&self, inline: &Inline<'_>) -> Result<Synthetic, Untranslatable> {
        let share: Share = source::read(FIELD, inline.source)?;
        let namespace = if inline.namespace.is_empty() { DEFAULT_NAMESPACE } else { inline.namespace };
        let csi = csi(&share, &Place { group: "", volume: inline.name, namespace });
        Ok(Synthetic { name: csi.volume_handle.clone(), csi, access: AccessMode::ReadWriteMany })
    }

    fn back(&self, csi: &CsiSource) -> Result<Back, Untranslatable> {
        let attribute = |name: &str| {
            let found = csi.volume_attributes.iter().find(|(held, _)| held.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.clone())
        };
        let mut share = Share {
            secret_name: attribute("secretname").unwrap_or_default(),
            share_name: attribute(SHARE).unwrap_or_default(),
            read_only: csi.read_only,
            secret_namespace: attribute("secretnamespace"),
        };
        if let Some(secret) = csi.node_stage_secret_ref.as_ref().filter(|secret| !secret.name.is_empty()) {
            share.secret_name.clone_from(&secret.name);
            share.secret_namespace = Some(secret.namespace.clone());
        }
        let mut annotations = Vec::new();
        if share.share_name.is_empty() || share.secret_name.is_empty() {
            let group = fill(&mut share, &csi.volume_handle)?;
            annotations.extend(group.map(|group| (AZURE_FILE_RESOURCE_GROUP.text().to_owned(), group)));
        }
        share.secret_namespace.get_or_insert_with(|| DEFAULT_NAMESPACE.to_owned());
        Ok(Back { source: source::write(FIELD, &share)?, annotations })
    }
}

/// Fills in what only the handle says, and gives the resource group if it names one.
fn fill(share: &mut Share, handle: &str) -> Result<Option<String>, Untranslatable> {
    let parts: Vec<&str> = handle.split('#').collect();
    let [group, account, name, ..] = parts.as_slice() else {
        return Err(Untranslatable::Handle { handle: handle.to_owned(), form: "GROUP#ACCOUNT#SHARE" });
    };
    if share.share_name.is_empty() {
        (*name).clone_into(&mut share.share_name);
    }
    if share.secret_name.is_empty() {
        share.secret_name = format!("azure-storage-account-{account}-secret");
    }
    Ok((!group.is_empty()).then(|| (*group).to_owned()))
}
