//! JSON that a terminal may be shown.

use crate::ledger::escape::is_hidden;
use serde_json::Value;

/// A value on one line, as it is: what would move a cursor or turn the direction of a text is written as JSON's own
/// escapes, which every reader undoes (RFC 8259, section 7).
pub(super) fn line(value: &Value) -> String {
    let raw = value.to_string();
    if !raw.chars().any(is_hidden) {
        return raw;
    }
    let mut line = String::with_capacity(raw.len() + 16);
    for character in raw.chars() {
        match is_hidden(character) {
            false => line.push(character),
            true => {
                let mut units = [0; 2];
                line.extend(character.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
            }
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_steers_a_terminal_is_escaped_and_read_back_as_it_was() {
        let value = json!({"path": "a\u{9b}31m\u{202e}b\u{7f}\u{1b}c\u{e0041}größe\n"});
        let line = line(&value);
        assert!(!line.chars().any(is_hidden), "{line}");
        assert!(line.contains("größe") && line.contains("\\u009b31m\\u202e"), "{line}");
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
    }
}
