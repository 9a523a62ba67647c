//! Containers of a pod: environment, probes, lifecycle, security, state.

use super::{field, list};
use crate::schema::types::Presence::{Always, OmitZero, Pointer, PointerOrNull};
use crate::schema::types::Type::{Bool, Int32, Int64, IntOrString, Map, Quantity, String, Time};
use crate::schema::types::{Struct, Type, inside};

pub static APP_ARMOR_PROFILE: Struct = Struct {
    name: "io.k8s.api.core.v1.AppArmorProfile",
    doc: "An app armor profile.",
    atomic: false,
    fields: &[
        field("type", String, 1, Always, "Which sort it is."),
        field("localhostProfile", String, 2, Pointer, "The localhost profile."),
    ],
};

pub static CAPABILITIES: Struct = Struct {
    name: "io.k8s.api.core.v1.Capabilities",
    doc: "The capabilities.",
    atomic: false,
    fields: &[
        field("add", list!(String), 1, OmitZero, "The add."),
        field("drop", list!(String), 2, OmitZero, "The drop."),
    ],
};

pub static CONFIG_MAP_ENV_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.ConfigMapEnvSource",
    doc: "A config map env source.",
    atomic: false,
    fields: &[
        field("name", String, inside(1, 1), OmitZero, "Its name."),
        field("optional", Bool, 2, Pointer, "Whether it may be missing."),
    ],
};

pub static CONFIG_MAP_KEY_SELECTOR: Struct = Struct {
    name: "io.k8s.api.core.v1.ConfigMapKeySelector",
    doc: "A config map key selector.",
    atomic: true,
    fields: &[
        field("name", String, inside(1, 1), OmitZero, "Its name."),
        field("key", String, 2, Always, "The key."),
        field("optional", Bool, 3, Pointer, "Whether it may be missing."),
    ],
};

pub static CONTAINER: Struct = Struct {
    name: "io.k8s.api.core.v1.Container",
    doc: "A container.",
    atomic: false,
    fields: &[
        field("name", String, 1, Always, "Its name."),
        field("image", String, 2, OmitZero, "The image."),
        field("command", list!(String), 3, OmitZero, "The command and its arguments."),
        field("args", list!(String), 4, OmitZero, "Arguments of the command."),
        field("workingDir", String, 5, OmitZero, "The directory to start in."),
        field(
            "ports",
            list!(Type::Struct(&CONTAINER_PORT), Map(&["containerPort", "protocol"]), MergeBy("containerPort")),
            6,
            OmitZero,
            "Ports the container listens on.",
        ),
        field("envFrom", list!(Type::Struct(&ENV_FROM_SOURCE)), 19, OmitZero, "Sources of many environment variables."),
        field(
            "env",
            list!(Type::Struct(&ENV_VAR), Map(&["name"]), MergeBy("name")),
            7,
            OmitZero,
            "Environment variables.",
        ),
        field("resources", Type::Struct(&RESOURCE_REQUIREMENTS), 8, Always, "The resources."),
        field("resizePolicy", list!(Type::Struct(&CONTAINER_RESIZE_POLICY)), 23, OmitZero, "The resize policy."),
        field("restartPolicy", String, 24, Pointer, "When containers are restarted."),
        field(
            "restartPolicyRules",
            list!(Type::Struct(&CONTAINER_RESTART_RULE)),
            25,
            OmitZero,
            "The restart policy rules.",
        ),
        field(
            "volumeMounts",
            list!(Type::Struct(&VOLUME_MOUNT), Map(&["mountPath"]), MergeBy("mountPath")),
            9,
            OmitZero,
            "Volumes to mount as directories.",
        ),
        field(
            "volumeDevices",
            list!(Type::Struct(&VOLUME_DEVICE), Map(&["devicePath"]), MergeBy("devicePath")),
            21,
            OmitZero,
            "Volumes to show as raw devices.",
        ),
        field("livenessProbe", Type::Struct(&PROBE), 10, Pointer, "Tells when to restart the container."),
        field("readinessProbe", Type::Struct(&PROBE), 11, Pointer, "Tells when the container can serve."),
        field("startupProbe", Type::Struct(&PROBE), 22, Pointer, "Tells when the container has started."),
        field("lifecycle", Type::Struct(&LIFECYCLE), 12, Pointer, "What to do after start and before stop."),
        field("terminationMessagePath", String, 13, OmitZero, "The termination message path."),
        field("terminationMessagePolicy", String, 20, OmitZero, "The termination message policy."),
        field("imagePullPolicy", String, 14, OmitZero, "When the image is pulled."),
        field("securityContext", Type::Struct(&SECURITY_CONTEXT), 15, Pointer, "Users, groups and rights."),
        field("stdin", Bool, 16, OmitZero, "Whether the container has a standard input."),
        field("stdinOnce", Bool, 17, OmitZero, "Whether the input closes after the first session."),
        field("tty", Bool, 18, OmitZero, "Whether the container has a terminal."),
    ],
};

