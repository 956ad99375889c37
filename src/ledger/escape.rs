//! Printable text from byte strings that a hostile process chose.
//!
//! A name in a record must not move a cursor, recolour a terminal, reorder what is read or end a line. Every such
//! character is written out: `\xNN` for a C0 control, DEL, or a byte that is no UTF-8; `\u{H…}` for C1 and the
//! characters that are invisible or steer the direction of text; `\\` for a backslash itself.
//!
//! [`escape`] is injective, which the ledger needs (two objects never look alike in it), and therefore not idempotent:
//! apply it once, where bytes enter. [`printable`] is the idempotent one, for output: it leaves what [`escape`] wrote
//! as it is.

use std::borrow::Cow;
use std::fmt::Write;

/// The bound in bytes for one text in a record: a path of PATH_MAX, or a request line.
pub const TEXT_LIMIT: usize = 4096;

/// The longest truncation mark: `\[+`, twenty digits, `]`.
const MARK_LIMIT: usize = 24;

/// Whether a character is shown as an escape and never raw: controls (Cc), format characters (Cf), line and paragraph
/// separators, and the ignorable ones that show nothing (Unicode 16, DerivedCoreProperties, Default_Ignorable).
pub fn is_hidden(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    matches!(
        c,
        '\u{80}'..='\u{9f}'
            | '\u{ad}'
            | '\u{34f}'
            | '\u{600}'..='\u{605}'
            | '\u{61c}'
            | '\u{6dd}'
            | '\u{70f}'
            | '\u{890}'..='\u{891}'
            | '\u{8e2}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{110bd}'
            | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

enum Unit {
    Char(char),
    Byte(u8),
}

fn units(bytes: &[u8]) -> impl Iterator<Item = Unit> + '_ {
    bytes.utf8_chunks().flat_map(|chunk| {
        let bad = chunk.invalid().iter().map(|b| Unit::Byte(*b));
        chunk.valid().chars().map(Unit::Char).chain(bad)
    })
}

fn push_hidden(out: &mut String, c: char) {
    // Writing to a String cannot fail.
    let written = match c.is_ascii() {
        true => write!(out, "\\x{:02x}", u32::from(c)),
        false => write!(out, "\\u{{{:x}}}", u32::from(c)),
    };
    debug_assert!(written.is_ok());
}

/// The bytes as printable text of at most `limit` bytes (a limit under 24 counts as 24).
///
/// What would be longer is cut between two characters and ends in `\[+N]`, N being the number of input bytes left out.
/// As a backslash of the input is always doubled, no input can forge that mark or an escape.
pub fn escape(bytes: &[u8], limit: usize) -> String {
    let limit = limit.max(MARK_LIMIT);
    let mut out = String::with_capacity(bytes.len().min(limit) + MARK_LIMIT);
    let mut taken = 0;
    let mut cut = (0, 0);
    for unit in units(bytes) {
        match unit {
            Unit::Char('\\') => out.push_str("\\\\"),
            Unit::Char(c) if is_hidden(c) => push_hidden(&mut out, c),
            Unit::Char(c) => out.push(c),
            Unit::Byte(b) => out.push_str(&format!("\\x{b:02x}")),
        }
        taken += match unit {
            Unit::Char(c) => c.len_utf8(),
            Unit::Byte(_) => 1,
        };
        if out.len() > limit {
            let (kept, read) = cut;
            out.truncate(kept);
            out.push_str(&format!("\\[+{}]", bytes.len() - read));
            return out;
        }
        if out.len() <= limit - MARK_LIMIT {
            cut = (out.len(), taken);
        }
    }
    out
}

/// An argument vector, each argument as [`escape`] gives it, all together of at most `limit` bytes; where some do not
/// fit, the last element is `\[+N]`, N being the number of arguments left out.
pub fn escape_args<A: AsRef<[u8]>>(args: impl IntoIterator<Item = A>, limit: usize) -> Vec<String> {
    let mut out = Vec::new();
    let mut room = limit.saturating_sub(MARK_LIMIT);
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        if room < MARK_LIMIT && arg.as_ref().len() > room {
            out.push(format!("\\[+{}]", 1 + args.count()));
            break;
        }
        let text = escape(arg.as_ref(), room.min(TEXT_LIMIT));
        // An empty argument takes room too, or a vector of them would have no bound.
        room = room.saturating_sub(text.len().max(1));
        out.push(text);
        if room == 0 {
            let rest = args.count();
            if rest > 0 {
                out.push(format!("\\[+{rest}]"));
            }
            break;
        }
    }
    out
}

