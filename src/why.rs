//! `ringfence why`: the judgement that a connection would meet, step by step. It is the proxy's own judge that gives it, by
//! the policy and with the addresses that the host's resolver gives now; nothing is connected to.

use crate::host::Facts;
use crate::install::specs::wall_spec;
use crate::ledger::escape::{TEXT_LIMIT, escape};
use crate::observe::sockets::rules::{SocketRules, Transport};
use crate::plan::{ProxyPlan, WallPlan};
use crate::policy::ranges::AddressVerdict;
use crate::policy::{Authority, Host, Policy, Posture, Verdict, ways_to_admit};
use crate::proxy::{Judge, Judgement, Limits, Resolver, Step};
use std::fmt::Display;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// How a judgement came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It would be connected.
    Admitted,
    /// The policy refuses it.
    Refused,
    /// It is admitted by name, and the name gives no address now. That is no matter of policy.
    Unresolved,
}

impl Outcome {
    /// The exit status of the subcommand: 0, 1, 2.
    pub fn status(self) -> i32 {
        match self {
            Outcome::Admitted => 0,
            Outcome::Refused => 1,
            Outcome::Unresolved => 2,
        }
    }
}

/// Why there is no judgement.
#[derive(Debug, thiserror::Error)]
pub enum WhyError {
    /// The runtime or the resolver could not be set up.
    #[error("{call}: {cause}")]
    Setup {
        /// The call or step.
        call: &'static str,
        /// Its error.
        cause: io::Error,
    },
    /// The answer can't be written.
    #[error("write to standard output: {0}")]
    Write(#[from] io::Error),
}

/// Judges `HOST[:PORT]` (443 without a port) as the command's tools would ask for it, and prints a line for each step.
pub fn why(policy: &Policy, facts: &Facts, target: &str, out: &mut impl Write) -> Result<Outcome, WhyError> {
    let authority = match Authority::parse_with_default(target.as_bytes(), 443) {
        Ok(authority) => authority,
        Err(fault) => {
            line(out, "request", format!("\"{}\": {fault}", escape(target.as_bytes(), TEXT_LIMIT)))?;
            line(out, "verdict", format!("refused: rule=malformed reason={}", fault.reason()))?;
            return Ok(Outcome::Refused);
        }
    };
    line(out, "request", &authority)?;
    let (level, posture) = (policy.level_name(), policy.network.posture);
    let Some(proxy) = ProxyPlan::of(policy, facts) else {
        line(out, "policy", format!("{level}, network {posture}: there is no proxy and no list"))?;
        return by_firewall_alone(policy, &authority, out);
    };
    line(out, "policy", format!("{level}, network {posture}, {} entries", proxy.allowlist.len()))?;
    match (without_proxy(&authority.host), WallPlan::of(policy, facts)) {
        (Some(address), Some(wall)) => on_loopback(&wall, SocketAddr::new(address, authority.port), out),
        _ => by_proxy(&proxy, &authority, out),
    }
}

fn line(out: &mut impl Write, label: &str, text: impl Display) -> io::Result<()> {
    writeln!(out, "{label:<10} {text}")
}

fn list(items: &[impl ToString]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// With egress open, the control plane's ports are all that is refused.
fn by_firewall_alone(policy: &Policy, authority: &Authority, out: &mut impl Write) -> Result<Outcome, WhyError> {
    let ports = &policy.privilege.control_plane_ports;
    if policy.privilege.posture > Posture::Open && ports.iter().any(|port| port.get() == authority.port) {
        line(out, "verdict", "refused by the firewall: rule=control-plane")?;
        return Ok(Outcome::Refused);
    }
    line(out, "verdict", "admitted")?;
    Ok(Outcome::Admitted)
}

/// The address of a host that NO_PROXY names as the command has it (`harnesses/tools.toml`).
fn without_proxy(host: &Host) -> Option<IpAddr> {
    const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    match host {
        Host::Name(name) => (name.as_str() == "localhost").then_some(LOCALHOST),
        literal => literal.ip().filter(|ip| *ip == LOCALHOST || *ip == IpAddr::V6(std::net::Ipv6Addr::LOCALHOST)),
    }
}

/// What tools connect to by themselves is the firewall's to judge, or that of who stands in for it.
fn on_loopback(wall: &WallPlan, to: SocketAddr, out: &mut impl Write) -> Result<Outcome, WhyError> {
    line(out, "loopback", "NO_PROXY names it: it is connected to without the proxy, as `loopback` says")?;
    let rules = SocketRules::from(&wall_spec("", 0, None, wall, 0));
    match rules.refuses(Transport::Tcp, to) {
        Some(rule) => {
            line(out, "verdict", format!("refused by the firewall: rule={rule}"))?;
            Ok(Outcome::Refused)
        }
        None => {
            line(out, "verdict", "admitted")?;
            Ok(Outcome::Admitted)
        }
    }
}

fn by_proxy(proxy: &ProxyPlan, authority: &Authority, out: &mut impl Write) -> Result<Outcome, WhyError> {
    let mut steps = Vec::new();
    let judgement = judge(proxy.clone(), authority, &mut |step| steps.push(told(step, authority, proxy)))?;
    for (label, text) in steps {
        line(out, label, text)?;
    }
    match judgement {
        Judgement::Permitted(permit) => {
            let way = match permit.parent() {
                None => format!("tried in this order: {}", list(permit.addresses())),
                Some(parent) => format!("asked for at {parent}"),
            };
            line(out, "verdict", format!("admitted; {way}"))?;
            Ok(Outcome::Admitted)
        }
        Judgement::Refused(refusal) => {
            line(out, "verdict", format!("refused: rule={} reason={}", refusal.rule, refusal.reason))?;
            for way in ways_to_admit(authority, &refusal.addrs, &proxy.allowlist, &proxy.address_rules) {
                line(out, "to admit", way)?;
            }
            Ok(Outcome::Refused)
        }
        Judgement::Unresolved(cause) => {
            line(out, "verdict", format!("admitted by name; {cause}: the proxy would answer {}", cause.status()))?;
            Ok(Outcome::Unresolved)
        }
    }
}

fn judge(proxy: ProxyPlan, authority: &Authority, told: &mut dyn FnMut(Step<'_>)) -> Result<Judgement, WhyError> {
    let setup = |call| move |cause| WhyError::Setup { call, cause };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(setup("runtime"))?;
    runtime.block_on(async {
        let limits = Limits::default();
        let resolver = Resolver::new(proxy.dns, &limits);
        let resolver = resolver.map_err(|e| setup("resolver")(io::Error::other(e.to_string())))?;
        let judge = Judge::new(proxy.allowlist, proxy.address_rules, resolver, None, limits.addresses);
        let judge = judge.with_upstream(proxy.upstream);
        Ok(judge.judge_by_steps(authority, told).await)
    })
}

fn told(step: Step<'_>, authority: &Authority, proxy: &ProxyPlan) -> (&'static str, String) {
    match step {
        Step::Allowlist(Verdict::Admitted { entry }) => ("allowlist", format!("admitted by {entry}")),
        Step::Allowlist(Verdict::Refused { reason, .. }) if *reason == "port_not_allowed" => {
            ("allowlist", format!("the host is listed, but not with port {}; it is not resolved", authority.port))
        }
        Step::Allowlist(Verdict::Refused { .. }) => ("allowlist", "no entry names it; it is not resolved".to_owned()),
        Step::Resolved(addrs) => {
            let from = match proxy.dns.hosts.contains_key(&authority.host.to_string()) {
                true => "/etc/hosts".to_owned(),
                false => list(&proxy.dns.nameservers),
            };
            ("resolved", format!("by {from}: {}", list(addrs)))
        }
        Step::Address(addr, AddressVerdict::Public) => ("address", format!("{addr} is public")),
        Step::Address(addr, AddressVerdict::Trusted) => ("address", format!("{addr} is trusted by the policy")),
        Step::Address(addr, AddressVerdict::Denied { rule, range }) => {
            ("address", format!("{addr} is denied: rule={rule}, {range}"))
        }
        Step::Upstream(parent, addresses) => {
            let told = match authority.host.name() {
                Some(_) => "; it resolves the name, and no address is judged",
                None => "",
            };
            ("upstream", format!("{parent}, at {}{told}", list(addresses)))
        }
    }
}
