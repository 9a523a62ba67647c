//! What random sequences are about: kinds, where they live, and values that fit their fields or do not.

/// A kind that random sequences write to.
#[derive(Debug)]
pub(super) struct Kind {
    /// The template of its smallest valid object.
    pub(super) template: &'static str,
    /// The collection.
    pub(super) path: &'static str,
    pub(super) scope: Scope,
    pub(super) status: Status,
    /// JSON pointers and values for them, as JSON text: some fit, some nearly, some not at all.
    pub(super) fields: &'static [(&'static str, &'static [&'static str])],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Cluster,
    Namespaced,
}

/// Whether the kind has a status of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Served,
    None,
}

/// Fields that every kind has.
pub(super) const METADATA: &[(&str, &[&str])] = &[
    ("/metadata/labels", &[r#"{"a":"b"}"#, r#"{"a":"c","d":""}"#, r#"{"a b":"c"}"#, "null", "{}"]),
    ("/metadata/annotations", &[r#"{"x":"y"}"#, r#"{"x.io/y":"z z"}"#, r#"{"-":""}"#, "null"]),
    ("/metadata/finalizers", &[r#"["x.io/y"]"#, r#"["x.io/y","z.io/w"]"#, r#"["bare"]"#, "[]", "null"]),
    (
        "/metadata/ownerReferences",
        &[
            r#"[{"apiVersion":"v1","kind":"A","name":"a","uid":"u1"}]"#,
            r#"[{"apiVersion":"v1","kind":"","name":"a","uid":"u1"}]"#,
            "null",
        ],
    ),
    ("/metadata/generation", &["5", "-1"]),
    ("/metadata/unknown", &["1"]),
];

const QUANTITIES: &[&str] =
    &[r#""1Gi""#, r#""2Gi""#, r#""1500Mi""#, r#""0""#, r#""-1""#, r#""1.5Gi""#, r#""100m""#, "5", r#""x""#];
const NAMES: &[&str] = &[r#""one""#, r#""two.x""#, r#""Bad_""#, r#""""#, "null"];
const MODES: &[&str] = &[
    r#"["ReadWriteOnce"]"#,
    r#"["ReadWriteMany","ReadOnlyMany"]"#,
    r#"["ReadWriteOncePod"]"#,
    r#"["ReadWriteOncePod","ReadWriteOnce"]"#,
    r#"["Nonsense"]"#,
    "[]",
];
const BOOLEANS: &[&str] = &["true", "false", "null"];
const MAPS: &[&str] = &[r#"{"a":"b"}"#, r#"{"a":"c","e":"f"}"#, r#"{"":"x"}"#, "{}", "null"];
const PHASES: &[&str] = &[r#""Bound""#, r#""Available""#, r#""Released""#, r#""Odd""#];
const VOLUME_MODES: &[&str] = &[r#""Filesystem""#, r#""Block""#, r#""Odd""#];

pub(super) const KINDS: [Kind; 12] = [
    Kind {
        template: "PVC",
        path: "${C}",
        scope: Scope::Namespaced,
        status: Status::Served,
        fields: &[
            ("/spec/accessModes", MODES),
            ("/spec/resources/requests/storage", QUANTITIES),
            ("/spec/storageClassName", NAMES),
            ("/spec/volumeName", NAMES),
            ("/spec/volumeMode", VOLUME_MODES),
            ("/spec/volumeAttributesClassName", NAMES),
            (
                "/spec/selector",
                &[r#"{"matchLabels":{"a":"b"}}"#, r#"{"matchExpressions":[{"key":"a","operator":"In"}]}"#],
            ),
            ("/spec/dataSource", &[r#"{"kind":"PersistentVolumeClaim","name":"x"}"#, r#"{"kind":"","name":""}"#]),
            ("/spec/dataSourceRef", &[r#"{"apiGroup":"a.io","kind":"K","name":"x"}"#, r#"{"kind":"K","name":"x"}"#]),
            ("/status/phase", PHASES),
            ("/status/capacity/storage", QUANTITIES),
            ("/status/accessModes", MODES),
            ("/status/conditions", &[r#"[{"type":"Resizing","status":"True"}]"#, "[]"]),
        ],
    },
    Kind {
        template: "PV",
        path: "${V}",
        scope: Scope::Cluster,
        status: Status::Served,
        fields: &[
            ("/spec/accessModes", MODES),
            ("/spec/capacity/storage", QUANTITIES),
            ("/spec/storageClassName", NAMES),
            ("/spec/volumeMode", VOLUME_MODES),
            ("/spec/volumeAttributesClassName", NAMES),
            ("/spec/persistentVolumeReclaimPolicy", &[r#""Retain""#, r#""Delete""#, r#""Odd""#]),
            ("/spec/claimRef", &[r#"{"namespace":"n","name":"c"}"#, r#"{"name":"c","uid":"u"}"#, "null"]),
            ("/spec/csi/volumeHandle", NAMES),
            ("/spec/csi/fsType", NAMES),
            ("/spec/csi/readOnly", BOOLEANS),
            ("/spec/csi/volumeAttributes", MAPS),
            ("/spec/csi/nodePublishSecretRef", &[r#"{"name":"a","namespace":"b"}"#, r#"{"name":"a"}"#]),
            ("/spec/hostPath", &[r#"{"path":"/x"}"#, r#"{"path":"../x"}"#]),
            ("/spec/mountOptions", &[r#"["ro"]"#, "[]"]),
            (
                "/spec/nodeAffinity",
                &[
                    r#"{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"k","operator":"In","values":["v"]}]}]}}"#,
                    r#"{"required":{"nodeSelectorTerms":[]}}"#,
                    "null",
                ],
            ),
            ("/status/phase", PHASES),
            ("/status/reason", NAMES),
        ],
    },
    Kind {
        template: "SC",
        path: "${SC}",
        scope: Scope::Cluster,
        status: Status::None,
        fields: &[
            ("/provisioner", &[r#""p.io""#, r#""q.io""#, r#""bad name""#, r#""""#]),
            ("/parameters", MAPS),
            ("/reclaimPolicy", &[r#""Retain""#, r#""Delete""#, r#""Recycle""#, "null"]),
            ("/volumeBindingMode", &[r#""Immediate""#, r#""WaitForFirstConsumer""#, r#""Odd""#, "null"]),
            ("/allowVolumeExpansion", BOOLEANS),
            ("/mountOptions", &[r#"["a"]"#, "null"]),
            (
                "/allowedTopologies",
                &[
                    r#"[{"matchLabelExpressions":[{"key":"k","values":["v"]}]}]"#,
                    r#"[{"matchLabelExpressions":[{"key":"k","values":["v","v"]}]}]"#,
                    "[{}]",
                    "null",
                ],
            ),
        ],
    },
    Kind {
        template: "VA",
        path: "${VA}",
        scope: Scope::Cluster,
        status: Status::Served,
        fields: &[
            ("/spec/attacher", &[r#""a.io""#, r#""b.io""#, r#""bad name""#, r#""""#]),
            ("/spec/nodeName", NAMES),
            ("/spec/source/persistentVolumeName", NAMES),
            ("/status/attached", BOOLEANS),
            ("/status/attachmentMetadata", MAPS),
            ("/status/attachError", &[r#"{"message":"m"}"#, r#"{"message":"m","errorCode":-1}"#, "null"]),
        ],
    },
    Kind {
        template: "DRIVER",
        path: "${ST}/csidrivers",
        scope: Scope::Cluster,
        status: Status::None,
        fields: &[
            ("/spec/attachRequired", BOOLEANS),
            ("/spec/podInfoOnMount", BOOLEANS),
            ("/spec/storageCapacity", BOOLEANS),
            ("/spec/requiresRepublish", BOOLEANS),
            ("/spec/fsGroupPolicy", &[r#""File""#, r#""None""#, r#""Odd""#, "null"]),
            (
                "/spec/volumeLifecycleModes",
                &[r#"["Persistent"]"#, r#"["Ephemeral","Persistent"]"#, r#"["Odd"]"#, "null"],
            ),
            ("/spec/tokenRequests", &[r#"[{"audience":"a"}]"#, r#"[{"audience":"a","expirationSeconds":1}]"#, "null"]),
            ("/spec/nodeAllocatableUpdatePeriodSeconds", &["10", "5", "null"]),
        ],
    },
    Kind {
        template: "CSINODE",
        path: "${ST}/csinodes",
        scope: Scope::Cluster,
        status: Status::None,
        fields: &[(
            "/spec/drivers",
            &[
                r#"[{"name":"d.io","nodeID":"id"},{"name":"e.io","nodeID":"x","topologyKeys":["a"]}]"#,
                r#"[{"name":"d.io","nodeID":"other"}]"#,
                r#"[{"name":"d.io","nodeID":"id","allocatable":{"count":5}}]"#,
                r#"[{"name":"d.io","nodeID":"id","allocatable":{"count":-5}}]"#,
                r#"[{"name":"","nodeID":""}]"#,
                "[]",
            ],
        )],
    },
    Kind {
        template: "CAPACITY",
        path: "${CAP}",
        scope: Scope::Namespaced,
        status: Status::None,
        fields: &[
            ("/storageClassName", NAMES),
            ("/capacity", QUANTITIES),
            ("/maximumVolumeSize", QUANTITIES),
            ("/nodeTopology", &[r#"{"matchLabels":{"a":"b"}}"#, r#"{"matchLabels":{"a b":"c"}}"#, "null"]),
        ],
    },
    Kind {
        template: "VAC",
        path: "${ST}/volumeattributesclasses",
        scope: Scope::Cluster,
        status: Status::None,
        fields: &[("/driverName", &[r#""d.io""#, r#""e.io""#, r#""bad name""#, r#""""#]), ("/parameters", MAPS)],
    },
    Kind {
        template: "CM",
        path: "${CM}",
        scope: Scope::Namespaced,
        status: Status::None,
        fields: &[
            ("/data", MAPS),
            ("/binaryData", &[r#"{"z":"AAE="}"#, r#"{"a":"AAE="}"#, r#"{"z":"?"}"#, "null"]),
            ("/immutable", BOOLEANS),
        ],
    },
    Kind {
        template: "SECRET",
        path: "${N}/secrets",
        scope: Scope::Namespaced,
        status: Status::None,
        fields: &[
            // At most one key is wrong: which of two comes first is different each time in the reference.
            ("/data", &[r#"{"a":"AAE="}"#, r#"{"z":"AA=="}"#, "null"]),
            ("/stringData", MAPS),
            ("/type", &[r#""x.io/y""#, r#""""#]),
            ("/immutable", BOOLEANS),
        ],
    },
    Kind {
        template: "POD",
        path: "${N}/pods",
        scope: Scope::Namespaced,
        status: Status::Served,
        fields: &[
            ("/spec/nodeName", &[r#""n1""#, r#""n2""#, r#""Bad_""#]),
            ("/spec/restartPolicy", &[r#""Never""#, r#""Always""#, r#""Odd""#]),
            ("/spec/activeDeadlineSeconds", &["5", "30", "-1"]),
            (
                "/spec/volumes",
                &[
                    r#"[{"name":"v","emptyDir":{}}]"#,
                    r#"[{"name":"v","persistentVolumeClaim":{"claimName":"c"}}]"#,
                    r#"[{"name":"v","persistentVolumeClaim":{"claimName":""}}]"#,
                ],
            ),
            ("/spec/containers", &[r#"[{"name":"c","image":"j"}]"#, "[]"]),
            ("/status/phase", &[r#""Running""#, r#""Succeeded""#]),
        ],
    },
    Kind {
        template: "LEASE",
        path: "${L}",
        scope: Scope::Namespaced,
        status: Status::None,
        fields: &[
            ("/spec/holderIdentity", NAMES),
            ("/spec/leaseDurationSeconds", &["15", "0", "-1", "null"]),
            ("/spec/leaseTransitions", &["1", "-1", "null"]),
            ("/spec/renewTime", &[r#""2020-01-01T00:00:00.000000Z""#, r#""2020-01-01T00:00:00.1Z""#, "null"]),
        ],
    },
];
