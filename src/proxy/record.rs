//! What the proxy says happened, and the way in which it is written down before it is answered.

use super::judge::Refusal;
use super::malformed::Malformed;
use super::transparent::question::BadQuestion;
pub use crate::ledger::escape::TEXT_LIMIT;
use crate::ledger::escape::escape;
use crate::ledger::record::{Denial, Infrastructure, Mechanism, Object};
use crate::policy::{Authority, Axis};
use serde::{Deserialize, Serialize};
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The rule of a denial whose request could not be read in one way only.
pub const RULE_MALFORMED: &str = "malformed";

/// The rule of what nothing admits.
const RULE_DEFAULT_DENY: &str = "default-deny";
/// What a question for a name is called.
pub const OPERATION_LOOKUP: &str = "lookup";

/// A record could not be written. Nothing may be refused or admitted any more: the proxy ends.
#[derive(Debug, thiserror::Error)]
pub enum Unrecorded {
    /// The supervisor's end is closed: it is gone, and egress ends with it.
    #[error("the channel to the ledger is closed")]
    Closed,
    /// The channel failed.
    #[error("{call} on the channel to the ledger: {cause}")]
    Channel {
        /// The system call.
        call: &'static str,
        /// Its error.
        cause: std::io::Error,
    },
    /// The supervisor did not acknowledge in time.
    #[error("record {id} was not acknowledged within {after:?}")]
    Late {
        /// The record's number on the channel.
        id: u64,
        /// How long it was waited for.
        after: Duration,
    },
}

/// The two ends of a client's connection, or of a datagram's way: by them the supervisor finds the process that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connection {
    /// The client's.
    pub client: SocketAddr,
    /// The proxy's, as the client's own socket has it.
    pub proxy: SocketAddr,
    /// Whether what came on it was a datagram.
    pub datagram: bool,
}

/// Where denials are written. A call returns when the record is safe, and only then is the client answered.
pub trait Recorder: 'static {
    /// Writes a denial, and on which connection it was asked for.
    fn denial(&self, denial: Denial, on: Option<Connection>) -> impl Future<Output = Result<(), Unrecorded>>;

    /// Writes a failure of the world outside.
    fn infrastructure(&self, failure: Infrastructure) -> impl Future<Output = Result<(), Unrecorded>>;

    /// Does the recorder's own reading for as long as the proxy lives, and gives the reason when nothing can be
    /// recorded any more.
    fn attend(&self) -> impl Future<Output = Unrecorded>;

    /// Waits until the proxy is asked to say what it has left to say, and to end.
    fn asked_to_end(&self) -> impl Future<Output = ()>;

    /// Waits while nothing new may be admitted: the ledger can't be written, and the run goes on all the same.
    fn free_to_admit(&self) -> impl Future<Output = ()>;

    /// Waits until everything that was given to be written is safe.
    fn settled(&self) -> impl Future<Output = ()>;
}

fn denial(operation: &str, object: Object, rule: &str, reason: &str) -> Denial {
    Denial::observed(Axis::Network, Mechanism::Proxy, operation, object, rule, reason)
}

fn object(authority: &Authority, addrs: &[IpAddr]) -> Object {
    Object {
        host: Some(authority.host.to_string()),
        port: Some(authority.port),
        addrs: addrs.to_vec(),
        ..Object::default()
    }
}

/// A refusal of what an admitted tunnel carries; `text` is what was found there.
pub fn carried(operation: &str, authority: &Authority, rule: &str, reason: &str, text: Option<&str>) -> Denial {
    let mut object = object(authority, &[]);
    object.text = text.map(|text| escape(text.as_bytes(), TEXT_LIMIT));
    denial(operation, object, rule, reason)
}

/// A refusal of a well-formed request.
pub fn refused(method: &str, authority: &Authority, refusal: &Refusal) -> Denial {
    let object = object(authority, &refusal.addrs);
    denial(method, object, &refusal.rule, &refusal.reason)
}

