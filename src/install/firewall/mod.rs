//! The network wall of rung `full`: one nftables table per run, put in force by one netlink transaction, read back,
//! watched, and removed at the seal.
//!
//! The table has no owner: it must outlive us, so that a command whose supervisor was killed is without egress. The
//! next run finds it with [`stale_tables`].
//!
//! What the rules say stands in [`rules`].

mod catch;
mod channel;
mod expression;
mod meaning;
mod readback;
pub mod rules;
mod stale;
mod support;
mod watch;

pub use catch::Ways;
pub(crate) use channel::{Channel, datagram};
pub(crate) use expression::SNAPLEN;
pub use readback::{Integrity, RuleCounter};
pub use stale::{StaleTable, remove_table, stale_tables};
pub use support::{Support, probe_support};
pub use watch::Watch;

use crate::mutation::{self, READ_BACK};
use ipnet::IpNet;
use netlink_packet_core::{NLM_F_APPEND, NLM_F_EXCL};
use netlink_packet_netfilter::nftables::{
    ChainAttribute, ChainMessage, Hook, HookNumber, NfTablesMessage, RuleAttribute, RuleMessage, TableAttribute,
    TableMessage,
};
use std::io;
use std::net::{IpAddr, SocketAddrV4};

/// What a wall is asked to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WallSpec {
    /// The run's identifier: 16 lower-case hexadecimal digits.
    pub run: String,
    /// The uid whose sockets are judged (`meta skuid`: the fsuid with which a socket was opened). Not 0.
    pub uid: u32,
    /// Whether what would be refused is told of and let through: for a shadow, whose sockets are opened with this uid.
    pub shadow: bool,
    /// The egress proxy on 127.0.0.0/8, the one destination that is always admitted; `None` for no egress at all.
    pub proxy: Option<SocketAddrV4>,
    /// Whether anything but the control-plane ports is refused.
    pub egress: Egress,
    /// What of this machine itself may be reached.
    pub loopback: Loopback,
    /// The addresses of resolv.conf. Docker's 127.0.0.11 and systemd's 127.0.0.53 and 127.0.0.54 are refused always.
    pub resolvers: Vec<IpAddr>,
    /// The provider's control-plane ports: refused at every address, loopback included.
    pub control_plane_ports: Vec<u16>,
    /// The NFLOG group that takes the records of refused packets.
    pub nflog_group: u16,
    /// Addresses of cloud metadata and wire servers, refused as `metadata` even where they are this machine's own.
    pub metadata: Vec<IpNet>,
    /// Ranges that are not globally reachable, refused as `private-range` except as `loopback` admits them.
    pub private: Vec<IpNet>,
    /// What is led to sockets of ours instead of being refused; `None` where nothing is.
    pub caught: Option<Ways>,
}

/// How much of the network is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Egress {
    /// The control-plane ports only.
    Open,
    /// Everything but the proxy and what `loopback` admits.
    Restricted,
}

/// What of this machine may be reached, DNS and control-plane ports always excepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loopback {
    /// 127.0.0.0/8, ::1 and the addresses that this machine had at installation.
    All,
    /// The proxy alone.
    ProxyOnly,
    /// These TCP and UDP ports of 127.0.0.0/8 and ::1.
    Ports(Vec<u16>),
}

