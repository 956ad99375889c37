//! Whether what the other probes had refused was told to the supervisor: a refusal that nobody hears of is half a control.

use super::spec::Spec;
use crate::ledger::record::Probe;
use crate::plan::rung::Restriction;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;

/// What is held against what was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operation {
    /// The firewall's log, against the firewall's counters.
    FirewallLog,
    /// The proxy's reports, against the refusals that the probes were answered with.
    ProxyReports,
    /// What the observer told of attempts to get another identity.
    ObserverIdentity,
    /// What it told of attempts to write to a read-only tree.
    ObserverReadOnly,
    /// What it told of attempts on what is shielded.
    ObserverShields,
    /// What it told of calls that the filter refuses.
    ObserverFilter,
    /// What the witness, or the observer, told of opens of what is watched.
    ReadsTold,
    /// What it told of those from a grandchild, by way of /proc/self/root.
    ReadsToldByAlias,
}

/// What was refused to the probes, and what was told of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Heard {
    /// Packets that the firewall refused, and packets that its log told of; `None` without a firewall.
    pub firewall: Option<(u64, u64)>,
    /// Where the TCP packets were to go that the log told of.
    pub connects: BTreeSet<SocketAddr>,
    /// Denials that the proxy reported; `None` without a proxy.
    pub proxy: Option<u64>,
    /// Whether a filter of the host's is in force too, which answers before ours what both refuse.
    pub outer_filter: bool,
    /// Calls that the observer told to have been refused, with their errno.
    pub calls: BTreeSet<(String, String)>,
    /// Opens of watched paths that were told of, by call and path.
    pub reads: BTreeSet<(String, PathBuf)>,
}

impl Heard {
    /// Whether the observer told of one of these calls with that errno.
    fn told(&self, calls: &[&str], errno: &str) -> String {
        let told = self.calls.iter().any(|(call, told)| calls.contains(&call.as_str()) && told == errno);
        if told { ALL.into() } else { format!("nothing told of {} {errno}", calls.join(", ")) }
    }

    /// Whether the opens of watched paths were told of, by these calls; `opened` is what came of them. `None` where there was
    /// none.
    fn told_of_reads(&self, calls: &[&str], watched: &[PathBuf], opened: &str) -> Option<String> {
        let told = |path: &&PathBuf| self.reads.iter().any(|(call, of)| calls.contains(&call.as_str()) && of == *path);
        if opened == super::watched::CLOSED {
            return None;
        }
        let Some(untold) = watched.iter().find(|path| !told(path)) else { return Some(ALL.into()) };
        // Where some could not be opened, it is not known which.
        let enough = opened != super::watched::OPENED && watched.iter().any(|path| told(&path));
        Some(if enough { ALL.into() } else { format!("nothing told of {}", untold.display()) })
    }
}

const ALL: &str = "all told";
/// What the filter hands over to be refused.
const HANDED_OVER: [&str; 3] = ["mount", "unshare", "clone"];
/// The same with what a container's own filter lets pass as well, from whoever lacks the capability for it.
const HANDED_OVER_AT_LEAST: [&str; 4] = ["mount", "unshare", "clone", "socket"];

/// The outcome of all probes of a suite: of those of the confined child, `made`, in the light of what was told, and of the
/// supervisor's own. `watched` are the paths whose reads are to be told of.
pub fn judge(heard: &Heard, suite: &[Spec], watched: &[PathBuf], made: Vec<Probe>) -> Vec<Probe> {
    let of = |probe: &Probe| suite.iter().find(|spec| spec.id == probe.id);
    let by_proxy = made.iter().filter(|p| of(p).is_some_and(|spec| spec.is_refused_by_proxy(&p.seen))).count() as u64;
    let mut judged: Vec<Probe> =
        made.into_iter().map(|p| of(&p).map_or(p.clone(), |s| attributed(heard, s, p))).collect();
    // What is in force shows by the probes that only that restriction brings.
    let tried: Vec<Vec<Restriction>> = judged.iter().filter_map(of).map(|spec| spec.restrictions.clone()).collect();
    let reads = |calls: &[&str]| {
        let tries = |probe: &&Probe| of(probe).is_some_and(Spec::reads_what_is_watched);
        judged.iter().find(tries).and_then(|tried| heard.told_of_reads(calls, watched, &tried.seen))
    };
    let (by_name, by_alias) = (reads(&super::watched::BY_NAME), reads(&super::watched::BY_ALIAS));
    for spec in suite {
        let super::operation::Operation::Evidence(operation) = &spec.operation else { continue };
        let seen = match operation {
            Operation::FirewallLog => heard.firewall.map(|(refused, told)| compared(refused, told)),
            Operation::ProxyReports => heard.proxy.map(|told| compared(by_proxy, told)),
            _ if !tried.iter().any(|of| of.iter().all(|one| spec.restrictions.contains(one))) => None,
            Operation::ObserverIdentity => Some(heard.told(&["setuid", "setresuid", "setreuid"], "EPERM")),
            Operation::ObserverReadOnly => Some(heard.told(&["open", "openat", "creat", "mkdir", "mkdirat"], "EROFS")),
            Operation::ObserverShields => Some(heard.told(&["open", "openat"], "EACCES")),
            Operation::ReadsTold => by_name.clone(),
            Operation::ReadsToldByAlias => by_alias.clone(),
            Operation::ObserverFilter if heard.outer_filter => Some(heard.told(&HANDED_OVER_AT_LEAST, "EPERM")),
            Operation::ObserverFilter => Some(heard.told(&HANDED_OVER, "EPERM")),
        };
        judged.extend(seen.map(|seen| spec.judge(vec![seen])));
    }
    judged
}

