//! TLS records (RFC 8446, 5.1) as they pass through a tunnel: which bytes may go on, and until when they are looked at.
//!
//! The client's first message must be a ClientHello that names the tunnel's host. A server that asks for another one
//! (HelloRetryRequest) goes by the second, so that is read and compared as the first is; and since a server reads what lies
//! ready for it, no handshake message may lie there before it is known what the server has answered. The looking ends with
//! the server's first encrypted record: from there on it takes no ClientHello any more.

use super::hello::{BadHello, HelloReader, names_one};
use crate::policy::{Host, Name};
use std::cell::Cell;

const HEADER: usize = 5;
/// Most bytes of a record's payload: 2^14, and what encryption may add (TLS 1.2: 2048).
const PAYLOAD_LIMIT: usize = (1 << 14) + 2048;

const CHANGE_CIPHER_SPEC: u8 = 20;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
/// Bytes of a handshake message from which it can be told whether it may be a ClientHello: type, length, version.
const TELLING: usize = 6;
/// Bytes of a ServerHello up to the end of its random: type, length, version, random.
const TO_RANDOM: usize = 38;
/// The random that makes a ServerHello a HelloRetryRequest: the SHA-256 of that word (RFC 8446, 4.1.3).
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11,
    0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// What is known of the server's side of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// Nothing has come.
    Nothing,
    /// Something has come, but of its answer to the last ClientHello not enough to tell what it is.
    Part,
    /// It asks for another ClientHello (RFC 8446, 4.1.4).
    Retry,
    /// It has answered otherwise.
    Something,
    /// It has sent an encrypted record: it is past every ClientHello.
    Encrypted,
}

/// The type and the payload's length of the record that begins with these bytes; `None` where no record does.
fn header(bytes: &[u8; HEADER]) -> Option<(u8, usize)> {
    let length = usize::from(u16::from_be_bytes([bytes[3], bytes[4]]));
    // Types 20 to 24: 24 is Heartbeat (RFC 6520). The version's first byte is 3 in SSL 3 and in all of TLS.
    let is_record = (CHANGE_CIPHER_SPEC..=24).contains(&bytes[0]) && bytes[1] == 3 && length <= PAYLOAD_LIMIT;
    is_record.then_some((bytes[0], length))
}

/// Whether the bytes begin as a TLS handshake does.
pub fn begins_handshake(first: u8) -> bool {
    first == HANDSHAKE
}

/// Whether a handshake record's payload can be the beginning of a ClientHello that the server has not asked for. No server of
/// today takes one; one that it has asked for is read whatever it looks like.
///
/// Ciphertext of TLS 1.2 comes in records of the same type. That it looks so has a chance of 2^-30: the type's byte, a
/// length below 2^16, and a version of 3.0 to 3.4. What is shorter than any ciphertext is judged by what there is.
fn may_be_hello(payload: &[u8]) -> bool {
    match payload {
        [CLIENT_HELLO, 0, _, _, major, minor, ..] => *major == 3 && *minor <= 4,
        [CLIENT_HELLO, rest @ ..] => rest.first().is_none_or(|&length| length == 0) && payload.len() < TELLING,
        _ => false,
    }
}

/// The client's records.
#[derive(Debug)]
pub struct ClientRecords {
    /// The tunnel's host, if it is a name.
    host: Option<Name>,
    /// Bytes that still belong to a record that may pass.
    passing: usize,
    /// A ClientHello that is awaited or of which part has been read, and how many of the bytes that are held back that is.
    reading: Option<(Option<Box<HelloReader>>, usize)>,
    /// Whether the first one has passed.
    opened: bool,
}

impl ClientRecords {
    /// For a tunnel to this host.
    pub fn of(host: &Host) -> ClientRecords {
        ClientRecords { host: host.name().cloned(), passing: 0, reading: Some((None, 0)), opened: false }
    }

