//! Addresses for metrics and health as Go's programs take them: `HOST:PORT`, `:PORT` for every address, or nothing.

/// A text that is no such address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAnAddress {
    /// A port alone.
    #[error("{0:?} has no host; use HOST:PORT or :PORT, such as 127.0.0.1:{0}")]
    PortOnly(String),
    /// A host alone.
    #[error("{0:?} has no port; use HOST:PORT or :PORT, such as {0}:8080")]
    NoPort(String),
    /// A port that there is not.
    #[error("{0:?} is no port, which is a number up to 65535; use HOST:PORT or :PORT")]
    BadPort(String),
}

/// Looks only at the shape; whether the host exists shows when it is listened on.
pub fn parse(text: &str) -> Result<String, NotAnAddress> {
    if text.is_empty() {
        return Ok(String::new());
    }
    let number = |text: &str| !text.is_empty() && text.chars().all(|digit| digit.is_ascii_digit());
    match text.rsplit_once(':') {
        None if number(text) => Err(NotAnAddress::PortOnly(text.to_owned())),
        None => Err(NotAnAddress::NoPort(text.to_owned())),
        Some((_, port)) if port.parse::<u16>().is_ok() => Ok(text.to_owned()),
        Some((_, port)) => Err(NotAnAddress::BadPort(port.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_go_takes_is_taken_and_a_port_alone_is_answered_with_what_is_meant() {
        for text in ["", ":8080", "127.0.0.1:0", "[::1]:8080", "localhost:1"] {
            assert_eq!(parse(text), Ok(text.to_owned()));
        }
        assert!(parse("8080").is_err_and(|error| error.to_string().contains("such as 127.0.0.1:8080")));
        assert!(parse("localhost").is_err_and(|error| error.to_string().contains("localhost:8080")));
        assert!(parse("127.0.0.1:99999").is_err_and(|error| error.to_string().contains("65535")));
    }
}
