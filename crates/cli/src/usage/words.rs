//! Words that people bring from elsewhere, and what they are called here.

/// Commands that do not exist, and what does what they are expected to do.
const COMMANDS: [(&[&str], &str); 16] = [
    (
        &["start", "run", "serve", "server", "init", "install", "launch"],
        "'orlop up --data DIR' starts everything and makes what it needs; 'orlop demo' shows it and leaves nothing",
    ),
    (&["stop", "down", "shutdown"], "'orlop up' ends with Ctrl-C or SIGTERM; volumes and mounts stay"),
    (
        &["status", "get", "list", "ls", "show", "ps"],
        "'orlop tree' shows claims, volumes, attachments and mounts; single objects are kubectl's: kubectl get pvc,pv",
    ),
    (
        &["describe", "why", "inspect", "debug", "doctor", "diagnose"],
        "'orlop explain pvc/NAME' says why a claim is where it is; also pv/NAME and pod/NAME",
    ),
    (
        &["apply", "create", "delete", "edit", "patch", "replace"],
        "objects are made and changed with kubectl: KUBECONFIG=DIR/kubeconfig kubectl apply -f FILE",
    ),
    (&["version"], "'orlop --version' prints it"),
    (&["logs", "log"], "every command logs to its standard error; --log-level debug says more"),
    (&["unmount"], "'orlop umount PATH' unmounts what 'orlop mount' mounted"),
    (
        &[
            "provisioner",
            "attacher",
            "csi-provisioner",
            "csi-attacher",
            "external-provisioner",
            "external-attacher",
            "sidecars",
        ],
        "'orlop sidecar --csi-address SOCKET' does what csi-provisioner and csi-attacher do",
    ),
    (&["node-driver-registrar", "register"], "'orlop registrar --csi-address SOCKET' does what it does"),
    (
        &["controller", "controller-manager", "kube-controller-manager"],
        "'orlop controllers' runs the volume controllers of kube-controller-manager",
    ),
    (&["kubelet", "agent", "join"], "'orlop node' brings volumes to the pods of this machine"),
    (&["dashboard", "ui", "web", "gui"], "'orlop page' serves a live page about any cluster"),
    (
        &["apiserver", "kube-apiserver", "etcd"],
        "'orlop api --data DIR' serves the Kubernetes API, and keeps its objects",
    ),
    (&["metrics", "usage", "df", "du"], "'orlop top' shows how full volumes are"),
    (&["snapshot", "volume", "pool"], "'orlop csi' calls a driver: 'orlop csi snapshot create', 'orlop csi list'"),
];

/// The same below `orlop csi`.
const CALLS: [(&[&str], &str); 5] = [
    (&["ls", "volumes"], "'orlop csi list' lists the volumes"),
    (&["rm", "remove"], "'orlop csi delete ID' deletes a volume"),
    (&["mount", "bind"], "'orlop csi stage ID --staging DIR', then 'orlop csi publish ID --target DIR'"),
    (&["umount", "unmount"], "'orlop csi unpublish ID --target DIR', then 'orlop csi unstage ID --staging DIR'"),
    (&["resize", "grow"], "'orlop csi expand ID --size SIZE' makes a volume larger"),
];

/// The same below `orlop config`.
const CONFIG: [(&[&str], &str); 2] = [
    (&["validate", "lint", "test", "verify"], "'orlop config check FILE' tells every problem of a file"),
    (
        &["print", "view", "dump", "init", "get", "defaults"],
        "'orlop config show' prints all settings with their defaults",
    ),
];

/// A flag of another program: the commands where it is expected (none: everywhere), what was typed, the flag that has to
/// exist for the tip to be true, and the tip.
type Foreign = (&'static [&'static str], &'static [&'static str], &'static str, &'static str);

