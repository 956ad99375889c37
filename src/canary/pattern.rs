//! Patterns: regular expressions of plain text and character classes.

use crate::policy::BadValue;

/// The most tokens that one pattern may stand for.
const MOST: usize = 64;

const ACCEPTED: &str = "plain text with classes such as [0-9] or [k], of at most 64 tokens in all";

/// The characters that mean something in some dialect of regular expressions.
const SPECIAL: &[u8] = b"\\.^$|?*+()[]{}";

/// A pattern that matches `text` and not itself. The class is in the middle: a text of which one end is cut off does
/// not match either.
pub(super) fn of(text: &str) -> String {
    let middle = text.len() / 2;
    // `[^]` and `[\]` are no classes in most dialects.
    let fits = |at: &usize| text.as_bytes()[*at].is_ascii_alphanumeric() || text.as_bytes()[*at] == b'_';
    let classed = (middle..text.len()).chain(0..middle).find(fits).unwrap_or(middle);
    let mut pattern = String::with_capacity(text.len() + 8);
    for (at, character) in text.char_indices() {
        if at == classed {
            pattern.extend(['[', character, ']']);
            continue;
        }
        if SPECIAL.contains(&text.as_bytes()[at]) {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}

/// The texts that a pattern stands for, and how many characters all have in common at their beginning.
pub(super) fn expand(pattern: &str) -> Result<(Vec<String>, usize), BadValue> {
    let bad = || BadValue::new("pattern", pattern, ACCEPTED);
    let mut texts = vec![String::new()];
    let mut common = None;
    let mut rest = pattern.chars();
    while let Some(character) = rest.next() {
        let choices = match character {
            '[' => class(&mut rest).ok_or_else(bad)?,
            '\\' => vec![rest.next().filter(|next| !next.is_alphanumeric()).ok_or_else(bad)?],
            // What would mean more than itself.
            '.' | '^' | '$' | '|' | '?' | '*' | '+' | '(' | ')' | '{' | '}' | ']' => return Err(bad()),
            plain => vec![plain],
        };
        if texts.len() * choices.len() > MOST {
            return Err(bad());
        }
        if choices.len() > 1 {
            common.get_or_insert(texts[0].len());
        }
        texts = texts.iter().flat_map(|text| choices.iter().map(move |choice| format!("{text}{choice}"))).collect();
    }
    let common = common.unwrap_or(texts[0].len());
    Ok((texts, common))
}

/// The characters of a class, its `[` already read.
fn class(rest: &mut std::str::Chars<'_>) -> Option<Vec<char>> {
    let (body, after) = rest.as_str().split_once(']')?;
    *rest = after.chars();
    let body: Vec<char> = body.chars().collect();
    if body.is_empty() || body[0] == '^' || body.contains(&'\\') || !body.iter().all(char::is_ascii) {
        return None;
    }
    let mut choices = Vec::new();
    let mut at = 0;
    while at < body.len() {
        match body[at..] {
            [from, '-', to, ..] => {
                choices.extend(from..=to);
                at += 3;
            }
            [one, ..] => {
                choices.push(one);
                at += 1;
            }
            [] => {}
        }
    }
    choices.sort_unstable();
    choices.dedup();
    (!choices.is_empty()).then_some(choices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_more_than_text_and_classes_is_refused() {
        for bad in ["a.b", "x*", "[^a]bcdefgh", "[a", "a]", "\\d+", "[]", "[z-a]", "[0-9][0-9]", "x{3}", "é[\u{e9}]"] {
            assert!(expand(bad).is_err(), "{bad}");
        }
        assert_eq!(expand("a\\.[a-c1]").unwrap(), (vec!["a.1".into(), "a.a".into(), "a.b".into(), "a.c".into()], 2));
    }

    proptest! {
        #[test]
        fn a_pattern_stands_for_its_token_alone_and_does_not_hold_it(text in "[!-~]{8,60}") {
            let pattern = of(&text);
            prop_assert!(!pattern.contains(&text));
            let class = pattern.find('[');
            if text.bytes().any(|byte| byte.is_ascii_alphanumeric()) {
                prop_assert!(class.is_some());
                prop_assert_eq!(expand(&pattern).unwrap().0, vec![text]);
            }
        }
    }
}
