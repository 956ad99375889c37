//! The part of the DNS message (RFC 1035, section 4) that a scripted resolver needs.

use std::net::IpAddr;

/// The type of an IPv4 address record.
pub const A: u16 = 1;
/// The type of an alias.
pub const CNAME: u16 = 5;
/// The type of an IPv6 address record.
pub const AAAA: u16 = 28;

/// The response code of success.
pub(crate) const NO_ERROR: u8 = 0;
/// The response code of a resolver's own failure.
pub(crate) const SERVER_FAILURE: u8 = 2;
/// The response code of a name that does not exist.
pub(crate) const NO_SUCH_NAME: u8 = 3;

/// A question as it came: its name in lower case without the last dot, and where it ends in the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) name: String,
    pub(crate) kind: u16,
    end: usize,
}

/// One record of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// An owner's address.
    Address(String, IpAddr),
    /// An owner that is another name's alias.
    Alias(String, String),
}

/// The longest answer that is sent in a datagram, in bytes: what every resolver takes without fragments.
pub(crate) const DATAGRAM: usize = 1232;
/// A pointer to the question's name (RFC 1035, 4.1.4).
const TO_QUESTION: [u8; 2] = [0xc0, 12];

/// Reads the first question of a message; bytes of a label that are no printable ASCII are written `\DDD`.
pub(crate) fn read_question(message: &[u8]) -> Option<Asked> {
    let is_query = message.get(2)? & 0x80 == 0;
    let questions = u16::from_be_bytes([*message.get(4)?, *message.get(5)?]);
    if !is_query || questions == 0 {
        return None;
    }
    let (mut at, mut name) = (12, String::new());
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        match length {
            0 => break,
            1..=63 => {
                if !name.is_empty() {
                    name.push('.');
                }
                for &byte in message.get(at..at + length)? {
                    match byte {
                        b'.' | b'\\' | 0..=32 | 127.. => name.push_str(&format!("\\{byte:03}")),
                        _ => name.push(char::from(byte.to_ascii_lowercase())),
                    }
                }
                at += length;
            }
            // A pointer has no place in a question that starts the message.
            _ => return None,
        }
    }
    let kind = u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]);
    message.get(at..at + 4)?;
    Some(Asked { name, kind, end: at + 4 })
}

/// An answer to `message`: its question, the records with the given lifetime, and the code.
pub(crate) fn write_answer(message: &[u8], asked: &Asked, code: u8, ttl: u32, records: &[Record]) -> Vec<u8> {
    let mut answer = header(message, code, false, records.len() as u16);
    answer.extend_from_slice(&message[12..asked.end]);
    for record in records {
        let (owner, kind, data) = match record {
            Record::Address(owner, IpAddr::V4(address)) => (owner, A, address.octets().to_vec()),
            Record::Address(owner, IpAddr::V6(address)) => (owner, AAAA, address.octets().to_vec()),
            Record::Alias(owner, target) => (owner, CNAME, labels(target)),
        };
        match *owner == asked.name {
            true => answer.extend_from_slice(&TO_QUESTION),
            false => answer.extend_from_slice(&labels(owner)),
        }
        answer.extend_from_slice(&kind.to_be_bytes());
        answer.extend_from_slice(&1_u16.to_be_bytes());
        answer.extend_from_slice(&ttl.to_be_bytes());
        answer.extend_from_slice(&(data.len() as u16).to_be_bytes());
        answer.extend_from_slice(&data);
    }
    answer
}

/// An answer that says that it didn't fit (the TC bit).
pub(crate) fn write_truncated(message: &[u8], asked: &Asked) -> Vec<u8> {
    let mut answer = header(message, NO_ERROR, true, 0);
    answer.extend_from_slice(&message[12..asked.end]);
    answer
}

fn header(message: &[u8], code: u8, truncated: bool, answers: u16) -> Vec<u8> {
    // QR and, as asked, RD; RA, since a resolver is what this stands for.
    let flags = [0x80 | message[2] & 0x01 | if truncated { 0x02 } else { 0 }, 0x80 | code];
    let mut header = vec![message[0], message[1], flags[0], flags[1], 0, 1];
    header.extend_from_slice(&answers.to_be_bytes());
    header.extend_from_slice(&[0, 0, 0, 0]);
    header
}

fn labels(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        bytes.push(label.len() as u8);
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(name: &str, kind: u16) -> Vec<u8> {
        let mut message = vec![0xab, 0xcd, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0];
        message.extend_from_slice(&labels(name));
        message.extend_from_slice(&kind.to_be_bytes());
        message.extend_from_slice(&[0, 1]);
        message
    }

    #[test]
    fn a_question_is_read() {
        let asked = read_question(&question("Files.Example.ORG", AAAA)).expect("well formed");
        assert_eq!((asked.name.as_str(), asked.kind), ("files.example.org", AAAA));
    }

    #[test]
    fn what_is_no_question_is_none() {
        let mut answer = question("a.org", A);
        answer[2] |= 0x80;
        assert_eq!(read_question(&answer), None);
        assert_eq!(read_question(&question("a.org", A)[..14]), None);
        assert_eq!(read_question(&[]), None);
    }

    #[test]
    fn bytes_that_are_no_text_stay_visible() {
        let mut message = question("abc", A);
        message[13] = 0;
        assert_eq!(read_question(&message).expect("well formed").name, "\\000bc");
    }

    #[test]
    fn an_answer_carries_the_question_and_the_record() {
        let message = question("a.org", A);
        let asked = read_question(&message).expect("well formed");
        let record = Record::Address("a.org".to_owned(), IpAddr::from([11, 22, 33, 44]));
        let answer = write_answer(&message, &asked, NO_ERROR, 60, &[record]);
        assert_eq!(&answer[..2], &[0xab, 0xcd]);
        assert_eq!(answer[2] & 0x80, 0x80);
        assert_eq!(&answer[6..8], &[0, 1]);
        assert!(answer.ends_with(&[0, 0, 0, 60, 0, 4, 11, 22, 33, 44]), "{answer:?}");
    }
}
