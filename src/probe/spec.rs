//! A probe as data (`probes/*.toml`), and the judgement of what was seen.

pub use super::operation::Operation;
use super::{Surroundings, caught, filesystem, network};
use crate::ledger::record::Probe;
use crate::plan::means::{EgressBarrier, FileBarrier, Means};
use crate::plan::rung::Restriction;
use crate::policy::Axis;
use serde::{Deserialize, Serialize};
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Needs {
    /// Landlock's scopes.
    Scopes,
    /// A proxy that resolves names.
    ResolvedNames,
    /// A proxy that leaves names to a parent proxy.
    UnresolvedNames,
    /// Names that are answered in the place of the host's resolvers.
    CaughtNames,
    /// The host's resolvers refused.
    UncaughtNames,
    /// All of loopback open to the command.
    OpenLoopback,
    /// Loopback not, or not all of it, open to the command.
    ClosedLoopback,
    /// Something masked.
    Masks,
    /// Something shielded.
    Shields,
    /// Something whose reads are told of.
    Watched,
    /// A git directory that another one covers.
    Git,
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
    /// What others have built, in the place of a run.
    External,
}

/// One probe.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Its name in records and messages: axis, class, subject.
    pub id: String,
    /// What holds if it passes, in a line.
    pub title: String,
    /// What it shows to hold; it is tried where any of these is in force. The first one's axis is the probe's.
    pub restrictions: Vec<Restriction>,
    /// The NIST SP 800-53 controls that it is evidence of, where they are not all of its axis.
    #[serde(default)]
    nist: Vec<String>,
    /// Its class.
    pub class: Class,
    /// Whether it is tried before every command, and not only by `ringfence probe`.
    #[serde(default = "before_every_command")]
    pub preflight: bool,
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

fn before_every_command() -> bool {
    true
}

/// The longest title, in characters: a row of a table.
const TITLE: usize = 60;

impl Spec {
    /// Whether the probe applies to a run.
    pub fn applies(&self, run: &Surroundings) -> bool {
        self.unmet(run).is_none()
    }

    /// Why the probe does not apply to a run; `None` where it does.
    pub fn unmet(&self, run: &Surroundings) -> Option<String> {
        if !self.restrictions.iter().any(|restriction| run.restrictions.contains(restriction)) {
            let names: Vec<String> = self.restrictions.iter().map(Restriction::to_string).collect();
            return Some(format!("not in force: {}", names.join(", ")));
        }
        let need = self.needs.iter().find(|need| !need.is_met(run))?;
        Some(format!("not here: {}", word(need)))
    }

    /// Holds the probe to the form that all have; the fault names the value and what is accepted.
    pub fn check(&self) -> Result<(), String> {
        if self.restrictions.is_empty() {
            return Err("restrictions is empty; accepted: one or more".into());
        }
        let prefix = format!("{}.{}.", self.axis(), self.class);
        let subject = self.id.strip_prefix(&prefix);
        let plain =
            |text: &str| !text.is_empty() && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        if !subject.is_some_and(plain) {
            return Err(format!(
                "{:?} is no id for it; accepted: {prefix}SUBJECT, the subject of a-z, 0-9 and -",
                self.id
            ));
        }
        if self.title.is_empty() || self.title.chars().count() > TITLE || self.title.contains(char::is_control) {
            return Err(format!("{:?} is no title; accepted: 1 to {TITLE} characters in one line", self.title));
        }
        if self.expect.is_empty() || self.expect.iter().any(String::is_empty) {
            return Err("expect is empty; accepted: the words that may be seen".into());
        }
        if self.why.trim().is_empty() {
            return Err("why is empty; accepted: a sentence".into());
        }
        Ok(())
    }

    /// The NIST SP 800-53 controls that it is evidence of.
    pub fn nist(&self) -> Vec<String> {
        if self.nist.is_empty() {
            self.axis().nist().iter().map(|&c| c.to_owned()).collect()
        } else {
            self.nist.clone()
        }
    }

    /// Whether it tries nothing itself, but looks at what was told of what the others were refused.
    pub fn is_of_evidence(&self) -> bool {
        matches!(self.operation, Operation::Evidence(_))
    }

    /// The axis that it tries.
    pub fn axis(&self) -> Axis {
        self.restrictions.first().map_or(Axis::Privilege, |restriction| restriction.axis())
    }