/// The text with every hidden character written out; a backslash stays as it is. Idempotent, and the identity on what
/// [`escape`] gives: for output of text whose source may not have escaped it.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_hidden(c) {
            push_hidden(&mut out, c)
        } else {
            out.push(c)
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The inverse of [`escape`] for text that was not cut.
    fn unescape(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            if c != '\\' {
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            } else if let Some(after) = rest.strip_prefix('\\') {
                out.push(b'\\');
                rest = after;
            } else if let Some(after) = rest.strip_prefix('x') {
                out.push(u8::from_str_radix(&after[..2], 16).unwrap());
                rest = &after[2..];
            } else {
                let (digits, after) = rest.strip_prefix("u{").unwrap().split_once('}').unwrap();
                let c = char::from_u32(u32::from_str_radix(digits, 16).unwrap()).unwrap();
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                rest = after;
            }
        }
        out
    }

    #[test]
    fn the_documented_forms() {
        for (bytes, text) in [
            (&b"plain.test"[..], "plain.test"),
            (
                b"a\0b\x1b[31m\r\n\t\x7f",
                "a\\x00b\\x1b[31m\\x0d\\x0a\\x09\\x7f",
            ),
            (b"\xff\xc3(\xe2\x82", "\\xff\\xc3(\\xe2\\x82"),
            ("\u{9b}31m\u{85}".as_bytes(), "\\u{9b}31m\\u{85}"),
            (
                "a\u{202e}b\u{2066}\u{200b}\u{feff}".as_bytes(),
                "a\\u{202e}b\\u{2066}\\u{200b}\\u{feff}",
            ),
            ("\u{e0041}\u{2028}".as_bytes(), "\\u{e0041}\\u{2028}"),
            ("größe 日本".as_bytes(), "größe 日本"),
            (br"a\x00", r"a\\x00"),
            (b"", ""),
        ] {
            assert_eq!(escape(bytes, TEXT_LIMIT), text);
        }
    }

    #[test]
    fn a_cut_says_how_much_is_missing_and_cannot_be_forged() {
        assert_eq!(
            escape(&[b'a'; 100], 40),
            format!("{}\\[+84]", "a".repeat(16))
        );
        assert_eq!(escape(&[b'a'; 40], 40), "a".repeat(40));
        assert_eq!(escape(&[0; 100], 0), "\\[+100]");
        assert_eq!(escape(b"\\[+84]", 40), "\\\\[+84]");
    }

    #[test]
    fn arguments_have_one_bound_together() {
        let many = vec![vec![b'x'; 100]; 100];
        let out = escape_args(&many, 1000);
        assert!(
            out.iter().map(String::len).sum::<usize>() <= 1000,
            "{out:?}"
        );
        assert_eq!(out[0].len(), 100);
        let shown = out.len() - 1;
        assert_eq!(out[shown], format!("\\[+{}]", 100 - shown));
        assert_eq!(
            escape_args([&b"a"[..], b"", b"b\n"], 1000),
            ["a", "", "b\\x0a"]
        );
        assert!(escape_args(vec![b""; 5000], 1000).len() <= 1001);
    }

    proptest! {
        #[test]
        fn escaping_loses_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let text = escape(&bytes, TEXT_LIMIT);
            prop_assert!(!text.chars().any(is_hidden));
            prop_assert_eq!(unescape(&text), bytes);
            prop_assert_eq!(printable(&text), text.as_str());
        }

        #[test]
        fn the_bound_holds(text in ".{0,200}", limit in 0usize..300) {
            let out = escape(text.as_bytes(), limit);
            prop_assert!(out.len() <= limit.max(MARK_LIMIT));
            prop_assert!(!out.chars().any(is_hidden));
            if let Some((kept, mark)) = out.rsplit_once("\\[+").filter(|(k, _)| !k.ends_with('\\')) {
                let missing: usize = mark.trim_end_matches(']').parse().unwrap();
                prop_assert_eq!(unescape(kept).len() + missing, text.len());
            }
        }

        #[test]
        fn printing_twice_changes_nothing(text in any::<String>()) {
            let once = printable(&text).into_owned();
            prop_assert!(!once.chars().any(is_hidden));
            prop_assert_eq!(printable(&once), once.as_str());
        }
    }
}
