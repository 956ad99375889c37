//! Whether what the other probes had refused was told to the supervisor: a refusal that nobody hears of is half a control.

use super::spec::Spec;
use crate::ledger::record::Probe;
use serde::Deserialize;

/// What is held against what was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operation {
    /// The firewall's log, against the firewall's counters.
    FirewallLog,
    /// The proxy's reports, against the refusals that the probes were answered with.
    ProxyReports,
}

/// What was refused to the probes, and what was told of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Heard {
    /// Packets that the firewall refused, and packets that its log told of; `None` without a firewall.
    pub firewall: Option<(u64, u64)>,
    /// Denials that the proxy reported; `None` without a proxy.
    pub proxy: Option<u64>,
}

const ALL: &str = "all told";

/// The supervisor's own probes: `made` are those of the confined child.
pub fn judge(heard: &Heard, made: &[Probe]) -> Result<Vec<Probe>, String> {
    let all = super::spec::built_in()?;
    let seen = |operation: &Operation| match operation {
        Operation::FirewallLog => heard.firewall.map(|(refused, told)| compared(refused, told)),
        Operation::ProxyReports => heard.proxy.map(|told| compared(refused_by_proxy(&all, made), told)),
    };
    let evidence = |spec: &Spec| match &spec.operation {
        super::operation::Operation::Evidence(operation) => seen(operation).map(|seen| spec.judge(vec![seen])),
        _ => None,
    };
    Ok(all.iter().filter_map(evidence).collect())
}

/// Nothing refused is as bad as nothing told: then nothing has been tried.
fn compared(refused: u64, told: u64) -> String {
    if refused > 0 && told == refused { ALL.into() } else { format!("{told} told of {refused} refused") }
}

/// How many requests of the child's probes the proxy answered with a refusal.
fn refused_by_proxy(all: &[Spec], made: &[Probe]) -> u64 {
    let refused = |probe: &&Probe| all.iter().any(|spec| spec.id == probe.id && spec.is_refused_by_proxy(&probe.seen));
    made.iter().filter(refused).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_refused_is_nothing_shown() {
        assert_eq!(compared(3, 3), ALL);
        for (refused, told) in [(0, 0), (3, 2), (3, 0), (2, 3)] {
            assert_ne!(compared(refused, told), ALL);
        }
        let heard = Heard { firewall: Some((2, 2)), proxy: None };
        let judged = judge(&heard, &[]).unwrap();
        assert_eq!(judged.iter().map(|p| p.passed).collect::<Vec<_>>(), [true]);
        assert!(judge(&Heard::default(), &[]).unwrap().is_empty());
    }
}