/// A refusal of bytes that are no request that can be judged. `text` is what was sent, or its start.
pub fn malformed(text: &[u8], why: &Malformed) -> Denial {
    let end = text.iter().position(|&b| b == b' ').unwrap_or(0);
    let method = &text[..end];
    let plain = (1..=32).contains(&end) && method.iter().all(|&b| super::field::is_token(b));
    let operation = match plain {
        true => String::from_utf8_lossy(method).into_owned(),
        false => "request".to_owned(),
    };
    let object = Object { text: Some(escape(text, TEXT_LIMIT)), ..Object::default() };
    let mut denial = denial(&operation, object, RULE_MALFORMED, why.reason());
    denial.http_status = Some(400);
    denial
}

/// A refusal of a request that has an address where a name must be.
pub fn by_address(operation: &str, addr: SocketAddr) -> Denial {
    let host = match addr.ip() {
        IpAddr::V4(addr) => addr.to_string(),
        IpAddr::V6(addr) => format!("[{addr}]"),
    };
    let object = Object { host: Some(host), port: Some(addr.port()), addrs: vec![addr.ip()], ..Object::default() };
    denial(operation, object, "socks-address", "address_for_name")
}

/// A refusal of a connection to an address that stands for no name.
pub fn to_no_name(operation: &str, addr: SocketAddr) -> Denial {
    Denial { rule: RULE_DEFAULT_DENY.to_owned(), ..by_address(operation, addr) }
}

/// A refusal to say what a name stands for; `kind` is what was asked for of it.
pub fn lookup(name: &[u8], kind: &str, rule: &str, reason: &str, addrs: &[IpAddr]) -> Denial {
    let host = Some(escape(name, TEXT_LIMIT));
    let object = Object { host, addrs: addrs.to_vec(), text: Some(kind.to_owned()), ..Object::default() };
    denial(OPERATION_LOOKUP, object, rule, reason)
}

/// A refusal of a message that is no question of the DNS.
pub fn bad_question(message: &[u8], why: BadQuestion) -> Denial {
    let object = Object { text: Some(escape(message, TEXT_LIMIT)), ..Object::default() };
    denial(OPERATION_LOOKUP, object, RULE_MALFORMED, why.reason())
}

/// A refusal of a command that is not served.
pub fn other_command(operation: &str, name: &str) -> Denial {
    let object = Object { text: Some(name.to_owned()), ..Object::default() };
    denial(operation, object, "socks-command", "command_not_served")
}

/// Refusals that stand for no destination, folded: connections over the cap, heads that did not end in time.
pub fn folded(rule: &str, reason: &str, count: u64) -> Denial {
    let mut denial = denial("accept", Object::default(), rule, reason);
    denial.count = count;
    denial
}

/// A failure outside the policy.
pub fn failed(
    operation: &str,
    authority: &Authority,
    addrs: &[IpAddr],
    cause: String,
    status: Option<u16>,
) -> Infrastructure {
    Infrastructure {
        operation: operation.to_owned(),
        object: object(authority, addrs),
        cause: escape(cause.as_bytes(), TEXT_LIMIT),
        http_status: status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_sent_is_escaped_and_bounded() {
        let sent = [b"GET http://evil.test\0\r\n\x1b[31m \\x ".as_slice(), &[0xff; 9000]].concat();
        let denial = malformed(&sent, &Malformed::ControlByte);
        let text = denial.object.text.unwrap();
        assert!(text.starts_with(r"GET http://evil.test\x00\x0d\x0a\x1b[31m \\x \xff"), "{text}");
        assert!(text.len() <= TEXT_LIMIT);
        assert_eq!((denial.operation.as_str(), denial.http_status), ("GET", Some(400)));
    }

    #[test]
    fn an_operation_is_a_method_or_nothing_of_the_clients() {
        for text in [b"\x16\x03\x01\x02\x00".as_slice(), b"", b" GET /", b"{} x"] {
            let denial = malformed(text, &Malformed::RequestLine);
            assert_eq!(denial.operation, "request", "{text:?}");
        }
    }
}
