//! One question of the DNS (RFC 1035, 4.1) as a resolver's client asks it, read strictly, and the answers to it.

pub use hickory_resolver::proto::op::ResponseCode;

/// Bytes of a message's header.
const HEADER: usize = 12;
/// Most bytes of a name, its last, empty label included (RFC 1035, 2.3.4).
const NAME_LIMIT: usize = 255;
/// The bits of a label's first byte that no plain label has: pointers and what was never defined (RFC 1035, 4.1.4).
const NO_LABEL: u8 = 0xc0;
/// Where the question begins, as a pointer to its name.
const TO_NAME: [u8; 2] = [NO_LABEL, HEADER as u8];

const IS_RESPONSE: u8 = 0x80;
const OPCODE: u8 = 0x78;
const RECURSION_DESIRED: u8 = 0x01;
const RECURSION_AVAILABLE: u8 = 0x80;

/// The class of the Internet.
const INTERNET: u16 = 1;
/// The type of an IPv4 address.
pub const A: u16 = 1;
/// The type of an IPv6 address (RFC 3596).
pub const AAAA: u16 = 28;

/// Why a message is no question that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadQuestion {
    /// It has no whole header, or is itself an answer: nothing is answered.
    #[error("the message is no question of the DNS")]
    NoQuestion,
    /// It asks for something else than a query.
    #[error("the opcode is not 0")]
    Opcode,
    /// It holds no question, several, or answers.
    #[error("the message does not hold one question and nothing else")]
    Count,
    /// The name ends in the middle, is too long, or is compressed.
    #[error("the name in the question is not well formed")]
    Name,
}

impl BadQuestion {
    /// The class of the reason, as records carry it.
    pub fn reason(self) -> &'static str {
        match self {
            BadQuestion::NoQuestion => "no_question",
            BadQuestion::Opcode => "dns_opcode",
            BadQuestion::Count => "dns_question_count",
            BadQuestion::Name => "bad_name",
        }
    }

    /// The answer to it, where there is one.
    pub fn answer(self, message: &[u8]) -> Option<Vec<u8>> {
        let code = match self {
            BadQuestion::NoQuestion => return None,
            BadQuestion::Opcode => ResponseCode::NotImp,
            BadQuestion::Count | BadQuestion::Name => ResponseCode::FormErr,
        };
        Some(head(message, code, 0, 0).to_vec())
    }
}

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The message up to the end of the question, which the answer repeats.
    asked: Vec<u8>,
    /// The name, its labels joined by dots, as it was asked for.
    pub name: Vec<u8>,
    /// The type of the records.
    pub kind: u16,
    /// Their class.
    class: u16,
}

impl Question {
    /// Reads a message. What follows the question may be there, as EDNS has it there (RFC 6891), and says nothing here.
    ///
    /// A label may hold any byte. One that holds a dot is another name than the one that it looks like, so it is refused.
    pub fn read(message: &[u8]) -> Result<Question, BadQuestion> {
        let Some(header) = message.first_chunk::<HEADER>() else { return Err(BadQuestion::NoQuestion) };
        if header[2] & IS_RESPONSE != 0 {
            return Err(BadQuestion::NoQuestion);
        }
        if header[2] & OPCODE != 0 {
            return Err(BadQuestion::Opcode);
        }
        if header[4..10] != [0, 1, 0, 0, 0, 0] {
            return Err(BadQuestion::Count);
        }
        let mut name = Vec::new();
        let mut at = HEADER;
        loop {
            let length = *message.get(at).ok_or(BadQuestion::Name)?;
            at += 1;
            if length == 0 {
                break;
            }
            if length & NO_LABEL != 0 {
                return Err(BadQuestion::Name);
            }
            let label = message.get(at..at + usize::from(length)).ok_or(BadQuestion::Name)?;
            at += label.len();
            if label.contains(&b'.') || at - HEADER >= NAME_LIMIT {
                return Err(BadQuestion::Name);
            }
            if !name.is_empty() {
                name.push(b'.');
            }
            name.extend_from_slice(label);
        }
        let Some([kind @ .., c, d]) = message.get(at..at + 4) else { return Err(BadQuestion::Name) };
        let [a, b] = kind else { return Err(BadQuestion::Name) };
        let number = |high: &u8, low: &u8| u16::from_be_bytes([*high, *low]);
        let (kind, class) = (number(a, b), number(c, d));
        Ok(Question { asked: message[..at + 4].to_vec(), name, kind, class })
    }

    /// Whether addresses are asked for, of which kind there may be some.
    pub fn is_for_addresses(&self) -> bool {
        self.class == INTERNET && [A, AAAA].contains(&self.kind)
    }

    /// What is asked for, by its name where it is one of those that clients ask for (IANA, DNS parameters).
    pub fn kind_name(&self) -> String {
        let known = match self.kind {
            A => "A",
            2 => "NS",
            5 => "CNAME",
            6 => "SOA",
            12 => "PTR",
            15 => "MX",
            16 => "TXT",
            AAAA => "AAAA",
            33 => "SRV",
            35 => "NAPTR",
            65 => "HTTPS",
            255 => "ANY",
            other => return format!("TYPE{other}"),
        };
        match self.class {
            INTERNET => known.to_owned(),
            class => format!("{known} of CLASS{class}"),
        }
    }

    /// The answer that there is none.
    pub fn answer(&self, code: ResponseCode) -> Vec<u8> {
        let head = head(&self.asked, code, 1, 0);
        [&head[..], &self.asked[HEADER..]].concat()
    }