/// Nothing refused is as bad as nothing told: then nothing has been tried.
fn compared(refused: u64, told: u64) -> String {
    if refused > 0 && told == refused { ALL.into() } else { format!("{told} told of {refused} refused") }
}

/// A reset looks the same from whomever it comes, from the next hop too: only the wall's own is told by its log.
fn attributed(heard: &Heard, spec: &Spec, probe: Probe) -> Probe {
    const RESET: &str = "ECONNREFUSED";
    let tried = spec.connects();
    if !probe.passed || tried.is_empty() || !probe.seen.contains(RESET) {
        return probe;
    }
    // Where there is no firewall the observer has made the connection, or not.
    if heard.firewall.is_none() {
        return match heard.told(&["tcp"], RESET).as_str() {
            ALL => probe,
            nothing => Probe { passed: false, seen: nothing.to_owned(), ..probe },
        };
    }
    let told = tried.iter().filter(|address| heard.connects.contains(address)).count();
    // Where some had no route, it is not known which had one.
    let enough = if probe.seen == RESET { tried.len() } else { 1 };
    if told >= enough {
        return probe;
    }
    let (refused, in_all) = heard.firewall.unwrap_or_default();
    let seen =
        format!("{RESET} by another than the wall, which told of {told} of them and {in_all} of {refused} packets");
    Probe { passed: false, seen, ..probe }
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
        let suite = super::super::suite_file::built_in().unwrap();
        let heard = Heard { firewall: Some((2, 2)), ..Heard::default() };
        let judged = judge(&heard, &suite, &[], Vec::new());
        assert_eq!(judged.iter().map(|p| p.passed).collect::<Vec<_>>(), [true]);
        assert!(judge(&Heard::default(), &suite, &[], Vec::new()).is_empty());
    }

    #[test]
    fn each_open_of_what_is_watched_must_be_told_by_its_own_call() {
        let watched = ["/a", "/b"].map(PathBuf::from);
        let told = |calls: &[(&str, &str)], opened: &str| {
            let reads = calls.iter().map(|(call, path)| ((*call).to_owned(), PathBuf::from(path))).collect();
            Heard { reads, ..Heard::default() }.told_of_reads(&["open", "openat"], &watched, opened)
        };
        let (all, some, closed) = ("ok", "not to be opened, ok", "not to be opened");
        assert_eq!(told(&[("openat", "/a"), ("open", "/b")], all).as_deref(), Some(ALL));
        assert_eq!(told(&[("openat", "/a"), ("openat2", "/b")], all).as_deref(), Some("nothing told of /b"));
        assert_eq!(told(&[("openat", "/b")], some).as_deref(), Some(ALL));
        assert_eq!(told(&[], some).as_deref(), Some("nothing told of /a"));
        assert_eq!(told(&[], closed), None, "nothing could be opened");
        // It is the probe of the enablement that fails for what was seen then.
        assert_eq!(told(&[("openat", "/a")], "/b: EACCES").as_deref(), Some(ALL));
    }

    #[test]
    fn a_reset_that_the_wall_does_not_tell_of_is_no_refusal_of_its() {
        let spec =
            super::super::suite_file::built_in().unwrap().into_iter().find(|s| s.id == "network.direct.tcp").unwrap();
        let probe = |seen: &[&str]| spec.judge(seen.iter().map(|s| (*s).to_owned()).collect());
        let heard = |connects: &[SocketAddr]| Heard {
            firewall: Some((1, 1)),
            connects: connects.iter().copied().collect(),
            ..Heard::default()
        };
        let tried = spec.connects();
        let passes = |connects: &[SocketAddr], seen: &[&str]| attributed(&heard(connects), &spec, probe(seen)).passed;
        assert!(tried.len() == 2 && passes(&tried, &["ECONNREFUSED"]) && passes(&[], &["ENETUNREACH"]));
        assert!(passes(&tried[..1], &["ECONNREFUSED", "ENETUNREACH"]));
        assert!(!passes(&tried[..1], &["ECONNREFUSED"]) && !passes(&[], &["ECONNREFUSED", "ENETUNREACH"]));
    }
}
