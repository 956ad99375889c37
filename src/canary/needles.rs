//! What is looked for at full speed: short pieces of both ends of each token, in each encoding.
//!
//! A find of such a piece proves nothing; the bytes around it are then decoded (`decode`). Tokens of our making share
//! their ends, so that a thousand of them need no more pieces than one.

use super::token::{END, Token};
use aho_corasick::packed::{self, MatchKind};
use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, Span};
use std::collections::HashSet;

/// Which decoders a piece calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
        let mut ends: Vec<[&[u8]; 2]> = tokens.iter().map(Token::ends).collect();
        ends.sort_unstable();
        ends.dedup();
        let mut known = HashSet::new();
        for piece in ends.into_iter().flat_map(pieces_of) {
            if known.insert(piece.clone()) {
                pieces.push(piece);
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

/// What is looked for of a token that begins and ends so.
///
/// Where lines are commonly broken (text, base 64, plain hexadecimal, dumps, spaced lists) both ends are, of which at
/// least one is then whole. For the rest the beginning does: each piece costs something on every byte that is read.
fn pieces_of([head, tail]: [&[u8]; 2]) -> Vec<(Vec<u8>, Family)> {
    let mut pieces = Vec::new();
    for end in [head, tail] {
        let reversed: Vec<u8> = end.iter().rev().copied().collect();
        pieces.extend([(end.to_vec(), Family::Text), (reversed, Family::Text)]);
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
            pieces.extend([(inner, Family::Base64), (url, Family::Base64)]);
        }
        let part = plainest(end);
        for digits in CASES {
            let [a, b, c] = part.map(digits);
            // Pairs of bytes, as xxd(1) has them, begin with the first or the second.
            for text in [
                format!("{a}{b}{c}"),
                format!("{a} {b} {c}"),
                format!("{a}{b} {c}"),
                format!("{a} {b}{c}"),
                format!("0x{a}, 0x{b}, 0x{c}"),
            ] {
                pieces.push((text.into_bytes(), Family::Hex));
            }
        }
        pieces.push((part.map(|byte| byte.to_string()).join(", ").into_bytes(), Family::Decimal));
    }
    // UTF-16 of either byte order holds the same run of bytes.
    pieces.push((head.iter().flat_map(|byte| [*byte, 0]).take(2 * END - 1).collect(), Family::Text));
    pieces.push((head.iter().map(|byte| rot13(*byte)).collect(), Family::Rot13));
    let part = plainest(head);
    for digits in CASES {
        let [a, b, c] = part.map(digits);
        for text in [
            format!("%{a}%{b}%{c}"),
            format!("\\x{a}\\x{b}\\x{c}"),
            format!("\\u00{a}\\u00{b}\\u00{c}"),
            format!("&#x{a};&#x{b};&#x{c};"),
        ] {
            pieces.push((text.into_bytes(), Family::Text));
        }
        pieces.push((format!("{a}:{b}:{c}").into_bytes(), Family::Hex));
        pieces.push((format!("0x{a},0x{b},0x{c}").into_bytes(), Family::Hex));
    }
    let [a, b, c] = part;
    for text in [
        format!("\\{a:03o}\\{b:03o}\\{c:03o}"),
        format!("\\0{a:03o}\\0{b:03o}\\0{c:03o}"),
        format!("&#{a};&#{b};&#{c};"),
    ] {
        pieces.push((text.into_bytes(), Family::Text));
    }
    pieces.push((format!("{a},{b},{c}").into_bytes(), Family::Decimal));
    pieces
}

/// A byte's two hexadecimal digits, in lower and in upper case.
const CASES: [fn(u8) -> String; 2] = [|byte| format!("{byte:02x}"), |byte| format!("{byte:02X}")];

/// Three bytes of an end; if there are some, such that their hexadecimal digits are all figures, and look the same in
/// upper and lower case.
fn plainest(end: &[u8]) -> [u8; 3] {
    let figures = |byte: &u8| byte & 0x0f < 10 && byte >> 4 < 10;
    let parts = || end[..END].windows(3).map(|part| [part[0], part[1], part[2]]);
    parts().find(|part| part.iter().all(figures)).unwrap_or([end[0], end[1], end[2]])
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
        assert!(matches!(one.pieces, Search::Packed(_)));
        // One more, and the vector instructions take half as many bytes at a time.
        assert!(one.families.len() <= 32, "{} pieces", one.families.len());
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
