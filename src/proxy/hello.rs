//! The server name that a TLS client asks for, read from its ClientHello (RFC 8446, 4.1.2; RFC 6066, 3) as rustls reads it:
//! strictly, whatever the segmentation, and without a key or a certificate.

use rustls::server::Acceptor;
use std::fmt;

/// Most bytes of the records that carry one ClientHello. Those with post-quantum key shares have about 2 KiB.
pub const HELLO_LIMIT: usize = 64 * 1024;

/// Why what a client says in a tunnel is not let through.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadHello {
    /// No TLS where nothing else is carried.
    #[error("what the tunnel carries is not TLS")]
    NotTls,
    /// A ClientHello that can't be read in one way only.
    #[error("the ClientHello does not parse: {0}")]
    Malformed(String),
    /// More than [`HELLO_LIMIT`] bytes.
    #[error("the ClientHello is longer than 64 KiB")]
    TooLarge,
    /// Not whole within its deadline.
    #[error("the ClientHello did not end in time")]
    Late,
    /// No server name, where the tunnel's host has one.
    #[error("the ClientHello names no server")]
    Missing,
    /// Another server name than the tunnel's host.
    #[error("the ClientHello names {0}")]
    Mismatch(String),
    /// A handshake message before the server has answered the first one: it can only be meant to take its place.
    #[error("a second ClientHello came before the server's answer")]
    Second,
}

impl BadHello {
    /// The rule and the class of the reason, as records carry them.
    pub fn rule_and_reason(&self) -> (&'static str, &'static str) {
        match self {
            BadHello::NotTls => ("tunnel-protocol", "not_tls"),
            BadHello::Malformed(_) => ("malformed", "bad_client_hello"),
            BadHello::TooLarge => ("malformed", "client_hello_too_large"),
            BadHello::Late => ("hello-deadline", "incomplete_client_hello"),
            BadHello::Missing => ("sni", "sni_missing"),
            BadHello::Mismatch(_) => ("sni", "sni_mismatch"),
            BadHello::Second => ("sni", "second_client_hello"),
        }
    }

    /// The fatal alert that a client is given whom the server has not answered yet (RFC 8446, 6.2).
    pub fn alert(&self) -> Option<[u8; 7]> {
        const UNRECOGNIZED_NAME: u8 = 112;
        const DECODE_ERROR: u8 = 50;
        let description = match self {
            BadHello::Missing | BadHello::Mismatch(_) | BadHello::Second => UNRECOGNIZED_NAME,
            BadHello::Malformed(_) | BadHello::TooLarge => DECODE_ERROR,
            BadHello::NotTls | BadHello::Late => return None,
        };
        Some([21, 3, 3, 0, 2, 2, description])
    }
}

/// A ClientHello that comes record by record.
pub struct HelloReader {
    acceptor: Acceptor,
    fed: usize,
}

impl fmt::Debug for HelloReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HelloReader").field("fed", &self.fed).finish_non_exhaustive()
    }
}

impl Default for HelloReader {
    fn default() -> HelloReader {
        HelloReader { acceptor: Acceptor::default(), fed: 0 }
    }
}

impl HelloReader {
    /// Takes the next bytes. When the message is whole, gives the server name, if it has one, in lower case.
    ///
    /// An address in the place of a name counts as none: RFC 6066 has no such name. Errors: [`BadHello::Malformed`],
    /// [`BadHello::TooLarge`]; the message may also not be followed by another within its last record.
    pub fn read(&mut self, mut bytes: &[u8]) -> Result<Option<Option<String>>, BadHello> {
        self.fed += bytes.len();
        if self.fed > HELLO_LIMIT {
            return Err(BadHello::TooLarge);
        }
        while !bytes.is_empty() {
            let taken = self.acceptor.read_tls(&mut bytes).map_err(|e| BadHello::Malformed(e.to_string()))?;
            if let Some(accepted) = self.acceptor.accept().map_err(|(e, _)| BadHello::Malformed(e.to_string()))? {
                if !bytes.is_empty() {
                    return Err(BadHello::Malformed("bytes after it".to_owned()));
                }
                let name = accepted.client_hello().server_name().map(str::to_ascii_lowercase);
                return Ok(Some(name));
            }
            if taken == 0 {
                return Err(BadHello::TooLarge);
            }
        }
        Ok(None)
    }
}