    /// The answer by one address, good for so many seconds.
    pub fn answer_with(&self, address: std::net::Ipv4Addr, seconds: u32) -> Vec<u8> {
        let head = head(&self.asked, ResponseCode::NoError, 1, 1);
        let [kind, class] = [A, INTERNET].map(u16::to_be_bytes);
        let record = [&TO_NAME[..], &kind, &class, &seconds.to_be_bytes(), &[0, 4], &address.octets()].concat();
        [&head[..], &self.asked[HEADER..], &record].concat()
    }
}

/// The header of an answer to a message with a header.
fn head(message: &[u8], code: ResponseCode, questions: u8, answers: u8) -> [u8; HEADER] {
    let of = |at: usize| message.get(at).copied().unwrap_or_default();
    let flags = IS_RESPONSE | of(2) & (OPCODE | RECURSION_DESIRED);
    [of(0), of(1), flags, RECURSION_AVAILABLE | code.low(), 0, questions, 0, answers, 0, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_resolver::proto::op::Message;
    use hickory_resolver::proto::rr::RData;
    use proptest::prelude::*;

    fn message(name: &[&[u8]], kind: u16) -> Vec<u8> {
        let labels: Vec<u8> = name.iter().flat_map(|label| [&[label.len() as u8], *label].concat()).collect();
        [&[7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], &labels, &[0], &kind.to_be_bytes(), &[0, 1]].concat()
    }

    fn with(mut message: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
        message[at] = byte;
        message
    }

    #[test]
    fn a_question_is_read_and_answered() {
        let question = Question::read(&message(&[b"Allowed", b"test"], A)).unwrap();
        assert_eq!((question.name.as_slice(), question.kind_name().as_str()), (&b"Allowed.test"[..], "A"));
        let answer = Message::from_vec(&question.answer_with([198, 18, 0, 1].into(), 60)).unwrap();
        assert_eq!((answer.metadata.id, answer.queries[0].name().to_string().as_str()), (0x0709, "Allowed.test."));
        assert!(answer.metadata.recursion_desired && answer.metadata.recursion_available);
        assert!(matches!(&answer.answers[0].data, RData::A(a) if a.0.octets() == [198, 18, 0, 1]), "{answer:?}");
        let refused = Message::from_vec(&question.answer(ResponseCode::Refused)).unwrap();
        assert_eq!((refused.metadata.response_code, refused.answers.len()), (ResponseCode::Refused, 0));
    }

    #[test]
    fn what_is_no_question_is_told_from_what_is_a_bad_one() {
        use BadQuestion::*;
        let plain = message(&[b"allowed", b"test"], A);
        let long = [&[b'a'; 63][..]; 4];
        for (bytes, why, code) in [
            (plain[..11].to_vec(), NoQuestion, None),
            (with(plain.clone(), 2, 0x81), NoQuestion, None),
            (with(plain.clone(), 2, 0x29), Opcode, Some(ResponseCode::NotImp)),
            (with(plain.clone(), 5, 2), Count, Some(ResponseCode::FormErr)),
            (with(plain.clone(), 5, 0), Count, Some(ResponseCode::FormErr)),
            (with(plain.clone(), 7, 1), Count, Some(ResponseCode::FormErr)),
            (with(plain.clone(), 12, 0xc0), Name, Some(ResponseCode::FormErr)),
            (with(plain.clone(), 12, 63), Name, Some(ResponseCode::FormErr)),
            (plain[..plain.len() - 1].to_vec(), Name, Some(ResponseCode::FormErr)),
            (message(&[b"allowed.test"], A), Name, Some(ResponseCode::FormErr)),
            (message(&long, A), Name, Some(ResponseCode::FormErr)),
        ] {
            let bad = Question::read(&bytes).unwrap_err();
            assert_eq!(bad, why, "{bytes:?}");
            let answer = bad.answer(&bytes);
            assert_eq!(answer.map(|answer| answer[3] & 0xf), code.map(ResponseCode::low), "{bytes:?}");
        }
        assert!(Question::read(&message(&[], A)).unwrap().name.is_empty(), "the root");
        let long = [&[b'a'; 63][..], &[b'a'; 63], &[b'a'; 63], &[b'a'; 61]];
        assert_eq!(Question::read(&message(&long, A)).unwrap().name.len(), 253);
    }

    #[test]
    fn of_types_those_of_addresses_alone_are_served() {
        for (kind, name, served) in [
            (A, "A", true),
            (AAAA, "AAAA", true),
            (16, "TXT", false),
            (65, "HTTPS", false),
            (64999, "TYPE64999", false),
        ] {
            let question = Question::read(&message(&[b"a"], kind)).unwrap();
            assert_eq!((question.kind_name().as_str(), question.is_for_addresses()), (name, served));
        }
        let mut chaos = message(&[b"a"], A);
        let last = chaos.len() - 1;
        chaos[last] = 3;
        let chaos = Question::read(&chaos).unwrap();
        assert_eq!((chaos.kind_name().as_str(), chaos.is_for_addresses()), ("A of CLASS3", false));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            match Question::read(&bytes) {
                Ok(question) => prop_assert!(Message::from_vec(&question.answer(ResponseCode::Refused)).is_ok()),
                Err(bad) => prop_assert!(bad.answer(&bytes).is_none_or(|answer| answer.len() == HEADER)),
            }
        }
    }
}
