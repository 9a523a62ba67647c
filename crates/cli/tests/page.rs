//! The live page: who gets in, and what a real browser shows of a claim on its way.
//!
//! `ORLOP_SCREENSHOT=1` writes README's picture, `docs/page.png`; with a directory instead of 1, all pictures go there.

mod api_rig;
#[path = "page/browser.rs"]
mod browser;
#[path = "registration/program.rs"]
#[allow(dead_code, reason = "the tests of registration use the rest")]
mod program;
mod rig;
#[path = "page/stage.rs"]
mod stage;

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use api_rig::ask;
use browser::Browser;
use program::Program;
use rig::{Scratch, skip};
use serde_json::json;
use stage::{CLASSES, Stage, claim, claims, class, get, namespace, pod, pods};
use tokio::io::AsyncReadExt as _;

#[tokio::test]
async fn only_who_has_the_token_gets_in_and_only_under_this_name() {
    let stage = Stage::set().await;
    let url = stage.url();
    let (address, token) = url.strip_prefix("http://").and_then(|rest| rest.split_once("/?token=")).expect("a URL");
    for file in ["page-url", "page-token"] {
        let mode = std::fs::metadata(stage.file(file)).expect("it was written").mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    assert!(!stage.up.log().contains(token), "no log shows the token:\n{}", stage.up.log());

    for path in ["/", "/events", "/?token=wrong", "/nothing"] {
        let reply = get(address, path, &[]).await;
        assert_eq!(reply.code, 401, "{path}");
        assert!(reply.body.contains(stage.file("page-token").to_str().expect("a path of ours")), "{}", reply.body);
        assert!(!reply.body.contains(token), "{path}");
    }
    let stolen = get(address, &format!("/?token={token}"), &[("Host", "evil.example")]).await;
    assert_eq!(stolen.code, 421, "a name that was pointed here is not answered");

    let opened = get(address, &format!("/?token={token}"), &[]).await;
    let cookie = opened.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie is set");
    assert_eq!(opened.code, 303);
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && !cookie.contains(token), "{cookie}");
    let page = get(address, "/", &[("Cookie", cookie.split(';').next().expect("a value"))]).await;
    assert_eq!(page.code, 200);
    assert!(page.head.contains("content-security-policy: default-src 'self'"), "{}", page.head);
    assert!(page.head.contains("cross-origin-resource-policy: same-origin"), "{}", page.head);
    assert!(!page.body.contains("style=") && !page.body.contains("<script>"), "nothing is inline");
    let bearer = get(address, "/", &[("Authorization", &format!("Bearer {token}"))]).await;
    assert_eq!(bearer.code, 200);
}

#[tokio::test]
async fn connections_that_send_nothing_keep_nobody_from_the_page() {
    let stage = Stage::set().await;
    let url = stage.url();
    let (address, token) = url.strip_prefix("http://").and_then(|rest| rest.split_once("/?token=")).expect("a URL");
    let mut idle = Vec::new();
    for _ in 0..400 {
        idle.push(tokio::net::TcpStream::connect(address).await.expect("it listens"));
    }
    let bearer = format!("Bearer {token}");
    let page = get(address, "/", &[("Authorization", &bearer)]).await;
    assert_eq!(page.code, 200, "idle connections make room");
    assert_eq!(idle[0].read(&mut [0]).await.unwrap_or(0), 0, "the oldest one was closed");
}

#[test]
fn an_address_that_others_reach_is_refused_and_off_is_understood() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let data = directory.path().join("data");
    for words in [vec!["up", "--page", "0.0.0.0:0", "--data"], vec!["page", "--listen", "192.0.2.1:80", "--token-file"]]
    {
        let output = Command::new(env!("CARGO_BIN_EXE_orlop")).args(&words).arg(&data).output().expect("it was built");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("only loopback addresses are served"), "{said}");
        assert!(!data.exists());
    }
}

#[tokio::test]
async fn a_stack_without_a_page_has_none() {
    let scratch = Scratch::new();
    let data = scratch.path("data");
    let words = ["up", "--page", "off", "--listen", "127.0.0.1:0", "--data", data.to_str().expect("a path of ours")];
    let mut up = Program::orlop(&words);
    up.says("ready address=127.0.0.1:", 1).await;
    assert!(!data.join("page-url").exists() && !data.join("page-token").exists());
}