    /// Where it connects to by TCP, past the proxy.
    pub fn connects(&self) -> Vec<SocketAddr> {
        use network::Operation::{Tcp, TcpFromDaemon, TcpFromGrandchild, TcpFromThread};
        match &self.operation {
            Operation::Network(
                Tcp(addresses) | TcpFromGrandchild(addresses) | TcpFromDaemon(addresses) | TcpFromThread(addresses),
            ) => addresses.clone(),
            _ => Vec::new(),
        }
    }

    /// Whether it opens what is watched, which must be told of.
    pub fn reads_what_is_watched(&self) -> bool {
        self.operation == Operation::Filesystem(filesystem::Operation::ReadWatched)
    }

    /// Whether what was seen is a refusal of the proxy's, which it must have reported.
    pub fn is_refused_by_proxy(&self, seen: &str) -> bool {
        let asks = matches!(
            &self.operation,
            Operation::Network(network::Operation::Proxy(_) | network::Operation::ProxyProcess)
        );
        let answered = match &self.operation {
            Operation::Network(network::Operation::Lookup(_)) => seen == caught::REFUSED,
            Operation::Network(network::Operation::NeverHandedOut) => seen == caught::RESET,
            _ => false,
        };
        answered || asks && ["400", "403"].iter().any(|status| seen.starts_with(status))
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

/// A value's name as the data has it.
pub fn word(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

impl Needs {
    /// Whether a rung of these means can have it. What only the host or the policy decides, any rung can.
    pub fn is_possible_by(self, means: &Means) -> bool {
        let run = Surroundings { means: Some(*means), ..Surroundings::default() };
        match self {
            Needs::Mounts | Needs::FileRules | Needs::MadeSockets | Needs::OwnUid | Needs::Bounding => {
                self.is_met(&run)
            }
            Needs::Accounts | Needs::Masks | Needs::Git => means.files == FileBarrier::Mounts,
            Needs::GivingPrograms => !means.one_uid || means.files == FileBarrier::Mounts,
            Needs::Scopes
            | Needs::ResolvedNames
            | Needs::UnresolvedNames
            | Needs::CaughtNames
            | Needs::UncaughtNames
            | Needs::OpenLoopback
            | Needs::ClosedLoopback
            | Needs::Home
            | Needs::Shields
            | Needs::Watched
            | Needs::Keyring
            | Needs::Program => true,
            Needs::External => false,
        }
    }

    fn is_met(self, run: &Surroundings) -> bool {
        match self {
            Needs::Scopes => run.scopes,
            Needs::ResolvedNames => run.names_resolved,
            Needs::UnresolvedNames => !run.names_resolved,
            Needs::CaughtNames => run.caught.is_some(),
            Needs::UncaughtNames => run.caught.is_none(),
            Needs::OpenLoopback => run.loopback_open,
            Needs::ClosedLoopback => !run.loopback_open,
            Needs::Masks => !run.masked.is_empty(),
            Needs::Shields => !run.shielded.is_empty(),
            Needs::Watched => !run.watched.is_empty(),
            Needs::Git => !run.git.is_empty(),
            Needs::Home => run.home.is_some(),
            Needs::Accounts => !run.overlays.is_empty(),
            Needs::Keyring => run.keyring != 0,
            Needs::Mounts => run.means.is_some_and(|means| means.files == FileBarrier::Mounts),
            Needs::FileRules => run.means.is_some_and(|means| means.files == FileBarrier::Landlock),
            Needs::MadeSockets => run.means.is_some_and(|means| means.egress == EgressBarrier::MadeSockets),
            Needs::OwnUid => run.means.is_some_and(|means| !means.one_uid),
            Needs::Bounding => run.means.is_some_and(|means| means.empties_bounding),
            Needs::Program => run.programs.is_some(),
            Needs::External => run.external,
            Needs::GivingPrograms => run.programs.as_ref().is_some_and(|programs| programs.gives),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::suite_file::built_in;
    use super::*;

    #[test]
    fn each_restriction_has_a_probe_of_each_class() {
        let all = built_in().unwrap();
        for restriction in Restriction::ALL {
            for class in [Class::Direct, Class::Adversarial, Class::Enablement] {
                let has = all.iter().any(|s| s.restrictions.contains(&restriction) && s.class == class && s.preflight);
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
