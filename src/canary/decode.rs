//! Whole tokens in the bytes around a piece of one, by decoding them in each way that the piece calls for.

use super::escapes;
use super::needles::{Family, Needles, rot13};
use aho_corasick::AhoCorasick;
use std::ops::Range;

/// How a token was written where it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Encoding {
    Literal,
    Reversed,
    /// UTF-16 of either byte order.
    Wide,
    Percent,
    Html,
    HexEscape,
    Unicode,
    Octal,
    Backslash,
    Split,
    Rot13,
    Base64,
    Hex,
    Decimal,
}

impl Encoding {
    /// Its name in what `scan` says.
    pub(super) fn name(self) -> &'static str {
        match self {
            Encoding::Literal => "literal",
            Encoding::Reversed => "reversed",
            Encoding::Wide => "utf-16",
            Encoding::Percent => "percent",
            Encoding::Html => "html",
            Encoding::HexEscape => "hex-escape",
            Encoding::Unicode => "unicode-escape",
            Encoding::Octal => "octal-escape",
            Encoding::Backslash => "backslash",
            Encoding::Split => "split",
            Encoding::Rot13 => "rot13",
            Encoding::Base64 => "base64",
            Encoding::Hex => "hex",
            Encoding::Decimal => "decimal",
        }
    }
}

/// Bytes after some decoding, each with where it began in the window and how it was written there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct View {
    pub(super) bytes: Vec<u8>,
    pub(super) places: Vec<usize>,
    pub(super) encodings: Vec<Encoding>,
}

impl View {
    /// The window as it is.
    pub(super) fn raw(window: &[u8]) -> View {
        View {
            bytes: window.to_vec(),
            places: (0..window.len()).collect(),
            encodings: vec![Encoding::Literal; window.len()],
        }
    }

    pub(super) fn push(&mut self, byte: u8, place: usize, encoding: Encoding) {
        self.bytes.push(byte);
        self.places.push(place);
        self.encodings.push(encoding);
    }

    pub(super) fn extend(&mut self, from: &View, range: Range<usize>) {
        self.bytes.extend_from_slice(&from.bytes[range.clone()]);
        self.places.extend_from_slice(&from.places[range.clone()]);
        self.encodings.extend_from_slice(&from.encodings[range]);
    }

    fn kept(&self, keep: impl Fn(u8) -> bool) -> View {
        let mut kept = View::default();
        for (at, byte) in self.bytes.iter().enumerate().filter(|(_, byte)| keep(**byte)) {
            kept.push(*byte, self.places[at], self.encodings[at]);
        }
        kept
    }
}

/// A whole token in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Whole {
    /// Which one.
    pub(super) token: usize,
    /// Where its first and its last character begin in the window.
    pub(super) place: (usize, usize),
    pub(super) encoding: Encoding,
}

/// The whole tokens in a window, the plainest way in which each is written first; one that is read in two ways is there
/// once.
pub(super) fn tokens_in(needles: &Needles, family: Family, window: &[u8]) -> Vec<Whole> {
    let mut found = Finds { found: Vec::new(), needles };
    let raw = View::raw(window);
    match family {
        Family::Text => found.text(&raw),
        Family::Rot13 => {
            let turned = View { bytes: raw.bytes.iter().map(|byte| rot13(*byte)).collect(), ..raw };
            found.whole(&turned, Some(Encoding::Rot13));
            found.projected(&turned, Encoding::Rot13);
        }
        Family::Base64 => {
            found.base64(&raw);
            if let Some(undone) = escapes::undone(&raw) {
                found.base64(&undone);
            }
        }
        Family::Hex => {
            found.hex(&raw);
            found.whole(&dumped(&raw), Some(Encoding::Hex));
        }
        Family::Decimal => found.decimal(&raw),
    }
    found.found
}

struct Finds<'n> {
    found: Vec<Whole>,
    needles: &'n Needles,
}