#[test]
fn the_help_of_page_reads_as_agreed() {
    let output = Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(["page", "--help"])
        .env("COLUMNS", "100")
        .output()
        .expect("the binary was just built");
    let got = String::from_utf8_lossy(&output.stdout).into_owned();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/page_help.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&file, &got).expect("the golden file can be written");
    }
    let want = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(got == want, "help differs from {}; to accept it, set UPDATE_GOLDEN=1. Now:\n{got}", file.display());
}

/// Keys as WebDriver writes them.
const DOWN: &str = "\u{e015}";
const END: &str = "\u{e010}";
const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";

/// A station of a claim's way, and what it says.
fn says(claim: &str, kind: &str, state: &str) -> String {
    format!("document.querySelector('li[data-id=\"claim/{claim}\"] .station.{kind} .is').textContent === '{state}'")
}

/// Where the pictures go, if they are wanted.
fn pictures() -> Option<PathBuf> {
    match std::env::var("ORLOP_SCREENSHOT").ok()?.as_str() {
        "1" => Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")),
        directory => Some(PathBuf::from(directory)),
    }
}

#[tokio::test]
async fn a_claim_goes_its_way_before_the_eyes_of_a_browser() {
    if let Some(why) = browser::missing() {
        return skip("page", &why);
    }
    let stage = Stage::set().await;
    let browser = Browser::start().await;
    browser.size(1280, 940, 1.0).await;
    browser.open(&stage.url()).await;
    browser.until("document.getElementById('live').dataset.state === 'live'").await;
    assert!(!browser.url().await.contains("token"), "the token leaves the address");
    let paint =
        "return performance.getEntriesByType('paint').find((one) => one.name === 'first-contentful-paint').startTime";
    println!("first contentful paint: {} ms", browser.eval(paint).await);
    // Whoever reloads the page loses this.
    browser.eval("window.untouched = true").await;

    bound_and_mounted(&stage, &browser).await;
    told_why(&stage, &browser).await;
    keys(&browser).await;
    others(&stage, &browser).await;
    looks(&browser).await;

    stage.delete(&format!("{}/forgotten", claims("shop"))).await;
    browser.until("!document.querySelector('li[data-id=\"claim/shop/forgotten\"]')").await;
    assert_eq!(browser.eval("return window.untouched").await, json!(true), "it was never loaded again");
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    browser.quit().await;
}

/// A claim becomes Bound and mounted on a page that is only looked at.
async fn bound_and_mounted(stage: &Stage, browser: &Browser) {
    stage.create("/api/v1/namespaces", &namespace("shop")).await;
    stage.create(&claims("shop"), &claim("orders", "local", "64Mi")).await;
    browser.until(&says("shop/orders", "claim", "Bound")).await;
    browser.until(&says("shop/orders", "volume", "Bound")).await;
    if rig::cannot_run(&[linux::fs::FsType::Ext4]).is_some() {
        return println!("skipped: mounting needs root and loop devices");
    }
    stage.create(&pods("shop"), &pod("web", "orders")).await;
    for (kind, state) in [("attachment", "attached"), ("node", "Ready"), ("pod", "mounted")] {
        browser.until(&says("shop/orders", kind, state)).await;
    }
    let tone = "document.querySelector('li[data-id=\"claim/shop/orders\"] .way').dataset.tone === 'settled'";
    browser.until(tone).await;
    browser.until("document.getElementById('said').textContent.includes('shop/orders')").await;
}

/// A claim that waits shows the sentence of `orlop explain`, and its fix.
async fn told_why(stage: &Stage, browser: &Browser) {
    stage.create(&claims("shop"), &claim("forgotten", "fastest", "5Gi")).await;
    let row = "document.querySelector('li[data-id=\"claim/shop/forgotten\"]')";
    browser.until(&format!("{row}.querySelector('.way').dataset.tone === 'stuck'")).await;
    let shown =
        browser.until(&format!("!{row}.querySelector('.why').hidden && {row}.querySelector('.why').innerText")).await;
    let output = Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(["explain", "pvc/forgotten", "-n", "shop", "-o", "json", "--kubeconfig"])
        .arg(stage.file("kubeconfig"))
        .output()
        .expect("the binary was just built");
    let explained: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let shown = shown.as_str().expect("it is a text");
    assert!(shown.contains(explained["sentence"].as_str().expect("a sentence")), "{shown}\n{explained:#}");
    assert!(shown.contains(explained["fix"][0].as_str().expect("a fix")), "{shown}\n{explained:#}");
}

