//! The three axes, the postures on each, and the levels that name a triple of postures.

use super::values::BadValue;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A surface that a policy restricts (paper, Appendix A).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    /// Egress: SC-7.
    Network,
    /// Writes outside the writable set: AC-3, AC-4, SC-39.
    Filesystem,
    /// Identity and capabilities: AC-6.
    Privilege,
}

impl Axis {
    /// All axes in the order in which they are printed.
    pub const ALL: [Axis; 3] = [Axis::Network, Axis::Filesystem, Axis::Privilege];

    /// The NIST SP 800-53 controls that the axis projects onto the runtime.
    pub fn nist(self) -> &'static [&'static str] {
        match self {
            Axis::Network => &["SC-7"],
            Axis::Filesystem => &["AC-3", "AC-4", "SC-39"],
            Axis::Privilege => &["AC-6"],
        }
    }

    /// The axis's name as policies and records spell it.
    pub fn name(self) -> &'static str {
        match self {
            Axis::Network => "network",
            Axis::Filesystem => "filesystem",
            Axis::Privilege => "privilege",
        }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How far an axis is restricted. The order is the order of severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Posture {
    /// No restriction.
    Open,
    /// The posture of everyday hardening; what it means differs by axis.
    Restricted,
    /// The strictest posture.
    Locked,
}

impl Posture {
    /// The posture's name as policies and flags spell it.
    pub fn name(self) -> &'static str {
        match self {
            Posture::Open => "open",
            Posture::Restricted => "restricted",
            Posture::Locked => "locked",
        }
    }
}

impl fmt::Display for Posture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Posture {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Posture, BadValue> {
        match text {
            "open" => Ok(Posture::Open),
            "restricted" => Ok(Posture::Restricted),
            "locked" => Ok(Posture::Locked),
            _ => Err(BadValue::new("posture", text, "open, restricted, locked")),
        }
    }
}
