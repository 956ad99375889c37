//! A run's identifier.

use super::chain::random_hex;
use super::error::LedgerError;
use std::fmt;
use std::str::FromStr;

/// 64 random bits, shown as 16 hexadecimal digits in lower case: names the ledger, the firewall's table, the cgroup.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RunId(String);

impl RunId {
    /// A new identifier from getrandom(2).
    pub fn random() -> Result<RunId, LedgerError> {
        random_hex::<8>().map(RunId)
    }

    /// The 16 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that names no run.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no run identifier: 16 hexadecimal digits in lower case are expected")]
pub struct NotARunId(String);

impl FromStr for RunId {
    type Err = NotARunId;

    fn from_str(text: &str) -> Result<RunId, NotARunId> {
        let digits = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        match text.len() == 16 && digits {
            true => Ok(RunId(text.to_owned())),
            false => Err(NotARunId(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_sixteen_digits_and_differ() {
        let (a, b) = (RunId::random().unwrap(), RunId::random().unwrap());
        assert_ne!(a, b);
        assert_eq!(a.as_str().parse::<RunId>().unwrap(), a);
        for bad in ["", "0123456789abcde", "0123456789abcdef0", "0123456789ABCDEF", "../../etc/passwd"] {
            assert!(bad.parse::<RunId>().is_err(), "{bad}");
        }
    }
}
