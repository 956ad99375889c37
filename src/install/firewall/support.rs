//! What of the wall this kernel can hold, found by trying it in a transaction that can't be committed.

use super::channel::{Channel, Part};
use super::expression::Rule;
use super::rules::{DEFAULT_DENY, EARLY};
use super::{FirewallError, catch, parts, rules};
use crate::observe::nflog::NfLog;
use netlink_packet_netfilter::nftables::{NfTablesMessage, TableAttribute, TableMessage};

/// Stands for an address that packets are led to.
const SOMEWHERE: std::net::SocketAddr = std::net::SocketAddr::V4(std::net::SocketAddrV4::new(rules::PROXIES, 1));
/// Stands for a run's identifier where there is none.
const NO_RUN: &str = "0000000000000000";

/// What was found. The wall needs all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Support {
    /// Tables of family `inet` with chains of type `filter` on output, and the right to make them.
    pub nftables: bool,
    /// `meta skuid`.
    pub skuid: bool,
    /// `ct state` and `ct direction`.
    pub ct: bool,
    /// `log` to an NFLOG group.
    pub log: bool,
    /// `reject` by TCP reset and by ICMP, for IPv4 and IPv6.
    pub reject: bool,
    /// `dnat` in chains of type `nat`, which what is caught needs alone.
    pub nat: bool,
    /// The other half of `log`: a group can be bound and read.
    pub nflog: bool,
    /// For each that is missing, the kernel's answer: `meta skuid: No such file or directory`.
    pub missing: Vec<String>,
}

impl Support {
    /// Whether a wall can be installed and its refusals recorded.
    pub fn complete(&self) -> bool {
        self.nftables && self.skuid && self.ct && self.log && self.reject && self.nflog
    }
}

/// Tries each expression of the wall in the calling thread's network namespace.
///
/// The rules go into one transaction whose last part names a table that does not exist, so that the kernel takes all
/// of it back: it answers for every part and nothing is ever in force or announced. It does load the modules that
/// the expressions are in, where they are modules, and connection tracking is on for that moment. Taking it back
/// waits for the kernel's grace periods: some 10 ms.
///
/// # Errors
/// [`FirewallError`] when nothing can be told, as where there is no netfilter socket to be had. A part that the
/// kernel refuses is a finding.
pub fn probe_support() -> Result<Support, FirewallError> {
    let channel = Channel::open()?;
    let tried = |name, rules| rules::Chain { name, hooked: None, rules };
    let output = rules::Hooked { hook: libc::NF_INET_LOCAL_OUT as u32, priority: EARLY, kind: rules::Kind::Filter };
    let ruleset = rules::Ruleset {
        table: format!("ringfence-probe-{}", std::process::id()),
        chains: vec![
            rules::Chain { name: "hooked", hooked: Some(output), rules: Vec::new() },
            rules::Chain { name: "translating", hooked: Some(catch::HOOKED), rules: Vec::new() },
            tried("meta skuid", vec![Rule::any().opened_by(1).accept()]),
            tried("ct", vec![Rule::any().reply().accept()]),
            tried("log", vec![Rule::any().recorded(NO_RUN, DEFAULT_DENY, 1)]),
            tried("dnat", vec![Rule::any().protocol(libc::IPPROTO_TCP as u8).lead_to(SOMEWHERE)]),
            tried("reject", vec![Rule::any().reset(), Rule::any().unreachable()]),
        ],
    };
    let mut parts = parts(&ruleset);
    let absent = TableAttribute::Name(format!("{}-absent", ruleset.table));
    parts.push(Part {
        what: "a table that is not there".to_owned(),
        message: NfTablesMessage::DeleteTable(TableMessage { attributes: vec![absent] }),
        flags: 0,
    });
    let names: Vec<_> = parts.iter().map(|part| part.what.clone()).collect();
    let last = names.len() - 1;
    let mut missing = Vec::new();
    for refusal in channel.transaction(parts)? {
        match refusal.part {
            Some(part) if part == last && refusal.source.raw_os_error() == Some(libc::ENOENT) => {}
            Some(part) => missing.push(format!("{}: {}", names[part], refusal.source)),
            None => missing.push(format!("nftables: {}", refusal.source)),
        }
    }
    // A table or chain that is refused takes every rule in it along; EPERM answers the batch as a whole.
    let of_nat = |m: &String| m.starts_with("chain translating") || m.contains("of chain dnat:");
    let nat = !missing.iter().any(of_nat);
    let of_all = |m: &String| !of_nat(m) && ["table", "chain", "nftables"].iter().any(|w| m.starts_with(w));
    let nftables = !missing.iter().any(of_all);
    let holds = |chain: &str| nftables && !missing.iter().any(|m| m.contains(&format!("of chain {chain}:")));
    let mut support = Support {
        nftables,
        skuid: holds("meta skuid"),
        ct: holds("ct"),
        log: holds("log"),
        reject: holds("reject"),
        nat: nftables && nat,
        nflog: false,
        missing: Vec::new(),
    };
    match NfLog::bind(NO_RUN) {
        Ok(_) => support.nflog = true,
        Err(e) => missing.push(format!("nflog: {e}")),
    }
    support.missing = missing;
    Ok(support)
}
