//! A parent proxy: how it is asked for a tunnel and for one exchange.

use super::head::HEAD_LIMIT;
use super::response::{BadResponse, ResponseHead, put};
use super::wire::Wire;
use crate::policy::upstream::Credentials;
use crate::policy::{Authority, ParentProxy};
use data_encoding::BASE64;
use std::borrow::Cow;
use std::io;
use std::time::Duration;
use tokio::time::timeout;

/// Most interim (1xx) responses to one CONNECT.
const INTERIM_LIMIT: usize = 16;

/// Why a parent proxy opens no tunnel.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    /// It wants credentials, or others.
    #[error("it answered 407: {CREDENTIALS}")]
    Credentials,
    /// It answered with another status than 2xx.
    #[error("it answered {0} to CONNECT")]
    Status(u16),
    /// It answered with no HTTP response.
    #[error(transparent)]
    Response(#[from] BadResponse),
    /// The connection failed.
    #[error("{0}")]
    Connection(#[from] io::Error),
    /// It did not answer in time.
    #[error("no answer to CONNECT within {0:?}")]
    Timeout(Duration),
}

/// What a 407 means here: the client is never asked, since the credentials are not the command's to have.
pub const CREDENTIALS: &str = "it wants credentials, or does not take those that the policy or the environment gives";

impl TunnelError {
    /// The status that the client is given.
    pub fn status(&self) -> u16 {
        match self {
            TunnelError::Timeout(_) => 504,
            _ => 502,
        }
    }
}

/// Asks `parent` over a new connection with it for a tunnel to `authority` (RFC 9110, 9.3.6). What it has sent behind its
/// answer is the tunnel's, and stays unread.
pub async fn open_tunnel(
    wire: &mut Wire,
    authority: &Authority,
    parent: &ParentProxy,
    limit: Duration,
) -> Result<(), TunnelError> {
    let mut request = format!("CONNECT {authority} HTTP/1.1\r\n").into_bytes();
    put(&mut request, "Host", authority.to_string().as_bytes());
    put_credentials(&mut request, parent);
    request.extend_from_slice(b"\r\n");
    let asked = async {
        wire.send(&request, limit).await?;
        for _ in 0..=INTERIM_LIMIT {
            let head = response_head(wire).await?;
            match head.status {
                200..=299 => return Ok(()),
                407 => return Err(TunnelError::Credentials),
                _ if head.is_interim() => {}
                other => return Err(TunnelError::Status(other)),
            }
        }
        Err(BadResponse::Interim.into())
    };
    timeout(limit, asked).await.map_err(|_| TunnelError::Timeout(limit))?
}

/// Reads one response head, of [`HEAD_LIMIT`] bytes at most.
async fn response_head(wire: &mut Wire) -> Result<ResponseHead, TunnelError> {
    loop {
        let bytes = wire.inflow.unused();
        let shown = &bytes[..bytes.len().min(HEAD_LIMIT)];
        if let Some((head, length)) = ResponseHead::parse(shown)? {
            wire.inflow.consume(length);
            return Ok(head);
        }
        if wire.inflow.more().await? == 0 {
            return Err(BadResponse::Closed.into());
        }
    }
}

/// The request target of an exchange as the next hop takes it: origin form for a server, absolute form for a parent proxy
/// (RFC 9112, 3.2.1, 3.2.2; 3.2.4 for `*`).
pub fn target<'a>(parent: Option<&ParentProxy>, authority: &Authority, path: &'a [u8]) -> Cow<'a, [u8]> {
    if parent.is_none() {
        return Cow::Borrowed(path);
    }
    let path = if path == b"*" { b"".as_slice() } else { path };
    Cow::Owned([b"http://", host_field(authority).as_bytes(), path].concat())
}

/// The value of Host for an `http` URL: without its port where that is the scheme's own (RFC 9110, 4.2.3).
pub fn host_field(authority: &Authority) -> String {
    match authority.port {
        80 => authority.host.to_string(),
        port => format!("{}:{port}", authority.host),
    }
}

/// Appends what the parent proxy is told about who asks.
pub fn put_credentials(head: &mut Vec<u8>, parent: &ParentProxy) {
    if let Some(credentials) = parent.credentials() {
        put(head, "Proxy-Authorization", basic(credentials).as_bytes());
    }
}

/// The Basic scheme (RFC 7617, 2).
fn basic(credentials: &Credentials) -> String {
    format!("Basic {}", BASE64.encode(credentials.pair()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        // RFC 4648, 10.
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(BASE64.encode(bytes.as_bytes()), text);
        }
        assert_eq!(BASE64.encode(&[0xfb, 0xff, 0xfe]), "+//+");
        // RFC 7617, 2.
        let parent: ParentProxy = "http://Aladdin:open%20sesame@proxy.test:1".parse().unwrap();
        assert_eq!(basic(parent.credentials().unwrap()), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    }
}
