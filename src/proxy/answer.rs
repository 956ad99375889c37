//! The answers that are the proxy's own: a status, and unless the policy has refusals explained no body and nothing that
//! names what answered.

use super::admission::Unadmitted;
use super::core::Core;
use super::explain;
use super::malformed::Malformed;
use crate::policy::Authority;

/// What the client may do with the connection after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// Send its next request.
    Keep,
    /// Nothing: it is closed.
    Close,
}

/// The whole answer, without a body.
pub fn bare(status: u16, after: After) -> Vec<u8> {
    format!("{}Content-Length: 0\r\n{}\r\n", status_line(status), closing(after)).into_bytes()
}

/// The answer to a well-formed request that gets no connection.
pub fn unadmitted<R>(
    core: &Core<R>,
    operation: &str,
    authority: &Authority,
    why: &Unadmitted,
    after: After,
) -> Vec<u8> {
    match why {
        Unadmitted::Refused(refusal) => told(core, why.status(), after, operation == "HEAD", || {
            explain::refused(operation, authority, refusal, &core.judge.ways_to_admit(authority, refusal))
        }),
        Unadmitted::Failed(status) => bare(*status, after),
    }
}

/// The answer to bytes that are no request that can be judged; the connection ends after it.
pub fn malformed<R>(core: &Core<R>, text: &[u8], why: &Malformed) -> Vec<u8> {
    told(core, 400, After::Close, text.starts_with(b"HEAD "), || explain::malformed(text, why))
}

/// A refusal, with what explains it where the policy says so. An answer to HEAD has no body, only its length (RFC 9110, 9.3.2).
fn told<R>(core: &Core<R>, status: u16, after: After, to_head: bool, text: impl FnOnce() -> String) -> Vec<u8> {
    let Some(nonce) = &core.nonce else { return bare(status, after) };
    let text = text();
    let head = format!(
        "{}Content-Type: text/plain\r\nContent-Length: {}\r\nRingfence-Refusal: {}\r\n{}\r\n",
        status_line(status),
        text.len(),
        nonce.as_str(),
        closing(after)
    );
    let body = if to_head { "" } else { text.as_str() };
    [head.as_bytes(), body.as_bytes()].concat()
}

fn status_line(status: u16) -> String {
    let phrase = match status {
        400 => "Bad Request",
        403 => "Forbidden",
        504 => "Gateway Timeout",
        _ => "Bad Gateway",
    };
    format!("HTTP/1.1 {status} {phrase}\r\n")
}

fn closing(after: After) -> &'static str {
    match after {
        After::Keep => "",
        After::Close => "Connection: close\r\n",
    }
}

/// The answer to a CONNECT that is admitted; the tunnel follows.
pub const CONNECTED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";
