//! Proxies that no run of this program has started: those that the environment names, and whatever listens on this machine
//! and passes on what it is asked.

use super::network::said;
use crate::host::survey::listener;
use crate::policy::{Host, ParentProxy, upstream};
use crate::proxy::Dns;
use crate::proxy::upstream::put_credentials;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A proxy that the environment names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Where it listens.
    pub address: SocketAddr,
    /// The proxy as it is asked over HTTP; `None` for one of SOCKS.
    pub http: Option<ParentProxy>,
}

/// What an environment says of proxies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// Those that can be asked.
    pub named: Vec<Named>,
    /// Why others cannot, a sentence each, without credentials.
    pub not_asked: Vec<String>,
}

/// The proxies that the variables of an environment name. A name is looked up in `hosts`, the text of a hosts(5), alone: no
/// resolver is asked from inside a sandbox.
pub fn in_environment(environment: impl Fn(&str) -> Option<OsString>, hosts: &[u8]) -> Environment {
    let known = Dns::from_files(b"", hosts).hosts;
    let mut found = Environment::default();
    for variable in upstream::VARIABLES {
        let Some(value) = environment(variable).filter(|value| !value.is_empty()) else { continue };
        match named(&value.to_string_lossy(), &known) {
            Ok(proxy) if found.named.contains(&proxy) => {}
            Ok(proxy) => found.named.push(proxy),
            Err(fault) => found.not_asked.push(format!("{variable}: {fault}")),
        }
    }
    found
}

fn named(value: &str, hosts: &BTreeMap<String, Vec<IpAddr>>) -> Result<Named, String> {
    // Without a scheme it is one of HTTP to every client that takes it at all.
    let (scheme, rest) = value.split_once("://").unwrap_or(("http", value));
    let scheme = scheme.to_ascii_lowercase();
    if !["http", "socks5", "socks5h"].contains(&scheme.as_str()) {
        return Err(format!("{scheme} is no scheme that a probe asks; it asks http and socks5"));
    }
    let parent: ParentProxy = format!("http://{rest}").parse().map_err(|fault| format!("{fault}"))?;
    if scheme != "http" && parent.credentials().is_some() {
        return Err("credentials are not shown to a proxy of SOCKS".into());
    }
    let authority = parent.authority();
    let ip = match &authority.host {
        Host::Name(name) if name.as_str() == "localhost" => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        Host::Name(name) => hosts.get(name.as_str()).and_then(|addresses| addresses.first().copied()),
        literal => literal.ip(),
    };
    let ip = ip.ok_or_else(|| format!("{} is not in /etc/hosts, and no resolver is asked", authority.host))?;
    let address = SocketAddr::new(ip, authority.port);
    Ok(Named { address, http: (scheme == "http").then_some(parent) })
}

impl Named {
    /// A request with what the environment gives to be shown to the proxy.
    pub fn with_credentials(&self, request: &str) -> Vec<u8> {
        let mut fields = Vec::new();
        if let Some(parent) = &self.http {
            put_credentials(&mut fields, parent);
        }
        let (line, rest) = request.split_once("\r\n").unwrap_or((request, ""));
        [line.as_bytes(), b"\r\n", &fields, rest.as_bytes()].concat()
    }
}

