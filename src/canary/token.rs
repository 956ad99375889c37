//! One token: made by us, or given.

use super::error::CanaryError;
use super::pattern;
use crate::policy::BadValue;
use data_encoding::BASE32_NOPAD;
use memchr::memmem;
use std::ops::Range;
use std::path::PathBuf;

/// What the tokens that we make begin with. They end with its mirror image, so that wherever a line break, a wrapped
/// encoding or a row of a hex dump cuts through one end, the other end is whole.
const HEAD: &str = "CANARY_";
const TAIL: &str = "_YRANAC";

/// How many characters name the file. Always so many: a token has then 47 characters, 63 in base 64, so that no two
/// breaks of a text wrapped at 64 or more can fall into both its ends.
const SLUG: usize = 6;

/// 128 bits in base 32 (RFC 4648, section 6), without padding and in lower case.
const RANDOM: usize = 26;

/// How much of each end of a token is looked for.
pub(super) const END: usize = 6;

/// The shortest and the longest token that may be given, in bytes.
const LENGTH: std::ops::RangeInclusive<usize> = 8..=200;

/// A token, and where it was planted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    text: String,
    /// The characters before which a piece of [`END`] characters is looked for: the token's end, or the end of what
    /// all tokens of a given pattern have in common.
    tail_end: usize,
    /// The file it was planted for, absolute, as a tokens file has it.
    pub planted: Option<PathBuf>,
    /// The file that holds it: the same, or the one beside it.
    pub holder: Option<PathBuf>,
}

impl Token {
    /// A new one. `stem` is a file's name, of which the token has the first letters and digits.
    pub fn make(stem: &str) -> Result<Token, CanaryError> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(CanaryError::Random)?;
        let letters = stem.bytes().filter(u8::is_ascii_alphanumeric).chain(std::iter::repeat(b'x'));
        let slug: String = letters.take(SLUG).map(|byte| char::from(byte.to_ascii_lowercase())).collect();
        let random = BASE32_NOPAD.encode(&random).to_ascii_lowercase();
        Ok(Token::whole(format!("{HEAD}{slug}_{random}{TAIL}")))
    }

    /// One that is given: 8 to 200 printable ASCII characters without spaces.
    pub fn given(text: &str) -> Result<Token, BadValue> {
        let printable = text.bytes().all(|byte| byte.is_ascii_graphic());
        match printable && LENGTH.contains(&text.len()) {
            true => Ok(Token::whole(text.to_owned())),
            false => Err(BadValue::new("token", text, "8 to 200 printable ASCII characters without spaces")),
        }
    }

    /// All tokens that a pattern stands for: text with character classes, as `plant` prints it.
    pub fn of_pattern(text: &str) -> Result<Vec<Token>, BadValue> {
        let (texts, literal) = pattern::expand(text)?;
        let tail_end = |length: usize| if literal >= END { literal } else { length };
        texts
            .iter()
            .map(|text| Token::given(text).map(|token| Token { tail_end: tail_end(text.len()), ..token }))
            .collect()
    }

    fn whole(text: String) -> Token {
        Token { tail_end: text.len(), text, planted: None, holder: None }
    }

    /// The same, planted for a file and held by it or the one beside it.
    pub(super) fn planted_for(self, path: PathBuf, holder: PathBuf) -> Token {
        Token { planted: Some(path), holder: Some(holder), ..self }
    }

    /// Its characters: ASCII.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A regular expression (of any common dialect) that matches the token and not its own source text: a character
    /// in the middle stands in a class.
    pub fn pattern(&self) -> String {
        pattern::of(&self.text)
    }

    /// The two pieces by which it is looked for.
    pub(super) fn ends(&self) -> [&[u8]; 2] {
        let bytes = self.text.as_bytes();
        [&bytes[..END], &bytes[self.tail_end - END..self.tail_end]]
    }

    /// The first token of our making in a text.
    pub fn in_text(text: &[u8]) -> Option<Token> {
        let length = HEAD.len() + SLUG + 1 + RANDOM + TAIL.len();
        memmem::find_iter(text, HEAD).find_map(|at| {
            let candidate = std::str::from_utf8(text.get(at..at + length)?).ok()?;
            let part = |range: Range<usize>| candidate.as_bytes()[range].iter();
            let (slug, random) = (HEAD.len()..HEAD.len() + SLUG, length - TAIL.len() - RANDOM..length - TAIL.len());
            let ours = part(slug).all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
                && candidate.as_bytes()[HEAD.len() + SLUG] == b'_'
                && part(random).all(|byte| byte.is_ascii_lowercase() || (b'2'..=b'7').contains(byte))
                && candidate.ends_with(TAIL);
            ours.then(|| Token::whole(candidate.to_owned()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_token_is_found_again_and_none_is_like_another() {
        let token = Token::make("Réf.py").unwrap();
        assert_eq!(token.text().len(), 47);
        assert!(token.text().starts_with("CANARY_rfpyxx_") && token.text().ends_with(TAIL), "{token:?}");
        let text = format!("CANARY_short CANARY_{} # {}\n", "x".repeat(40), token.text());
        assert_eq!(Token::in_text(text.as_bytes()), Some(token.clone()));
        assert_eq!(Token::in_text(token.pattern().as_bytes()), None);
        assert_eq!(Token::in_text(&token.text().as_bytes()[..46]), None);
        assert_ne!(Token::make("a").unwrap(), Token::make("a").unwrap());
    }

    #[test]
    fn a_given_token_is_long_enough_to_mean_something() {
        for bad in ["short12", "has a space", "caf\u{e9}-token", "line\nbreak", &"x".repeat(201)] {
            assert!(Token::given(bad).is_err(), "{bad:?}");
        }
        assert_eq!(Token::given("26b5c67b-86e4").unwrap().ends(), [b"26b5c6", b"b-86e4"]);
        let many = Token::of_pattern("CANARY_REFERENCE_LEAK_7f3a91c[0-9]").unwrap();
        assert_eq!((many.len(), many[9].text()), (10, "CANARY_REFERENCE_LEAK_7f3a91c9"));
        assert_eq!(many[0].ends(), [b"CANARY", b"f3a91c"]);
    }
}
