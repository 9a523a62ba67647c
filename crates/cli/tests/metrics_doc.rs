//! docs/metrics.md is true: every name that a program shows is there with its type and labels, and none that no program
//! shows.

mod api_rig;
mod stack_rig;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use api_rig::{ask, client};
use serde_json::{Value, json};
use stack_rig::{Up, is_root};

/// What is said or shown of one name.
#[derive(Debug, Default, PartialEq, Eq)]
struct Family {
    kind: String,
    labels: BTreeSet<String>,
}

type Families = BTreeMap<String, Family>;

/// The rows of the page.
fn documented() -> Families {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let word = |cell: &str| cell.trim().trim_matches('`').to_owned();
    let mut found = Families::new();
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        if let [name, kind, labels, _, whose] = cells[..] {
            let labels = labels.split(',').map(word).filter(|label| !label.is_empty()).collect();
            assert!(whose.trim().starts_with("up (") || whose.trim().starts_with("ours"), "whose is it? {line}");
            let twice = found.insert(word(name), Family { kind: word(kind), labels });
            assert!(twice.is_none(), "{line} is there twice");
        }
    }
    assert!(found.len() > 50, "{found:?}");
    found
}

/// What a scraped text shows. OpenMetrics declares a counter without the end of its name.
fn shown(text: &str) -> Families {
    let mut found = Families::new();
    for line in text.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            let (name, kind) = declared.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            let name = match kind {
                "counter" if !name.ends_with("_total") => format!("{name}_total"),
                _ => name.to_owned(),
            };
            found.entry(name).or_default().kind = kind.to_owned();
        }
    }
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, labels)) = line.split_once('{') else { continue };
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let name = base.filter(|base| found.contains_key(*base)).unwrap_or(name);
        let family = found.get_mut(name).unwrap_or_else(|| panic!("{line} has no type"));
        family.labels.extend(labels_of(labels).into_iter().filter(|label| label != "le"));
    }
    found
}

/// The names in `a="x",b="y"} 1`; a value may hold anything.
fn labels_of(mut text: &str) -> Vec<String> {
    let mut names = Vec::new();
    while let Some((name, rest)) = text.split_once("=\"") {
        names.push(name.trim_start_matches(',').to_owned());
        let end = rest.char_indices().scan(false, |escaped, (at, char)| {
            let ends = char == '"' && !*escaped;
            *escaped = char == '\\' && !*escaped;
            Some(ends.then_some(at))
        });
        let end = end.flatten().next().unwrap_or_else(|| panic!("{text} has no end"));
        text = &rest[end + 1..];
        if text.starts_with('}') {
            break;
        }
    }
    names
}

/// A program that answers plain HTTP. Dropping it kills it.
struct Program(Child, String);

impl Program {
    fn start(args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
        let mut child = command.args(args).stderr(Stdio::piped()).spawn().expect("the binary was just built");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines().map_while(Result::ok);
        let mut heard = String::new();
        let address = lines.by_ref().find_map(|line| {
            heard += &format!("{line}\n");
            let (said, rest) = line.split_once("=127.0.0.1:")?;
            said.contains("answering").then(|| format!("127.0.0.1:{}", rest.split(' ').next().unwrap_or_default()))
        });
        std::thread::spawn(move || lines.for_each(drop));
        let Some(address) = address else { panic!("{args:?} never answered: {heard}") };
        Self(child, address)
    }

    fn metrics(&self) -> String {
        let mut stream = std::net::TcpStream::connect(&self.1).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket has timeouts");
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.1);
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        body.lines().filter(|line| !line.is_empty()).map(|line| format!("{}\n", line.trim_end())).collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the whole stack shows once it has bound a claim, so that there are labels to compare.
async fn of_up(place: &Path) -> String {
    let data = place.join("up");
    let mut up = Up::start(&data, &[]);
    let address = up.address().await;
    let client = client(&up.kubeconfig(), &address).await;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}}});
    let (code, made) = ask(&client, ("POST", claims), Some(&claim)).await.expect("it answers");
    assert_eq!(code, 201, "{made}");
    let bound = async {
        let path = format!("{claims}/data");
        let is_bound = |claim: &Value| claim["status"]["phase"] == "Bound";
        while !is_bound(&ask(&client, ("GET", &path), None).await.expect("it answers").1) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), bound).await.expect("the claim is bound");
    let request = http::Request::get("/metrics").body(Vec::new()).expect("a request");
    client.request_text(request).await.expect("it answers")
}

fn check(who: &str, text: &str, rows: &Families, seen: &mut BTreeSet<String>, wrong: &mut Vec<String>) {
    for (name, family) in shown(text) {
        match rows.get(&name) {
            None => wrong.push(format!("{who} shows {name} ({}), which is not in docs/metrics.md", family.kind)),
            Some(row) if row.kind != family.kind => {
                wrong.push(format!("{name} of {who} is a {}, docs/metrics.md says {}", family.kind, row.kind));
            }
            Some(row) if !family.labels.is_subset(&row.labels) => {
                wrong.push(format!("{name} of {who} has labels {:?}, docs/metrics.md {:?}", family.labels, row.labels));
            }
            Some(_) => {}
        }
        seen.insert(name);
    }
}

#[tokio::test]
async fn every_metric_is_documented_and_every_documented_metric_exists() {
    let place = tempfile::tempdir().expect("a directory can be made");
    let rows = documented();
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    let text = of_up(place.path()).await;
    check("orlop up", &text, &rows, &mut seen, &mut wrong);
    // One process answers for all of its parts, the local driver as well, in one text.
    assert!(text.contains("csi_plugin_operations_seconds_count{") && !text.contains("# EOF"), "{text}");

    let data = place.path().join("api");
    let mut api = api_rig::Server::spawn(&data);
    api.address().await;
    let kubeconfig = data.with_extension("kubeconfig").display().to_string();
    let socket = format!("unix://{}", place.path().join("csi.sock").display());
    let pool = place.path().join("pool").display().to_string();
    let driver =
        ["driver", "--node-id", "n", "--pool", &pool, "--endpoint", &socket, "--metrics-address", "127.0.0.1:0"];
    let driver = Program::start(&driver);
    let endpoint = ["--http-endpoint", "127.0.0.1:0"];
    let controllers = Program::start(&[&["controllers", "--kubeconfig", &kubeconfig], &endpoint[..]].concat());
    let sidecar = ["sidecar", "--kubeconfig", &kubeconfig, "--csi-address", &socket, "--feature-gates=Topology=false"];
    let sidecar = Program::start(&[&sidecar[..], &endpoint[..]].concat());
    let probe = Program::start(&[&["livenessprobe", "--csi-address", &socket], &endpoint[..]].concat());
    // The driver counts by call: one that works on something, and what the sidecar asked.
    let output = Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(["csi", "--endpoint", &socket, "list"])
        .output()
        .expect("the binary was just built");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for (who, program) in
        [("driver", &driver), ("controllers", &controllers), ("sidecar", &sidecar), ("livenessprobe", &probe)]
    {
        check(&format!("orlop {who}"), &program.metrics(), &rows, &mut seen, &mut wrong);
    }

    if is_root() {
        let missing = rows.keys().filter(|name| !seen.contains(*name));
        wrong.extend(missing.map(|name| format!("{name} is in docs/metrics.md, and no program shows it")));
    } else {
        println!("skipped: without root no agent runs, so that some documented names are not shown");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn labels_are_told_apart_whatever_their_values_hold() {
    let text = r#"a="x=\"y\",b=",code="<error>"} 1"#;
    assert_eq!(labels_of(text), ["a", "code"]);
}
