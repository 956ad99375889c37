//! A host and a port in the one strict grammar that is matched, resolved, dialled and logged.
//!
//! Everything that could be read in two ways is refused here, before any name is resolved: what is judged is then
//! what is dialled. The text form ([`std::fmt::Display`]) is canonical: parsing it again gives the same value.
//!
//! The grammar is narrower than RFC 3986 section 3.2.2 allows: names are letters, digits, hyphens and underscores
//! (LDH of RFC 1123, and the underscore because object stores and service records carry it and no parser splits
//! there), IPv4 is four decimal parts without leading zeros, IPv6 stands in one pair of brackets and has no zone.
//!
//! The file uses only the standard library, because `build.rs` compiles it too.

use std::borrow::Borrow;
use std::error::Error;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest name in bytes without its trailing dot (RFC 1035 section 2.3.4: 255 octets on the wire).
const NAME_MAX: usize = 253;
/// The longest label in bytes (RFC 1035 section 2.3.4).
const LABEL_MAX: usize = 63;

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Authority {
    /// The host.
    pub host: Host,
    /// The port, never 0.
    pub port: u16,
}

/// A host: a name, or an address literal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// A name to be resolved.
    Name(Name),
    /// An IPv4 literal.
    V4(Ipv4Addr),
    /// An IPv6 literal.
    V6(Ipv6Addr),
}

/// A host name: lower case, without a trailing dot, well-formed, and no spelling of an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Box<str>);

/// Why a text is no authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BadAuthority {
    /// Nothing stands where the host should.
    EmptyHost,
    /// A port is required and there is none.
    MissingPort,
    /// The port is not canonical decimal in 1..=65535.
    BadPort,
    /// A NUL, another control byte, or DEL.
    ControlByte,
    /// A space.
    Space,
    /// A byte above 127.
    NonAscii,
    /// `@`: user information before the host.
    UserInfo,
    /// `%`: an escape or an IPv6 zone.
    Percent,
    /// A backslash, which some parsers take for a slash.
    Backslash,
    /// `/`, `?` or `#`: the text goes on behind the authority.
    Delimiter,
    /// A colon too many: two ports, or an IPv6 literal without brackets.
    Colon,
    /// Brackets that are no single pair around the host.
    Brackets,
    /// What stands in brackets is no IPv6 address.
    BadIpv6,
    /// A byte that no host name holds.
    BadByte,
    /// Two dots together, or a dot at the start.
    EmptyLabel,
    /// A label of more than 63 bytes.
    LabelTooLong,
    /// A name of more than 253 bytes.
    NameTooLong,
    /// A label that starts or ends with a hyphen.
    HyphenAtEdge,
    /// The last label is a number, and the whole is no dotted decimal IPv4 address.
    NumericName,
}

impl BadAuthority {
    /// The class of the fault in snake case, for records.
    pub fn reason(self) -> &'static str {
        match self {
            BadAuthority::EmptyHost => "empty_host",
            BadAuthority::MissingPort => "missing_port",
            BadAuthority::BadPort => "bad_port",
            BadAuthority::ControlByte => "control_byte",
            BadAuthority::Space => "space",
            BadAuthority::NonAscii => "non_ascii",
            BadAuthority::UserInfo => "user_info",
            BadAuthority::Percent => "percent",
            BadAuthority::Backslash => "backslash",
            BadAuthority::Delimiter => "delimiter",
            BadAuthority::Colon => "colon",
            BadAuthority::Brackets => "brackets",
            BadAuthority::BadIpv6 => "bad_ipv6",
            BadAuthority::BadByte => "bad_byte",
            BadAuthority::EmptyLabel => "empty_label",
            BadAuthority::LabelTooLong => "label_too_long",
            BadAuthority::NameTooLong => "name_too_long",
            BadAuthority::HyphenAtEdge => "hyphen_at_edge",
            BadAuthority::NumericName => "numeric_name",
        }
    }
}