impl Finds<'_> {
    fn search(&mut self, automaton: &AhoCorasick, view: &View, label: Option<Encoding>) {
        for hit in automaton.find_overlapping_iter(&view.bytes) {
            let token = hit.pattern().as_usize() / 2;
            let place = (view.places[hit.start()], view.places[hit.end() - 1]);
            let written = &view.encodings[hit.range()];
            let escaped = written.iter().find(|encoding| **encoding != Encoding::Literal).copied();
            let backwards = (hit.pattern().as_usize() % 2 == 1).then_some(Encoding::Reversed);
            let encoding = label.or(backwards).or(escaped).unwrap_or(Encoding::Literal);
            let known = |found: &Whole| found.token == token && found.place.0 <= place.1 && place.0 <= found.place.1;
            if !self.found.iter().any(known) {
                self.found.push(Whole { token, place, encoding });
            }
        }
    }

    fn whole(&mut self, view: &View, label: Option<Encoding>) {
        self.search(&self.needles.whole, view, label);
    }

    /// Tokens whose pieces are held apart by something else than letters and digits.
    fn projected(&mut self, view: &View, label: Encoding) {
        for gutters in [false, true] {
            let joined = joined(view, gutters).kept(|byte| is_kept(byte) || matches!(byte, b'[' | b']'));
            self.search(&self.needles.projected, &joined, Some(label));
        }
    }

    fn text(&mut self, raw: &View) {
        self.whole(raw, None);
        if raw.bytes.contains(&0) {
            self.whole(&raw.kept(|byte| byte != 0), Some(Encoding::Wide));
        }
        let mut escaped = raw.clone();
        // JSON within JSON within a shell's quotes.
        for _ in 0..3 {
            let Some(undone) = escapes::undone(&escaped) else { break };
            self.whole(&undone, None);
            escaped = undone;
        }
        self.projected(raw, Encoding::Split);
        self.projected(&escaped, Encoding::Split);
    }

    fn base64(&mut self, view: &View) {
        let standard = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
        let url = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        for gutters in [false, true] {
            let joined = joined(view, gutters);
            // `+` and `-` are digits of one alphabet or the other, and marks of a diff: so also without either.
            for digits in [joined.kept(standard), joined.kept(url), joined.kept(|byte| byte.is_ascii_alphanumeric())] {
                for offset in 0..4.min(digits.bytes.len()) {
                    self.whole(&of_base64(&digits, offset), Some(Encoding::Base64));
                }
            }
        }
    }

    /// Runs of hexadecimal digits with nothing but separators between them.
    fn hex(&mut self, view: &View) {
        let mut run = View::default();
        let mut at = 0;
        while at <= view.bytes.len() {
            let rest = &view.bytes[at..];
            match rest {
                [b'0', b'x' | b'X', ..] => at += 1,
                [byte, ..] if byte.is_ascii_hexdigit() => run.push(*byte, view.places[at], Encoding::Hex),
                [byte, ..] if byte.is_ascii_whitespace() || b",:;'\"{}()-\\".contains(byte) => {}
                _ => {
                    for offset in 0..2.min(run.bytes.len()) {
                        self.whole(&of_hex(&run, offset), Some(Encoding::Hex));
                    }
                    run = View::default();
                }
            }
            at += 1;
        }
    }

    fn decimal(&mut self, view: &View) {
        let mut run = View::default();
        let mut number: Option<(u32, usize)> = None;
        for at in 0..=view.bytes.len() {
            let byte = view.bytes.get(at).copied();
            if let Some(figure) = byte.filter(u8::is_ascii_digit) {
                let (value, place) = number.unwrap_or((0, view.places[at]));
                number = Some((value.saturating_mul(10).saturating_add(u32::from(figure - b'0')), place));
                continue;
            }
            let ended = number.take().map(|(value, place)| (u8::try_from(value).ok(), place));
            if let Some((Some(value), place)) = ended {
                run.push(value, place, Encoding::Decimal);
            }
            let goes_on = byte.is_some_and(|byte| byte.is_ascii_whitespace() || matches!(byte, b',' | b';'));
            if !goes_on || matches!(ended, Some((None, _))) {
                self.whole(&run, Some(Encoding::Decimal));
                run = View::default();
            }
        }
    }
}

