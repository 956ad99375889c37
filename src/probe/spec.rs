//! A probe as data (`probes/*.toml`), and the judgement of what was seen.

use super::operation::Operation;
use super::{Surroundings, network};
use crate::ledger::record::Probe;
use crate::plan::means::{EgressBarrier, FileBarrier};
use crate::plan::rung::Restriction;
use crate::policy::Axis;
use serde::Deserialize;
use std::fmt;
use std::net::SocketAddr;

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

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Direct => "direct",
            Class::Adversarial => "adversarial",
            Class::Enablement => "enablement",
        })
    }
}

/// What a probe needs beside a restriction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Needs {
    /// Landlock's scopes.
    Scopes,
    /// A proxy that resolves names.
    ResolvedNames,
    /// A proxy that leaves names to a parent proxy.
    UnresolvedNames,
    /// All of loopback open to the command.
    OpenLoopback,
    /// Loopback not, or not all of it, open to the command.
    ClosedLoopback,
    /// Something masked.
    Masks,
    /// A HOME that is the run's to provide.
    Home,
    /// Account files of the image.
    Accounts,
    /// A session keyring of the caller's.
    Keyring,
    /// Mounts of the sandbox's own.
    Mounts,
    /// Landlock in their place.
    FileRules,
    /// Sockets that are made for the command.
    MadeSockets,
    /// A uid of the run's own, with which groups are given up.
    OwnUid,
    /// A bounding set that is emptied.
    Bounding,
    /// A program that can be executed.
    Program,
    /// Programs that would give something.
    GivingPrograms,
}

/// One probe.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Its name in records and messages: axis, class, subject.
    pub id: String,
    /// What it shows to hold; it is tried where any of these is in force. The first one's axis is the probe's.
    pub restrictions: Vec<Restriction>,
    /// Its class.
    pub class: Class,
    /// What else must be in force.
    #[serde(default)]
    pub needs: Vec<Needs>,
    /// What is tried.
    pub operation: Operation,
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
        self.restrictions.iter().any(|r| run.restrictions.contains(r)) && self.needs.iter().all(|need| need.is_met(run))
    }

    /// The axis that it tries.
    pub fn axis(&self) -> Axis {
        self.restrictions.first().map_or(Axis::Privilege, |restriction| restriction.axis())
    }

    /// Where it connects to by TCP, past the proxy.
    pub fn connects(&self) -> Vec<SocketAddr> {
        use network::Operation::{Tcp, TcpFromGrandchild};
        match &self.operation {
            Operation::Network(Tcp(addresses) | TcpFromGrandchild(addresses)) => addresses.clone(),
            _ => Vec::new(),
        }
    }

    /// Whether what was seen is a refusal of the proxy's, which it must have reported.
    pub fn is_refused_by_proxy(&self, seen: &str) -> bool {
        let asks = matches!(
            &self.operation,
            Operation::Network(network::Operation::Proxy(_) | network::Operation::ProxyProcess)
        );
        asks && ["400", "403"].iter().any(|status| seen.starts_with(status))
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
            axis: self.axis(),
            class: self.class.to_string(),
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
            Needs::Scopes => run.scopes,
            Needs::ResolvedNames => run.names_resolved,
            Needs::UnresolvedNames => !run.names_resolved,
            Needs::OpenLoopback => run.loopback_open,
            Needs::ClosedLoopback => !run.loopback_open,
            Needs::Masks => !run.masked.is_empty(),
            Needs::Home => run.home.is_some(),
            Needs::Accounts => !run.overlays.is_empty(),
            Needs::Keyring => run.keyring != 0,
            Needs::Mounts => run.means.is_some_and(|means| means.files == FileBarrier::Mounts),
            Needs::FileRules => run.means.is_some_and(|means| means.files == FileBarrier::Landlock),
            Needs::MadeSockets => run.means.is_some_and(|means| means.egress == EgressBarrier::MadeSockets),
            Needs::OwnUid => run.means.is_some_and(|means| !means.one_uid),
            Needs::Bounding => run.means.is_some_and(|means| means.empties_bounding),
            Needs::Program => run.programs.is_some(),
            Needs::GivingPrograms => run.programs.as_ref().is_some_and(|programs| programs.gives),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_built_in_probes_are_well_formed() {
        let all = built_in().unwrap();
        let ids: BTreeSet<_> = all.iter().map(|s| &s.id).collect();
        assert_eq!(ids.len(), all.len(), "ids are unique");
        for spec in &all {
            assert!(spec.id.starts_with(&format!("{}.{}.", spec.axis(), spec.class)), "{}", spec.id);
            assert!(!spec.restrictions.is_empty() && !spec.expect.is_empty() && spec.why.len() > 20, "{}", spec.id);
        }
    }

    #[test]
    fn each_restriction_has_a_probe_of_each_class() {
        let all = built_in().unwrap();
        for restriction in Restriction::ALL {
            for class in [Class::Direct, Class::Adversarial, Class::Enablement] {
                let has = all.iter().any(|s| s.restrictions.contains(&restriction) && s.class == class);
                assert!(has, "{restriction}: no {class} probe");
            }
        }
    }

    #[test]
    fn only_what_is_in_force_is_tried() {
        let all = built_in().unwrap();
        assert!(!all.iter().any(|s| s.applies(&Surroundings::default())));
        let run = Surroundings { restrictions: Restriction::ALL.into(), ..Surroundings::default() };
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
