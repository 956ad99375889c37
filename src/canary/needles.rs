//! What is looked for at full speed: short pieces of both ends of each token, in each encoding.
//!
//! A find of such a piece proves nothing; the bytes around it are then decoded (`decode`). Tokens of our making share
//! their ends, so that a thousand of them need no more pieces than one.

use super::token::{END, Token};
use aho_corasick::packed::{self, MatchKind};
use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, Span};

/// Which decoders a piece calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// Characters, plain, wide, escaped or reversed.
    Text,
    /// Letters moved by thirteen.
    Rot13,
    /// RFC 4648, section 4 or 5.
    Base64,
    /// Hexadecimal digits, in whatever grouping.
    Hex,
    /// Numbers of bytes.
    Decimal,
}

impl Family {
    /// How many there are.
    pub(super) const COUNT: usize = 5;
}

/// The tokens, and the search for pieces of them.
pub(super) struct Needles {
    /// Whole tokens, forwards at `2 * i` and backwards at `2 * i + 1`.
    pub(super) whole: AhoCorasick,
    /// The same of tokens without what joins lines (`decode::projected`).
    pub(super) projected: AhoCorasick,
    /// How many bytes before and after a piece may belong to its token.
    pub(super) reach: usize,
    families: Vec<Family>,
    pieces: Search,
}

enum Search {
    /// Vector instructions, for as many pieces as they serve.
    Packed(packed::Searcher),
    Automaton(AhoCorasick),
}

/// How many times a token's length may lie between its beginning and its end, at least and by its length: pretty-printed
/// lists of numbers and narrow columns are the widest of what is read.
const LEAST_REACH: usize = 2048;
const WIDEST: usize = 40;

/// More pieces than this are slower by vector instructions than by an automaton.
const MOST_PACKED: usize = 96;

impl Needles {
    pub(super) fn of(tokens: &[Token]) -> Needles {
        let mut pieces: Vec<(Vec<u8>, Family)> = Vec::new();
        for end in tokens.iter().flat_map(Token::ends) {
            for piece in pieces_of(end) {
                if !pieces.contains(&piece) {
                    pieces.push(piece);
                }
            }
        }
        let families = pieces.iter().map(|(_, family)| *family).collect();
        let texts: Vec<Vec<u8>> = pieces.into_iter().map(|(text, _)| text).collect();
        let both = |text: Vec<u8>| [text.clone(), text.into_iter().rev().collect()];
        let whole: Vec<Vec<u8>> = tokens.iter().flat_map(|token| both(token.text().into())).collect();
        let projected = tokens.iter().flat_map(|token| both(super::decode::projected_token(token.text())));
        Needles {
            reach: tokens.iter().map(|token| token.text().len() * WIDEST).fold(LEAST_REACH, usize::max),
            whole: automaton(whole),
            projected: automaton(projected.collect()),
            families,
            pieces: search(texts),
        }
    }

    /// The first piece that begins at `from` or later, and where.
    pub(super) fn next(&self, bytes: &[u8], from: usize) -> Option<(usize, Family)> {
        let span = Span { start: from, end: bytes.len() };
        let (at, which) = match &self.pieces {
            Search::Packed(search) => search.find_in(bytes, span).map(|found| (found.start(), found.pattern())),
            Search::Automaton(search) => {
                search.find(Input::new(bytes).span(span)).map(|found| (found.start(), found.pattern()))
            }
        }?;
        Some((at, self.families[which.as_usize()]))
    }
}

#[expect(clippy::expect_used, reason = "a few texts of bounded length fit into any automaton")]
fn automaton(texts: Vec<Vec<u8>>) -> AhoCorasick {
    AhoCorasick::new(texts).expect("an automaton for the tokens")
}

#[expect(clippy::expect_used, reason = "as above")]
fn search(texts: Vec<Vec<u8>>) -> Search {
    let packed = (texts.len() <= MOST_PACKED).then(|| {
        let mut config = packed::Config::new();
        config.match_kind(MatchKind::LeftmostFirst).heuristic_pattern_limits(false);
        config.builder().extend(&texts).build()
    });
    match packed.flatten() {
        Some(search) => Search::Packed(search),
        None => {
            let mut builder = AhoCorasick::builder();
            builder.match_kind(aho_corasick::MatchKind::LeftmostFirst).kind(Some(AhoCorasickKind::DFA));
            Search::Automaton(builder.build(texts).expect("an automaton for the pieces"))
        }
    }
}

