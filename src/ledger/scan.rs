//! Reads lines in the exact form in which the writer puts them: the documented keys in their order, no space, nothing
//! besides. Probes and denials, of which a ledger has many, are read without a decoder; a start and a seal each have theirs.
//!
//! Whatever is otherwise is nobody's error here: the line is left to `ledger::line::decode`. So this need not know all of
//! JSON, only never take what that would not: the tests of `ledger::view` hold the two against each other.

use super::record::{Body, Evidence, Mechanism};
use super::view::{BodyView, DenialView, ObjectView, View};
use crate::policy::Axis;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::net::IpAddr;

// What is inlined here takes texts that the compiler knows, which it then compares in a few instructions.

/// A line's record, if it is in the writer's form and of a kind that is known here.
pub(super) fn scan(line: &[u8]) -> Option<View<'_>> {
    // A control byte is legal nowhere in a line of JSON without spaces; the rest of the scan need not look for one. Not
    // stopping at the first lets the compiler compare many at a time.
    if line.iter().fold(u8::MAX, |least, byte| least.min(*byte)) < b' ' {
        return None;
    }
    let mut rest = Scan { rest: std::str::from_utf8(line).ok()? };
    rest.eat("{\"v\":1,\"seq\":")?;
    let seq = rest.number()?;
    rest.eat(",\"time\":")?;
    let time = rest.text()?.value()?;
    rest.eat(",\"mono_ns\":")?;
    let mono_ns = rest.number()?;
    rest.eat(",\"run\":")?;
    let run = rest.text()?.value()?;
    rest.eat(",\"level\":")?;
    let level = rest.text()?.value()?;
    rest.eat(",\"kind\":")?;
    let body = match rest.text()?.raw {
        "probe" => {
            rest.probe()?;
            BodyView::Probe
        }
        "denial" => BodyView::Denial(rest.denial()?),
        "would_deny" => BodyView::WouldDeny(rest.denial()?),
        "start" => BodyView::Other(Box::new(Body::Start(rest.fields()?))),
        "seal" => BodyView::Other(Box::new(Body::Seal(rest.fields()?))),
        _ => return None,
    };
    rest.eat(",\"prev\":")?;
    let prev = rest.text()?.value()?;
    rest.eat("}")?;
    if !rest.rest.is_empty() {
        return None;
    }
    Some(View { line, v: 1, seq, time, mono_ns, run, level, body, prev })
}

/// The keys that every record has. No kind has a field of these names.
const FRAME: [&str; 8] =
    ["\"v\":", "\"seq\":", "\"time\":", "\"mono_ns\":", "\"run\":", "\"level\":", "\"kind\":", "\"prev\":"];

/// A string as it stands between its quotes.
#[derive(Clone, Copy)]
struct Text<'a> {
    raw: &'a str,
    escapes: Escapes,
}

/// Which escapes a string has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Escapes {
    None,
    /// Such as stand for themselves or for one control byte (RFC 8259, 7).
    Simple,
    /// `\u` too, whose digits may be none, or half of a pair.
    Unicode,
}

impl<'a> Text<'a> {
    /// What it means; none where an escape is none.
    #[inline]
    fn value(self) -> Option<Cow<'a, str>> {
        match self.escapes {
            Escapes::None => Some(Cow::Borrowed(self.raw)),
            _ => serde_json::from_str(&format!("\"{}\"", self.raw)).ok().map(Cow::Owned),
        }
    }
}

/// What of a line is still to be read. It holds no control byte.
struct Scan<'a> {
    rest: &'a str,
}

impl<'a> Scan<'a> {
    #[inline(always)]
    fn eat(&mut self, expected: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(expected)?;
        Some(())
    }

    /// Whether this comes next, which is taken then.
    #[inline(always)]
    fn ate(&mut self, expected: &str) -> bool {
        self.eat(expected).is_some()
    }

