//! Tools that ignored the proxy settings: the connections and lookups that they tried by themselves.

use super::objects::{self, shown};
use crate::ledger::DenialView;
use crate::ledger::record::{Evidence, Mechanism};
use crate::policy::Axis;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// How many distinct tools of one run are told apart, and of all runs together.
const RUN_TOOLS: usize = 4096;
const TOOLS: usize = 65_536;

/// The rule that refuses a lookup which does not go through the proxy.
const LOOKUP: &str = "dns";

/// How many tools a text lists, and how many ports of each.
pub(super) const ROWS: usize = 20;
pub(super) const PORTS: usize = 8;

/// What an operator can do about it, in one line.
pub(super) const ADVICE: &str = "these tools do not read the proxy variables (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY), or \
    were told not to: name the proxy in their own settings, or use a client that reads them";

/// A program.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Tool {
    /// The thread's name; none where the source did not know it. So for the executable.
    pub(super) comm: Option<String>,
    pub(super) exe: Option<String>,
}

impl Tool {
    /// The thread's name, then the executable, for people.
    pub(super) fn in_words(&self) -> [&str; 2] {
        [&self.comm, &self.exe].map(|name| name.as_deref().unwrap_or("(not known)"))
    }
}

/// What a tool tried without the proxy.
#[derive(Debug, Default)]
pub(super) struct Direct {
    /// Refused connections, datagrams and lookups.
    pub(super) attempts: u64,
    /// Those of them that were lookups.
    pub(super) lookups: u64,
    /// Runs in which it tried.
    pub(super) runs: u64,
    /// The destination that it tried first, of the first run.
    pub(super) first: String,
    /// Every destination, as a report names objects.
    pub(super) destinations: BTreeSet<String>,
    /// Their ports.
    pub(super) ports: BTreeSet<u16>,
}

/// The tools of one run, or of all. What is beyond a bound is still counted: tools as one that is not known, of
/// destinations only that there were attempts.
#[derive(Debug, Default)]
pub(super) struct DirectTools {
    tools: BTreeMap<Tool, Direct>,
    /// Destinations of all tools together.
    kept: usize,
}

/// Whether a denial shows that a tool ignored the proxy: TCP or UDP on the network axis, refused on its way and not by the
/// proxy. What was to stay on this machine has no use for a proxy, but for a lookup: where its resolver listens says
/// nothing of where the answer comes from.
fn ignored_the_proxy<'a>(denial: impl Into<DenialView<'a>>) -> bool {
    let denial = denial.into();
    denial.evidence == Evidence::EnforcementObserved
        && denial.axis == Axis::Network
        && denial.mechanism != Mechanism::Proxy
        && matches!(&*denial.operation, "tcp" | "udp")
        && (denial.rule == LOOKUP || denial.object.addrs.first().is_some_and(|address| !is_here(*address)))
}

/// Loopback, or no address at all, which the kernel takes for loopback (ip(7)).
fn is_here(address: IpAddr) -> bool {
    let address = address.to_canonical();
    address.is_loopback() || address.is_unspecified()
}

impl DirectTools {
    /// Counts a denial record of one run, if it is one of those meant here.
    pub(super) fn count<'a>(&mut self, denial: impl Into<DenialView<'a>>) {
        let denial = denial.into();
        if !ignored_the_proxy(&denial) {
            return;
        }
        let [comm, exe] = [&denial.comm, &denial.exe].map(|name| name.as_deref().map(str::to_owned));
        let tool = Tool { comm, exe };
        let destination = shown(&denial.object);
        let (direct, kept) = self.of(tool, RUN_TOOLS);
        if direct.attempts == 0 {
            direct.runs = 1;
            direct.first.clone_from(&destination);
        }
        direct.attempts = direct.attempts.saturating_add(denial.count);
        if denial.rule == LOOKUP {
            direct.lookups = direct.lookups.saturating_add(denial.count);
        }
        direct.keep(kept, objects::RUN_CAPACITY, destination, denial.object.port);
    }

    /// Adds the tools of another run.
    pub(super) fn add(&mut self, other: DirectTools) {
        for (tool, one) in other.tools {
            let (direct, kept) = self.of(tool, TOOLS);
            if direct.attempts == 0 {
                direct.first = one.first;
            }
            direct.attempts = direct.attempts.saturating_add(one.attempts);
            direct.lookups = direct.lookups.saturating_add(one.lookups);
            direct.runs += one.runs;
            direct.ports.extend(one.ports);
            for destination in one.destinations {
                direct.keep(kept, objects::CAPACITY, destination, None);
            }
        }
    }

    /// All of them, those with most attempts first.
    pub(super) fn by_attempts(&self) -> Vec<(&Tool, &Direct)> {
        let mut tools: Vec<_> = self.tools.iter().collect();
        tools.sort_by_key(|(_, direct)| std::cmp::Reverse(direct.attempts));
        tools
    }

    /// Attempts of all of them together.
    pub(super) fn attempts(&self) -> u64 {
        self.tools.values().fold(0, |sum, direct| sum.saturating_add(direct.attempts))
    }

    fn of(&mut self, tool: Tool, capacity: usize) -> (&mut Direct, &mut usize) {
        let known = self.tools.contains_key(&tool) || self.tools.len() < capacity;
        (self.tools.entry(if known { tool } else { Tool::default() }).or_default(), &mut self.kept)
    }
}

