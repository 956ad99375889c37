//! The parent proxy by which egress leaves a network that has no other way out: what a policy says of it, and what the
//! caller's environment does. Its credentials are in no text form of anything here.

use super::authority::Authority;
use super::values::BadValue;
use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;

/// How admitted egress leaves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Upstream {
    /// By connections to the judged addresses themselves.
    #[default]
    None,
    /// By the parent proxy that the caller's environment names, see [`in_environment`].
    Environment,
    /// By this parent proxy.
    Proxy(ParentProxy),
}

impl Upstream {
    /// Whether credentials are part of it.
    pub fn has_credentials(&self) -> bool {
        matches!(self, Upstream::Proxy(parent) if parent.credentials.is_some())
    }
}

/// A parent proxy that is asked over plain HTTP (RFC 9110, 3.7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentProxy {
    authority: Authority,
    credentials: Option<Credentials>,
}

impl ParentProxy {
    /// Where it listens.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// What it is told about who asks.
    pub fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }
}

/// A user and a password. Neither is shown by `Debug`, and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// As the URL has them, percent-encoded.
    written: String,
    /// The user, a colon, the password.
    pair: Vec<u8>,
}

impl Credentials {
    /// The user, a colon and the password, as the Basic scheme encodes them (RFC 7617, 2).
    pub fn pair(&self) -> &[u8] {
        &self.pair
    }

    /// Whether a value holds a URL with them in it.
    pub fn stand_in(&self, value: &[u8]) -> bool {
        let shown = format!("{}@", self.written);
        value.windows(shown.len()).any(|part| part == shown.as_bytes())
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

/// What stands for credentials wherever a URL is shown.
const REDACTED: &str = "…";

const URL: &str = "http://[user:password@]host:port";

/// A URL as it may be shown: whatever could be credentials is left out, also where it is no URL of a proxy.
pub fn redacted(text: &str) -> String {
    let Some(end) = text.rfind('@') else { return text.to_owned() };
    let start = text[..end].find("://").map_or(0, |at| at + "://".len());
    format!("{}{REDACTED}{}", &text[..start], &text[end..])
}

impl FromStr for ParentProxy {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<ParentProxy, BadValue> {
        let bad = |why: &dyn fmt::Display| BadValue::new("parent proxy", &redacted(text), URL).because(why);
        let (scheme, rest) = text.split_once("://").ok_or_else(|| bad(&"it has no scheme"))?;
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(bad(&"it is asked over plain HTTP, by the scheme http"));
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (userinfo, authority) = match rest.rsplit_once('@') {
            Some((userinfo, authority)) => (Some(userinfo), authority),
            None => (None, rest),
        };
        let credentials = userinfo.map(credentials).transpose().map_err(|why| bad(&why))?;
        let authority = Authority::parse_connect(authority.as_bytes()).map_err(|why| bad(&why))?;
        Ok(ParentProxy { authority, credentials })
    }
}

/// Reads `user:password` or `user`, percent-encoded (RFC 3986, 3.2.1). What is said of a fault shows no part of it.
fn credentials(written: &str) -> Result<Credentials, &'static str> {
    if written == REDACTED {
        return Err("the credentials were left out where it was printed");
    }
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"/?#@\\".contains(&byte);
    let mut pair = Vec::new();
    let mut bytes = written.bytes();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => {
                let mut digit = || bytes.next().and_then(|digit| char::from(digit).to_digit(16));
                let value = digit().zip(digit()).and_then(|(high, low)| u8::try_from(high << 4 | low).ok());
                value.ok_or("a % in the credentials is not followed by two hexadecimal digits")?
            }
            _ if plain(byte) => byte,
            _ => return Err("a byte of the credentials must be percent-encoded"),
        };
        if byte.is_ascii_control() {
            return Err("the credentials hold a control byte");
        }
        pair.push(byte);
    }
    // A user cannot hold a colon (RFC 7617, 2), so an encoded one before the password would move the border.
    let (user, _) = written.split_once(':').unwrap_or((written, ""));
    if user.is_empty() || user.to_ascii_lowercase().contains("%3a") {
        return Err("the user is empty or holds a colon");
    }
    if !written.contains(':') {
        pair.push(b':');
    }
    Ok(Credentials { written: written.to_owned(), pair })
}

/// Without the credentials.
impl fmt::Display for ParentProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.credentials {
            Some(_) => write!(f, "http://{REDACTED}@{}", self.authority),
            None => write!(f, "http://{}", self.authority),
        }
    }
}

impl FromStr for Upstream {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Upstream, BadValue> {
        match text {
            "none" => Ok(Upstream::None),
            "environment" => Ok(Upstream::Environment),
            _ => text.parse().map(Upstream::Proxy).map_err(|bad: BadValue| BadValue {
                what: "upstream",
                accepted: format!("none, environment, {URL}"),
                ..bad
            }),
        }
    }
}

/// Without the credentials.
impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Upstream::None => f.write_str("none"),
            Upstream::Environment => f.write_str("environment"),
            Upstream::Proxy(parent) => parent.fmt(f),
        }
    }
}

/// The variables that name a proxy: the first one that is set and not empty counts, a destination's scheme does not.
pub const VARIABLES: [&str; 6] = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];

/// The variable of [`VARIABLES`] that counts, and its value.
pub fn set_in(environment: impl Fn(&str) -> Option<OsString>) -> Option<(&'static str, OsString)> {
    VARIABLES.into_iter().find_map(|name| Some((name, environment(name).filter(|value| !value.is_empty())?)))
}

/// Why the environment gives no parent proxy. Each message is one line and shows no credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoParent {
    /// None of the variables is set.
    #[error(
        "upstream environment: none of HTTPS_PROXY, HTTP_PROXY and ALL_PROXY is set, in either case; accepted: {URL} in one of them"
    )]
    Unset,
    /// The one that counts holds something else.
    #[error("upstream environment: {variable}: {fault}")]
    Bad {
        /// The variable.
        variable: &'static str,
        /// What is wrong.
        fault: BadValue,
    },
}

/// The parent proxy that an environment names.
pub fn in_environment(environment: impl Fn(&str) -> Option<OsString>) -> Result<ParentProxy, NoParent> {
    let (variable, value) = set_in(environment).ok_or(NoParent::Unset)?;
    value.to_string_lossy().parse().map_err(|fault| NoParent::Bad { variable, fault })
}

#[cfg(test)]
#[path = "upstream_tests.rs"]
mod tests;
