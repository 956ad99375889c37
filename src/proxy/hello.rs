//! The server name that a TLS client asks for, read from its ClientHello (RFC 8446, 4.1.2; RFC 6066, 3) as rustls reads it:
//! strictly, whatever the segmentation, and without a key or a certificate.

use rustls::server::Acceptor;
use std::fmt;

/// Most bytes of the records that carry one ClientHello. Those with post-quantum key shares have about 2 KiB.
pub const HELLO_LIMIT: usize = 32 * 1024;

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
    #[error("the ClientHello is longer than 32 KiB")]
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
#[derive(Default)]
pub struct HelloReader {
    acceptor: Acceptor,
    fed: usize,
}

impl fmt::Debug for HelloReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HelloReader").field("fed", &self.fed).finish_non_exhaustive()
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

/// Whether a ClientHello has at most one server name, and nothing else where that stands.
///
/// A list could hold names of other kinds (RFC 6066, 3), and what comes behind one of those is read by some servers and
/// not by others, rustls among them. `records` are those of a whole ClientHello that [`HelloReader`] has taken.
pub fn names_one(mut records: &[u8]) -> bool {
    let mut message = Vec::with_capacity(records.len());
    while let Some((_, after)) = records.split_at_checked(3) {
        let Some((payload, after)) = counted(after) else { return false };
        message.extend_from_slice(payload);
        records = after;
    }
    match server_name(&message) {
        Some(Some(extension)) => {
            let entry =
                counted(extension).filter(|(_, behind)| behind.is_empty()).and_then(|(list, _)| list.split_first());
            entry.and_then(|(kind, name)| counted(name).filter(|(_, behind)| *kind == 0 && behind.is_empty())).is_some()
        }
        Some(None) => true,
        None => false,
    }
}

/// The server_name extension of a ClientHello, if it has one; the outer nothing is a message that is none.
fn server_name(message: &[u8]) -> Option<Option<&[u8]>> {
    // Type, length, version, random; the session, the cipher suites, the compression methods.
    let (_, rest) = message.get(4 + 2 + 32..).and_then(counted_short)?;
    let (_, rest) = counted(rest)?;
    let (_, rest) = counted_short(rest)?;
    if rest.is_empty() {
        return Some(None);
    }
    let (mut extensions, _) = counted(rest)?;
    while let [high, low, after @ ..] = extensions {
        let (body, after) = counted(after)?;
        if [*high, *low] == [0, 0] {
            return Some(Some(body));
        }
        extensions = after;
    }
    Some(None)
}

/// What is counted by the two bytes before it, and what follows.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*count)))
}

/// The same by one byte.
fn counted_short(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*count))
}
