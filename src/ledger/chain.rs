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

/// Bytes in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut out = String::with_capacity(bytes.len() * 2);
    for b in bytes {
        out.push(char::from(DIGITS[usize::from(b >> 4)]));
        out.push(char::from(DIGITS[usize::from(b & 15)]));
    }
    out
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