impl fmt::Display for BadAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadAuthority::EmptyHost => "the host is empty",
            BadAuthority::MissingPort => "the port is missing",
            BadAuthority::BadPort => "the port must be decimal, 1 to 65535, without sign or leading zero",
            BadAuthority::ControlByte => "it holds a control byte",
            BadAuthority::Space => "it holds a space",
            BadAuthority::NonAscii => "it holds a byte outside ASCII; write the name in its xn-- form",
            BadAuthority::UserInfo => "it holds '@'; no user information is accepted",
            BadAuthority::Percent => "it holds '%'; neither escapes nor zones are accepted",
            BadAuthority::Backslash => "it holds a backslash",
            BadAuthority::Delimiter => "it holds '/', '?' or '#'; only a host and a port are accepted",
            BadAuthority::Colon => "it holds a colon too many; an IPv6 address stands in brackets",
            BadAuthority::Brackets => "only one pair of brackets around an IPv6 address is accepted",
            BadAuthority::BadIpv6 => "what stands in brackets is no IPv6 address",
            BadAuthority::BadByte => "a name holds only letters, digits, '-', '_' and '.'",
            BadAuthority::EmptyLabel => "a label is empty",
            BadAuthority::LabelTooLong => "a label has more than 63 bytes",
            BadAuthority::NameTooLong => "the name has more than 253 bytes",
            BadAuthority::HyphenAtEdge => "a label starts or ends with a hyphen",
            BadAuthority::NumericName => "the last label is a number; an IPv4 address has four decimal parts without leading zeros",
        })
    }
}

impl Error for BadAuthority {}

impl Authority {
    /// The target of CONNECT: `host:port`, the port mandatory (RFC 9110 section 9.3.6).
    pub fn parse_connect(text: &[u8]) -> Result<Authority, BadAuthority> {
        let (host, port) = parse(text)?;
        let port = port.ok_or(BadAuthority::MissingPort)?;
        Ok(Authority { host, port })
    }

    /// The authority of an absolute-form target: `host` or `host:port`. A colon with no port after it is refused.
    pub fn parse_with_default(text: &[u8], default_port: u16) -> Result<Authority, BadAuthority> {
        let (host, port) = parse(text)?;
        let port = port.unwrap_or(default_port);
        if port == 0 {
            return Err(BadAuthority::BadPort);
        }
        Ok(Authority { host, port })
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Host {
    /// A host alone: a name, a dotted decimal IPv4 address, or an IPv6 address in brackets.
    pub fn parse(text: &[u8]) -> Result<Host, BadAuthority> {
        match parse(text)? {
            (host, None) => Ok(host),
            (_, Some(_)) => Err(BadAuthority::Colon),
        }
    }

    /// The address, where the host is a literal.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Host::Name(_) => None,
            Host::V4(addr) => Some(IpAddr::V4(*addr)),
            Host::V6(addr) => Some(IpAddr::V6(*addr)),
        }
    }

    /// The name, where the host is one.
    pub fn name(&self) -> Option<&Name> {
        match self {
            Host::Name(name) => Some(name),
            _ => None,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => name.fmt(f),
            Host::V4(addr) => addr.fmt(f),
            Host::V6(addr) => write!(f, "[{addr}]"),
        }
    }
}

impl Name {
    /// A host name; one trailing dot is taken off, and letters become lower case.
    pub fn parse(text: &[u8]) -> Result<Name, BadAuthority> {
        match Host::parse(text)? {
            Host::Name(name) => Ok(name),
            Host::V4(_) => Err(BadAuthority::NumericName),
            Host::V6(_) => Err(BadAuthority::Brackets),
        }
    }

