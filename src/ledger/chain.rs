//! The hash chain: each line holds SHA-256 of the line before it, without the newline, in lower-case hexadecimal.
//!
//! The chain has no key: whoever owns the file can compute it anew. What holds such a file to the truth is the head
//! that left through the status descriptor.

use super::error::LedgerError;
use sha2::{Digest, Sha256};

/// The `prev` of the first line.
pub const ORIGIN: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The chain's head after `line`, which is given without its newline.
pub fn head_after(line: &[u8]) -> String {
    hex(&Sha256::digest(line))
}

/// Whether a text has the form of a head: 64 hexadecimal digits in lower case.
pub fn is_head(text: &str) -> bool {
    text.len() == ORIGIN.len() && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether `head` is what [`head_after`] gives for the line of this digest, without making that text.
pub(super) fn is_of(head: &str, digest: &[u8; 32]) -> bool {
    head.len() == ORIGIN.len()
        && head.as_bytes().as_chunks().0.iter().zip(digest).all(|(pair, byte)| *pair == digits(*byte))
}

/// SHA-256 of a line, which is given without its newline.
pub(super) fn digest(line: &[u8]) -> [u8; 32] {
    Sha256::digest(line).into()
}

/// Bytes in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    push_hex(&mut out, bytes);
    out
}

/// Adds them to a text.
pub(super) fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let [high, low] = digits(*byte).map(char::from);
        text.push(high);
        text.push(low);
    }
}

fn digits(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]
}

/// So many random bytes from getrandom(2), in the same digits.
pub fn random_hex<const BYTES: usize>() -> Result<String, LedgerError> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(LedgerError::Random)?;
    Ok(hex(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_plain_sha_256() {
        // FIPS 180-2, appendix B.1.
        assert_eq!(head_after(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert!(is_head(&head_after(b"")));
        assert!(is_head(ORIGIN));
        assert!(!is_head(&ORIGIN[1..]));
        assert!(!is_head(&ORIGIN.replace('0', "A")));
    }
}
