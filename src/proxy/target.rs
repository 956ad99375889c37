//! What a request asks for: the raw request target taken apart, in the two forms that a proxy serves
//! (RFC 9112, 3.2.2 and 3.2.3).

use super::head::Head;
use super::malformed::Malformed;
use crate::policy::authority::Authority;

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// CONNECT: a tunnel.
    Tunnel(Authority),
    /// Any other method: one exchange with an HTTP server.
    Exchange {
        /// The server.
        authority: Authority,
        /// The target for the server: origin form, or `*` for OPTIONS of a whole server.
        path: Vec<u8>,
    },
    /// A request within a tunnel that is meant for another host than the tunnel's.
    Elsewhere {
        /// The tunnel's host.
        authority: Authority,
        /// What the request names instead.
        named: String,
    },
}

impl Target {
    /// Takes the target of a request apart.
    pub fn of(head: &Head) -> Result<Target, Malformed> {
        if head.method == "CONNECT" {
            return Ok(Target::Tunnel(Authority::parse_connect(&head.target)?));
        }
        absolute(&head.method, &head.target)
    }

    /// Takes a request apart that a client sends to a tunnel's host, in origin or in absolute form (RFC 9112, 3.2.1 and
    /// 3.2.2). Target and Host must both name that host; where nobody has named it before, as `unnamed` says, one of them must.
    pub fn within(head: &Head, tunnel: &Authority, unnamed: bool) -> Result<Target, Malformed> {
        let target = match head.target.first() {
            _ if head.method == "CONNECT" => return Err(Malformed::TargetForm),
            Some(b'/') if head.target.contains(&b'#') => return Err(Malformed::Target),
            Some(b'/') => Target::Exchange { authority: tunnel.clone(), path: head.target.clone() },
            Some(b'*') if head.method == "OPTIONS" && head.target.len() == 1 => {
                Target::Exchange { authority: tunnel.clone(), path: head.target.clone() }
            }
            _ => absolute(&head.method, &head.target)?,
        };
        let mut named = head.fields.iter().filter(|field| field.is("host"));
        let hosts = named.next().map(|field| Authority::parse_with_default(&field.value, 80)).transpose()?;
        let is_named = hosts.is_some() || !matches!(head.target.first(), Some(b'/' | b'*'));
        if unnamed && !is_named {
            return Ok(Target::Elsewhere { authority: tunnel.clone(), named: "none".to_owned() });
        }
        let by_target = match &target {
            Target::Exchange { authority, .. } => Some(authority.clone()),
            Target::Tunnel(_) | Target::Elsewhere { .. } => None,
        };
        match [by_target, hosts].into_iter().flatten().find(|authority| authority != tunnel) {
            Some(other) => Ok(Target::Elsewhere { authority: tunnel.clone(), named: other.to_string() }),
            None => Ok(target),
        }
    }
}

/// A target in absolute form.
fn absolute(method: &str, target: &[u8]) -> Result<Target, Malformed> {
    let (scheme, rest) = split_scheme(target).ok_or(Malformed::TargetForm)?;
    if !scheme.eq_ignore_ascii_case(b"http") {
        return Err(Malformed::Scheme);
    }
    // A backslash ends the authority for some parsers; it stays in it here, where it is refused.
    let end = rest.iter().position(|b| matches!(b, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if path.contains(&b'#') {
        return Err(Malformed::Target);
    }
    let authority = Authority::parse_with_default(authority, 80)?;
    let path = match path.first() {
        None if method == "OPTIONS" => b"*".to_vec(),
        None => b"/".to_vec(),
        Some(b'?') => [b"/", path].concat(),
        Some(_) => path.to_vec(),
    };
    Ok(Target::Exchange { authority, path })
}

/// The scheme before `://`, and what follows.
fn split_scheme(target: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = target.iter().position(|&b| b == b':')?;
    let rest = target[colon + 1..].strip_prefix(b"//")?;
    let scheme = &target[..colon];
    let plain =
        scheme.first()?.is_ascii_alphabetic() && scheme.iter().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b));
    plain.then_some((scheme, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::head::{Framing, Version};

    fn of(method: &str, target: &str) -> Result<Target, Malformed> {
        Target::of(&Head {
            method: method.to_owned(),
            target: target.as_bytes().to_vec(),
            version: Version::Http11,
            fields: Vec::new(),
            framing: Framing::None,
        })
    }

    fn exchange(method: &str, target: &str) -> (String, String) {
        match of(method, target) {
            Ok(Target::Exchange { authority, path }) => (authority.to_string(), String::from_utf8(path).unwrap()),
            other => panic!("{method} {target}: {other:?}"),
        }
    }

    #[test]
    fn the_absolute_form_gives_a_server_and_a_path() {
        for (method, target, authority, path) in [
            ("GET", "http://allowed.test", "allowed.test:80", "/"),
            ("GET", "HTTP://Allowed.Test./", "allowed.test:80", "/"),
            ("GET", "http://allowed.test?a=b", "allowed.test:80", "/?a=b"),
            ("GET", "http://allowed.test:8080/a?b", "allowed.test:8080", "/a?b"),
            ("GET", "http://a.test/http://b.test/", "a.test:80", "/http://b.test/"),
            ("GET", "http://a.test/@b.test", "a.test:80", "/@b.test"),
            ("OPTIONS", "http://allowed.test", "allowed.test:80", "*"),
            ("OPTIONS", "http://allowed.test/", "allowed.test:80", "/"),
        ] {
            assert_eq!(exchange(method, target), (authority.into(), path.into()));
        }
    }

    #[test]
    fn other_forms_and_schemes_are_refused() {
        for (target, reason) in [
            ("/", "target_form"),
            ("*", "target_form"),
            ("allowed.test:80", "target_form"),
            ("http:/allowed.test/", "target_form"),
            ("http:allowed.test", "target_form"),
            ("://allowed.test/", "target_form"),
            ("https://allowed.test/", "scheme"),
            ("ftp://allowed.test/", "scheme"),
            ("http://allowed.test/#x", "bad_target"),
            ("http://allowed.test#.wild.test/", "bad_target"),
            ("http:///path", "empty_host"),
            ("http://evil.test\\@a.wild.test/", "backslash"),
            ("http://evil.test\\.wild.test/", "backslash"),
            ("http://user@allowed.test/", "user_info"),
            ("http://allowed.test:/", "bad_port"),
        ] {
            let refused = of("GET", target).unwrap_err();
            assert_eq!(refused.reason(), reason, "{target}");
        }
    }

    #[test]
    fn connect_takes_the_authority_form_only() {
        assert!(matches!(of("CONNECT", "allowed.test:443"), Ok(Target::Tunnel(_))));
        for target in ["allowed.test", "http://allowed.test:443", "allowed.test:443/", "/", "*"] {
            assert!(of("CONNECT", target).is_err(), "{target}");
        }
        assert_eq!(of("connect", "allowed.test:443").unwrap_err(), Malformed::TargetForm);
    }
}
