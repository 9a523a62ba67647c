//! apiextensions.k8s.io: custom resource definitions and their schemas.

use super::meta;
use super::{API_VERSION, KIND, field, list};
use crate::schema::types::Presence::{Always, OmitZero, Pointer};
use crate::schema::types::Type::{Any, Bool, Bytes, Float64, Int32, Int64, Map, SchemaOr, String, Time};
use crate::schema::types::{self, Struct, Type};

pub static CUSTOM_RESOURCE_COLUMN_DEFINITION: Struct = Struct {
    name: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceColumnDefinition",
    doc: "A custom resource column definition.",
    atomic: false,
    fields: &[
        field("name", String, 1, Always, "Its name."),
        field("type", String, 2, Always, "Which sort it is."),
        field("format", String, 3, OmitZero, "Further meaning of the type."),
        field("description", String, 4, OmitZero, "What it is, for people."),
        field("priority", Int32, 5, OmitZero, "Importance; in tables, zero means always shown."),
        field("jsonPath", String, 6, Always, "Where the value is."),
    ],
};

pub static CUSTOM_RESOURCE_CONVERSION: Struct = Struct {
    name: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceConversion",
    doc: "A custom resource conversion.",
    atomic: false,
    fields: &[
        field("strategy", String, 1, Always, "The strategy."),
        field("webhook", Type::Struct(&WEBHOOK_CONVERSION), 2, Pointer, "The webhook."),
    ],
};

pub static CUSTOM_RESOURCE_DEFINITION: Struct = Struct {
    name: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
    doc: "Adds a kind to the API; its name is the plural name and the group.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("spec", Type::Struct(&CUSTOM_RESOURCE_DEFINITION_SPEC), 2, Always, "The desired state."),
        field("status", Type::Struct(&CUSTOM_RESOURCE_DEFINITION_STATUS), 3, Always, "The observed state."),
    ],
};

pub static CUSTOM_RESOURCE_DEFINITION_CONDITION: Struct = Struct {
    name: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionCondition",
    doc: "One observation: custom resource definition condition.",
    atomic: false,
    fields: &[
        field("type", String, 1, Always, "Which sort it is."),
        field("status", String, 2, Always, "The observed state."),
        field("lastTransitionTime", Time, 3, Always, "When the status last changed."),
        field("reason", String, 4, OmitZero, "Why, as one word."),
        field("message", String, 5, OmitZero, "Why, for people."),
        field("observedGeneration", Int64, 6, OmitZero, "The generation this was observed at."),
    ],
};

pub static CUSTOM_RESOURCE_DEFINITION_NAMES: Struct = Struct {
    name: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionNames",
    doc: "The custom resource definition names.",
    atomic: false,
    fields: &[
        field("plural", String, 1, Always, "Name in paths."),
        field("singular", String, 2, OmitZero, "Name of one object."),
        field("shortNames", list!(String), 3, OmitZero, "Abbreviations."),
        field("kind", String, 4, Always, "Kind of the object."),
        field("listKind", String, 5, OmitZero, "Kind of lists."),
        field("categories", list!(String), 6, OmitZero, "Groups of kinds to list together."),
    ],
};

pub static CUSTOM_RESOURCE_DEFINITION_SPEC: Struct = Struct {
    name: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionSpec",
    doc: "The desired state: custom resource definition.",
    atomic: false,
    fields: &[
        field("group", String, 1, Always, "The API group."),
        field("names", Type::Struct(&CUSTOM_RESOURCE_DEFINITION_NAMES), 3, Always, "Names of the kind."),
        field("scope", String, 4, Always, "Cluster or Namespaced."),
        field(
            "versions",
            list!(Type::Struct(&CUSTOM_RESOURCE_DEFINITION_VERSION)),
            7,
            Always,
            "The versions of the kind.",
        ),
        field("conversion", Type::Struct(&CUSTOM_RESOURCE_CONVERSION), 9, Pointer, "How versions are converted."),
        field("preserveUnknownFields", Bool, 10, OmitZero, "Whether unknown fields are kept."),
    ],
};

pub static CUSTOM_RESOURCE_DEFINITION_STATUS: Struct = Struct {
    name: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus",
    doc: "The observed state: custom resource definition.",
    atomic: false,
    fields: &[
        field(
            "conditions",
            list!(Type::Struct(&CUSTOM_RESOURCE_DEFINITION_CONDITION), Map(&["type"]), Replace),
            1,
            Always,
            "Observations about the object.",
        ),
        field("acceptedNames", Type::Struct(&CUSTOM_RESOURCE_DEFINITION_NAMES), 2, Always, "Names in force."),
        field("storedVersions", list!(String), 3, Always, "Versions that objects were ever stored in."),
        field("observedGeneration", Int64, 4, OmitZero, "The generation this was observed at."),
    ],
};