pub static CONTAINER_PORT: Struct = Struct {
    name: "io.k8s.api.core.v1.ContainerPort",
    doc: "A container port.",
    atomic: false,
    fields: &[
        field("name", String, 1, OmitZero, "Its name."),
        field("hostPort", Int32, 2, OmitZero, "The port on the node."),
        field("containerPort", Int32, 3, Always, "The port of the container."),
        field("protocol", String, 4, OmitZero, "The protocol."),
        field("hostIP", String, 5, OmitZero, "Address of the node."),
    ],
};

pub static CONTAINER_RESIZE_POLICY: Struct = Struct {
    name: "io.k8s.api.core.v1.ContainerResizePolicy",
    doc: "A container resize policy.",
    atomic: false,
    fields: &[
        field("resourceName", String, 1, Always, "The resource name."),
        field("restartPolicy", String, 2, Always, "When containers are restarted."),
    ],
};

pub static CONTAINER_RESTART_RULE: Struct = Struct {
    name: "io.k8s.api.core.v1.ContainerRestartRule",
    doc: "A container restart rule.",
    atomic: false,
    fields: &[
        field("action", String, 1, OmitZero, "What was done."),
        field("exitCodes", Type::Struct(&CONTAINER_RESTART_RULE_ON_EXIT_CODES), 2, Pointer, "The exit codes."),
    ],
};

pub static CONTAINER_RESTART_RULE_ON_EXIT_CODES: Struct = Struct {
    name: "io.k8s.api.core.v1.ContainerRestartRuleOnExitCodes",
    doc: "The container restart rule on exit codes.",
    atomic: false,
    fields: &[
        field("operator", String, 1, OmitZero, "How key and values relate."),
        field("values", list!(Int32, Set, Replace), 2, OmitZero, "The values to compare with."),
    ],
};

pub static CONTAINER_STATE: Struct = Struct {
    name: "io.k8s.api.core.v1.ContainerState",
    doc: "A container state.",
    atomic: false,
    fields: &[
        field("waiting", Type::Struct(&CONTAINER_STATE_WAITING), 1, Pointer, "The waiting."),
        field("running", Type::Struct(&CONTAINER_STATE_RUNNING), 2, Pointer, "The running."),
        field("terminated", Type::Struct(&CONTAINER_STATE_TERMINATED), 3, Pointer, "The terminated."),
    ],
};

pub static CONTAINER_STATE_RUNNING: Struct = Struct {
    name: "io.k8s.api.core.v1.ContainerStateRunning",
    doc: "A container state running.",
    atomic: false,
    fields: &[field("startedAt", Time, 1, Always, "When it started.")],
};

pub static CONTAINER_STATE_TERMINATED: Struct = Struct {
    name: "io.k8s.api.core.v1.ContainerStateTerminated",
    doc: "A container state terminated.",
    atomic: false,
    fields: &[
        field("exitCode", Int32, 1, Always, "The exit code."),
        field("signal", Int32, 2, OmitZero, "The signal that ended it."),
        field("reason", String, 3, OmitZero, "Why, as one word."),
        field("message", String, 4, OmitZero, "Why, for people."),
        field("startedAt", Time, 5, Always, "When it started."),
        field("finishedAt", Time, 6, Always, "When it ended."),
        field("containerID", String, 7, OmitZero, "The container id."),
    ],
};

pub static CONTAINER_STATE_WAITING: Struct = Struct {
    name: "io.k8s.api.core.v1.ContainerStateWaiting",
    doc: "A container state waiting.",
    atomic: false,
    fields: &[
        field("reason", String, 1, OmitZero, "Why, as one word."),
        field("message", String, 2, OmitZero, "Why, for people."),
    ],
};

