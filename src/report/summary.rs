//! What a ledger's records come to.

use super::direct::{ADVICE, DirectTools, ROWS};
use super::row::bounded;
use crate::ledger::escape::printable;
use crate::ledger::record::{Body, Record, Seal, ShieldState, Start};
use crate::policy::Axis;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The widest name of a tool or a destination, in characters.
const WIDTH: usize = 72;

/// Counts by kind and axis.
#[derive(Debug, Default)]
pub(super) struct Summary {
    denials: BTreeMap<Axis, u64>,
    direct: DirectTools,
    /// What a shadow would have refused, where there is one.
    would_deny: Option<(String, BTreeMap<Axis, u64>)>,
    /// How much of that was refused, as what a proxy cannot serve.
    unserved: u64,
    probes: u64,
    passed: u64,
    infrastructure: u64,
    lost: u64,
    seal: Option<Seal>,
}

impl Summary {
    pub(super) fn count(&mut self, record: &Record) {
        match &record.body {
            Body::Denial(denial) => {
                let denials = self.denials.entry(denial.axis).or_default();
                *denials = denials.saturating_add(denial.count);
                self.direct.count(denial);
            }
            Body::WouldDeny(denial) => {
                if let Some((_, would_deny)) = &mut self.would_deny {
                    let counted = would_deny.entry(denial.axis).or_default();
                    *counted = counted.saturating_add(denial.count);
                }
                let unserved = if denial.is_let_through() { 0 } else { denial.count };
                self.unserved = self.unserved.saturating_add(unserved);
            }
            Body::Start(Start { shadow: Some(shadow), .. }) => {
                self.would_deny = Some((shadow.level.clone(), BTreeMap::new()));
            }
            Body::Probe(probe) => {
                self.probes += 1;
                self.passed += u64::from(probe.passed);
            }
            Body::Infrastructure(_) => self.infrastructure += 1,
            Body::Gap(gap) => self.lost = self.lost.saturating_add(gap.lost),
            Body::Seal(seal) => self.seal = Some(seal.clone()),
            Body::Start(_) | Body::Read(_) | Body::Abort(_) => {}
        }
    }

    /// A line for each count; those that are seldom other than zero only where they are.
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let by_axis = |of: &BTreeMap<Axis, u64>| {
            Axis::ALL.map(|axis| format!("{axis} {}", of.get(&axis).unwrap_or(&0))).join(", ")
        };
        writeln!(out, "denials: {}", by_axis(&self.denials))?;
        if let Some((level, would_deny)) = &self.would_deny {
            let level = bounded(level, WIDTH);
            let refused = match self.unserved {
                0 => "none of it refused".to_owned(),
                unserved => format!("{unserved} of it refused, which the proxy could not serve"),
            };
            writeln!(out, "would be denied under {level}, {refused}: {}", by_axis(would_deny))?;
        }
        self.print_direct(out)?;
        writeln!(out, "probes: {} of {} passed", self.passed, self.probes)?;
        for (name, count) in [("infrastructure failures", self.infrastructure), ("records lost", self.lost)] {
            if count > 0 {
                writeln!(out, "{name}: {count}")?;
            }
        }
        let seal = self.seal.as_ref();
        if let Some(reads) = seal.map(|seal| seal.reads).filter(|reads| *reads > 0) {
            writeln!(out, "watched reads: {reads}")?;
        }
        match seal.and_then(|seal| seal.shields.as_ref()) {
            Some(shields) if shields.state == ShieldState::Altered => {
                writeln!(out, "shields: altered: {}", printable(&shields.told()))?;
            }
            Some(shields) if shields.closed > 0 => {
                writeln!(out, "shields: intact by their lengths and times, of {} not looked into", shields.closed)?;
            }
            Some(_) => writeln!(out, "shields: intact")?,
            None => {}
        }
        for end in seal.iter().flat_map(|seal| &seal.git) {
            let (path, carried) = (bounded(&end.path, WIDTH), end.carried_count());
            match end.left_in_words() {
                None => writeln!(out, "git: {path}: {carried} carried back")?,
                Some(left) => {
                    let left = printable(&left);
                    writeln!(out, "git: {path}: {carried} carried back, {} not: {left}", end.left_count())?;
                }
            }
        }
        match &self.seal {
            None => writeln!(out, "outcome: not recorded"),
            Some(Seal { outcome, exit_code: Some(code), .. }) => writeln!(out, "outcome: {} {code}", outcome.name()),
            Some(Seal { outcome, .. }) => writeln!(out, "outcome: {}", outcome.name()),
        }
    }
    /// A line for each tool that ignored the proxy, and one that says what can be done.
    fn print_direct(&self, out: &mut impl Write) -> io::Result<()> {
        let tools = self.direct.by_attempts();
        for (tool, of) in tools.iter().take(ROWS) {
            let [comm, exe] = tool.in_words().map(|name| bounded(name, WIDTH));
            let (attempts, lookups, destinations) = (of.attempts, of.lookups, of.destinations.len());
            let (first, ports) = (bounded(&of.first, WIDTH), of.ports_in_words());
            writeln!(
                out,
                "not through the proxy: {comm} ({exe}): attempts {attempts}, of them lookups {lookups}, destinations \
                 {destinations}, first {first}, ports {ports}"
            )?;
        }
        if tools.len() > ROWS {
            writeln!(out, "not through the proxy: {} more tools: --json lists all", tools.len() - ROWS)?;
        }
        match tools.is_empty() {
            true => Ok(()),
            false => writeln!(out, "{ADVICE}"),
        }
    }
}
