//! The four levels: names for triples of postures. They are nested: each is at least as strict on every axis as the
//! one before.

use super::axis::{Axis, Posture};
use super::values::BadValue;
use std::fmt;
use std::str::FromStr;

/// A posture for each axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Postures {
    /// Egress.
    pub network: Posture,
    /// Writes.
    pub filesystem: Posture,
    /// Identity and capabilities.
    pub privilege: Posture,
}

impl Postures {
    /// The posture of one axis.
    pub fn of(self, axis: Axis) -> Posture {
        match axis {
            Axis::Network => self.network,
            Axis::Filesystem => self.filesystem,
            Axis::Privilege => self.privilege,
        }
    }
}

/// A named triple of postures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Nothing is restricted.
    Control,
    /// A dedicated user without administrative rights.
    NonRoot,
    /// Egress by allowlist, read-only trees, no privilege to be had.
    NistHigh,
    /// Egress to named endpoints only, everything read-only but the writable set, no privilege to be had.
    Locked,
}

impl Level {
    /// All levels, the least strict first.
    pub const ALL: [Level; 4] = [
        Level::Control,
        Level::NonRoot,
        Level::NistHigh,
        Level::Locked,
    ];

    /// The level's name as policies, flags and records spell it.
    pub fn name(self) -> &'static str {
        match self {
            Level::Control => "control",
            Level::NonRoot => "non-root",
            Level::NistHigh => "nist-high",
            Level::Locked => "locked",
        }
    }

    /// The level's postures.
    pub fn postures(self) -> Postures {
        use Posture::{Locked, Open, Restricted};
        let (network, filesystem, privilege) = match self {
            Level::Control => (Open, Open, Open),
            Level::NonRoot => (Open, Open, Restricted),
            Level::NistHigh => (Restricted, Restricted, Locked),
            Level::Locked => (Locked, Locked, Locked),
        };
        Postures {
            network,
            filesystem,
            privilege,
        }
    }

    /// The level whose postures these are, if there is one.
    pub fn with(postures: Postures) -> Option<Level> {
        Level::ALL
            .into_iter()
            .find(|level| level.postures() == postures)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Level {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Level, BadValue> {
        let found = Level::ALL.into_iter().find(|level| level.name() == text);
        found.ok_or_else(|| BadValue::new("level", text, "control, non-root, nist-high, locked"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_nested_and_found_by_their_postures() {
        for pair in Level::ALL.windows(2) {
            for axis in Axis::ALL {
                assert!(
                    pair[0].postures().of(axis) <= pair[1].postures().of(axis),
                    "{} {}",
                    pair[0],
                    axis
                );
            }
        }
        for level in Level::ALL {
            assert_eq!(Level::with(level.postures()), Some(level));
            assert_eq!(level.name().parse(), Ok(level));
        }
        let odd = Postures {
            network: Posture::Open,
            ..Level::NistHigh.postures()
        };
        assert_eq!(Level::with(odd), None);
    }
}