pub static CONTAINER_STATUS: Struct = Struct {
    name: "io.k8s.api.core.v1.ContainerStatus",
    doc: "The observed state: container.",
    atomic: false,
    fields: &[
        field("name", String, 1, Always, "Its name."),
        field("state", Type::Struct(&CONTAINER_STATE), 2, Always, "The state."),
        field("lastState", Type::Struct(&CONTAINER_STATE), 3, Always, "The last state."),
        field("ready", Bool, 4, Always, "Whether it passes its readiness probe."),
        field("restartCount", Int32, 5, Always, "How often it was restarted."),
        field("image", String, 6, Always, "The image."),
        field("imageID", String, 7, Always, "The image id."),
        field("containerID", String, 8, OmitZero, "The container id."),
        field("started", Bool, 9, Pointer, "Whether it has started."),
        field("allocatedResources", Map(&Quantity), 10, OmitZero, "The allocated resources."),
        field("resources", Type::Struct(&RESOURCE_REQUIREMENTS), 11, Pointer, "The resources."),
        field(
            "volumeMounts",
            list!(Type::Struct(&VOLUME_MOUNT_STATUS), Map(&["mountPath"]), MergeBy("mountPath")),
            12,
            OmitZero,
            "Volumes to mount as directories.",
        ),
        field("user", Type::Struct(&CONTAINER_USER), 13, Pointer, "The user name."),
        field(
            "allocatedResourcesStatus",
            list!(Type::Struct(&RESOURCE_STATUS), Map(&["name"]), MergeBy("name")),
            14,
            OmitZero,
            "The allocated resources status.",
        ),
        field("stopSignal", String, 15, Pointer, "The stop signal."),
    ],
};

pub static CONTAINER_USER: Struct = Struct {
    name: "io.k8s.api.core.v1.ContainerUser",
    doc: "A container user.",
    atomic: false,
    fields: &[field("linux", Type::Struct(&LINUX_CONTAINER_USER), 1, Pointer, "The linux.")],
};

pub static ENV_FROM_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.EnvFromSource",
    doc: "An env from source.",
    atomic: false,
    fields: &[
        field("prefix", String, 1, OmitZero, "The prefix."),
        field("configMapRef", Type::Struct(&CONFIG_MAP_ENV_SOURCE), 2, Pointer, "The config map ref."),
        field("secretRef", Type::Struct(&SECRET_ENV_SOURCE), 3, Pointer, "The secret with the credentials."),
    ],
};

pub static ENV_VAR: Struct = Struct {
    name: "io.k8s.api.core.v1.EnvVar",
    doc: "An env var.",
    atomic: false,
    fields: &[
        field("name", String, 1, Always, "Its name."),
        field("value", String, 2, OmitZero, "The value."),
        field("valueFrom", Type::Struct(&ENV_VAR_SOURCE), 3, Pointer, "The value from."),
    ],
};

pub static ENV_VAR_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.EnvVarSource",
    doc: "An env var source.",
    atomic: false,
    fields: &[
        field("fieldRef", Type::Struct(&OBJECT_FIELD_SELECTOR), 1, Pointer, "The field ref."),
        field("resourceFieldRef", Type::Struct(&RESOURCE_FIELD_SELECTOR), 2, Pointer, "The resource field ref."),
        field("configMapKeyRef", Type::Struct(&CONFIG_MAP_KEY_SELECTOR), 3, Pointer, "The config map key ref."),
        field("secretKeyRef", Type::Struct(&SECRET_KEY_SELECTOR), 4, Pointer, "The secret key ref."),
        field("fileKeyRef", Type::Struct(&FILE_KEY_SELECTOR), 5, Pointer, "The file key ref."),
    ],
};

