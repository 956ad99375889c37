//! A probe as data (`probes/*.toml`), and the judgement of what was seen.

use super::Surroundings;
use crate::ledger::record::Probe;
use crate::policy::{Axis, Posture};
use serde::Deserialize;

/// The class of a probe (paper, Appendix A).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// A restriction refuses the operation that it names.
    Direct,
    /// A way around a restriction is refused too.
    Adversarial,
    /// What the policy permits works.
    Enablement,
}

/// What a probe needs beside its axis's posture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Needs {
    /// A proxy.
    Proxy,
    /// Control-plane ports.
    ControlPlane,
    /// Landlock's scopes.
    Scopes,
    /// All of loopback open to the command.
    Loopback,
    /// Set-id bits void on every mount.
    Nosuid,
    /// Something masked.
    Masks,
    /// Account files of the image.
    Accounts,
}

/// One probe.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Its name in records and messages.
    pub id: String,
    /// The axis that it tries.
    pub axis: Axis,
    /// Its class.
    pub class: Class,
    /// The lowest posture of the axis at which it applies.
    pub from: Posture,
    /// What else must be in force.
    #[serde(default)]
    pub needs: Vec<Needs>,
    /// What is tried.
    pub operation: super::attempt::Operation,
    /// What may be seen.
    pub expect: Vec<String>,
    /// Why it is there.
    pub why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    probe: Vec<Spec>,
}

const FILES: [(&str, &str); 3] = [
    ("probes/network.toml", include_str!("../../probes/network.toml")),
    ("probes/filesystem.toml", include_str!("../../probes/filesystem.toml")),
    ("probes/privilege.toml", include_str!("../../probes/privilege.toml")),
];

/// All probes that are built in.
pub fn built_in() -> Result<Vec<Spec>, String> {
    let mut all = Vec::new();
    for (name, text) in FILES {
        let file: File = toml::from_str(text).map_err(|e| format!("{name}: {e}"))?;
        all.extend(file.probe);
    }
    Ok(all)
}

impl Spec {
    /// Whether the probe applies to a run.
    pub fn applies(&self, run: &Surroundings) -> bool {
        let posture = run.postures.get(self.axis.name()).copied().unwrap_or(Posture::Open);
        posture >= self.from && self.needs.iter().all(|need| need.is_met(run))
    }

    /// Holds what was seen against what may be seen.
    pub fn judge(&self, seen: Vec<String>) -> Probe {
        let allowed = |s: &String| self.expect.iter().any(|e| e == s);
        let shown = match seen.iter().find(|s| !allowed(s)) {
            Some(unexpected) => unexpected.clone(),
            None => {
                let mut distinct = seen.clone();
                distinct.sort();
                distinct.dedup();
                distinct.join(", ")
            }
        };
        Probe {
            id: self.id.clone(),
            axis: self.axis,
            class: format!("{:?}", self.class).to_lowercase(),
            expected: self.expect.join(" or "),
            // A probe that saw nothing has tried nothing.
            passed: !seen.is_empty() && seen.iter().all(allowed),
            seen: if seen.is_empty() { "nothing to try".into() } else { shown },
        }
    }
}

impl Needs {
    fn is_met(self, run: &Surroundings) -> bool {
        match self {
            Needs::Proxy => run.egress_proxy,
            Needs::ControlPlane => !run.control_plane_ports.is_empty(),
            Needs::Scopes => run.scopes,
            Needs::Loopback => run.loopback_open,
            Needs::Nosuid => run.nosuid,
            Needs::Masks => !run.masked.is_empty(),
            Needs::Accounts => !run.overlays.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn the_built_in_probes_are_well_formed() {
        let all = built_in().unwrap();
        let ids: BTreeSet<_> = all.iter().map(|s| &s.id).collect();
        assert_eq!(ids.len(), all.len(), "ids are unique");
        assert!(all.iter().all(|s| !s.expect.is_empty() && s.why.len() > 20));
        let postures = BTreeMap::from(Axis::ALL.map(|a| (a.name(), Posture::Locked)));
        let run = Surroundings { postures, ..Surroundings::default() };
        for axis in Axis::ALL {
            for class in [Class::Direct, Class::Adversarial, Class::Enablement] {
                assert!(
                    all.iter().any(|s| s.axis == axis && s.class == class && s.from <= Posture::Restricted),
                    "{axis} {class:?}"
                );
            }
        }
        assert!(all.iter().any(|s| s.applies(&run)));
    }

    #[test]
    fn nothing_seen_is_a_failure() {
        let spec = built_in().unwrap().remove(0);
        assert!(!spec.judge(Vec::new()).passed);
        assert!(spec.judge(vec![spec.expect[0].clone()]).passed);
        let mixed = spec.judge(vec![spec.expect[0].clone(), "/x: created".into()]);
        assert!(!mixed.passed && mixed.seen == "/x: created");
    }
}
