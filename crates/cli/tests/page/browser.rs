//! A real browser: Chromium without a window, driven over WebDriver.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Where a program is, if anywhere.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Why there is no browser here.
pub(super) fn missing() -> Option<String> {
    let absent = ["chromium", "chromedriver"].into_iter().find(|program| find(program).is_none())?;
    Some(format!("{absent} is missing; Debian has it in the packages chromium and chromium-driver"))
}

/// A browser with one page open. Dropping it ends it, and what it started.
pub(super) struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    pub(super) async fn start() -> Self {
        let mut driver = Command::new("chromedriver")
            .args(["--port=0", "--log-level=SEVERE"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it was just found");
        let lines = BufReader::new(driver.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
        let mut lines = lines.fuse();
        let port =
            lines.find_map(|line| line.split("successfully on port ").nth(1)?.trim_end_matches('.').parse().ok());
        // Whatever it says later is read, so that it never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        let profile = tempfile::tempdir().expect("a directory can be made");
        let mut browser =
            Self { driver, port: port.expect("it says its port"), session: String::new(), _profile: profile };
        browser.open_session().await;
        browser
    }

    async fn open_session(&mut self) {
        let data = format!("--user-data-dir={}", self._profile.path().display());
        let flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--no-proxy-server",
            &data,
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": flags, "binary": find("chromium")},
            "goog:loggingPrefs": {"browser": "ALL"},
            "timeouts": {"script": 120_000, "pageLoad": 120_000},
        }}});
        let answer = self.send("POST", "/session", Some(&wanted)).await;
        self.session = answer["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {answer}")).to_owned();
    }

    /// One request to the driver, and its value.
    async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.expect("the driver listens");
        let body = body.map(Value::to_string).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            self.port,
            body.len()
        );
        stream.write_all(head.as_bytes()).await.expect("it reads");
        stream.write_all(body.as_bytes()).await.expect("it reads");
        let answer = read(&mut stream).await;
        let value: Value = serde_json::from_slice(&answer).expect("WebDriver speaks JSON");
        let value = value["value"].clone();
        assert!(value.get("error").is_none(), "{method} {path}: {}: {}", value["error"], value["message"]);
        value
    }

    async fn ask(&self, method: &str, what: &str, body: Option<&Value>) -> Value {
        self.send(method, &format!("/session/{}/{what}", self.session), body).await
    }

    pub(super) async fn open(&self, url: &str) {
        self.ask("POST", "url", Some(&json!({"url": url}))).await;
    }

    pub(super) async fn url(&self) -> String {
        self.ask("GET", "url", None).await.as_str().unwrap_or_default().to_owned()
    }

    /// What a script returns.
    pub(super) async fn eval(&self, script: &str) -> Value {
        self.ask("POST", "execute/sync", Some(&json!({"script": script, "args": []}))).await
    }

    /// Waits until an expression is true, looking whenever the page changes; gives its value.
    pub(super) async fn until(&self, expression: &str) -> Value {
        let script = format!(
            "const done = arguments[0];
             const look = () => {{ let value; try {{ value = {expression}; }} catch {{ return false; }}
               if (value) {{ watcher.disconnect(); done(value); }} return value; }};
             const watcher = new MutationObserver(look);
             watcher.observe(document, {{subtree: true, childList: true, attributes: true, characterData: true}});
             look();"
        );
        self.ask("POST", "execute/async", Some(&json!({"script": script, "args": []}))).await
    }

    /// Presses keys, each a key of WebDriver or a letter.
    pub(super) async fn press(&self, keys: &[&str]) {
        let actions = keys
            .iter()
            .flat_map(|key| [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})]);
        let actions: Vec<Value> = actions.collect();
        let body = json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]});
        self.ask("POST", "actions", Some(&body)).await;
    }

    /// A command of the browser's own protocol.
    async fn command(&self, command: &str, params: Value) {
        self.ask("POST", "goog/cdp/execute", Some(&json!({"cmd": command, "params": params}))).await;
    }

    pub(super) async fn size(&self, width: u32, height: u32, scale: f64) {
        let screen = json!({"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600});
        self.command("Emulation.setDeviceMetricsOverride", screen).await;
    }

    pub(super) async fn colours(&self, scheme: &str) {
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.command("Emulation.setEmulatedMedia", media).await;
    }

    /// Errors that the page's script or the content policy caused.
    pub(super) async fn complaints(&self) -> Vec<String> {
        let log = self.ask("POST", "se/log", Some(&json!({"type": "browser"}))).await;
        let entries = log.as_array().cloned().unwrap_or_default();
        let severe = entries.iter().filter(|entry| entry["level"] == "SEVERE");
        severe.map(|entry| entry["message"].to_string()).collect()
    }

    pub(super) async fn screenshot(&self, file: &Path) {
        let text = self.ask("GET", "screenshot", None).await;
        let picture = base64::engine::general_purpose::STANDARD.decode(text.as_str().unwrap_or_default());
        std::fs::write(file, picture.expect("it is base64")).expect("the file can be written");
    }

    /// Ends the browser in order: its processes are the driver's children, and go with the session.
    pub(super) async fn quit(self) {
        self.send("DELETE", &format!("/session/{}", self.session), None).await;
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A test that failed has not ended its session: the browser ends when its driver is told to.
        if !self.session.is_empty()
            && let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", self.port))
        {
            use std::io::{Read as _, Write as _};
            let head = format!(
                "DELETE /session/{} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                self.session, self.port
            );
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.read(&mut [0; 512]);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// The body of an answer.
async fn read(stream: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    let mut piece = [0; 16 * 1024];
    loop {
        if let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
            let length = head.split("content-length:").nth(1).and_then(|rest| rest.lines().next()?.trim().parse().ok());
            let length: usize = length.unwrap_or_else(|| panic!("no length in {head}"));
            if answer.len() >= end + 4 + length {
                return answer[end + 4..end + 4 + length].to_vec();
            }
        }
        let count = stream.read(&mut piece).await.expect("it answers");
        assert!(count > 0, "the driver broke off: {}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&piece[..count]);
    }
}