pub static EPHEMERAL_CONTAINER: Struct = Struct {
    name: "io.k8s.api.core.v1.EphemeralContainer",
    doc: "An ephemeral container.",
    atomic: false,
    fields: &[
        field("name", String, inside(1, 1), Always, "Its name."),
        field("image", String, inside(1, 2), OmitZero, "The image."),
        field("command", list!(String), inside(1, 3), OmitZero, "The command and its arguments."),
        field("args", list!(String), inside(1, 4), OmitZero, "Arguments of the command."),
        field("workingDir", String, inside(1, 5), OmitZero, "The directory to start in."),
        field(
            "ports",
            list!(Type::Struct(&CONTAINER_PORT), Map(&["containerPort", "protocol"]), MergeBy("containerPort")),
            inside(1, 6),
            OmitZero,
            "Ports the container listens on.",
        ),
        field(
            "envFrom",
            list!(Type::Struct(&ENV_FROM_SOURCE)),
            inside(1, 19),
            OmitZero,
            "Sources of many environment variables.",
        ),
        field(
            "env",
            list!(Type::Struct(&ENV_VAR), Map(&["name"]), MergeBy("name")),
            inside(1, 7),
            OmitZero,
            "Environment variables.",
        ),
        field("resources", Type::Struct(&RESOURCE_REQUIREMENTS), inside(1, 8), Always, "The resources."),
        field(
            "resizePolicy",
            list!(Type::Struct(&CONTAINER_RESIZE_POLICY)),
            inside(1, 23),
            OmitZero,
            "The resize policy.",
        ),
        field("restartPolicy", String, inside(1, 24), Pointer, "When containers are restarted."),
        field(
            "restartPolicyRules",
            list!(Type::Struct(&CONTAINER_RESTART_RULE)),
            inside(1, 25),
            OmitZero,
            "The restart policy rules.",
        ),
        field(
            "volumeMounts",
            list!(Type::Struct(&VOLUME_MOUNT), Map(&["mountPath"]), MergeBy("mountPath")),
            inside(1, 9),
            OmitZero,
            "Volumes to mount as directories.",
        ),
        field(
            "volumeDevices",
            list!(Type::Struct(&VOLUME_DEVICE), Map(&["devicePath"]), MergeBy("devicePath")),
            inside(1, 21),
            OmitZero,
            "Volumes to show as raw devices.",
        ),
        field("livenessProbe", Type::Struct(&PROBE), inside(1, 10), Pointer, "Tells when to restart the container."),
        field("readinessProbe", Type::Struct(&PROBE), inside(1, 11), Pointer, "Tells when the container can serve."),
        field("startupProbe", Type::Struct(&PROBE), inside(1, 22), Pointer, "Tells when the container has started."),
        field("lifecycle", Type::Struct(&LIFECYCLE), inside(1, 12), Pointer, "What to do after start and before stop."),
        field("terminationMessagePath", String, inside(1, 13), OmitZero, "The termination message path."),
        field("terminationMessagePolicy", String, inside(1, 20), OmitZero, "The termination message policy."),
        field("imagePullPolicy", String, inside(1, 14), OmitZero, "When the image is pulled."),
        field("securityContext", Type::Struct(&SECURITY_CONTEXT), inside(1, 15), Pointer, "Users, groups and rights."),
        field("stdin", Bool, inside(1, 16), OmitZero, "Whether the container has a standard input."),
        field("stdinOnce", Bool, inside(1, 17), OmitZero, "Whether the input closes after the first session."),
        field("tty", Bool, inside(1, 18), OmitZero, "Whether the container has a terminal."),
        field("targetContainerName", String, 2, OmitZero, "The target container name."),
    ],
};

pub static EXEC_ACTION: Struct = Struct {
    name: "io.k8s.api.core.v1.ExecAction",
    doc: "An exec action.",
    atomic: false,
    fields: &[field("command", list!(String), 1, OmitZero, "The command and its arguments.")],
};

pub static FILE_KEY_SELECTOR: Struct = Struct {
    name: "io.k8s.api.core.v1.FileKeySelector",
    doc: "A file key selector.",
    atomic: true,
    fields: &[
        field("volumeName", String, 1, Always, "Name of the volume."),
        field("path", String, 2, Always, "The path."),
        field("key", String, 3, Always, "The key."),
        field("optional", Bool, 4, Pointer, "Whether it may be missing."),
    ],
};

pub static GRPC_ACTION: Struct = Struct {
    name: "io.k8s.api.core.v1.GRPCAction",
    doc: "A gRPC action.",
    atomic: false,
    fields: &[field("port", Int32, 1, Always, "The port."), field("service", String, 2, PointerOrNull, "The service.")],
};

