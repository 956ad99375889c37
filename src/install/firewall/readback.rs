//! What the kernel holds, against what was sent to it.

use super::channel::{Channel, inet};
use super::meaning::{attributes, counted, is_as_sent, text};
use super::rules::{Chain, RULES, Ruleset};
use super::{FirewallError, stale};
use netlink_packet_netfilter::nftables::{
    ChainAttribute, ChainFlags, ChainMessage, Hook, NfTablesMessage, RuleAttribute, RuleMessage, TableAttribute,
};
use std::collections::BTreeSet;

/// Whether the kernel holds what was installed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Integrity {
    /// Table, chains and rules are what was installed.
    Intact,
    /// The first difference, in words.
    Altered(String),
}

/// How many packets a rule has refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleCounter {
    /// The rule's name, one of [`RULES`].
    pub rule: String,
    /// Packets since installation.
    pub packets: u64,
}

/// The expressions of a rule as the kernel sends them.
type Expressions = Vec<u8>;

pub(super) fn compare(channel: &Channel, sent: &Ruleset) -> Result<Integrity, FirewallError> {
    let difference = match table_difference(channel, sent)? {
        Some(difference) => Some(difference),
        None => chain_difference(channel, sent)?,
    };
    Ok(match difference.or(rule_difference(sent, &rules(channel, sent)?)) {
        None => Integrity::Intact,
        Some(difference) => Integrity::Altered(difference),
    })
}

fn table_difference(channel: &Channel, sent: &Ruleset) -> Result<Option<String>, FirewallError> {
    let tables = stale::tables(channel)?;
    let Some(attributes) = tables.iter().find(|(name, _)| *name == sent.table).map(|(_, attributes)| attributes) else {
        return Ok(Some("the table is gone".to_owned()));
    };
    Ok(attributes.iter().find_map(|attribute| match attribute {
        // Dormant rules judge nothing; an owned table ends with its owner.
        TableAttribute::Flags(flags) if !flags.is_empty() => Some(format!("the table has flags {flags:?}")),
        TableAttribute::Owner(port) => Some(format!("the table is owned by netlink port {port}")),
        _ => None,
    }))
}

fn chain_difference(channel: &Channel, sent: &Ruleset) -> Result<Option<String>, FirewallError> {
    let request = NfTablesMessage::GetChain(ChainMessage { attributes: Vec::new() });
    let mut found = Vec::new();
    for message in channel.dump(request)?.into_iter().filter_map(inet) {
        let NfTablesMessage::NewChain(ChainMessage { attributes }) = message else {
            continue;
        };
        // While other tables come and go, a dump can have a chain twice. A table has one of each name.
        let is_named = |attribute: &&ChainAttribute| matches!(attribute, ChainAttribute::Name(_));
        let name = attributes.iter().find(is_named);
        let is_known = found.iter().any(|one: &Vec<ChainAttribute>| name.is_some_and(|name| one.contains(name)));
        if attributes.contains(&ChainAttribute::Table(sent.table.clone())) && !is_known {
            found.push(attributes);
        }
    }
    if found.len() != sent.chains.len() {
        return Ok(Some(format!("{} chains instead of {}", found.len(), sent.chains.len())));
    }
    Ok(sent.chains.iter().find_map(|chain| {
        let name = ChainAttribute::Name(chain.name.to_owned());
        match found.iter().find(|attributes| attributes.contains(&name)) {
            None => Some(format!("chain {} is gone", chain.name)),
            Some(attributes) => hook_difference(chain, attributes),
        }
    }))
}

fn hook_difference(chain: &Chain, found: &[ChainAttribute]) -> Option<String> {
    let name = chain.name;
    let hook = found.iter().find_map(|a| if let ChainAttribute::Hook(hook) = a { Some(hook) } else { None });
    let Some(hooked) = chain.hooked else {
        return hook.map(|_| format!("chain {name} is hooked"));
    };
    let Some(hook) = hook else {
        return Some(format!("chain {name} is not hooked"));
    };
    let number = hook.iter().find_map(|h| if let Hook::Number(number) = h { Some(u32::from(*number)) } else { None });
    let priority = hook.iter().find_map(|h| if let Hook::Priority(p) = h { Some(*p as i32) } else { None });
    if (number, priority) != (Some(hooked.hook), Some(hooked.priority)) {
        return Some(format!("chain {name} is at hook {number:?} with priority {priority:?}"));
    }
    let needed = [
        ChainAttribute::Policy(libc::NF_ACCEPT as u32),
        ChainAttribute::Type(hooked.kind.name().to_owned()),
        ChainAttribute::Flags(ChainFlags::Base),
    ];
    needed.iter().find(|a| !found.contains(a)).map(|missing| format!("chain {name} lacks {missing:?}"))
}

fn rule_difference(sent: &Ruleset, found: &[(String, Expressions)]) -> Option<String> {
    for chain in &sent.chains {
        let name = chain.name;
        let held: Vec<_> = found.iter().filter(|(of, _)| of == name).map(|(_, rule)| rule).collect();
        if held.len() != chain.rules.len() {
            return Some(format!("chain {name} has {} rules instead of {}", held.len(), chain.rules.len()));
        }
        for (number, (sent, held)) in chain.rules.iter().zip(held).enumerate() {
            if !is_as_sent(held, sent) {
                return Some(format!("rule {} of chain {name} is another", number + 1));
            }
        }
    }
    None
}

/// The table's rules in the kernel's order, each with its chain's name.
fn rules(channel: &Channel, sent: &Ruleset) -> Result<Vec<(String, Expressions)>, FirewallError> {
    const NETLINK_AND_NETFILTER_HEADERS: usize = 16 + 4;
    const NFPROTO_INET: u8 = libc::NFPROTO_INET as u8;
    let request = NfTablesMessage::GetRule(RuleMessage { attributes: vec![RuleAttribute::Table(sent.table.clone())] });
    let (mut found, mut handles) = (Vec::new(), BTreeSet::new());
    for message in channel.dump_bytes(request)? {
        let Some(body) = message.get(NETLINK_AND_NETFILTER_HEADERS..).filter(|_| message[16] == NFPROTO_INET) else {
            continue;
        };
        let of =
            |wanted| attributes(body).find(|(kind, _)| *kind == wanted).map(|(_, value)| value).unwrap_or_default();
        // As with chains; a table has one rule of each handle.
        if text(of(NFTA_RULE_TABLE)) == sent.table && handles.insert(of(NFTA_RULE_HANDLE).to_vec()) {
            found.push((text(of(NFTA_RULE_CHAIN)), of(NFTA_RULE_EXPRESSIONS).to_vec()));
        }
    }
    Ok(found)
}

const NFTA_RULE_TABLE: u16 = 1;
const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_HANDLE: u16 = 3;
const NFTA_RULE_EXPRESSIONS: u16 = 4;

pub(super) fn counters(channel: &Channel, sent: &Ruleset) -> Result<Vec<RuleCounter>, FirewallError> {
    let found = rules(channel, sent)?;
    if found.is_empty() {
        let table = sent.table.clone();
        return Err(FirewallError::Altered { table, difference: "the table is gone".to_owned() });
    }
    let counted: Vec<_> = found.iter().filter_map(|(_, rule)| counted(rule)).collect();
    let of = |rule: &str| counted.iter().filter(|(name, _)| name == rule).map(|(_, packets)| packets).sum();
    Ok(RULES.iter().map(|rule| RuleCounter { rule: (*rule).to_owned(), packets: of(rule) }).collect())
}
