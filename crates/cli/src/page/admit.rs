//! Who gets in: the right host's name, and the token.

use std::net::SocketAddr;

use http::{HeaderMap, Method, Request, header};

use super::Kept;
use super::token::Token;

/// What guards the page.
#[derive(Debug)]
pub(super) struct Door {
    token: Token,
    address: SocketAddr,
    /// Where people find the token.
    pub(super) kept: String,
}

/// What becomes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Admission {
    /// It may see the cluster.
    Welcome,
    /// The token came in the address, and is changed into this `Set-Cookie`.
    Exchange(String),
    /// It may see what tells nothing.
    Stranger,
    /// It was sent to another name than ours: a page of somebody else's asks through a browser.
    WrongHost,
    /// Nothing here can be changed.
    WrongMethod,
}

impl Door {
    pub(super) fn new(token: Token, address: SocketAddr, kept: &Kept) -> Self {
        let kept = match kept {
            Kept::Nowhere => "on the terminal where orlop was started".to_owned(),
            Kept::In(file) => format!("in the file {}", file.display()),
        };
        Self { token, address, kept }
    }

    pub(super) fn admit<B>(&self, request: &Request<B>) -> Admission {
        let headers = request.headers();
        if !self.is_ours(headers) {
            return Admission::WrongHost;
        }
        if *request.method() != Method::GET && *request.method() != Method::HEAD {
            return Admission::WrongMethod;
        }
        let in_address = request.uri().query().and_then(|query| parameter(query, "token"));
        if request.uri().path() == "/" && in_address.is_some_and(|token| self.token.is(token)) {
            return Admission::Exchange(self.set_cookie());
        }
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = bearer.and_then(|value| value.strip_prefix("Bearer "));
        let known = bearer.is_some_and(|token| self.token.is(token.trim()))
            || cookies(headers, &self.cookie_name()).any(|cookie| self.token.is_cookie(self.address, cookie));
        if known { Admission::Welcome } else { Admission::Stranger }
    }

    /// A name that points here and is not ours belongs to somebody who wants to read with our browser's eyes.
    fn is_ours(&self, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next().and_then(|host| host.to_str().ok()), hosts.next()) else {
            return false;
        };
        let names = [self.address.to_string(), format!("localhost:{}", self.address.port())];
        let plain = ["localhost".to_owned(), self.address.ip().to_string()];
        names.iter().any(|name| name.eq_ignore_ascii_case(host))
            || (self.address.port() == 80 && plain.iter().any(|name| name.eq_ignore_ascii_case(host)))
    }

    /// Cookies are shared between the ports of a host, so that each port needs a name of its own.
    fn cookie_name(&self) -> String {
        format!("orlop-page-{}", self.address.port())
    }

    fn set_cookie(&self) -> String {
        let (name, value) = (self.cookie_name(), self.token.cookie(self.address));
        format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age=2592000")
    }
}

fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name).map(|(_, value)| value))
}

fn cookies<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(header::COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(move |(key, _)| *key == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn door() -> Door {
        let address = SocketAddr::from(([127, 0, 0, 1], 4711));
        Door::new(Token::new(), address, &Kept::Nowhere)
    }

    fn ask(door: &Door, path: &str, headers: &[(&str, &str)]) -> Admission {
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        door.admit(&request.body(()).expect("it is a request"))
    }

    const HERE: (&str, &str) = ("host", "127.0.0.1:4711");

    #[test]
    fn a_name_that_is_not_ours_gets_nothing_even_with_the_token() {
        let door = door();
        let right = format!("/?token={}", door.token.reveal());
        for host in ["evil.example:4711", "127.0.0.1:4712", "127.0.0.1", "localhost.evil.example:4711", ""] {
            assert_eq!(ask(&door, &right, &[("host", host)]), Admission::WrongHost, "{host}");
        }
        assert_eq!(ask(&door, &right, &[]), Admission::WrongHost);
        assert_eq!(ask(&door, &right, &[HERE, ("host", "evil.example")]), Admission::WrongHost);
        assert!(matches!(ask(&door, &right, &[("host", "LOCALHOST:4711")]), Admission::Exchange(_)));
    }

    #[test]
    fn the_token_opens_as_parameter_as_header_and_as_the_cookie_it_was_changed_into() {
        let door = door();
        let token = door.token.reveal().to_owned();
        let Admission::Exchange(cookie) = ask(&door, &format!("/?a=b&token={token}"), &[HERE]) else {
            panic!("it is the right one")
        };
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && !cookie.contains(&token));
        let kept = cookie.split(';').next().unwrap_or_default();
        let both = format!("other=1; {kept}");
        assert_eq!(ask(&door, "/events", &[HERE, ("cookie", &both)]), Admission::Welcome);
        assert_eq!(ask(&door, "/", &[HERE, ("authorization", &format!("Bearer {token}"))]), Admission::Welcome);
    }

    #[test]
    fn without_the_token_or_with_a_wrong_one_everybody_is_a_stranger() {
        let door = door();
        let token = door.token.reveal().to_owned();
        let wrong = format!("Bearer {}x", token);
        let named = format!("orlop-page-4711={token}");
        let rows: [(&str, &[(&str, &str)]); 5] = [
            ("/", &[HERE]),
            ("/?token=", &[HERE]),
            ("/events", &[HERE, ("authorization", &wrong)]),
            ("/events", &[HERE, ("cookie", &named)]),
            ("/events", &[HERE, ("authorization", &token)]),
        ];
        for (path, headers) in rows {
            assert_eq!(ask(&door, path, headers), Admission::Stranger, "{path} {headers:?}");
        }
        let elsewhere = format!("/events?token={token}");
        assert_eq!(ask(&door, &elsewhere, &[HERE]), Admission::Stranger, "only the page itself takes it there");
        let post = Request::post("/").header("host", "127.0.0.1:4711").body(()).expect("it is a request");
        assert_eq!(door.admit(&post), Admission::WrongMethod);
    }
}