pub static HTTP_GET_ACTION: Struct = Struct {
    name: "io.k8s.api.core.v1.HTTPGetAction",
    doc: "A HTTP get action.",
    atomic: false,
    fields: &[
        field("path", String, 1, OmitZero, "The path."),
        field("port", IntOrString, 2, Always, "The port."),
        field("host", String, 3, OmitZero, "The host."),
        field("scheme", String, 4, OmitZero, "The scheme."),
        field("httpHeaders", list!(Type::Struct(&HTTP_HEADER)), 5, OmitZero, "The HTTP headers."),
    ],
};

pub static HTTP_HEADER: Struct = Struct {
    name: "io.k8s.api.core.v1.HTTPHeader",
    doc: "A HTTP header.",
    atomic: false,
    fields: &[field("name", String, 1, Always, "Its name."), field("value", String, 2, Always, "The value.")],
};

pub static IMAGE_VOLUME_STATUS: Struct = Struct {
    name: "io.k8s.api.core.v1.ImageVolumeStatus",
    doc: "The observed state: image volume.",
    atomic: false,
    fields: &[field("imageRef", String, 1, OmitZero, "The image ref.")],
};

pub static LIFECYCLE: Struct = Struct {
    name: "io.k8s.api.core.v1.Lifecycle",
    doc: "A lifecycle.",
    atomic: false,
    fields: &[
        field("postStart", Type::Struct(&LIFECYCLE_HANDLER), 1, Pointer, "The post start."),
        field("preStop", Type::Struct(&LIFECYCLE_HANDLER), 2, Pointer, "The pre stop."),
        field("stopSignal", String, 3, Pointer, "The stop signal."),
    ],
};

pub static LIFECYCLE_HANDLER: Struct = Struct {
    name: "io.k8s.api.core.v1.LifecycleHandler",
    doc: "A lifecycle handler.",
    atomic: false,
    fields: &[
        field("exec", Type::Struct(&EXEC_ACTION), 1, Pointer, "The exec."),
        field("httpGet", Type::Struct(&HTTP_GET_ACTION), 2, Pointer, "The HTTP get."),
        field("tcpSocket", Type::Struct(&TCP_SOCKET_ACTION), 3, Pointer, "The TCP socket."),
        field("sleep", Type::Struct(&SLEEP_ACTION), 4, Pointer, "The sleep."),
    ],
};

pub static LINUX_CONTAINER_USER: Struct = Struct {
    name: "io.k8s.api.core.v1.LinuxContainerUser",
    doc: "A linux container user.",
    atomic: false,
    fields: &[
        field("uid", Int64, 1, Always, "The unique id."),
        field("gid", Int64, 2, Always, "The group id."),
        field("supplementalGroups", list!(Int64), 3, OmitZero, "The supplemental groups."),
    ],
};

pub static OBJECT_FIELD_SELECTOR: Struct = Struct {
    name: "io.k8s.api.core.v1.ObjectFieldSelector",
    doc: "An object field selector.",
    atomic: true,
    fields: &[
        field("apiVersion", String, 1, OmitZero, "Group and version this object is written in."),
        field("fieldPath", String, 2, Always, "Which part of the object."),
    ],
};

pub static PROBE: Struct = Struct {
    name: "io.k8s.api.core.v1.Probe",
    doc: "A probe.",
    atomic: false,
    fields: &[
        field("exec", Type::Struct(&EXEC_ACTION), inside(1, 1), Pointer, "The exec."),
        field("httpGet", Type::Struct(&HTTP_GET_ACTION), inside(1, 2), Pointer, "The HTTP get."),
        field("tcpSocket", Type::Struct(&TCP_SOCKET_ACTION), inside(1, 3), Pointer, "The TCP socket."),
        field("grpc", Type::Struct(&GRPC_ACTION), inside(1, 4), Pointer, "The gRPC."),
        field("initialDelaySeconds", Int32, 2, OmitZero, "Wait before the first probe."),
        field("timeoutSeconds", Int32, 3, OmitZero, "How long a probe may take."),
        field("periodSeconds", Int32, 4, OmitZero, "Time between probes."),
        field("successThreshold", Int32, 5, OmitZero, "Successes needed after a failure."),
        field("failureThreshold", Int32, 6, OmitZero, "Failures needed to give up."),
        field("terminationGracePeriodSeconds", Int64, 7, Pointer, "How long it may take to end."),
    ],
};