fn is_kept(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// A token as it is looked for where its pieces are held apart: without all that might do so. One of which too little
/// would be left stays whole.
pub(super) fn projected_token(text: &str) -> Vec<u8> {
    let projected: Vec<u8> = text.bytes().filter(|byte| is_kept(*byte)).collect();
    if projected.len() >= 8 { projected } else { text.into() }
}

/// Without what terminals and viewers put between the pieces of a line: escape sequences and, with `gutters`, line
/// numbers, tags, and the frames of a recorded terminal.
fn joined(view: &View, gutters: bool) -> View {
    let mut joined = View::default();
    let mut at = 0;
    while at < view.bytes.len() {
        let rest = &view.bytes[at..];
        let passed = match rest[0] {
            0x1b => escape_sequence(rest),
            b'\n' if gutters => 1 + gutter(&rest[1..]),
            b'<' if gutters => tag(rest),
            b'"' if gutters => frame(rest),
            _ => 0,
        };
        if passed == 0 {
            joined.push(rest[0], view.places[at], view.encodings[at]);
            at += 1;
        }
        at += passed;
    }
    joined
}

/// The length of a control sequence or an operating system command (ECMA-48).
fn escape_sequence(text: &[u8]) -> usize {
    match text {
        [_, b'[', rest @ ..] => {
            let parameters = rest.iter().take_while(|byte| (0x20..0x40).contains(*byte)).count();
            (parameters + 3).min(text.len())
        }
        [_, b']', rest @ ..] => match rest.iter().take(256).position(|byte| matches!(byte, 0x07 | 0x1b)) {
            Some(end) => (end + 3 + usize::from(rest[end] == 0x1b)).min(text.len()),
            None => 2,
        },
        _ => 2.min(text.len()),
    }
}

/// The length of a line's number and what divides it from the line.
fn gutter(line: &[u8]) -> usize {
    let blank = |from: usize| line[from..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let start = blank(0);
    let figures = line[start..].iter().take(8).take_while(|byte| byte.is_ascii_digit()).count();
    let end = start + figures;
    let divider = end + blank(end);
    let length = match &line[divider..] {
        _ if figures == 0 || figures > 7 => return 0,
        [b'|' | b':' | b')' | b'-', ..] => 1,
        // → and │ in UTF-8.
        [0xe2, 0x86, 0x92, ..] | [0xe2, 0x94, 0x82, ..] => 3,
        _ if divider > end => 0,
        _ => return 0,
    };
    divider + length
}

/// The length of a tag of a marked-up text.
fn tag(text: &[u8]) -> usize {
    let opens = matches!(text, [_, b'/', ..]) || text.get(1).is_some_and(u8::is_ascii_alphabetic);
    let end = text.iter().take(200).take_while(|byte| **byte != b'\n').position(|byte| *byte == b'>');
    end.filter(|_| opens).map_or(0, |end| end + 1)
}

/// The length of what stands between two outputs in a recorded terminal (asciicast): `"]`, a line's end, `[1.5, "o", "`.
fn frame(text: &[u8]) -> usize {
    let body = |text: &[u8]| -> Option<usize> {
        let rest = text.strip_prefix(b"\"]")?;
        let rest = rest.strip_prefix(b"\r").unwrap_or(rest).strip_prefix(b"\n[")?;
        let figures = rest.iter().take(24).take_while(|byte| byte.is_ascii_digit() || **byte == b'.').count();
        let rest = rest[figures..].strip_prefix(b",")?;
        let rest = rest.strip_prefix(b" ").unwrap_or(rest).strip_prefix(b"\"o\",")?;
        let rest = rest.strip_prefix(b" ").unwrap_or(rest).strip_prefix(b"\"")?;
        Some(text.len() - rest.len())
    };
    body(text).unwrap_or(0)
}

fn of_base64(digits: &View, offset: usize) -> View {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' | b'-' => 62,
        _ => 63,
    };
    let mut decoded = View::default();
    for (group, four) in digits.bytes[offset..].chunks(4).enumerate() {
        let bits = four.iter().fold(0_u32, |bits, byte| bits << 6 | u32::from(value(*byte))) << (6 * (4 - four.len()));
        let [_, bytes @ ..] = bits.to_be_bytes();
        for (at, byte) in bytes[..four.len() * 6 / 8].iter().enumerate() {
            decoded.push(*byte, digits.places[offset + group * 4 + at], Encoding::Base64);
        }
    }
    decoded
}

fn of_hex(digits: &View, offset: usize) -> View {
    let value = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok()).unwrap_or(0);
    let mut decoded = View::default();
    for (pair, two) in digits.bytes[offset..].chunks_exact(2).enumerate() {
        decoded.push(value(two[0]) << 4 | value(two[1]), digits.places[offset + pair * 2], Encoding::Hex);
    }
    decoded
}

/// The bytes of a dump as xxd(1), hexdump(1) -C and od(1) -t x1 make it: an offset, at most sixteen bytes in groups, and
/// perhaps the same as text.
fn dumped(view: &View) -> View {
    let mut digits = View::default();
    let mut start = 0;
    for line in view.bytes.split_inclusive(|byte| *byte == b'\n') {
        let hex = |from: usize| line[from..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let blank = |from: usize| line[from..].iter().take_while(|byte| **byte == b' ').count();
        let mut at = blank(0);
        let offset = hex(at);
        at += offset;
        at += usize::from(line.get(at) == Some(&b':'));
        let mut taken = 0;
        while offset >= 4 && taken < 32 {
            let gap = blank(at);
            let group = hex(at + gap);
            if !(1..=2).contains(&gap) || group == 0 || group % 2 == 1 || taken + group > 32 {
                break;
            }
            let from = start + at + gap;
            for (byte, place) in line[at + gap..].iter().zip(&view.places[from..]).take(group) {
                digits.push(*byte, *place, Encoding::Hex);
            }
            at += gap + group;
            taken += group;
        }
        start += line.len();
    }
    of_hex(&digits, 0)
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
