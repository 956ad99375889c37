//! A session's name.

use crate::policy::BadValue;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A session's name: it is part of file names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Name(String);

/// The longest one in bytes: with its directory it has to fit a unix socket's address (unix(7)).
const LONGEST: usize = 48;

impl Name {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Name, BadValue> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        let accepted = "1 to 48 letters, digits, _, - and ., the first a letter or a digit";
        match text.as_bytes() {
            [first, ..] if first.is_ascii_alphanumeric() && text.len() <= LONGEST && text.bytes().all(plain) => {
                Ok(Name(text.to_owned()))
            }
            _ => Err(BadValue::new("name", text, accepted)),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_path() {
        for good in ["default", "a", "7.b_c-D"] {
            assert_eq!(good.parse::<Name>().unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", "a/b", "-a", "a b", "a\n", "é", &"a".repeat(49)] {
            assert!(bad.parse::<Name>().is_err(), "{bad:?}");
        }
    }
}