/// One end of a token in each encoding.
fn pieces_of(end: &[u8]) -> Vec<(Vec<u8>, Family)> {
    let mut pieces = Vec::new();
    let reversed: Vec<u8> = end.iter().rev().copied().collect();
    for text in [end.to_vec(), reversed] {
        // UTF-16 and UTF-32 of either byte order hold the same run of bytes.
        pieces.push((spread(&text, 1), Family::Text));
        pieces.push((spread(&text, 3), Family::Text));
        pieces.push((text, Family::Text));
    }
    pieces.push((end.iter().map(|byte| rot13(*byte)).collect(), Family::Rot13));
    for offset in 0..3 {
        let inner = base64_inner(end, offset);
        let url = inner
            .iter()
            .map(|byte| match byte {
                b'+' => b'-',
                b'/' => b'_',
                other => *other,
            })
            .collect();
        pieces.push((inner, Family::Base64));
        pieces.push((url, Family::Base64));
    }
    let part = plainest(end);
    let join = |byte: &dyn Fn(&u8) -> String, between: &str| {
        part.iter().map(byte).collect::<Vec<_>>().join(between).into_bytes()
    };
    for upper in [false, true] {
        let digits = |byte: &u8| if upper { format!("{byte:02X}") } else { format!("{byte:02x}") };
        let prefixed = |prefix: &'static str| move |byte: &u8| format!("{prefix}{}", digits(byte));
        for (prefix, after) in [("%", ""), ("\\x", ""), ("\\u00", ""), ("&#x", ";")] {
            pieces.push((join(&|byte| format!("{prefix}{}{after}", digits(byte)), ""), Family::Text));
        }
        for between in ["", " ", ":"] {
            pieces.push((join(&digits, between), Family::Hex));
        }
        for between in [",", ", "] {
            pieces.push((join(&prefixed("0x"), between), Family::Hex));
        }
        // Pairs of bytes, as xxd(1) has them, beginning with the first or the second.
        let [a, b, c] = part.map(|byte| digits(&byte));
        pieces.push((format!("{a}{b} {c}").into_bytes(), Family::Hex));
        pieces.push((format!("{a} {b}{c}").into_bytes(), Family::Hex));
    }
    pieces.push((join(&|byte| format!("\\{byte:03o}"), ""), Family::Text));
    pieces.push((join(&|byte| format!("\\0{byte:03o}"), ""), Family::Text));
    pieces.push((join(&|byte| format!("&#{byte};"), ""), Family::Text));
    for between in [",", ", "] {
        pieces.push((join(&|byte| byte.to_string(), between), Family::Decimal));
    }
    let mut distinct = Vec::new();
    for piece in pieces {
        if !distinct.contains(&piece) {
            distinct.push(piece);
        }
    }
    distinct
}

/// Three bytes of an end; if there are some, such that their hexadecimal digits are all figures, and look the same in
/// upper and lower case.
fn plainest(end: &[u8]) -> [u8; 3] {
    let figures = |byte: &u8| byte & 0x0f < 10 && byte >> 4 < 10;
    let parts = || end[..END].windows(3).map(|part| [part[0], part[1], part[2]]);
    parts().find(|part| part.iter().all(figures)).unwrap_or([end[0], end[1], end[2]])
}

/// With so many null bytes after each byte but the last.
fn spread(text: &[u8], nulls: usize) -> Vec<u8> {
    let mut spread: Vec<u8> =
        text.iter().flat_map(|byte| std::iter::once(*byte).chain(std::iter::repeat_n(0, nulls))).collect();
    spread.truncate(spread.len() - nulls);
    spread
}

/// A letter thirteen further on.
pub(super) fn rot13(byte: u8) -> u8 {
    match byte {
        b'a'..=b'z' => (byte - b'a' + 13) % 26 + b'a',
        b'A'..=b'Z' => (byte - b'A' + 13) % 26 + b'A',
        other => other,
    }
}

/// The base 64 digits that are the text's alone when it begins `offset` bytes after a group's start.
fn base64_inner(text: &[u8], offset: usize) -> Vec<u8> {
    let mut padded = vec![0; offset];
    padded.extend_from_slice(text);
    let digits = data_encoding::BASE64_NOPAD.encode(&padded).into_bytes();
    let first = (offset * 8).div_ceil(6);
    let after = padded.len() * 8 / 6;
    digits[first..after].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_made_tokens_need_no_more_pieces_than_one() {
        let one = [Token::make("a").unwrap()];
        let many: Vec<Token> = (0..1000).map(|_| Token::make("a").unwrap()).collect();
        let (one, many) = (Needles::of(&one), Needles::of(&many));
        assert_eq!(one.families.len(), many.families.len());
        assert!(matches!(one.pieces, Search::Packed(_)), "{} pieces", one.families.len());
    }

    #[test]
    fn the_inner_digits_of_base_64_stand_in_every_encoding_that_holds_the_text() {
        for offset in 0..3 {
            for (before, after) in [("abc", ""), ("\u{7f}\u{7f}\u{7f}", "zzz")] {
                let whole = format!("{}CANARY{after}", &before[..offset]);
                let encoded = data_encoding::BASE64.encode(whole.as_bytes());
                let inner = String::from_utf8(base64_inner(b"CANARY", offset)).unwrap();
                assert!(encoded.contains(&inner) && inner.len() >= 7, "{encoded} {inner}");
            }
        }
    }
}
