//! One hash over several values, none of which runs into the next.

use sha2::{Digest, Sha256};
use std::net::IpAddr;

/// SHA-256 over a sequence of values, each of which may be missing. They are small and many: put together first, they are
/// hashed at one go.
#[derive(Default)]
pub(super) struct Parts(Vec<u8>);

impl Parts {
    /// Adds bytes. The length before them keeps ("ab", "c") and ("a", "bc") apart, and a missing value and an empty one.
    pub(super) fn bytes(&mut self, value: Option<&[u8]>) {
        self.0.extend_from_slice(&value.map_or(u64::MAX, |bytes| bytes.len() as u64).to_le_bytes());
        self.0.extend_from_slice(value.unwrap_or_default());
    }

    pub(super) fn text(&mut self, value: Option<&str>) {
        self.bytes(value.map(str::as_bytes));
    }

    pub(super) fn number(&mut self, value: Option<impl Into<u64>>) {
        self.bytes(value.map(|number| number.into().to_le_bytes()).as_ref().map(|bytes| &bytes[..]));
    }

    pub(super) fn addresses(&mut self, addresses: &[IpAddr]) {
        self.0.extend_from_slice(&(addresses.len() as u64).to_le_bytes());
        for address in addresses {
            match address {
                IpAddr::V4(four) => self.bytes(Some(&four.octets())),
                IpAddr::V6(six) => self.bytes(Some(&six.octets())),
            }
        }
    }

    pub(super) fn digest(self) -> [u8; 32] {
        Sha256::digest(&self.0).into()
    }
}