/// The keyboard is enough.
async fn keys(browser: &Browser) {
    let focused = "document.activeElement.closest('li') && document.activeElement.closest('li').dataset.id";
    browser.press(&["/"]).await;
    browser.until("document.activeElement.id === 'filter'").await;
    browser.press(&[DOWN]).await;
    browser.until(&format!("({focused}) === 'claim/shop/forgotten'")).await;
    browser.press(&[END]).await;
    browser.until(&format!("({focused}) === 'claim/shop/orders'")).await;
    browser.press(&[ENTER]).await;
    browser.until("document.getElementById('details').open").await;
    let stages =
        browser.eval("return [...document.querySelectorAll('.timeline b')].map((one) => one.textContent)").await;
    let stages = stages.as_array().expect("a list").len();
    assert!(stages >= 3, "a time line has stages");
    browser.press(&[ESCAPE]).await;
    browser.until("!document.getElementById('details').open").await;
    browser.until(&format!("({focused}) === 'claim/shop/orders'")).await;
}

/// More of a cluster, so that there is something to look at.
async fn others(stage: &Stage, browser: &Browser) {
    stage.create(CLASSES, &class("later", "local.csi.orlop.dev", "WaitForFirstConsumer")).await;
    for (name, class, size) in
        [("images", "local", "256Mi"), ("sessions", "local", "128Mi"), ("archive", "later", "1Gi")]
    {
        stage.create(&claims("shop"), &claim(name, class, size)).await;
    }
    for name in ["images", "sessions"] {
        browser.until(&says(&format!("shop/{name}"), "claim", "Bound")).await;
    }
    if rig::cannot_run(&[linux::fs::FsType::Ext4]).is_none() {
        for name in ["gallery-0", "gallery-1"] {
            stage.create(&pods("shop"), &pod(name, "images")).await;
        }
        let mounted = "[...document.querySelectorAll('li[data-id=\"claim/shop/images\"] .station.pod .is')]\
                       .filter((one) => one.textContent === 'mounted').length === 2";
        browser.until(mounted).await;
    }
    browser.until(&says("shop/archive", "claim", "Pending")).await;
    // What waits for its time is not broken.
    let next = "document.querySelector('li[data-id=\"claim/shop/archive\"] .fix').innerText.startsWith('Next: ')";
    browser.until(next).await;
    // Two classes of one driver give out the same room.
    browser.until("document.querySelectorAll('.pool').length === 1").await;
    browser.until("document.querySelectorAll('.pool .classes li').length === 2").await;
}

/// Nothing is wider than the screen, in light and in dark, on a desk and on a phone.
async fn looks(browser: &Browser) {
    let wide = "return document.documentElement.scrollWidth > document.documentElement.clientWidth";
    let ground = "return getComputedStyle(document.body).backgroundColor";
    let mut grounds = Vec::new();
    let screens = [
        ("page", 1280, "light"),
        ("page-dark", 1280, "dark"),
        ("page-phone", 360, "light"),
        ("page-phone-dark", 360, "dark"),
    ];
    let cut = "return [...document.querySelectorAll('.station .is')].filter((one) => one.checkVisibility())\
               .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent)";
    for (name, width, scheme) in screens {
        browser.size(width, 940, 1.0).await;
        browser.colours(scheme).await;
        browser.eval("document.activeElement.blur(); window.scrollTo(0, 0)").await;
        assert_eq!(browser.eval(wide).await, json!(false), "{name} is too wide");
        assert_eq!(browser.eval(cut).await, json!([]), "states are cut off on {name}");
        grounds.push(browser.eval(ground).await);
        picture(browser, name).await;
        browser.eval("document.querySelector('li[data-id=\"claim/shop/orders\"] .way').click()").await;
        browser.until("document.getElementById('details').open").await;
        let inside = "const body = document.getElementById('details-body'); return body.scrollWidth > body.clientWidth";
        assert_eq!(browser.eval(inside).await, json!(false), "the details of {name} are too wide");
        picture(browser, &format!("{name}-details")).await;
        browser.eval("document.getElementById('close').click()").await;
        browser.until("!document.getElementById('details').open").await;
    }
    assert_ne!(grounds[0], grounds[1], "dark is not light");
    browser.size(1280, 940, 1.0).await;
    browser.colours("light").await;
}

/// Takes a picture, once nothing moves any more.
async fn picture(browser: &Browser, name: &str) {
    let Some(directory) = pictures() else { return };
    if std::env::var_os("ORLOP_SCREENSHOT").is_some_and(|value| value == "1") && name != "page" {
        return;
    }
    // One that is cancelled, because what moved has changed again, has ended as well.
    let still = "Promise.all(document.getAnimations().filter((one) => one.effect.getTiming().iterations !== Infinity)\
                 .map((one) => one.finished.catch(() => null)))";
    browser.eval(&format!("return {still}.then(() => true)")).await;
    browser.screenshot(&directory.join(format!("{name}.png"))).await;
}

