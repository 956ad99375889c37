//! The answers that are the proxy's own: a status, no body, and nothing that names what answered.

/// What the client may do with the connection after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// Send its next request.
    Keep,
    /// Nothing: it is closed.
    Close,
}

/// The whole answer.
pub fn bare(status: u16, after: After) -> Vec<u8> {
    let phrase = match status {
        400 => "Bad Request",
        403 => "Forbidden",
        504 => "Gateway Timeout",
        _ => "Bad Gateway",
    };
    let close = match after {
        After::Keep => "",
        After::Close => "Connection: close\r\n",
    };
    format!("HTTP/1.1 {status} {phrase}\r\nContent-Length: 0\r\n{close}\r\n").into_bytes()
}

/// The answer to a CONNECT that is admitted; the tunnel follows.
pub const CONNECTED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";