pub static RESOURCE_CLAIM: Struct = Struct {
    name: "io.k8s.api.core.v1.ResourceClaim",
    doc: "A resource claim.",
    atomic: false,
    fields: &[field("name", String, 1, Always, "Its name."), field("request", String, 2, OmitZero, "The request.")],
};

pub static RESOURCE_FIELD_SELECTOR: Struct = Struct {
    name: "io.k8s.api.core.v1.ResourceFieldSelector",
    doc: "A resource field selector.",
    atomic: true,
    fields: &[
        field("containerName", String, 1, OmitZero, "The container name."),
        field("resource", String, 2, Always, "The resource."),
        field("divisor", Quantity, 3, Always, "The divisor."),
    ],
};

pub static RESOURCE_HEALTH: Struct = Struct {
    name: "io.k8s.api.core.v1.ResourceHealth",
    doc: "A resource health.",
    atomic: false,
    fields: &[
        field("resourceID", String, 1, Always, "The resource id."),
        field("health", String, 2, OmitZero, "The health."),
        field("message", String, 6, Pointer, "Why, for people."),
    ],
};

pub static RESOURCE_REQUIREMENTS: Struct = Struct {
    name: "io.k8s.api.core.v1.ResourceRequirements",
    doc: "The resource requirements.",
    atomic: false,
    fields: &[
        field("limits", Map(&Quantity), 1, OmitZero, "The most that may be used."),
        field("requests", Map(&Quantity), 2, OmitZero, "The least that is needed."),
        field("claims", list!(Type::Struct(&RESOURCE_CLAIM), Map(&["name"]), Replace), 3, OmitZero, "The claims."),
    ],
};

pub static RESOURCE_STATUS: Struct = Struct {
    name: "io.k8s.api.core.v1.ResourceStatus",
    doc: "The observed state: resource.",
    atomic: false,
    fields: &[
        field("name", String, 1, Always, "Its name."),
        field(
            "resources",
            list!(Type::Struct(&RESOURCE_HEALTH), Map(&["resourceID"]), Replace),
            2,
            OmitZero,
            "The resources.",
        ),
    ],
};

pub static SE_LINUX_OPTIONS: Struct = Struct {
    name: "io.k8s.api.core.v1.SELinuxOptions",
    doc: "The se linux options.",
    atomic: false,
    fields: &[
        field("user", String, 1, OmitZero, "The user name."),
        field("role", String, 2, OmitZero, "The role."),
        field("type", String, 3, OmitZero, "Which sort it is."),
        field("level", String, 4, OmitZero, "The level."),
    ],
};

pub static SECCOMP_PROFILE: Struct = Struct {
    name: "io.k8s.api.core.v1.SeccompProfile",
    doc: "A seccomp profile.",
    atomic: false,
    fields: &[
        field("type", String, 1, Always, "Which sort it is."),
        field("localhostProfile", String, 2, Pointer, "The localhost profile."),
    ],
};

pub static SECRET_ENV_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.SecretEnvSource",
    doc: "A secret env source.",
    atomic: false,
    fields: &[
        field("name", String, inside(1, 1), OmitZero, "Its name."),
        field("optional", Bool, 2, Pointer, "Whether it may be missing."),
    ],
};

pub static SECRET_KEY_SELECTOR: Struct = Struct {
    name: "io.k8s.api.core.v1.SecretKeySelector",
    doc: "A secret key selector.",
    atomic: true,
    fields: &[
        field("name", String, inside(1, 1), OmitZero, "Its name."),
        field("key", String, 2, Always, "The key."),
        field("optional", Bool, 3, Pointer, "Whether it may be missing."),
    ],
};

