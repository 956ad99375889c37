//! What is known about each agent, as data in `harnesses/`: its vendor's endpoints, the directories that hold its
//! state, and the environment it needs. Each item carries its reason.

use super::entry::Entry;
use super::environment::Variable;
use super::path::PolicyPath;
use super::values::BadValue;
use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

/// An agent.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Harness {
    /// Its name, as `--harness` takes it.
    #[serde(skip)]
    pub name: &'static str,
    /// The hosts that serve its model and its sign-in.
    #[serde(default, rename = "endpoint")]
    pub endpoints: Vec<Endpoint>,
    /// Directories that are writable for it, made before it starts and readable after it has ended.
    #[serde(default, rename = "state")]
    pub state: Vec<StateDirectory>,
    /// Variables it needs.
    #[serde(default, rename = "variable")]
    pub variables: Vec<Variable>,
}

/// A host that an agent can't do without.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// The allowlist entry.
    pub entry: Entry,
    /// Why.
    pub reason: String,
}

/// A directory that holds an agent's state.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateDirectory {
    /// Where it is.
    pub path: PolicyPath,
    /// What it holds.
    pub reason: String,
}

const FILES: [(&str, &str); 5] = [
    ("none", include_str!("../../harnesses/none.toml")),
    (
        "claude-code",
        include_str!("../../harnesses/claude-code.toml"),
    ),
    ("codex", include_str!("../../harnesses/codex.toml")),
    (
        "grok-build",
        include_str!("../../harnesses/grok-build.toml"),
    ),
    (
        "terminus-2",
        include_str!("../../harnesses/terminus-2.toml"),
    ),
];

static HARNESSES: LazyLock<Vec<Harness>> = LazyLock::new(|| {
    let parse = |(name, text): (&'static str, &str)| {
        let harness: Harness = toml::from_str(text).expect("a test parses each harness file");
        Harness { name, ..harness }
    };
    FILES.map(parse).into()
});

/// The harnesses that `--harness` takes; the first is `none`.
pub fn all() -> &'static [Harness] {
    &HARNESSES
}

/// The name of a harness that there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HarnessName(usize);

impl HarnessName {
    /// The harness's data.
    pub fn data(self) -> &'static Harness {
        &HARNESSES[self.0]
    }
}

impl FromStr for HarnessName {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<HarnessName, BadValue> {
        let found = FILES.iter().position(|(name, _)| *name == text);
        found
            .map(HarnessName)
            .ok_or_else(|| BadValue::new("harness", text, FILES.map(|(name, _)| name).join(", ")))
    }
}

impl fmt::Display for HarnessName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FILES[self.0].0)
    }
}

impl Serialize for HarnessName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HarnessName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_parses_and_gives_reasons() {
        assert_eq!(HarnessName::default().to_string(), "none");
        for harness in all() {
            let reasons = harness.endpoints.iter().map(|endpoint| &endpoint.reason);
            let reasons = reasons.chain(harness.state.iter().map(|state| &state.reason));
            for reason in reasons.chain(harness.variables.iter().map(|variable| &variable.reason)) {
                assert!(
                    reason.ends_with('.') && reason.len() > 10,
                    "{}: {reason}",
                    harness.name
                );
            }
            assert_eq!(harness.name.parse::<HarnessName>().unwrap().data(), harness);
        }
        let claude: HarnessName = "claude-code".parse().unwrap();
        assert_eq!(
            claude.data().endpoints[0].entry.to_string(),
            "api.anthropic.com"
        );
        assert_eq!(claude.data().state[0].path.as_str(), "~/.claude");
    }

    #[test]
    fn an_unknown_harness_is_told_the_known_ones() {
        let bad = "cursor".parse::<HarnessName>().unwrap_err();
        assert_eq!(
            bad.to_string(),
            "\"cursor\" is no harness; accepted: none, claude-code, codex, grok-build, terminus-2"
        );
    }
}