impl Direct {
    fn keep(&mut self, kept: &mut usize, capacity: usize, destination: String, port: Option<u16>) {
        self.ports.extend(port);
        if *kept < capacity && self.destinations.insert(destination) {
            *kept += 1;
        }
    }

    /// The ports in rising order, at most [`PORTS`] of them; two dots stand for the rest.
    pub(super) fn ports_in_words(&self) -> String {
        let mut words: Vec<String> = self.ports.iter().take(PORTS).map(u16::to_string).collect();
        if self.ports.len() > PORTS {
            words.push("..".to_owned());
        }
        words.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::record::{Denial, Object, Subject};

    fn packet(operation: &str, rule: &str, to: &str, port: u16, comm: &str) -> Denial {
        let object = Object { addrs: vec![to.parse().unwrap()], port: Some(port), ..Object::default() };
        let mut denial = Denial::observed(Axis::Network, Mechanism::Firewall, operation, object, rule, "not_allowed");
        denial.subject = Subject { comm: Some(comm.into()), ..Subject::default() };
        denial
    }

    #[test]
    fn only_what_was_to_leave_this_machine_ignored_the_proxy() {
        for (operation, rule, to, ignored) in [
            ("tcp", "default-deny", "11.22.33.44", true),
            ("udp", "default-deny", "2a00:1:2:3::44", true),
            ("tcp", "private-range", "10.0.0.5", true),
            ("tcp", "metadata", "169.254.169.254", true),
            ("udp", "dns", "11.22.33.53", true),
            ("udp", "dns", "127.0.0.53", true),
            ("tcp", "private-range", "127.0.0.1", false),
            ("tcp", "private-range", "::1", false),
            ("tcp", "private-range", "::ffff:127.0.0.1", false),
            ("tcp", "private-range", "0.0.0.0", false),
            ("icmp", "default-deny", "11.22.33.44", false),
            ("socket", "default-deny", "11.22.33.44", false),
        ] {
            let denial = packet(operation, rule, to, 443, "x");
            assert_eq!(ignored_the_proxy(&denial), ignored, "{operation} {rule} {to}");
            let by_observer = Denial { mechanism: Mechanism::Notifier, ..denial.clone() };
            assert_eq!(ignored_the_proxy(&by_observer), ignored, "{operation} {rule} {to}");
            assert!(!ignored_the_proxy(&Denial { mechanism: Mechanism::Proxy, ..denial.clone() }));
            assert!(!ignored_the_proxy(&Denial { axis: Axis::Privilege, ..denial.clone() }), "a control plane's port");
            assert!(!ignored_the_proxy(&Denial { evidence: Evidence::TranscriptInferred, ..denial }));
        }
        let nowhere = Denial { object: Object::default(), ..packet("tcp", "default-deny", "11.22.33.44", 1, "x") };
        assert!(!ignored_the_proxy(&nowhere));
    }

    #[test]
    fn tools_are_counted_by_destination_over_runs() {
        let mut all = DirectTools::default();
        for (to, port) in [("11.22.33.44", 443), ("11.22.33.45", 80)] {
            let mut run = DirectTools::default();
            run.count(&packet("udp", "dns", "11.22.33.53", 53, "curl"));
            run.count(&Denial { count: 3, ..packet("tcp", "default-deny", to, port, "curl") });
            run.count(&packet("tcp", "default-deny", to, port, "wget"));
            run.count(&packet("tcp", "private-range", "127.0.0.1", 9, "idle"));
            assert_eq!(run.attempts(), 5);
            all.add(run);
        }
        let rows: Vec<_> = all
            .by_attempts()
            .into_iter()
            .map(|(tool, of)| {
                (tool.comm.as_deref(), of.attempts, of.lookups, of.runs, of.first.as_str(), of.destinations.len())
            })
            .collect();
        let expected = [(Some("curl"), 8, 2, 2, "11.22.33.53:53", 3), (Some("wget"), 2, 0, 2, "11.22.33.44:443", 2)];
        assert_eq!(rows, expected);
        let curl = all.by_attempts()[0].1;
        assert_eq!(curl.ports_in_words(), "53,80,443");
        let many = Direct { ports: (1..=9).collect(), ..Direct::default() };
        assert_eq!(many.ports_in_words(), "1,2,3,4,5,6,7,8,..");
    }

    #[test]
    fn attempts_are_exact_where_the_table_is_full() {
        let mut run = DirectTools::default();
        for n in 0..RUN_TOOLS + 5 {
            run.count(&packet("tcp", "default-deny", "11.22.33.44", 443, &format!("{n:05}")));
        }
        assert_eq!((run.attempts(), run.by_attempts().len()), (RUN_TOOLS as u64 + 5, RUN_TOOLS + 1));
        let (most, of) = run.by_attempts()[0];
        assert_eq!((most, of.attempts), (&Tool::default(), 5));
    }
}
