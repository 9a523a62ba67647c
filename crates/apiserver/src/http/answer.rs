//! Answers: bytes, a code and the headers every client expects.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WARNING};
use http::{Response, StatusCode};
use serde_json::Value;

use super::body::{Body, Lines, Pieces};
use super::gzip;
use crate::request::Encoding;
use crate::schema::proto;
use crate::schema::tables::meta::STATUS;
use crate::verbs::Failure;

/// All warnings of one answer together, in characters; beyond it each is cut.
const WARNING_TOTAL: usize = 4096;
const WARNING_EACH: usize = 256;

/// An answer on its way out.
#[derive(Debug)]
pub(crate) struct Answer {
    code: u16,
    content_type: &'static str,
    body: Body,
    headers: Vec<(HeaderName, String)>,
    warnings: Vec<String>,
}

/// How JSON is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One line: what programs read.
    Line,
    /// Indented: what people read.
    Indented,
}

/// JSON on one line, with the characters escaped that Go escapes.
pub(crate) fn json_bytes(value: &Value) -> Vec<u8> {
    escape(serde_json::to_vec(value).unwrap_or_default())
}

fn laid_out(value: &Value, layout: Layout) -> Vec<u8> {
    let mut bytes = match layout {
        Layout::Line => json_bytes(value),
        Layout::Indented => escape(serde_json::to_vec_pretty(value).unwrap_or_default()),
    };
    bytes.push(b'\n');
    bytes
}

/// These three occur only inside strings, so the text can be rewritten without parsing it.
pub(crate) fn escape(bytes: Vec<u8>) -> Vec<u8> {
    let needs = |byte: &u8| matches!(byte, b'<' | b'>' | b'&');
    // Whole chunks without a way out in between are looked at many bytes at once.
    if !bytes.chunks(256).any(|chunk| chunk.iter().fold(false, |found, byte| found | needs(byte))) {
        return bytes;
    }
    let mut out = Vec::with_capacity(bytes.len() + 32);
    for byte in bytes {
        match byte {
            b'<' => out.extend_from_slice(b"\\u003c"),
            b'>' => out.extend_from_slice(b"\\u003e"),
            b'&' => out.extend_from_slice(b"\\u0026"),
            other => out.push(other),
        }
    }
    out
}

impl Answer {
    pub(crate) fn bytes(code: u16, content_type: &'static str, bytes: impl Into<bytes::Bytes>) -> Self {
        Self { code, content_type, body: Body::from(bytes), headers: Vec::new(), warnings: Vec::new() }
    }

    pub(crate) fn json(code: u16, value: &Value, layout: Layout) -> Self {
        Self::bytes(code, "application/json", laid_out(value, layout))
    }

    /// JSON is YAML, so who asks for YAML gets it in that form.
    pub(crate) fn yaml(code: u16, value: &Value) -> Self {
        Self::bytes(code, "application/yaml", laid_out(value, Layout::Indented))
    }

    pub(crate) fn protobuf(code: u16, sealed: Vec<u8>) -> Self {
        Self::bytes(code, Encoding::Protobuf.media_type(), sealed)
    }

    pub(crate) fn text(code: u16, text: impl Into<String>) -> Self {
        Self::bytes(code, "text/plain; charset=utf-8", text.into())
    }

    pub(crate) fn page_not_found() -> Self {
        Self::text(404, "404 page not found\n").header("x-content-type-options", "nosniff")
    }

    /// JSON that is made while it is sent.
    pub(crate) fn pieces(code: u16, pieces: Pieces) -> Self {
        let body = Body::pieces(pieces);
        Self { code, content_type: "application/json", body, headers: Vec::new(), warnings: Vec::new() }
    }

    pub(crate) fn watch(lines: Lines, encoding: Encoding) -> Self {
        let content_type = match encoding {
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
            Encoding::Json | Encoding::Yaml => "application/json",
        };
        Self { code: 200, content_type, body: Body::lines(lines), headers: Vec::new(), warnings: Vec::new() }
    }

    /// Bytes that are made as the client takes them.
    pub(crate) fn stream(pieces: impl Iterator<Item = bytes::Bytes> + Send + 'static) -> Self {
        let body = Body::lines(Box::pin(futures_util::stream::iter(pieces)));
        Self { code: 200, content_type: "application/octet-stream", body, headers: Vec::new(), warnings: Vec::new() }
    }