#[tokio::test]
async fn a_thousand_claims_are_drawn_and_one_that_changes_touches_no_other() {
    if let Some(why) = browser::missing() {
        return skip("page", &why);
    }
    let scratch = Scratch::new();
    let data = scratch.path("api");
    let mut server = api_rig::Server::spawn(&data);
    let address = server.address().await;
    let kubeconfig = data.with_extension("kubeconfig");
    let api = api_rig::client(&kubeconfig, &address).await;
    for number in 0..1000 {
        let object = claim(&format!("claim-{number:04}"), "by-hand", "1Gi");
        let (code, answer) = ask(&api, ("POST", &claims("default")), Some(&object)).await.expect("the server answers");
        assert_eq!(code, 201, "{answer}");
    }
    let token = scratch.path("token");
    let words = |listen: &str| -> Vec<String> {
        let paths = [&kubeconfig, &token].map(|path| path.to_str().expect("a path of ours").to_owned());
        let [kubeconfig, token] = paths;
        let words = ["page", "--kubeconfig", &kubeconfig, "--listen", listen, "--token-file", &token];
        words.map(str::to_owned).to_vec()
    };
    let listen = free_address();
    let first = start_page(&words(&listen)).await;
    let secret = std::fs::read_to_string(&token).expect("it was written");
    let browser = Browser::start().await;
    browser.size(1280, 900, 1.0).await;
    browser.open(&format!("http://{listen}/?token={}", secret.trim())).await;
    browser.until("document.querySelectorAll('#ways > li').length === 1000").await;
    let explained = "[...document.querySelectorAll('#ways > li .why')].every((one) => !one.hidden)";
    browser.until(explained).await;
    // What has just been drawn still moves a little.
    browser.until("!document.querySelector('.came, .turned')").await;

    // Which rows are touched from now on; that a claim grows older is no change.
    let watch = "window.touched = new Set();
        new MutationObserver((changes) => changes.forEach((change) => {
          const element = change.target.closest ? change.target : change.target.parentElement;
          const row = element.closest('#ways > li');
          if (row && !element.closest('.took')) window.touched.add(row.dataset.id);
        })).observe(document.getElementById('ways'), {subtree: true, childList: true, attributes: true, characterData: true});";
    browser.eval(watch).await;
    stage_volume(&api).await;
    browser.until("document.querySelector('li[data-id=\"volume/spare\"]')").await;
    let path = format!("{}/claim-0500", claims("default"));
    let named = json!({"spec": {"volumeName": "spare"}});
    assert_eq!(ask(&api, ("PATCH", &path), Some(&named)).await.expect("the server answers").0, 200);
    browser.until("!document.querySelector('li[data-id=\"volume/spare\"]')").await;
    browser.until("document.querySelector('li[data-id=\"claim/default/claim-0500\"] .volume .called').textContent === 'spare'").await;
    let touched = browser.eval("return [...window.touched]").await;
    assert_eq!(touched, json!(["claim/default/claim-0500"]), "only what changed is touched");
    browser.eval("document.getElementById('filter').value = 'claim-0500'; document.getElementById('filter').dispatchEvent(new Event('input'))").await;
    let visible = "document.querySelectorAll('#ways > li').length === 1";
    browser.until(visible).await;

    first.kill();
    browser.until("document.getElementById('live').dataset.state === 'lost'").await;
    let faded = "getComputedStyle(document.querySelector('main')).filter";
    assert_ne!(browser.eval(&format!("return {faded}")).await, json!("none"), "what may be old looks so");
    let _second = start_page(&words(&listen)).await;
    browser.until("document.getElementById('live').dataset.state === 'live'").await;
    browser.quit().await;
}

async fn stage_volume(api: &kube::Client) {
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "spare"},
        "spec": {"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/nowhere"},
                 "storageClassName": "by-hand"}});
    let (code, answer) =
        ask(api, ("POST", "/api/v1/persistentvolumes"), Some(&volume)).await.expect("the server answers");
    assert_eq!(code, 201, "{answer}");
}

/// An address that nobody listens on, and that stays the same for the second page.
fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    listener.local_addr().expect("it listens").to_string()
}

async fn start_page(words: &[String]) -> Program {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut page = Program::orlop(&words);
    page.says("the page is served", 1).await;
    page
}
