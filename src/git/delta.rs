//! Deltas: an object as a list of pieces of another one and of its own (gitformat-pack(5), "Deltified representation").

/// A size as deltas have it: seven bits a byte, the lowest first.
fn size(delta: &mut &[u8]) -> Option<u64> {
    let (mut value, mut shift) = (0u64, 0u32);
    loop {
        let (&byte, rest) = delta.split_first()?;
        *delta = rest;
        if shift > 56 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
}

/// The object that a delta makes of its base; `None` where it makes none, or one of more than `limit` bytes.
pub(super) fn apply(base: &[u8], mut delta: &[u8], limit: u64) -> Option<Vec<u8>> {
    let delta = &mut delta;
    if size(delta)? != base.len() as u64 {
        return None;
    }
    let length = size(delta).filter(|length| *length <= limit)?;
    let length = usize::try_from(length).ok()?;
    let mut made = Vec::with_capacity(length.min(1 << 24));
    while let Some((&order, rest)) = delta.split_first() {
        *delta = rest;
        if order & 0x80 != 0 {
            let mut number = |bits: std::ops::Range<u32>| {
                let mut value = 0usize;
                for (place, bit) in bits.enumerate() {
                    if order >> bit & 1 == 1 {
                        let (&byte, rest) = delta.split_first()?;
                        *delta = rest;
                        value |= usize::from(byte) << (8 * place);
                    }
                }
                Some(value)
            };
            let offset = number(0..4)?;
            let count = match number(4..7)? {
                0 => 0x10000,
                count => count,
            };
            made.extend_from_slice(base.get(offset..offset.checked_add(count)?)?);
        } else {
            // Zero is kept for later versions.
            let count = Some(usize::from(order)).filter(|count| *count > 0)?;
            made.extend_from_slice(delta.get(..count)?);
            *delta = &delta[count..];
        }
        if made.len() > length {
            return None;
        }
    }
    (made.len() == length).then_some(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_the_base_and_of_its_own_are_put_together() {
        // Of 5 bytes, to 7: 3 from offset 1, then 4 of its own.
        let delta = [5, 7, 0x80 | 0x01 | 0x10, 1, 3, 4, b'w', b'x', b'y', b'z'];
        assert_eq!(apply(b"abcde", &delta, 100).unwrap(), b"bcdwxyz");
        assert_eq!(apply(b"abcd", &delta, 100), None, "another base");
        assert_eq!(apply(b"abcde", &delta, 6), None, "too large");
        for end in 0..delta.len() {
            assert_eq!(apply(b"abcde", &delta[..end], 100), None, "torn at {end}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_make_something_or_nothing(base: Vec<u8>, delta: Vec<u8>) {
            let made = apply(&base, &delta, 1 << 20);
            proptest::prop_assert!(made.is_none_or(|made| made.len() <= 1 << 20));
        }
    }
}
