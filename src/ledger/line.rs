//! A record as one line of JSON, and back.

use super::escape::is_hidden;
use super::record::Record;
use serde::Serialize;
use std::io::{self, Write};

/// The longest line in bytes, without its newline. Whoever reads a ledger needs no more memory than this for a line.
pub const LINE_LIMIT: usize = 1 << 20;

/// JSON without spaces in which no hidden character stands raw, whoever filled the record: it is written as `\uNNNN`,
/// which is the same string to a parser, so that a ledger can be shown on a terminal as it is.
struct Plain;

impl serde_json::ser::Formatter for Plain {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        // Almost all text is this, and told so many bytes at a time.
        if fragment.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return writer.write_all(fragment.as_bytes());
        }
        let mut start = 0;
        for (at, c) in fragment.char_indices().filter(|(_, c)| is_hidden(*c)) {
            writer.write_all(&fragment.as_bytes()[start..at])?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            start = at + c.len_utf8();
        }
        writer.write_all(&fragment.as_bytes()[start..])
    }
}

/// One line, without a newline.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, serde_json::Error> {
    let mut out = Vec::with_capacity(512);
    encode_into(&mut out, value)?;
    Ok(out)
}

/// The same behind what `out` holds; after an error it holds a part of it.
pub(super) fn encode_into<T: Serialize>(out: &mut Vec<u8>, value: &T) -> Result<(), serde_json::Error> {
    value.serialize(&mut serde_json::Serializer::with_formatter(out, Plain))
}

/// The record in a line, which is given without its newline.
pub fn decode(line: &[u8]) -> Result<Record, serde_json::Error> {
    serde_json::from_slice(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::chain::ORIGIN;
    use crate::ledger::record::{Body, Denial, Mechanism, Object, VERSION};
    use crate::policy::Axis;

    fn record(host: &str) -> Record {
        let object = Object { host: Some(host.into()), port: Some(443), ..Object::default() };
        let mut denial =
            Denial::observed(Axis::Network, Mechanism::Proxy, "CONNECT", object, "default-deny", "not_allowed");
        denial.http_status = Some(403);
        denial.attempt = 3;
        Record {
            v: VERSION,
            seq: 17,
            time: "2026-01-02T03:04:05.000000006Z".into(),
            mono_ns: 7,
            run: "0123456789abcdef".into(),
            level: "nist-high".into(),
            body: Body::Denial(denial),
            prev: ORIGIN.into(),
        }
    }

    #[test]
    fn keys_stand_in_the_documented_order() {
        let line = String::from_utf8(encode(&record("example.test")).unwrap()).unwrap();
        let expected = concat!(
            r#"{"v":1,"seq":17,"time":"2026-01-02T03:04:05.000000006Z","mono_ns":7,"run":"0123456789abcdef","#,
            r#""level":"nist-high","kind":"denial","evidence":"enforcement-observed","axis":"network","#,
            r#""nist":["SC-7"],"mechanism":"proxy","operation":"CONNECT","#,
            r#""object":{"host":"example.test","port":443},"errno":null,"http_status":403,"rule":"default-deny","#,
            r#""reason":"not_allowed","subject":{"pid":null,"uid":null,"comm":null,"exe":null,"argv":null,"#,
            r#""ancestors":null},"attempt":3,"count":1,"#,
            r#""prev":"0000000000000000000000000000000000000000000000000000000000000000"}"#
        );
        assert_eq!(line, expected);
    }

    #[test]
    fn nothing_hidden_stands_raw_in_a_line_and_the_value_is_kept() {
        let host = "a\u{1b}[2J\u{7f}\u{9b}\u{202e}\u{e0041}\"\\\n\u{2028}z";
        let line = encode(&record(host)).unwrap();
        let text = std::str::from_utf8(&line).unwrap();
        assert!(!text.chars().any(is_hidden), "{text}");
        let Body::Denial(denial) = decode(&line).unwrap().body else { panic!("kind") };
        assert_eq!(denial.object.host.as_deref(), Some(host));
    }
}