    /// So many bytes, which end between two characters.
    #[inline(always)]
    fn take(&mut self, length: usize) -> Option<&'a str> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    /// A number without sign, of at most 19 digits: every one of them fits.
    #[inline(always)]
    fn number(&mut self) -> Option<u64> {
        let bytes = self.rest.as_bytes();
        let length = bytes.iter().take(20).take_while(|byte| byte.is_ascii_digit()).count();
        if length == 0 || length > 19 || (length > 1 && bytes[0] == b'0') {
            return None;
        }
        let digits = self.take(length)?;
        Some(digits.bytes().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
    }

    fn text(&mut self) -> Option<Text<'a>> {
        self.eat("\"")?;
        let bytes = self.rest.as_bytes();
        let (mut at, mut escapes) = (0, Escapes::None);
        loop {
            at += quote_or_backslash(bytes.get(at..)?)?;
            if bytes[at] == b'"' {
                break;
            }
            escapes = match bytes.get(at + 1)? {
                b'u' => Escapes::Unicode,
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' if escapes == Escapes::Unicode => escapes,
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Escapes::Simple,
                _ => return None,
            };
            at += 2;
        }
        let raw = self.take(at)?;
        self.eat("\"")?;
        Some(Text { raw, escapes })
    }

    /// A string whose value nobody asks for, and which must be one all the same.
    #[inline(always)]
    fn any_text(&mut self) -> Option<()> {
        let text = self.text()?;
        match text.escapes {
            Escapes::None | Escapes::Simple => Some(()),
            Escapes::Unicode => text.value().map(drop),
        }
    }

    #[inline(always)]
    fn null(&mut self) -> bool {
        self.ate("null")
    }