pub static SECURITY_CONTEXT: Struct = Struct {
    name: "io.k8s.api.core.v1.SecurityContext",
    doc: "A security context.",
    atomic: false,
    fields: &[
        field("capabilities", Type::Struct(&CAPABILITIES), 1, Pointer, "The capabilities."),
        field("privileged", Bool, 2, Pointer, "Whether the container may do what root on the node may."),
        field("seLinuxOptions", Type::Struct(&SE_LINUX_OPTIONS), 3, Pointer, "The se linux options."),
        field("windowsOptions", Type::Struct(&WINDOWS_SECURITY_CONTEXT_OPTIONS), 10, Pointer, "The windows options."),
        field("runAsUser", Int64, 4, Pointer, "The user id to run as."),
        field("runAsGroup", Int64, 8, Pointer, "The group id to run as."),
        field("runAsNonRoot", Bool, 5, Pointer, "Whether running as root is refused."),
        field("readOnlyRootFilesystem", Bool, 6, Pointer, "Whether the root filesystem is read-only."),
        field("allowPrivilegeEscalation", Bool, 7, Pointer, "Whether a process may gain more rights than its parent."),
        field("procMount", String, 9, Pointer, "The proc mount."),
        field("seccompProfile", Type::Struct(&SECCOMP_PROFILE), 11, Pointer, "The seccomp profile."),
        field("appArmorProfile", Type::Struct(&APP_ARMOR_PROFILE), 12, Pointer, "The app armor profile."),
    ],
};

pub static SLEEP_ACTION: Struct = Struct {
    name: "io.k8s.api.core.v1.SleepAction",
    doc: "A sleep action.",
    atomic: false,
    fields: &[field("seconds", Int64, 1, Always, "How long, in seconds.")],
};

pub static TCP_SOCKET_ACTION: Struct = Struct {
    name: "io.k8s.api.core.v1.TCPSocketAction",
    doc: "A TCP socket action.",
    atomic: false,
    fields: &[field("port", IntOrString, 1, Always, "The port."), field("host", String, 2, OmitZero, "The host.")],
};

pub static VOLUME_DEVICE: Struct = Struct {
    name: "io.k8s.api.core.v1.VolumeDevice",
    doc: "A volume device.",
    atomic: false,
    fields: &[
        field("name", String, 1, Always, "Its name."),
        field("devicePath", String, 2, Always, "Where the device shows."),
    ],
};

pub static VOLUME_MOUNT: Struct = Struct {
    name: "io.k8s.api.core.v1.VolumeMount",
    doc: "A volume mount.",
    atomic: false,
    fields: &[
        field("name", String, 1, Always, "Its name."),
        field("readOnly", Bool, 2, OmitZero, "Whether writing is forbidden."),
        field("recursiveReadOnly", String, 7, Pointer, "The recursive read only."),
        field("mountPath", String, 3, Always, "Where in the container it is mounted."),
        field("subPath", String, 4, OmitZero, "Which directory of the volume is mounted."),
        field("mountPropagation", String, 5, Pointer, "Whether mounts are passed on."),
        field("subPathExpr", String, 6, OmitZero, "The sub path expr."),
    ],
};

pub static VOLUME_MOUNT_STATUS: Struct = Struct {
    name: "io.k8s.api.core.v1.VolumeMountStatus",
    doc: "The observed state: volume mount.",
    atomic: false,
    fields: &[
        field("name", String, 1, Always, "Its name."),
        field("mountPath", String, 2, Always, "Where in the container it is mounted."),
        field("readOnly", Bool, 3, OmitZero, "Whether writing is forbidden."),
        field("recursiveReadOnly", String, 4, Pointer, "The recursive read only."),
        field("volumeStatus", Type::Struct(&VOLUME_STATUS), 5, Pointer, "The volume status."),
    ],
};

pub static VOLUME_STATUS: Struct = Struct {
    name: "io.k8s.api.core.v1.VolumeStatus",
    doc: "The observed state: volume.",
    atomic: false,
    fields: &[field("image", Type::Struct(&IMAGE_VOLUME_STATUS), 1, Pointer, "The image.")],
};

pub static WINDOWS_SECURITY_CONTEXT_OPTIONS: Struct = Struct {
    name: "io.k8s.api.core.v1.WindowsSecurityContextOptions",
    doc: "The windows security context options.",
    atomic: false,
    fields: &[
        field("gmsaCredentialSpecName", String, 1, Pointer, "The GMSA credential spec name."),
        field("gmsaCredentialSpec", String, 2, Pointer, "The GMSA credential spec."),
        field("runAsUserName", String, 3, Pointer, "The run as user name."),
        field("hostProcess", Bool, 4, Pointer, "Whether it runs as a process of the node."),
    ],
};