/// Where something listens that loopback reaches (proc(5), /proc/net/tcp).
pub fn listeners() -> io::Result<Vec<SocketAddr>> {
    let mut found = Vec::new();
    for (table, v6) in [("/proc/net/tcp", false), ("/proc/net/tcp6", true)] {
        let text = match std::fs::read_to_string(table) {
            Ok(text) => text,
            // A kernel without IPv6 has no such table.
            Err(cause) if v6 && cause.kind() == io::ErrorKind::NotFound => continue,
            Err(cause) => return Err(cause),
        };
        let loopback = if v6 { IpAddr::V6(Ipv6Addr::LOCALHOST) } else { IpAddr::V4(Ipv4Addr::LOCALHOST) };
        let lines = text.lines().skip(1).filter_map(|line| listener(line, v6));
        found.extend(lines.map(|listener| match listener.address {
            any if any.ip().is_unspecified() => SocketAddr::new(loopback, any.port()),
            one => one,
        }));
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// How long a connection on this machine may take.
const CONNECTING: Duration = Duration::from_secs(1);
/// How long all answers together may take: a proxy that looks the name up before it refuses takes its resolver's time.
const ANSWERING: Duration = Duration::from_secs(5);
/// A name in a domain that never exists (RFC 2606), so that no policy admits it.
const REQUEST: &[u8] = b"CONNECT not-admitted.invalid:443 HTTP/1.1\r\nHost: not-admitted.invalid:443\r\n\r\n";
/// RFC 1928: version 5, one method, none of authentication.
const GREETING: &[u8] = &[5, 1, 0];

/// Asks each of `named` and each server of this machine to connect to a name that no policy admits, by CONNECT and by SOCKS 5.
pub fn in_reach(named: &[Named]) -> Vec<String> {
    let mut addresses = match listeners() {
        Ok(listeners) => listeners,
        Err(cause) => return vec![format!("/proc/net/tcp: {}", said(&cause))],
    };
    addresses.extend(named.iter().map(|proxy| proxy.address));
    addresses.sort();
    addresses.dedup();
    if addresses.is_empty() {
        return vec!["no server".into()];
    }
    // All are asked before any is waited for.
    let asked: Vec<_> = addresses.into_iter().map(|at| (at, asked(at, REQUEST), asked(at, GREETING))).collect();
    let deadline = Instant::now() + ANSWERING;
    let answered = asked.into_iter().map(|(at, http, socks)| match (http, socks) {
        (Ok(http), Ok(socks)) => (at, by_http(http, deadline), by_socks(socks, deadline)),
        _ => (at, Answer::OutOfReach, Answer::OutOfReach),
    });
    answered.map(|(at, http, socks)| word(at, http, socks)).collect()
}

/// What a server made of being asked.
enum Answer {
    OutOfReach,
    PassesOn(String),
    Refused,
    NoProxy,
    Silent,
}

fn word(at: SocketAddr, http: Answer, socks: Answer) -> String {
    match (http, socks) {
        (Answer::PassesOn(how), _) | (_, Answer::PassesOn(how)) => format!("{at} passes on: {how}"),
        (Answer::Refused, _) | (_, Answer::Refused) => "refused".into(),
        // It may still be asking a resolver.
        (Answer::Silent, _) => format!("{at} gives no answer"),
        (Answer::OutOfReach, _) => "out of reach".into(),
        (Answer::NoProxy, _) => "no proxy".into(),
    }
}

fn asked(at: SocketAddr, request: &[u8]) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&at, CONNECTING)?;
    // One that closes without a look at it has answered.
    let _sent = stream.write_all(request);
    Ok(stream)
}

/// What came until the deadline, at most what `room` holds; `None` for nothing in time.
fn heard<'a>(stream: &mut TcpStream, room: &'a mut [u8], deadline: Instant) -> Option<&'a [u8]> {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let read = stream.set_read_timeout(Some(left)).and_then(|()| stream.read(room));
    match read {
        Ok(length) => Some(&room[..length]),
        Err(cause) if matches!(cause.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => None,
        Err(_) => Some(&[]),
    }
}

/// A proxy has an answer of its own to a name that does not exist: a server of any other kind does not get that far.
fn by_http(mut stream: TcpStream, deadline: Instant) -> Answer {
    let mut room = [0; 512];
    let Some(head) = heard(&mut stream, &mut room, deadline) else { return Answer::Silent };
    let text = String::from_utf8_lossy(head);
    let status = text.strip_prefix("HTTP/1.").and_then(|rest| rest.split([' ', '\r']).nth(1));
    match status {
        Some("403" | "407") => Answer::Refused,
        Some(status @ ("502" | "503" | "504")) => Answer::PassesOn(format!("CONNECT was answered {status}")),
        Some(status) if status.starts_with('2') => Answer::PassesOn(format!("CONNECT was answered {status}")),
        _ => Answer::NoProxy,
    }
}

