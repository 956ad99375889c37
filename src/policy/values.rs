//! The values that flags and policy files take, each with one text form for both.

use super::entry::Entry;
use super::level::Level;
use super::path::{PolicyPath, WorkTree};
use super::protect::ProtectedPath;
use super::upstream::Upstream;
use ipnet::IpNet;
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::str::FromStr;

/// A text that is no value of its kind. The message names the value and what is accepted, in one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{}\" is no {what}{}; accepted: {accepted}", value.escape_default(), why.as_deref().map(|why| format!(" ({why})")).unwrap_or_default())]
pub struct BadValue {
    /// The kind of value.
    pub what: &'static str,
    /// The text.
    pub value: String,
    /// What is wrong with it, where that isn't plain.
    pub why: Option<String>,
    /// What is accepted.
    pub accepted: String,
}

impl BadValue {
    pub(crate) fn new(what: &'static str, value: &str, accepted: impl Into<String>) -> BadValue {
        BadValue { what, value: value.to_owned(), why: None, accepted: accepted.into() }
    }

    pub(super) fn because(mut self, why: impl fmt::Display) -> BadValue {
        self.why = Some(why.to_string());
        self
    }
}

/// Serialised as its text, deserialised by parsing it.
macro_rules! as_text {
    ($($kind:ty),*) => {$(
        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl Visitor<'_> for Text {
                    type Value = $kind;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a string")
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$kind, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }
    )*};
}
as_text!(
    Level,
    Entry,
    TrustRange,
    PolicyPath,
    WorkTree,
    ProtectedPath,
    Publish,
    Upstream,
    User,
    EnvName,
    OnLedgerFailure,
    Leftovers,
    PolicyArg,
    Abi
);

impl FromStr for Entry {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Entry, BadValue> {
        let accepted = "host, *.host, either with :port";
        Entry::parse(text).map_err(|fault| BadValue::new("allowlist entry", text, accepted).because(fault))
    }
}

/// A network whose addresses a name may resolve to although they are not public (see [`super::ranges`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrustRange(pub IpNet);

impl FromStr for TrustRange {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<TrustRange, BadValue> {
        let bad = || BadValue::new("trusted range", text, "a network in CIDR form, such as 10.1.0.0/16 or fd12::/16");
        // ipnet's own parser takes 010.0.0.0/8, which other parsers read as 8.0.0.0/8; the standard library's doesn't.
        let (addr, length) = text.split_once('/').ok_or_else(bad)?;
        let addr: IpAddr = addr.parse().map_err(|_| bad())?;
        let digits = length.bytes().all(|byte| byte.is_ascii_digit()) && (length == "0" || !length.starts_with('0'));
        let length = length.parse().ok().filter(|_| digits).ok_or_else(bad)?;
        let net = IpNet::new(addr, length).map_err(|_| bad())?;
        if net.addr() != net.network() {
            return Err(bad().because(format!("it has host bits; the network is {}", net.trunc())));
        }
        match net.addr() {
            // Such an address is judged as the IPv4 address that goes out on the wire.
            IpAddr::V6(addr) if addr.to_ipv4_mapped().is_some() => Err(bad().because("write the IPv4 network instead")),
            _ => Ok(TrustRange(net)),
        }
    }
}

impl fmt::Display for TrustRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which loopback ports the command may connect to, besides the proxy's. Port 53 is refused whatever stands here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loopback {
    /// Every port, less the control-plane ports.
    All,
    /// The proxy's port alone.
    Proxy,
    /// These ports, in ascending order.
    Ports(Vec<NonZeroU16>),
}

const LOOPBACK: &str = "all, proxy, or ports from 1 to 65535";

impl Loopback {
    fn ports(mut ports: Vec<NonZeroU16>) -> Loopback {
        ports.sort_unstable();
        ports.dedup();
        Loopback::Ports(ports)
    }
}

impl FromStr for Loopback {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Loopback, BadValue> {
        match text {
            "all" => Ok(Loopback::All),
            "proxy" => Ok(Loopback::Proxy),
            _ => {
                let ports: Result<Vec<NonZeroU16>, _> = text.split(',').map(str::parse).collect();
                ports.map(Loopback::ports).map_err(|_| BadValue::new("loopback setting", text, LOOPBACK))
            }
        }
    }
}

impl Serialize for Loopback {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Loopback::All => serializer.serialize_str("all"),
            Loopback::Proxy => serializer.serialize_str("proxy"),
            Loopback::Ports(ports) => ports.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Loopback {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrPorts;
        impl<'de> Visitor<'de> for TextOrPorts {
            type Value = Loopback;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"all\", \"proxy\", or a list of ports")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Loopback, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Loopback, A::Error> {
                let mut ports = Vec::new();
                while let Some(port) = seq.next_element()? {
                    ports.push(port);
                }
                Ok(Loopback::ports(ports))
            }
        }
        deserializer.deserialize_any(TextOrPorts)
    }
}

