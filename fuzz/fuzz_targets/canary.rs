//! What a run has left is hostile: whatever its bytes, the search comes to an end, in bounded memory, and finds what stands
//! there in plain.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence::canary::{Token, found_in};
use std::sync::LazyLock;

static TOKENS: LazyLock<[Token; 2]> = LazyLock::new(|| {
    ["CANARY_fuzz00_abcdefghijklmnopqrstuvwxyz_YRANAC", "26b5c67b-86e4-4c8a"]
        .map(|text| Token::given(text).expect("a token"))
});

const LIMIT: u64 = 1 << 20;

/// A tar's header has a sum that a mutation rarely gets right.
fn mended(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for header in bytes.chunks_exact_mut(512) {
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    bytes
}

fuzz_target!(|bytes: &[u8]| {
    let tokens = &TOKENS[..];
    let _of_tar = found_in(tokens, "x", &mended(bytes), LIMIT);
    let mut more = bytes.to_vec();
    more.extend_from_slice(b"\n\n");
    more.extend_from_slice(tokens[0].text().as_bytes());
    let (found, _) = found_in(tokens, "x", &more, LIMIT);
    assert!(!found.is_empty(), "the token at the end");
});