/// Why the wall is not, or no longer, what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FirewallError {
    /// A value of [`WallSpec`] that can't be put in force.
    #[error("firewall: {field} is {value}; {accepted}")]
    Spec {
        /// The field's name.
        field: &'static str,
        /// Its value.
        value: String,
        /// What is accepted.
        accepted: &'static str,
    },
    /// A system call on the netlink socket failed.
    #[error("firewall: {call} on the netfilter socket: {source}")]
    Socket {
        /// The call.
        call: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The machine's own addresses could not be listed.
    #[error("firewall: getifaddrs: {0}")]
    Addresses(#[source] nix::Error),
    /// The kernel refused a part of the transaction; nothing of it is in force.
    #[error("firewall: the kernel refuses {what}: {source}")]
    Refused {
        /// The part: a table, chain or rule.
        what: String,
        /// The cause. ENOENT on a rule means that an expression (a kernel module) is missing, EEXIST that the table
        /// is there already.
        source: io::Error,
    },
    /// The kernel gave no answer where it always does.
    #[error("firewall: no answer from the kernel to {request}")]
    NoAnswer {
        /// What was sent.
        request: &'static str,
    },
    /// The ruleset changed under every attempt to read it.
    #[error("firewall: the ruleset changed during each of {tries} attempts to read it")]
    Unsettled {
        /// How often.
        tries: usize,
    },
    /// A message that can't be read.
    #[error("firewall: a message from the kernel can't be read: {cause}")]
    Malformed {
        /// What is wrong with it.
        cause: String,
    },
    /// The kernel holds something else than what was sent.
    #[error("firewall: table {table} is not what was installed: {difference}")]
    Altered {
        /// The table.
        table: String,
        /// The first difference.
        difference: String,
    },
    /// No NFLOG group could be had.
    #[error("firewall: no free NFLOG group among {first}..={last}: {source}")]
    NoLogGroup {
        /// The first group that was tried.
        first: u16,
        /// The last.
        last: u16,
        /// The last answer.
        source: io::Error,
    },
}

impl WallSpec {
    /// `ringfence-UID-RUN`.
    pub fn table_name(&self) -> String {
        stale::table_name(self.uid, &self.run)
    }

    fn check(&self) -> Result<(), FirewallError> {
        let wrong = |field, value: &dyn ToString, accepted| {
            Err(FirewallError::Spec { field, value: value.to_string(), accepted })
        };
        if !stale::is_run(&self.run) {
            return wrong("run", &self.run, "16 lower-case hexadecimal digits are accepted");
        }
        if self.uid == 0 {
            return wrong("uid", &0, "the wall is for a uid of the command's own, never root's");
        }
        if let Some(proxy) = self.proxy {
            if !proxy.ip().is_loopback() || proxy.port() == 0 {
                return wrong("proxy", &proxy, "an address of 127.0.0.0/8 with a port is accepted");
            }
            if self.control_plane_ports.contains(&proxy.port()) || rules::DNS_PORTS.contains(&proxy.port()) {
                return wrong("proxy", &proxy, "its port may be neither a control-plane port nor one of DNS");
            }
        }
        Ok(())
    }
}

/// A wall in force. Dropping the value leaves the table where it is; [`Wall::remove`] takes it away.
#[derive(Debug)]
#[must_use]
pub struct Wall {
    channel: Channel,
    ruleset: rules::Ruleset,
    uid: u32,
}

/// Puts the wall in force in the calling thread's network namespace: one transaction that is committed whole or not
/// at all, then read back.
///
/// # Errors
/// [`FirewallError`]; the table is not there afterwards, unless the error is that it was there before.
pub fn install(spec: &WallSpec) -> Result<Wall, FirewallError> {
    install_by(Channel::open()?, spec, &own_addresses()?)
}

/// The same in the network namespace of the channel, whose interfaces have the addresses `own`.
pub(crate) fn install_by(channel: Channel, spec: &WallSpec, own: &[IpAddr]) -> Result<Wall, FirewallError> {
    spec.check()?;
    let ruleset = rules::ruleset(spec, own);
    let wall = Wall { channel, ruleset, uid: spec.uid };
    commit(&wall.channel, parts(&wall.ruleset))?;
    verified(wall)
}

/// The wall, if the kernel holds what was sent; else the table is removed.
fn verified(wall: Wall) -> Result<Wall, FirewallError> {
    let error = match wall.is_intact() {
        Ok(Integrity::Intact) => return Ok(wall),
        Ok(Integrity::Altered(difference)) => {
            FirewallError::Altered { table: wall.table_name().to_owned(), difference }
        }
        Err(error) => error,
    };
    wall.remove()?;
    Err(error)
}

impl Wall {
    /// The table's name; its family is `inet`.
    pub fn table_name(&self) -> &str {
        &self.ruleset.table
    }

    /// The uid that it judges.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Packets refused so far by each rule, in the order of [`rules::RULES`]. Each refused packet is counted once.
    ///
    /// # Errors
    /// [`FirewallError`], also when the table is gone.
    pub fn counters(&self) -> Result<Vec<RuleCounter>, FirewallError> {
        readback::counters(&self.channel, &self.ruleset)
    }

    /// Holds what the kernel has against what was installed: table, chains, hooks, priorities, policies and every
    /// expression of every rule, in order.
    ///
    /// # Errors
    /// [`FirewallError`] when it can't be told.
    pub fn is_intact(&self) -> Result<Integrity, FirewallError> {
        readback::compare(&self.channel, &self.ruleset)
    }

    /// Starts to watch for changes, then makes sure that none came before.
    ///
    /// # Errors
    /// [`FirewallError`]; [`FirewallError::Altered`] when the table is no longer what was installed.
    pub fn watch(&self) -> Result<Watch, FirewallError> {
        let watch = Watch::open(self.table_name())?;
        match self.is_intact()? {
            Integrity::Intact => Ok(watch),
            Integrity::Altered(difference) => {
                Err(FirewallError::Altered { table: self.table_name().to_owned(), difference })
            }
        }
    }

    /// Removes the table, unless someone else has removed it.
    ///
    /// # Errors
    /// [`FirewallError::Refused`].
    pub fn remove_if_there(self) -> Result<(), FirewallError> {
        match self.remove() {
            Err(FirewallError::Refused { source, .. }) if source.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            outcome => outcome,
        }
    }

    /// Removes the table.
    ///
    /// # Errors
    /// [`FirewallError::Refused`]; ENOENT when someone else has removed it.
    pub fn remove(self) -> Result<(), FirewallError> {
        stale::remove(self.channel, &self.ruleset.table)
    }
}

/// Commits `parts` or says which of them the kernel refused.
fn commit(channel: &Channel, parts: Vec<channel::Part>) -> Result<(), FirewallError> {
    let names: Vec<_> = parts.iter().map(|part| part.what.clone()).collect();
    match channel.transaction(parts)?.into_iter().next() {
        None => Ok(()),
        Some(refusal) => Err(FirewallError::Refused {
            what: refusal.part.map_or_else(|| "the commit".to_owned(), |part| names[part].clone()),
            source: refusal.source,
        }),
    }
}

/// The transaction that makes `ruleset`: every chain before any rule, since rules name chains.
fn parts(ruleset: &rules::Ruleset) -> Vec<channel::Part> {
    let table = &ruleset.table;
    let mut parts = vec![channel::Part::create(
        format!("table inet {table}"),
        NfTablesMessage::NewTable(TableMessage { attributes: vec![TableAttribute::Name(table.clone())] }),
        NLM_F_EXCL,
    )];
    let sent = || ruleset.chains.iter().filter(|c| !READ_BACK.contains(&c.name) || !mutation::left_out(c.name));
    for chain in sent() {
        let mut attributes = vec![ChainAttribute::Table(table.clone()), ChainAttribute::Name(chain.name.to_owned())];
        if let Some(hooked) = chain.hooked {
            attributes.push(ChainAttribute::Hook(vec![
                Hook::Number(HookNumber::Inet(hooked.hook.into())),
                Hook::Priority(hooked.priority as u32),
            ]));
            attributes.push(ChainAttribute::Policy(libc::NF_ACCEPT as u32));
            attributes.push(ChainAttribute::Type(hooked.kind.name().to_owned()));
        }
        let message = NfTablesMessage::NewChain(ChainMessage { attributes });
        parts.push(channel::Part::create(format!("chain {}", chain.name), message, NLM_F_EXCL));
    }
    for chain in sent() {
        for (number, rule) in chain.rules.iter().enumerate() {
            let attributes = vec![
                RuleAttribute::Table(table.clone()),
                RuleAttribute::Chain(chain.name.to_owned()),
                RuleAttribute::Expressions(rule.attributes()),
            ];
            let message = NfTablesMessage::NewRule(RuleMessage { attributes });
            let what = format!("rule {} of chain {}", number + 1, chain.name);
            parts.push(channel::Part::create(what, message, NLM_F_APPEND));
        }
    }
    parts
}

/// The addresses of this machine's interfaces in the calling thread's network namespace.
pub(crate) fn own_addresses() -> Result<Vec<IpAddr>, FirewallError> {
    let interfaces = nix::ifaddrs::getifaddrs().map_err(FirewallError::Addresses)?;
    Ok(interfaces
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sched::{CloneFlags, unshare};

    #[test]
    fn a_wall_that_is_not_what_was_sent_is_an_error_and_removed() {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace needs root");
        let sent = rules::tests::spec();
        let held = WallSpec { control_plane_ports: vec![8501], ..sent.clone() };
        let wall = install(&held).unwrap();
        let other = Wall { ruleset: rules::ruleset(&sent, &[]), ..wall };
        assert!(matches!(verified(other), Err(FirewallError::Altered { .. })));
        assert_eq!(stale_tables().unwrap(), []);
    }
}
