//! What of the command's is led to sockets of ours instead of being refused: questions to the host's resolvers, and connections
//! to addresses that stand for names.
//!
//! It is let by where destinations are judged before translation, led elsewhere just before others' translations could do
//! (Docker's stand at -100, and a conversation is translated once), and let in where it is judged again, by what it has become.
//! What is let by and not translated, for connection tracking was told to leave it alone, say, is refused there. No packet with
//! options is caught: a source route would lead it on.

use super::expression::{Rule, Side, host};
use super::rules::{Chain, Hooked, Kind};
use crate::mutation;
use crate::proxy::transparent::stand_ins::STAND_INS;
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};

/// Behind the first look, and before `NF_IP_PRI_NAT_DST` (-100).
pub(super) const HOOKED: Hooked = Hooked { hook: libc::NF_INET_LOCAL_OUT as u32, priority: -110, kind: Kind::Nat };

const TCP: u8 = libc::IPPROTO_TCP as u8;
const UDP: u8 = libc::IPPROTO_UDP as u8;
/// The chain of destinations that connections are led from.
const PORTS: &str = "caught-ports";
/// The same where they are let by.
const PORTS_LET_BY: &str = "caught-ports-let-by";

/// What is led where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ways {
    /// Each resolver, and who answers in its place, over UDP and over TCP.
    pub resolvers: Vec<(SocketAddr, SocketAddr)>,
    /// Each port that is caught over TCP, and where connections to it arrive.
    pub ports: Vec<(u16, SocketAddr)>,
    /// Addresses that stand for names beside [`STAND_INS`].
    pub listed: Vec<IpAddr>,
}

impl Ways {
    /// The rules of the first look that let by what is caught.
    pub(super) fn let_by(&self, uid: u32) -> Vec<Rule> {
        let questions = self.questions(uid).map(|(rule, _)| rule.accept());
        questions.chain(self.destinations(uid).map(|rule| rule.jump(PORTS_LET_BY))).collect()
    }

    /// The rules of the last look that let in what was led to ours, and nobody else's.
    pub(super) fn arrive(&self, uid: u32) -> Vec<Rule> {
        let to = |protocol: u8, at: SocketAddr| {
            Rule::any().address(Side::Destination, host(at.ip())).plainly(at.ip(), protocol).port(at.port())
        };
        let mut stubs: Vec<SocketAddr> = self.resolvers.iter().map(|(_, stub)| *stub).collect();
        stubs.sort();
        stubs.dedup();
        let all = stubs.iter().flat_map(|stub| [(UDP, *stub), (TCP, *stub)]);
        let all = all.chain(self.ports.iter().map(|(_, at)| (TCP, *at)));
        all.flat_map(|(protocol, at)| {
            let others = to(protocol, at).of_others(uid);
            let barred = if protocol == TCP { others.reset() } else { others.unreachable() };
            [barred, to(protocol, at).opened_by(uid).accept()]
        })
        .collect()
    }

    /// The chains that lead them.
    pub(super) fn chains(&self, uid: u32) -> Vec<Chain> {
        let questions = self.questions(uid).map(|(rule, stub)| rule.lead_to(stub));
        let destinations = self.destinations(uid).map(|rule| rule.goto(PORTS));
        let leading = self.ports.iter().map(|(port, at)| Rule::any().port(*port).lead_to(*at));
        let let_by = self.ports.iter().map(|(port, _)| Rule::any().port(*port).accept());
        let catching = if mutation::left_out("catch") { Vec::new() } else { questions.chain(destinations).collect() };
        vec![
            Chain { name: PORTS, hooked: None, rules: leading.collect() },
            Chain { name: PORTS_LET_BY, hooked: None, rules: let_by.collect() },
            Chain { name: "catch", hooked: Some(HOOKED), rules: catching },
        ]
    }

    /// The command's questions to each resolver, and who answers them.
    fn questions(&self, uid: u32) -> impl Iterator<Item = (Rule, SocketAddr)> {
        self.resolvers.iter().flat_map(move |(asked, stub)| {
            [UDP, TCP].map(|protocol| {
                let to = Rule::any().opened_by(uid).address(Side::Destination, host(asked.ip()));
                (to.plainly(asked.ip(), protocol).port(asked.port()), *stub)
            })
        })
    }

    /// The command's TCP to each destination that stands for a name.
    fn destinations(&self, uid: u32) -> impl Iterator<Item = Rule> {
        let all = [IpNet::V4(STAND_INS)].into_iter().chain(self.listed.iter().copied().map(host));
        all.map(move |net| Rule::any().opened_by(uid).address(Side::Destination, net).plainly(net.addr(), TCP))
    }
}