    /// Whether part of a ClientHello is held back.
    pub fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// How many of `bytes`, all that came and did not pass yet, may pass; 0 when more must come first. Errors: they may
    /// not, and nothing more may. A second ClientHello that may pass sets `heard` back: the server has not answered it.
    pub fn advance(&mut self, bytes: &[u8], heard: &Cell<Heard>) -> Result<usize, BadHello> {
        let mut done = 0;
        while done < bytes.len() {
            let rest = &bytes[done..];
            if self.passing > 0 {
                let count = self.passing.min(rest.len());
                self.passing -= count;
                done += count;
                continue;
            }
            let held = self.reading.as_ref().map_or(0, |(_, held)| *held);
            let Some(next) = rest.get(held..) else { break };
            if let Some(first) = next.first()
                && !(CHANGE_CIPHER_SPEC..=24).contains(first)
            {
                return Err(BadHello::NotTls);
            }
            let Some(head) = next.first_chunk::<HEADER>() else { break };
            let (kind, length) = header(head).ok_or(BadHello::NotTls)?;
            let payload = &next[HEADER..next.len().min(HEADER + length)];
            if self.reading.is_none() {
                let passes = match heard.get() {
                    _ if kind != HANDSHAKE => true,
                    Heard::Nothing | Heard::Part => return Err(BadHello::Second),
                    Heard::Retry => false,
                    Heard::Something if payload.len() < length.min(TELLING) => break,
                    Heard::Something => !may_be_hello(payload),
                    Heard::Encrypted => true,
                };
                if passes {
                    self.passing = HEADER + length;
                    continue;
                }
                self.reading = Some((None, 0));
            } else if kind != HANDSHAKE {
                let why = if self.opened || held > 0 { "another record within it" } else { "another record before it" };
                return Err(BadHello::Malformed(why.to_owned()));
            }
            if payload.len() < length {
                break;
            }
            let mut reader = self.reading.take().and_then(|(reader, _)| reader).unwrap_or_default();
            match reader.read(&next[..HEADER + length])? {
                Some(name) => {
                    if !names_one(&rest[..held + HEADER + length]) {
                        return Err(BadHello::Malformed("more than one server name".to_owned()));
                    }
                    self.compare(name)?;
                    self.opened = true;
                    if heard.get() == Heard::Retry {
                        heard.set(Heard::Part);
                    }
                    self.passing = held + HEADER + length;
                }
                None => {
                    self.reading = Some((Some(reader), held + HEADER + length));
                }
            }
        }
        Ok(done)
    }

    /// A name must be the tunnel's host; an address has none.
    fn compare(&self, named: Option<String>) -> Result<(), BadHello> {
        match (&self.host, named) {
            (Some(host), Some(named)) => match Name::parse(named.as_bytes()) {
                Ok(name) if name == *host => Ok(()),
                _ => Err(BadHello::Mismatch(named)),
            },
            (Some(_), None) => Err(BadHello::Missing),
            (None, Some(named)) => Err(BadHello::Mismatch(named)),
            (None, None) => Ok(()),
        }
    }
}

/// The server's records: looked at in passing, never held back.
#[derive(Debug, Default)]
pub struct ServerRecords {
    head: Vec<u8>,
    /// Bytes that still belong to a record, and whether it is one of the handshake.
    passing: usize,
    in_handshake: bool,
    answer: Answer,
    over: bool,
}

impl ServerRecords {
    /// Takes bytes that are about to pass, and notes what they say in `heard`. Gives whether nothing is to be learnt from
    /// what follows.
    pub fn advance(&mut self, mut bytes: &[u8], heard: &Cell<Heard>) -> bool {
        if heard.get() == Heard::Nothing && !bytes.is_empty() {
            heard.set(Heard::Part);
        }
        while !self.over && !bytes.is_empty() {
            if self.passing > 0 {
                let (now, later) = bytes.split_at(self.passing.min(bytes.len()));
                if self.in_handshake {
                    self.answer.advance(now, heard);
                }
                self.passing -= now.len();
                bytes = later;
                continue;
            }
            let count = (HEADER - self.head.len()).min(bytes.len());
            self.head.extend_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            let Some(head) = self.head.first_chunk::<HEADER>() else { break };
            match header(head) {
                Some((APPLICATION_DATA, _)) => {
                    heard.set(Heard::Encrypted);
                    self.over = true;
                }
                Some((kind, length)) => {
                    self.in_handshake = kind == HANDSHAKE;
                    self.passing = length;
                    self.head.clear();
                }
                None => {
                    heard.set(Heard::Something);
                    self.over = true;
                }
            }
        }
        self.over
    }
}

/// The server's handshake messages up to the one that answers for good.
#[derive(Debug, Default)]
struct Answer {
    /// What has come of the present one, as far as it tells something.
    message: Vec<u8>,
    /// What is still to come of a HelloRetryRequest.
    rest: usize,
    whole: bool,
}

impl Answer {
    fn advance(&mut self, mut bytes: &[u8], heard: &Cell<Heard>) {
        while !self.whole && !bytes.is_empty() {
            if self.rest > 0 {
                let count = self.rest.min(bytes.len());
                self.rest -= count;
                bytes = &bytes[count..];
                continue;
            }
            let count = (TO_RANDOM - self.message.len()).min(bytes.len());
            self.message.extend_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            match self.message[..] {
                [SERVER_HELLO, high, middle, low, _, _, ref random @ ..] if *random == RETRY => {
                    let length = u32::from_be_bytes([0, high, middle, low]) as usize;
                    self.rest = (4 + length).saturating_sub(TO_RANDOM);
                    self.message.clear();
                    heard.set(Heard::Retry);
                }
                [SERVER_HELLO, ..] if self.message.len() < TO_RANDOM => {}
                _ => {
                    self.whole = true;
                    heard.set(Heard::Something);
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;