    /// A refusal. Who reads nothing but protobuf gets it in protobuf.
    pub(crate) fn failure(failure: &Failure, encoding: Encoding, layout: Layout) -> Self {
        let answer = match encoding {
            Encoding::Protobuf => Self::protobuf(failure.code, proto::seal("v1", "Status", &STATUS, &failure.status)),
            Encoding::Json | Encoding::Yaml => Self::json(failure.code, &failure.status, layout),
        };
        match failure.retry_after {
            Some(seconds) => answer.header(RETRY_AFTER.as_str(), seconds.to_string()),
            None => answer,
        }
    }

    pub(crate) fn not_modified() -> Self {
        Self::bytes(304, "application/json", bytes::Bytes::new())
    }

    /// `name` is a known header in lower case.
    #[must_use]
    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((HeaderName::from_static(name), value.into()));
        self
    }

    #[must_use]
    pub(crate) fn typed(mut self, content_type: &'static str) -> Self {
        self.content_type = content_type;
        self
    }

    #[must_use]
    pub(crate) fn warn(mut self, warnings: Vec<String>) -> Self {
        self.warnings.extend(warnings);
        self
    }

    pub(crate) fn code(&self) -> u16 {
        self.code
    }

    /// The same answer, all of it made.
    #[must_use]
    pub(super) fn whole(mut self) -> Self {
        self.body = self.body.whole();
        self
    }

    /// The bytes that are there already and wait to be sent.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.body.waiting_bytes()
    }

    /// A large answer compressed, if the client says that it can read it. Watches stay as they are: their lines must
    /// not wait for each other.
    #[must_use]
    pub(crate) fn compressed(mut self, accept_encoding: &str) -> Self {
        if !gzip::is_offered(accept_encoding) || !self.body.is_long() {
            return self;
        }
        self.body = self.body.compressed();
        self.header("content-encoding", "gzip").header("vary", "Accept-Encoding")
    }

    pub(crate) fn into_response(self, audit_id: &str) -> Response<Body> {
        let mut response = Response::new(self.body);
        *response.status_mut() = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        for (name, text) in self.headers {
            // A value that cannot be a header is left out; the answer is more use than none.
            if let Ok(value) = HeaderValue::from_str(&text) {
                headers.insert(name, value);
            }
        }
        if let Ok(value) = HeaderValue::from_str(audit_id) {
            headers.insert("audit-id", value);
        }
        for text in warning_texts(self.warnings) {
            if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
                headers.append(WARNING, value);
            }
        }
        response
    }
}

/// Warnings as header values. Together they stay below a limit, by cutting and then by leaving out.
fn warning_texts(warnings: Vec<String>) -> Vec<String> {
    let count = |texts: &[String]| texts.iter().map(|text| text.chars().count()).sum::<usize>();
    let mut texts = warnings;
    if count(&texts) > WARNING_TOTAL {
        texts = texts.into_iter().map(|text| text.chars().take(WARNING_EACH).collect()).collect();
    }
    let mut left = WARNING_TOTAL;
    texts.retain(|text| {
        let length = text.chars().count();
        let fits = length <= left;
        left = left.saturating_sub(length);
        fits
    });
    texts.into_iter().map(|text| format!("299 - {}", quoted(&text))).collect()
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            control if control.is_control() => out.push(' '),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_quoted_as_a_header_wants_it() {
        let texts = warning_texts(vec!["unknown field \"spec.foo\"".to_owned()]);
        assert_eq!(texts, ["299 - \"unknown field \\\"spec.foo\\\"\""]);
    }

    #[test]
    fn many_long_warnings_are_cut_and_stay_below_the_limit() {
        let texts = warning_texts(vec!["x".repeat(2000); 20]);
        assert!(texts.iter().all(|text| text.len() <= WARNING_EACH + 10));
        assert!(texts.len() <= WARNING_TOTAL / WARNING_EACH);
    }

    #[test]
    fn markup_is_escaped_as_go_escapes_it() {
        assert_eq!(json_bytes(&serde_json::json!("a<b>&c")), b"\"a\\u003cb\\u003e\\u0026c\"");
    }
}