/// A port of the host's loopback that is forwarded to the same port of the command's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Publish(pub SocketAddr);

impl FromStr for Publish {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Publish, BadValue> {
        let bad = || {
            BadValue::new("port to publish", text, "PORT, 127.0.0.1:PORT or [::1]:PORT, with a port from 1 to 65535")
        };
        let address = match text.parse::<NonZeroU16>() {
            Ok(port) => SocketAddr::from((Ipv4Addr::LOCALHOST, port.get())),
            Err(_) => text.parse().map_err(|_| bad())?,
        };
        match address {
            _ if address.port() == 0 => Err(bad()),
            _ if address.ip().is_loopback() => Ok(Publish(address)),
            _ => Err(bad().because("who is not on this machine could reach it")),
        }
    }
}

impl fmt::Display for Publish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whom the command runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum User {
    /// An account of the image, by its name.
    Name(String),
    /// Numbers, which need no account.
    Ids {
        /// The uid.
        uid: u32,
        /// The gid; the account's, or the uid's number, when left out.
        gid: Option<u32>,
    },
}

impl FromStr for User {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<User, BadValue> {
        let bad = || BadValue::new("user", text, "an account's name, or UID, or UID:GID, each 0 to 4294967294");
        // u32::MAX is -1 to setresuid(2): "leave as it is".
        let id = |text: &str| match text.parse::<u32>() {
            Ok(id) if id != u32::MAX && text.bytes().all(|b| b.is_ascii_digit()) => Ok(id),
            _ => Err(bad()),
        };
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            return match text.split_once(':') {
                Some((uid, gid)) => Ok(User::Ids { uid: id(uid)?, gid: Some(id(gid)?) }),
                None => Ok(User::Ids { uid: id(text)?, gid: None }),
            };
        }
        // What useradd(8) takes; a colon or a newline would end the field in passwd(5).
        let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
        let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if plain && starts && text.len() <= 32 { Ok(User::Name(text.to_owned())) } else { Err(bad()) }
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            User::Name(name) => f.write_str(name),
            User::Ids { uid, gid: None } => write!(f, "{uid}"),
            User::Ids { uid, gid: Some(gid) } => write!(f, "{uid}:{gid}"),
        }
    }
}

/// The name of an environment variable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EnvName(String);

impl EnvName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for EnvName {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<EnvName, BadValue> {
        if text.is_empty() || text.contains('=') || text.chars().any(char::is_control) {
            return Err(BadValue::new("variable's name", text, "a name, without = and value"));
        }
        Ok(EnvName(text.to_owned()))
    }
}

impl fmt::Display for EnvName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A value that is one of a few words.
macro_rules! words {
    ($(#[$doc:meta])* $kind:ident, $what:literal, $accepted:literal, $($(#[$word_doc:meta])* $variant:ident = $word:literal),*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $kind { $($(#[$word_doc])* $variant),* }

        impl FromStr for $kind {
            type Err = BadValue;
            fn from_str(text: &str) -> Result<$kind, BadValue> {
                match text {
                    $($word => Ok($kind::$variant),)*
                    _ => Err(BadValue::new($what, text, $accepted)),
                }
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($kind::$variant => $word),* })
            }
        }
    };
}

words! {
    /// What happens when the ledger cannot be written.
    OnLedgerFailure, "answer to a ledger that can't be written", "required, degrade (a place is given by --ledger)",
    /// The run ends.
    Required = "required",
    /// A gap is kept and new allowed egress waits.
    Degrade = "degrade"
}

words! {
    /// What becomes of processes that outlive the command.
    Leftovers, "word for leftovers", "kill, keep",
    /// They get TERM, a grace period, then KILL.
    Kill = "kill",
    /// They live on, confined as before, under a supervisor that stays.
    Keep = "keep"
}

words! {
    /// An entry to the kernel beside the machine's own, with system call numbers and structures of its own.
    Abi, "entry to the kernel", "i386",
    /// That of 32-bit programs on x86_64.
    I386 = "i386"
}

/// What `--policy` and `--shadow` take: a level's name, or a file where the text holds a `/` or ends in `.toml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyArg {
    /// A level.
    Level(Level),
    /// A policy file.
    File(PathBuf),
}

impl FromStr for PolicyArg {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<PolicyArg, BadValue> {
        if text.contains('/') || text.ends_with(".toml") {
            return Ok(PolicyArg::File(PathBuf::from(text)));
        }
        let level = text.parse().map_err(|mut bad: BadValue| {
            bad.accepted.push_str(", or a file (its path holds a / or ends in .toml)");
            bad
        });
        level.map(PolicyArg::Level)
    }
}

impl fmt::Display for PolicyArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyArg::Level(level) => level.fmt(f),
            PolicyArg::File(file) => file.display().fmt(f),
        }
    }
}

#[cfg(test)]
#[path = "values_tests.rs"]
mod tests;
