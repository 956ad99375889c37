//! Escapes undone: those of URLs, JSON, HTML, C, Python and shells, each byte with the place that it came from.

use super::decode::{Encoding, View};

/// The view with its escapes undone; none where there are none.
pub(super) fn undone(view: &View) -> Option<View> {
    let bytes = &view.bytes;
    let mut undone = View::default();
    let mut copied = 0;
    let mut from = 0;
    while let Some(found) = memchr::memchr3(b'\\', b'%', b'&', &bytes[from..]) {
        let at = from + found;
        let Some((byte, length, encoding)) = one(&bytes[at..]) else {
            from = at + 1;
            continue;
        };
        undone.extend(view, copied..at);
        undone.push(byte, view.places[at], encoding);
        copied = at + length;
        from = copied;
    }
    if copied == 0 {
        return None;
    }
    undone.extend(view, copied..bytes.len());
    Some(undone)
}

/// The byte that an escape stands for, the escape's length, and its kind. What stands for no ASCII character becomes
/// 0xff, which no token has.
fn one(text: &[u8]) -> Option<(u8, usize, Encoding)> {
    let ascii = |number: u32| u8::try_from(number).ok().filter(u8::is_ascii).unwrap_or(0xff);
    match text {
        [b'%', rest @ ..] => Some((ascii(number(rest, 2, 16)?), 3, Encoding::Percent)),
        [b'&', b'#', b'x' | b'X', rest @ ..] => {
            let length = digits(rest, 6, 16);
            (rest.get(length) == Some(&b';')).then_some(())?;
            Some((ascii(number(rest, length, 16)?), length + 4, Encoding::Html))
        }
        [b'&', b'#', rest @ ..] => {
            let length = digits(rest, 7, 10);
            (rest.get(length) == Some(&b';')).then_some(())?;
            Some((ascii(number(rest, length, 10)?), length + 3, Encoding::Html))
        }
        [b'\\', b'x', rest @ ..] => Some((ascii(number(rest, 2, 16)?), 4, Encoding::HexEscape)),
        [b'\\', b'u', b'{', rest @ ..] => {
            let length = digits(rest, 6, 16);
            (rest.get(length) == Some(&b'}')).then_some(())?;
            Some((ascii(number(rest, length, 16)?), length + 4, Encoding::Unicode))
        }
        [b'\\', b'u', rest @ ..] => Some((ascii(number(rest, 4, 16)?), 6, Encoding::Unicode)),
        [b'\\', b'U', rest @ ..] => Some((ascii(number(rest, 8, 16)?), 10, Encoding::Unicode)),
        // echo(1) has a zero before its three digits.
        [b'\\', b'0', rest @ ..] if digits(rest, 3, 8) == 3 => Some((ascii(number(rest, 3, 8)?), 5, Encoding::Octal)),
        [b'\\', b'0'..=b'7', ..] => {
            let length = digits(&text[1..], 3, 8);
            Some((ascii(number(&text[1..], length, 8)?), length + 1, Encoding::Octal))
        }
        [b'\\', b'n' | b'r' | b't' | b'b' | b'f' | b'v' | b'a', ..] => Some((b'\n', 2, Encoding::Split)),
        [b'\\', b'e', ..] => Some((0x1b, 2, Encoding::Split)),
        [b'\\', other, ..] if other.is_ascii_punctuation() => Some((*other, 2, Encoding::Backslash)),
        _ => None,
    }
}

/// How many digits stand at the beginning, `most` at most.
fn digits(text: &[u8], most: usize, radix: u32) -> usize {
    text.iter().take(most).take_while(|byte| char::from(**byte).is_digit(radix)).count()
}

/// The number that exactly so many digits make.
fn number(text: &[u8], length: usize, radix: u32) -> Option<u32> {
    if length == 0 || digits(text, length, radix) < length {
        return None;
    }
    text[..length]
        .iter()
        .try_fold(0_u32, |number, byte| number.checked_mul(radix)?.checked_add(char::from(*byte).to_digit(radix)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(of: &str) -> String {
        let view = undone(&View::raw(of.as_bytes()));
        view.map_or_else(|| "unchanged".into(), |view| String::from_utf8_lossy(&view.bytes).into_owned())
    }

    #[test]
    fn each_escape_is_undone() {
        for (escaped, expected) in [
            ("a%43b", "aCb"),
            ("\\x43\\u0043\\U00000043\\u{43}", "CCCC"),
            ("\\103\\0103\\7", "CC\u{7}"),
            ("&#67;&#x43;&#X43;", "CCC"),
            ("CANARY\\_x\\\\y", "CANARY_x\\y"),
            ("a\\nb", "a\nb"),
            ("\\u00e9%ff", "\u{fffd}\u{fffd}"),
            ("100% \\q &amp; &#; \\x4", "unchanged"),
            ("%4\\", "unchanged"),
        ] {
            assert_eq!(text(escaped), expected, "{escaped}");
        }
    }
}