    #[inline(always)]
    fn text_or_null(&mut self) -> Option<Option<Cow<'a, str>>> {
        if self.null() { Some(None) } else { Some(Some(self.text()?.value()?)) }
    }

    #[inline(always)]
    fn number_or_null<N: TryFrom<u64>>(&mut self) -> Option<Option<N>> {
        if self.null() { Some(None) } else { Some(Some(N::try_from(self.number()?).ok()?)) }
    }

    /// An array of strings.
    fn texts(&mut self) -> Option<()> {
        self.list(|scan| scan.any_text())
    }

    fn list(&mut self, mut one: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.eat("[")?;
        if self.ate("]") {
            return Some(());
        }
        loop {
            one(self)?;
            if self.ate("]") {
                return Some(());
            }
            self.eat(",")?;
        }
    }

    /// The fields of a kind of which a ledger has few, all that stand before the last `,"prev":`, without the detour that
    /// serde takes where it must look for the kind first.
    fn fields<T: DeserializeOwned>(&mut self) -> Option<T> {
        self.eat(",")?;
        let fields = self.take(self.rest.rfind(",\"prev\":")?)?;
        // A key twice is an error that a parser of these fields alone would not see; an escape could hide one.
        if fields.contains("\\u") || FRAME.iter().any(|key| fields.contains(key)) {
            return None;
        }
        serde_json::from_str(&format!("{{{fields}}}")).ok()
    }

    #[inline(always)]
    fn axis(&mut self) -> Option<Axis> {
        let name = self.text()?.raw;
        Axis::ALL.into_iter().find(|axis| axis.name() == name)
    }

    /// The fields of a `record::Probe`.
    fn probe(&mut self) -> Option<()> {
        self.eat(",\"id\":")?;
        self.any_text()?;
        self.eat(",\"axis\":")?;
        self.axis()?;
        for key in [",\"class\":", ",\"expected\":", ",\"seen\":"] {
            self.eat(key)?;
            self.any_text()?;
        }
        self.eat(",\"passed\":")?;
        (self.ate("true") || self.ate("false")).then_some(())
    }

    /// The fields of a `record::Denial`.
    fn denial(&mut self) -> Option<DenialView<'a>> {
        self.eat(",\"evidence\":")?;
        let evidence = match self.text()?.raw {
            "enforcement-observed" => Evidence::EnforcementObserved,
            "shadow-observed" => Evidence::ShadowObserved,
            _ => return None,
        };
        self.eat(",\"axis\":")?;
        let axis = self.axis()?;
        self.eat(",\"nist\":")?;
        let usual = match axis {
            Axis::Network => "[\"SC-7\"]",
            Axis::Filesystem => "[\"AC-3\",\"AC-4\",\"SC-39\"]",
            Axis::Privilege => "[\"AC-6\"]",
        };
        if !self.ate(usual) {
            self.texts()?;
        }
        self.eat(",\"mechanism\":")?;
        let mechanism = match self.text()?.raw {
            "proxy" => Mechanism::Proxy,
            "firewall" => Mechanism::Firewall,
            "notifier" => Mechanism::Notifier,
            "landlock" => Mechanism::Landlock,
            _ => return None,
        };
        self.eat(",\"operation\":")?;
        let operation = self.text()?.value()?;
        self.eat(",\"object\":")?;
        let object = self.object()?;
        self.eat(",\"errno\":")?;
        if !self.null() {
            self.any_text()?;
        }
        self.eat(",\"http_status\":")?;
        self.number_or_null::<u16>()?;
        self.eat(",\"rule\":")?;
        let rule = self.text()?.value()?;
        self.eat(",\"reason\":")?;
        self.any_text()?;
        self.eat(",\"subject\":{\"pid\":")?;
        self.number_or_null::<u32>()?;
        self.eat(",\"uid\":")?;
        self.number_or_null::<u32>()?;
        self.eat(",\"comm\":")?;
        let comm = self.text_or_null()?;
        self.eat(",\"exe\":")?;
        let exe = self.text_or_null()?;
        for key in [",\"argv\":", ",\"ancestors\":"] {
            self.eat(key)?;
            if !self.null() {
                self.texts()?;
            }
        }
        self.eat("},\"attempt\":")?;
        let attempt = self.number()?;
        self.eat(",\"count\":")?;
        let count = self.number()?;
        Some(DenialView { evidence, axis, mechanism, operation, object, rule, comm, exe, attempt, count })
    }

    /// A `record::Object`, which has those of its fields that are known.
    fn object(&mut self) -> Option<ObjectView<'a>> {
        let mut object = ObjectView::default();
        self.eat("{")?;
        let mut first = true;
        // Whether the key comes next: behind a comma, but for the first one there is.
        let mut key = |scan: &mut Self, name: &str| {
            let here = match first {
                true => scan.ate(name),
                false => scan
                    .rest
                    .strip_prefix(',')
                    .and_then(|rest| rest.strip_prefix(name))
                    .map(|rest| scan.rest = rest)
                    .is_some(),
            };
            first &= !here;
            here
        };
        if key(self, "\"host\":") {
            object.host = Some(self.text()?.value()?);
        }
        if key(self, "\"port\":") {
            object.port = Some(u16::try_from(self.number()?).ok()?);
        }
        if key(self, "\"addrs\":") {
            let mut addrs: Vec<IpAddr> = Vec::new();
            self.list(|scan| {
                addrs.push(scan.text()?.value()?.parse().ok()?);
                Some(())
            })?;
            object.addrs = Cow::Owned(addrs);
        }
        for (name, value) in
            [("\"path\":", &mut object.path), ("\"to\":", &mut object.to), ("\"text\":", &mut object.text)]
        {
            if key(self, name) {
                *value = Some(self.text()?.value()?);
            }
        }
        self.eat("}")?;
        Some(object)
    }
}

/// How far away the next quote or backslash is: eight bytes at a time, as most strings are short.
fn quote_or_backslash(bytes: &[u8]) -> Option<usize> {
    const EACH: u64 = u64::MAX / 255;
    /// The lowest byte that is zero has its top bit set here, and none below it has.
    fn zeros(word: u64) -> u64 {
        word.wrapping_sub(EACH) & !word & (EACH << 7)
    }
    let (words, tail) = bytes.as_chunks::<8>();
    for (number, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let found = zeros(word ^ (EACH * u64::from(b'"'))) | zeros(word ^ (EACH * u64::from(b'\\')));
        if found != 0 {
            return Some(number * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let place = tail.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    Some(words.len() * 8 + place)
}
