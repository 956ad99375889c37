//! What a tunnel's client says first is read the same in whatever pieces it comes, and nothing passes before it names the
//! host.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence::policy::Host;
use ringfence::proxy::records::{ClientRecords, Heard};
use std::cell::Cell;

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (step, answered, bytes) = input;
    let host = Host::parse(b"allowed.test").expect("a name");
    let heard = [Heard::Nothing, Heard::Something, Heard::Retry, Heard::Part][usize::from(answered % 4)];
    let mut by_whole = ClientRecords::of(&host);
    let whole = by_whole.advance(bytes, &Cell::new(heard));

    let (mut by_pieces, heard) = (ClientRecords::of(&host), Cell::new(heard));
    let (mut start, mut end, mut outcome) = (0, 0, Ok(0));
    while outcome.is_ok() && end < bytes.len() {
        end = bytes.len().min(end + usize::from(step).max(1));
        outcome = by_pieces.advance(&bytes[start..end], &heard);
        start += outcome.as_ref().copied().unwrap_or(0);
        assert!(start <= end);
    }
    match (&whole, &outcome) {
        (Ok(passed), Ok(_)) => assert_eq!((*passed, by_whole.is_reading()), (start, by_pieces.is_reading())),
        (whole, pieces) => assert_eq!(whole.is_err(), pieces.is_err(), "{whole:?} {pieces:?}"),
    }
    if start > 0 {
        let shown = bytes[..start].to_ascii_lowercase();
        assert!(shown.windows(12).any(|piece| piece == b"allowed.test") || shown.len() > 12, "it is named");
        assert_eq!(bytes[0], 22);
    }
});