const FLAGS: [Foreign; 19] = [
    (
        &["api"],
        &["--kubeconfig"],
        "write-kubeconfig",
        "it serves a cluster; --write-kubeconfig FILE makes a file that leads to it",
    ),
    (&["demo"], &["--data"], "keep", "it works in a temporary directory; 'orlop up --data DIR' is the same, to stay"),
    (
        &["tree", "top"],
        &["-w", "--watch", "--follow"],
        "output",
        "'orlop page' shows it live; here, watch -n 1 orlop tree",
    ),
    (&["tree", "top"], &["-l", "--selector"], "output", "labels are not looked at; 'orlop tree CLAIM' shows one claim"),
    (
        &["explain"],
        &["-f", "--filename"],
        "output",
        "what is explained is in the cluster already: pvc/NAME, pv/NAME or pod/NAME",
    ),
    (&["create"], &["--name"], "size", "the name needs no flag: 'orlop csi create NAME'"),
    (&["mount"], &["-n", "--namespace"], "read-only", "the namespace is part of the claim: NAMESPACE/NAME"),
    (&["mount"], &["-o", "--ro", "--readonly"], "read-only", "options are flags here, such as --read-only"),
    (&["mount"], &["-t", "--type"], "read-only", "it needs no type: orlop mount CLAIM PATH"),
    (
        &["umount"],
        &["-f", "--force", "-l", "--lazy"],
        "node-name",
        "a path in use stays mounted; `fuser -vm PATH` says who uses it",
    ),
    (
        &[],
        &["--master", "--server", "--apiserver"],
        "kubeconfig",
        "the API server is named in a kubeconfig: --kubeconfig FILE",
    ),
    (&[], &["--provisioner"], "csi-address", "the driver says its name itself: --csi-address SOCKET is enough"),
    (&[], &["--verbose", "--debug", "-v", "--v"], "log-level", "--log-level debug says more"),
    (
        &[],
        &["--verbose", "--debug", "-v", "--v"],
        "help",
        "commands that run on take --log-level debug, behind their name",
    ),
    (&[], &["--port", "-p"], "listen", "the port is part of --listen: --listen 127.0.0.1:PORT"),
    (&[], &["--data-dir", "--datadir", "--dir", "--state", "-d"], "data", "the directory is given with --data DIR"),
    (&[], &["--json"], "output", "-o json prints it as JSON"),
    (&[], &["--endpoint"], "csi-address", "the driver's socket is given with --csi-address SOCKET"),
    (&[], &["--csi-address", "--socket"], "endpoint", "the driver's socket is given with --endpoint unix:///PATH"),
];

/// Kubernetes' access modes in the words of CSI.
const MODES: &str = "in Kubernetes' words: ReadWriteOnce is snw, ReadWriteOncePod is snsw, ReadOnlyMany is mnr, \
                     ReadWriteMany is mnmw";

/// Values of `--parts` that are none.
const PARTS: [(&[&str], &str); 2] = [
    (&["all", "*"], "leave --parts out: everything that suits the cluster runs"),
    (
        &["-controllers", "-scheduler", "-sidecars", "-node", "-page"],
        "name those that are to run; what is not named does not: --parts controllers,scheduler",
    ),
];

/// What to type instead of a command that `below` (`orlop`, or one with commands of its own) does not have.
pub(super) fn command(below: &str, word: &str) -> Option<&'static str> {
    let table: &[(&[&str], &str)] = match below {
        "csi" => &CALLS,
        "config" => &CONFIG,
        "orlop" => &COMMANDS,
        _ => &[],
    };
    table.iter().find(|(words, _)| words.contains(&word)).map(|(_, tip)| *tip)
}

/// What to type instead of a flag of `command`, if that `has` what the tip speaks of.
pub(super) fn flag(command: &str, word: &str, has: impl Fn(&str) -> bool) -> Option<&'static str> {
    let word = word.split_once('=').map_or(word, |(word, _)| word);
    let here = |commands: &[&str]| commands.is_empty() || commands.contains(&command);
    let found = FLAGS.iter().find(|(commands, words, needs, _)| here(commands) && words.contains(&word) && has(needs));
    found.map(|(_, _, _, tip)| *tip)
}

/// What a value of one flag is called here.
pub(super) fn value(argument: &str, value: &str) -> Option<&'static str> {
    if argument.starts_with("--parts ") {
        return PARTS.iter().find(|(words, _)| words.contains(&value)).map(|(_, tip)| *tip);
    }
    let kubernetes =
        ["rwo", "rwop", "rox", "rwx", "readwriteonce", "readwriteoncepod", "readonlymany", "readwritemany"];
    (argument.starts_with("--mode ") && kubernetes.contains(&value.to_lowercase().as_str())).then_some(MODES)
}

/// All tips, for the test that types them.
#[cfg(test)]
pub(super) fn tips() -> impl Iterator<Item = &'static str> {
    let commands = COMMANDS.iter().chain(&CALLS).chain(&CONFIG).map(|(_, tip)| *tip);
    commands.chain(FLAGS.iter().map(|(_, _, _, tip)| *tip))
}