pub static CUSTOM_RESOURCE_DEFINITION_VERSION: Struct = Struct {
    name: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionVersion",
    doc: "A custom resource definition version.",
    atomic: false,
    fields: &[
        field("name", String, 1, Always, "Its name."),
        field("served", Bool, 2, Always, "Whether the version is served."),
        field("storage", Bool, 3, Always, "Whether objects are stored in this version."),
        field("deprecated", Bool, 7, OmitZero, "Whether use of the version is warned about."),
        field("deprecationWarning", String, 8, Pointer, "The deprecation warning."),
        field("schema", Type::Struct(&CUSTOM_RESOURCE_VALIDATION), 4, Pointer, "What objects must look like."),
        field(
            "subresources",
            Type::Struct(&CUSTOM_RESOURCE_SUBRESOURCES),
            5,
            Pointer,
            "Which subresources objects have.",
        ),
        field(
            "additionalPrinterColumns",
            list!(Type::Struct(&CUSTOM_RESOURCE_COLUMN_DEFINITION)),
            6,
            OmitZero,
            "Columns of tables.",
        ),
        field(
            "selectableFields",
            list!(Type::Struct(&SELECTABLE_FIELD)),
            9,
            OmitZero,
            "Fields that selectors may use.",
        ),
    ],
};

pub static CUSTOM_RESOURCE_SUBRESOURCE_SCALE: Struct = Struct {
    name: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceSubresourceScale",
    doc: "A custom resource subresource scale.",
    atomic: false,
    fields: &[
        field("specReplicasPath", String, 1, Always, "The spec replicas path."),
        field("statusReplicasPath", String, 2, Always, "The status replicas path."),
        field("labelSelectorPath", String, 3, Pointer, "The label selector path."),
    ],
};

pub static CUSTOM_RESOURCE_SUBRESOURCE_STATUS: Struct = Struct {
    name: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceSubresourceStatus",
    doc: "The observed state: custom resource subresource.",
    atomic: false,
    fields: &[],
};

pub static CUSTOM_RESOURCE_SUBRESOURCES: Struct = Struct {
    name: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceSubresources",
    doc: "The custom resource subresources.",
    atomic: false,
    fields: &[
        field("status", Type::Struct(&CUSTOM_RESOURCE_SUBRESOURCE_STATUS), 1, Pointer, "The observed state."),
        field("scale", Type::Struct(&CUSTOM_RESOURCE_SUBRESOURCE_SCALE), 2, Pointer, "The scale."),
    ],
};

pub static CUSTOM_RESOURCE_VALIDATION: Struct = Struct {
    name: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceValidation",
    doc: "A custom resource validation.",
    atomic: false,
    fields: &[field("openAPIV3Schema", Type::Struct(&JSON_SCHEMA_PROPS), 1, Pointer, "The open apiv3 schema.")],
};

pub static EXTERNAL_DOCUMENTATION: Struct = Struct {
    name: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.ExternalDocumentation",
    doc: "An external documentation.",
    atomic: false,
    fields: &[
        field("description", String, 1, OmitZero, "What it is, for people."),
        field("url", String, 2, OmitZero, "The URL."),
    ],
};