fn by_socks(mut stream: TcpStream, deadline: Instant) -> Answer {
    const NAME: &[u8] = b"not-admitted.invalid";
    let mut room = [0; 2];
    match heard(&mut stream, &mut room, deadline) {
        Some([5, 0]) => {}
        Some([5, 0xff]) => return Answer::Refused,
        Some(_) => return Answer::NoProxy,
        None => return Answer::Silent,
    }
    // CONNECT to a name (RFC 1928, 4).
    let _sent = stream.write_all(&[&[5, 1, 0, 3, NAME.len() as u8], NAME, &443u16.to_be_bytes()].concat());
    match heard(&mut stream, &mut room, deadline) {
        // "connection not allowed by ruleset", or it is closed.
        Some([5, 2] | []) => Answer::Refused,
        Some([5, reply]) => Answer::PassesOn(format!("SOCKS was answered {reply}")),
        Some(_) => Answer::NoProxy,
        None => Answer::Silent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Environment {
        let value = |name: &str| Some(variables.iter().find(|(known, _)| *known == name)?.1.into());
        in_environment(value, b"10.0.0.7 squid\n")
    }

    #[test]
    fn each_variable_is_read_and_each_proxy_is_had_once() {
        let found = of(&[
            ("https_proxy", "http://127.0.0.1:3128"),
            ("HTTPS_PROXY", "http://127.0.0.1:3128/"),
            ("http_proxy", "squid:3129"),
            ("ALL_PROXY", "socks5h://localhost:1080"),
        ]);
        let addresses: Vec<String> = found.named.iter().map(|proxy| proxy.address.to_string()).collect();
        assert_eq!(addresses, ["127.0.0.1:3128", "10.0.0.7:3129", "127.0.0.1:1080"]);
        let http: Vec<bool> = found.named.iter().map(|proxy| proxy.http.is_some()).collect();
        assert_eq!((http, found.not_asked), (vec![true, true, false], Vec::<String>::new()));
        assert_eq!(of(&[("http_proxy", "")]), Environment::default());
    }

    #[test]
    fn what_cannot_be_asked_is_said_without_credentials() {
        let found = of(&[("https_proxy", "https://a:secret@127.0.0.1:1"), ("all_proxy", "http://b:secret@unknown:1")]);
        assert!(found.named.is_empty());
        assert_eq!(found.not_asked.len(), 2);
        assert!(found.not_asked[0].starts_with("https_proxy: https is no scheme"), "{found:?}");
        assert!(found.not_asked[1].contains("unknown is not in /etc/hosts"), "{found:?}");
        assert!(!found.not_asked.concat().contains("secret"), "{found:?}");
        for one in ["socks4://127.0.0.1:1", "socks5://a:secret@127.0.0.1:1", "http://127.0.0.1", "http://"] {
            let found = of(&[("ALL_PROXY", one)]);
            assert!(found.named.is_empty() && found.not_asked.len() == 1, "{one}: {found:?}");
            assert!(!found.not_asked[0].contains("secret"), "{found:?}");
        }
    }

    #[test]
    fn credentials_go_with_the_request() {
        let proxy = &of(&[("https_proxy", "http://a:b@127.0.0.1:1")]).named[0];
        let sent = proxy.with_credentials("CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n");
        let text = String::from_utf8(sent).unwrap();
        assert_eq!(text, "CONNECT x:1 HTTP/1.1\r\nProxy-Authorization: Basic YTpi\r\nHost: x:1\r\n\r\n");
    }
}
