//! A rule's meaning as the kernel's own bytes have it, so that a rule that was sent and one that is held can be compared.
//!
//! The bytes are walked here and not by netlink-packet-netfilter, whose parser formats an error text for every attribute
//! that it reads: for a wall's rules that was a third of the time that a run takes to start.

use super::expression::Rule;
use netlink_packet_core::{Emitable, NLA_TYPE_MASK};
use std::borrow::Cow;

const NFTA_LIST_ELEM: u16 = 1;
const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
const NFTA_LOG_PREFIX: u16 = 2;
const NFTA_COUNTER_PACKETS: u16 = 2;

/// An expression by name, its attributes by number.
type Meaning<'b> = (Cow<'b, str>, Vec<(u16, Cow<'b, [u8]>)>);

/// The attributes (netlink(7)) of `bytes`: number and value. Ends at the first that does not fit.
pub(super) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (length, kind) =
            rest.first_chunk::<4>().map(|h| (u16::from_ne_bytes([h[0], h[1]]), u16::from_ne_bytes([h[2], h[3]])))?;
        let value = rest.get(4..usize::from(length))?;
        rest = rest.get(usize::from(length).next_multiple_of(4)..).unwrap_or_default();
        Some((kind & NLA_TYPE_MASK, value))
    })
}

/// The meaning of a list of expressions, without what the kernel adds: a counter's state is left out.
fn meaning(expressions: &[u8]) -> impl Iterator<Item = Meaning<'_>> {
    elements(expressions).map(|(name, data)| {
        let mut parts: Vec<(u16, Cow<'_, [u8]>)> = match name.as_ref() {
            "counter" => Vec::new(),
            _ => attributes(data).map(|(kind, value)| (kind, plain(value))).collect(),
        };
        parts.sort();
        (name, parts)
    })
}

/// Whether these expressions mean what was sent.
pub(super) fn is_as_sent(expressions: &[u8], rule: &Rule) -> bool {
    let list = rule.attributes();
    let mut bytes = vec![0; list.as_slice().buffer_len()];
    list.as_slice().emit(&mut bytes);
    meaning(&bytes).eq(meaning(expressions))
}

/// The name that a rule logs and its packet count, of a rule that has both.
pub(super) fn counted(expressions: &[u8]) -> Option<(String, u64)> {
    let find = |wanted: &str, kind: u16| {
        let (_, data) = elements(expressions).find(|(name, _)| name == wanted)?;
        attributes(data).find(|(found, _)| *found == kind).map(|(_, value)| value)
    };
    let packets = u64::from_be_bytes(find("counter", NFTA_COUNTER_PACKETS)?.try_into().ok()?);
    let prefix = name(find("log", NFTA_LOG_PREFIX)?);
    let (_, rule) = prefix.split_once(' ')?;
    Some((rule.to_owned(), packets))
}

/// Each expression's name and data.
fn elements(expressions: &[u8]) -> impl Iterator<Item = (Cow<'_, str>, &[u8])> {
    attributes(expressions).filter(|(kind, _)| *kind == NFTA_LIST_ELEM).map(|(_, element)| {
        let of = |wanted| attributes(element).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
        (name(of(NFTA_EXPR_NAME).unwrap_or_default()), of(NFTA_EXPR_DATA).unwrap_or_default())
    })
}

/// Netlink's strings end in a NUL.
pub(super) fn text(value: &[u8]) -> String {
    name(value).into_owned()
}

fn name(value: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(value.strip_suffix(&[0]).unwrap_or(value))
}

/// A value with the flags of nested attributes cleared: whether NLA_F_NESTED is set is the sender's taste.
fn plain(value: &[u8]) -> Cow<'_, [u8]> {
    let spanned: usize = attributes(value).map(|(_, v)| (v.len() + 4).next_multiple_of(4)).sum();
    if spanned == 0 || spanned != value.len().next_multiple_of(4) {
        return value.into();
    }
    let mut out = Vec::with_capacity(value.len());
    for (kind, inner) in attributes(value) {
        out.extend_from_slice(&kind.to_ne_bytes());
        out.extend_from_slice(&plain(inner));
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn walking_any_bytes_ends(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(attributes(&bytes).map(|(_, v)| v.len()).sum::<usize>() <= bytes.len());
            drop((meaning(&bytes).count(), counted(&bytes)));
        }
    }
}