pub static JSON_SCHEMA_PROPS: Struct = Struct {
    name: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
    doc: "A JSON schema as custom resource definitions use it.",
    atomic: false,
    fields: &[
        field("id", String, 1, OmitZero, "The id."),
        field("$schema", String, 2, OmitZero, "The schema."),
        field("$ref", String, 3, Pointer, "The ref."),
        field("description", String, 4, OmitZero, "What it is, for people."),
        field("type", String, 5, OmitZero, "Which sort it is."),
        field("format", String, 6, OmitZero, "Further meaning of the type."),
        field("title", String, 7, OmitZero, "The title."),
        field("default", Any, 8, Pointer, "Value for a missing field."),
        field("maximum", Float64, 9, Pointer, "The largest number allowed."),
        field("exclusiveMaximum", Bool, 10, OmitZero, "Whether the maximum itself is refused."),
        field("minimum", Float64, 11, Pointer, "The smallest number allowed."),
        field("exclusiveMinimum", Bool, 12, OmitZero, "Whether the minimum itself is refused."),
        field("maxLength", Int64, 13, Pointer, "The longest string allowed."),
        field("minLength", Int64, 14, Pointer, "The shortest string allowed."),
        field("pattern", String, 15, OmitZero, "Regular expression for strings."),
        field("maxItems", Int64, 16, Pointer, "The most items allowed."),
        field("minItems", Int64, 17, Pointer, "The fewest items allowed."),
        field("uniqueItems", Bool, 18, OmitZero, "Whether items must differ."),
        field("multipleOf", Float64, 19, Pointer, "What the number must be a multiple of."),
        field("enum", list!(Any), 20, OmitZero, "The values allowed."),
        field("maxProperties", Int64, 21, Pointer, "The most fields allowed."),
        field("minProperties", Int64, 22, Pointer, "The fewest fields allowed."),
        field("required", list!(String), 23, OmitZero, "Fields that must be there."),
        field("items", SchemaOr(types::SchemaOr::Schemas), 24, Pointer, "The keys to take; all if empty."),
        field("allOf", list!(Type::Struct(&JSON_SCHEMA_PROPS)), 25, OmitZero, "The all of."),
        field("oneOf", list!(Type::Struct(&JSON_SCHEMA_PROPS)), 26, OmitZero, "The one of."),
        field("anyOf", list!(Type::Struct(&JSON_SCHEMA_PROPS)), 27, OmitZero, "The any of."),
        field("not", Type::Struct(&JSON_SCHEMA_PROPS), 28, Pointer, "The not."),
        field("properties", Map(&Type::Struct(&JSON_SCHEMA_PROPS)), 29, OmitZero, "Schemas of the fields."),
        field("additionalProperties", SchemaOr(types::SchemaOr::Bool), 30, Pointer, "The additional properties."),
        field("patternProperties", Map(&Type::Struct(&JSON_SCHEMA_PROPS)), 31, OmitZero, "The pattern properties."),
        field("dependencies", Map(&SchemaOr(types::SchemaOr::Strings)), 32, OmitZero, "The dependencies."),
        field("additionalItems", SchemaOr(types::SchemaOr::Bool), 33, Pointer, "The additional items."),
        field("definitions", Map(&Type::Struct(&JSON_SCHEMA_PROPS)), 34, OmitZero, "The definitions."),
        field("externalDocs", Type::Struct(&EXTERNAL_DOCUMENTATION), 35, Pointer, "The external docs."),
        field("example", Any, 36, Pointer, "The example."),
        field("nullable", Bool, 37, OmitZero, "Whether null is allowed."),
        field("x-kubernetes-preserve-unknown-fields", Bool, 38, Pointer, "Whether unknown fields are kept."),
        field("x-kubernetes-embedded-resource", Bool, 39, OmitZero, "Whether the value is a whole object."),
        field("x-kubernetes-int-or-string", Bool, 40, OmitZero, "Whether numbers and strings are both allowed."),
        field("x-kubernetes-list-map-keys", list!(String), 41, OmitZero, "The list map keys."),
        field("x-kubernetes-list-type", String, 42, Pointer, "The list type."),
        field("x-kubernetes-map-type", String, 43, Pointer, "The map type."),
        field(
            "x-kubernetes-validations",
            list!(Type::Struct(&VALIDATION_RULE), Map(&["rule"]), MergeBy("rule")),
            44,
            OmitZero,
            "The validations.",
        ),
    ],
};

pub static SELECTABLE_FIELD: Struct = Struct {
    name: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.SelectableField",
    doc: "A selectable field.",
    atomic: false,
    fields: &[field("jsonPath", String, 1, Always, "Where the value is.")],
};

pub static SERVICE_REFERENCE: Struct = Struct {
    name: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.ServiceReference",
    doc: "A service reference.",
    atomic: false,
    fields: &[
        field("namespace", String, 1, Always, "The namespace."),
        field("name", String, 2, Always, "Its name."),
        field("path", String, 3, Pointer, "The path."),
        field("port", Int32, 4, Pointer, "The port."),
    ],
};

pub static VALIDATION_RULE: Struct = Struct {
    name: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.ValidationRule",
    doc: "A validation rule.",
    atomic: false,
    fields: &[
        field("rule", String, 1, Always, "The rule."),
        field("message", String, 2, OmitZero, "Why, for people."),
        field("messageExpression", String, 3, OmitZero, "The message expression."),
        field("reason", String, 4, Pointer, "Why, as one word."),
        field("fieldPath", String, 5, OmitZero, "Which part of the object."),
        field("optionalOldSelf", Bool, 6, Pointer, "Whether the rule also runs without an old value."),
    ],
};

pub static WEBHOOK_CLIENT_CONFIG: Struct = Struct {
    name: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.WebhookClientConfig",
    doc: "A webhook client config.",
    atomic: false,
    fields: &[
        field("url", String, 3, Pointer, "The URL."),
        field("service", Type::Struct(&SERVICE_REFERENCE), 1, Pointer, "The service."),
        field("caBundle", Bytes, 2, OmitZero, "The CA bundle."),
    ],
};

pub static WEBHOOK_CONVERSION: Struct = Struct {
    name: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.WebhookConversion",
    doc: "A webhook conversion.",
    atomic: false,
    fields: &[
        field("clientConfig", Type::Struct(&WEBHOOK_CLIENT_CONFIG), 2, Pointer, "The client config."),
        field("conversionReviewVersions", list!(String), 3, Always, "The conversion review versions."),
    ],
};
