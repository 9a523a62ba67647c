//! The shape of what the server serves: one description per type that drives decoding, defaulting, patching, field
//! ownership, protobuf and OpenAPI. Nothing else in this crate knows a field by itself.

/// The type of a field or of a list's items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    String,
    /// 32 or 64 bits, signed: JSON numbers either way.
    Int32,
    Int64,
    Bool,
    Float64,
    /// `1Gi`: a string in JSON, a message with a string in protobuf.
    Quantity,
    /// RFC 3339 with whole seconds.
    Time,
    /// RFC 3339 with six digits.
    MicroTime,
    /// A number or a string.
    IntOrString,
    /// Base64 in JSON.
    Bytes,
    /// Any JSON: RawExtension, FieldsV1, JSONSchemaProps defaults.
    Any,
    Struct(&'static Struct),
    /// A map from strings; server-side apply owns each key by itself.
    Map(&'static Type),
    /// A map from strings that server-side apply owns and replaces as a whole.
    AtomicMap(&'static Type),
    List(&'static List),
    /// A JSON schema or something simpler: the three unions inside custom resource definitions. Atomic in every patch.
    SchemaOr(SchemaOr),
}

/// What may stand where a JSON schema may stand too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaOr {
    /// `true`, `false` or a schema.
    Bool,
    /// A schema or a list of schemas.
    Schemas,
    /// A schema or a list of strings.
    Strings,
}

/// A list, and how two versions of it are merged.
#[derive(Debug, PartialEq, Eq)]
pub struct List {
    pub item: Type,
    /// For server-side apply.
    pub apply: ListKind,
    /// For strategic merge patches.
    pub strategic: ListPatch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListKind {
    Atomic,
    /// Scalars without order.
    Set,
    /// Items told apart by these fields.
    Map(&'static [&'static str]),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListPatch {
    Replace,
    /// Scalars are added and removed one by one.
    MergeScalars,
    /// Items are told apart by this field.
    MergeBy(&'static str),
    /// As `MergeBy`, and `$retainKeys` is understood.
    MergeByRetainKeys(&'static str),
}

/// An object with known fields. A struct may contain itself (JSON schemas do), so it is compared and shown by name.
pub struct Struct {
    /// Its name in OpenAPI, such as `io.k8s.api.core.v1.PersistentVolumeClaimSpec`.
    pub name: &'static str,
    /// One sentence for `kubectl explain`.
    pub doc: &'static str,
    pub fields: &'static [Field],
    /// Owned and replaced as a whole by server-side apply.
    pub atomic: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Field {
    pub name: &'static str,
    pub ty: Type,
    /// Where protobuf carries it: see [`Field::wire`].
    pub number: u32,
    pub presence: Presence,
    /// One sentence for `kubectl explain`.
    pub doc: &'static str,
}

/// How a field's absence shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Always printed, also when zero: a Go value without `omitempty`, or a struct that is printed as `{}`.
    Always,
    /// Left out when zero or empty: a Go value with `omitempty`. Protobuf writes it even when empty.
    OmitZero,
    /// Absent and empty differ: a Go pointer.
    Pointer,
    /// As `Pointer`, and absence is printed as `null`: a Go pointer without `omitempty`.
    PointerOrNull,
}

/// Where a field sits in protobuf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// JSON and YAML only: `apiVersion` and `kind`, which the envelope carries.
    Nowhere,
    Direct(u32),
    /// JSON shows the field in the struct itself, protobuf in a message of its own: volume sources, probe handlers.
    Inside {
        message: u32,
        number: u32,
    },
}

/// The number of a field that protobuf keeps in the message numbered `message`.
pub const fn inside(message: u32, number: u32) -> u32 {
    (message << 16) | number
}

impl Field {
    pub const fn wire(&self) -> Wire {
        match (self.number >> 16, self.number & 0xffff) {
            (0, 0) => Wire::Nowhere,
            (0, number) => Wire::Direct(number),
            (message, number) => Wire::Inside { message, number },
        }
    }
}

impl Struct {
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Whether the type is atomic wherever a field does not say otherwise.
    pub fn is_atomic_by_default(&self) -> bool {
        self.atomic || GRANULAR_IN_PLACES.contains(&self.name)
    }

    /// What a merge key counts as in an item that leaves it out: server-side apply needs it to tell items apart.
    pub fn key_default(&self, field: &str) -> Option<&'static str> {
        (self.name == "io.k8s.api.core.v1.ContainerPort" && field == "protocol").then_some("TCP")
    }
}

/// Atomic types that some field makes granular; that field points to a second `Struct` of the same name.
const GRANULAR_IN_PLACES: [&str; 1] = ["io.k8s.api.core.v1.ObjectReference"];

impl PartialEq for Struct {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.atomic == other.atomic && std::ptr::eq(self.fields, other.fields)
    }
}

impl Eq for Struct {}

impl std::fmt::Debug for Struct {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Struct({})", self.name)
    }
}