    /// The name as it is dialled, logged and judged.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The names above this one, nearest first: of `a.b.c` these are `b.c` and `c`.
    pub fn parents(&self) -> impl Iterator<Item = &str> {
        let mut rest = self.as_str();
        std::iter::from_fn(move || {
            rest = rest.split_once('.')?.1;
            Some(rest)
        })
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Splits a text into host and port. The bytes that split parsers are looked for in the whole text first, so that
/// no later step ever sees one.
fn parse(text: &[u8]) -> Result<(Host, Option<u16>), BadAuthority> {
    let text = plain(text)?;
    if let Some(rest) = text.strip_prefix('[') {
        let (inner, after) = rest.split_once(']').ok_or(BadAuthority::Brackets)?;
        let port = match after.strip_prefix(':') {
            Some(port) => Some(port_number(port)?),
            None if after.is_empty() => None,
            None => return Err(BadAuthority::Brackets),
        };
        if inner.contains('[') {
            return Err(BadAuthority::Brackets);
        }
        let addr = inner.parse().map_err(|_| BadAuthority::BadIpv6)?;
        return Ok((Host::V6(addr), port));
    }
    if text.contains(['[', ']']) {
        return Err(BadAuthority::Brackets);
    }
    match text.split_once(':') {
        None => Ok((name_or_v4(text)?, None)),
        Some((_, port)) if port.contains(':') => Err(BadAuthority::Colon),
        Some((host, port)) => Ok((name_or_v4(host)?, Some(port_number(port)?))),
    }
}

/// The text, if it holds none of the bytes that some parser takes for a boundary.
fn plain(text: &[u8]) -> Result<&str, BadAuthority> {
    for byte in text {
        match byte {
            0..=0x1f | 0x7f => return Err(BadAuthority::ControlByte),
            0x80.. => return Err(BadAuthority::NonAscii),
            b' ' => return Err(BadAuthority::Space),
            b'@' => return Err(BadAuthority::UserInfo),
            b'%' => return Err(BadAuthority::Percent),
            b'\\' => return Err(BadAuthority::Backslash),
            b'/' | b'?' | b'#' => return Err(BadAuthority::Delimiter),
            _ => {}
        }
    }
    std::str::from_utf8(text).map_err(|_| BadAuthority::NonAscii)
}

/// A port in canonical decimal, 1 to 65535.
pub(super) fn port_number(text: &str) -> Result<u16, BadAuthority> {
    if text.is_empty() || text.starts_with('0') || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(BadAuthority::BadPort);
    }
    text.parse().map_err(|_| BadAuthority::BadPort)
}

fn name_or_v4(text: &str) -> Result<Host, BadAuthority> {
    if text.is_empty() {
        return Err(BadAuthority::EmptyHost);
    }
    // The standard parser takes four decimal parts without leading zeros and nothing else.
    if let Ok(addr) = text.parse::<Ipv4Addr>() {
        return Ok(Host::V4(addr));
    }
    // Once: what is left of `name..` ends in an empty label and is refused below.
    let name = text.strip_suffix('.').unwrap_or(text);
    if name.len() > NAME_MAX {
        return Err(BadAuthority::NameTooLong);
    }
    let mut last = "";
    for label in name.split('.') {
        check_label(label)?;
        last = label;
    }
    // inet_aton(3) reads any of these as an address; a resolver may too.
    if last.bytes().all(|b| b.is_ascii_digit()) || is_hexadecimal(last) {
        return Err(BadAuthority::NumericName);
    }
    Ok(Host::Name(Name(name.to_ascii_lowercase().into_boxed_str())))
}

fn check_label(label: &str) -> Result<(), BadAuthority> {
    if label.is_empty() {
        return Err(BadAuthority::EmptyLabel);
    }
    if label.len() > LABEL_MAX {
        return Err(BadAuthority::LabelTooLong);
    }
    if !label
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    {
        return Err(BadAuthority::BadByte);
    }
    if label.starts_with('-') || label.ends_with('-') {
        return Err(BadAuthority::HyphenAtEdge);
    }
    Ok(())
}

/// `0x` and hexadecimal digits, none included: the spellings that inet_aton(3) takes for a number.
fn is_hexadecimal(label: &str) -> bool {
    label
        .strip_prefix("0x")
        .or_else(|| label.strip_prefix("0X"))
        .is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
#[path = "authority_tests.rs"]
mod tests;
