//! An act with what it must give on each rung, and what must stand in the record of it.

use super::rung::{RUNGS, Rung};
use std::net::IpAddr;

/// Who does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// acts.c: one system call a line.
    Acts,
    /// network.c: acts of several calls.
    Network,
}

/// Where rungs may differ: the design's table of differences, and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Row {
    /// UDP to a refused address.
    Datagrams,
    /// This machine's own addresses beside loopback.
    OwnAddress,
    /// What is asked of a socket that a device binding or a packet's own way would undo.
    SocketOptions,
    /// TCP connections that a send makes.
    FastOpen,
    /// What a container refuses by itself.
    Container,
    /// Abstract names, which are a network namespace's.
    OwnNamespace,
    /// Unix sockets of others on a dev box.
    DevBox,
    /// Programs with file capabilities, which are not started where the bounding set lacks them (capabilities(7)).
    FileCapabilities,
}

pub const ROWS: [Row; 8] = [
    Row::Datagrams,
    Row::OwnAddress,
    Row::SocketOptions,
    Row::FastOpen,
    Row::Container,
    Row::OwnNamespace,
    Row::DevBox,
    Row::FileCapabilities,
];

/// What an act gives: `ok`, an errno's name, or an HTTP status.
#[derive(Debug, Clone, Copy)]
pub enum ByRung {
    Same(&'static str),
    /// In the order of [`RUNGS`], and why.
    Differs(Row, [&'static str; 4]),
}

impl ByRung {
    pub fn on(self, rung: Rung) -> &'static str {
        match self {
            ByRung::Same(outcome) => outcome,
            ByRung::Differs(_, by_rung) => by_rung[rung as usize],
        }
    }
}

/// A record, in the terms of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Told {
    pub axis: String,
    pub mechanism: String,
    pub operation: String,
    pub object: String,
    pub errno: String,
    pub rule: String,
}

/// What makes a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The firewall, or where there is none the notifier.
    Packet,
    Call,
    Proxy,
}

/// What must stand in the record, and on which rungs.
#[derive(Debug, Clone, Copy)]
pub struct Recorded {
    axis: &'static str,
    source: Source,
    operation: &'static str,
    object: &'static str,
    errno: &'static str,
    rule: &'static str,
    /// In the order of [`RUNGS`].
    on: [bool; 4],
}

/// On every rung.
pub const EVERYWHERE: [bool; 4] = [true; 4];
/// What an ordinary user could not do by himself is no denial where he is the caller.
pub const OF_ROOT: [bool; 4] = [true, true, false, false];
/// Nor is what a container keeps from its root.
pub const OF_WHOLE_ROOT: [bool; 4] = [true, false, false, false];
/// Where sockets are made for the command.
pub const WITHOUT_FIREWALL: [bool; 4] = [false, true, false, true];
pub const WITH_FIREWALL: [bool; 4] = [true, false, true, false];
pub const BUT_FULL: [bool; 4] = [false, true, true, true];
/// What any user may, but in a container.
pub const OF_USERS: [bool; 4] = [true, false, true, true];

impl Recorded {
    pub const fn packet(operation: &'static str, errno: &'static str, rule: &'static str) -> Recorded {
        Recorded { axis: "network", source: Source::Packet, operation, object: "", errno, rule, on: EVERYWHERE }
    }

    pub const fn call(
        axis: &'static str,
        operation: &'static str,
        object: &'static str,
        errno: &'static str,
        rule: &'static str,
    ) -> Recorded {
        Recorded { axis, source: Source::Call, operation, object, errno, rule, on: EVERYWHERE }
    }

    pub const fn proxy(operation: &'static str, rule: &'static str) -> Recorded {
        Recorded { axis: "network", source: Source::Proxy, operation, object: "", errno: "403", rule, on: EVERYWHERE }
    }

    pub const fn only_on(self, on: [bool; 4]) -> Recorded {
        Recorded { on, ..self }
    }

    /// The record of an act that is these words.
    pub fn about(&self, words: &[&str]) -> Expected {
        let port = words.iter().skip(2).position(|word| word.parse::<u16>().is_ok()).map(|at| at + 2);
        let object = match (self.source, port, words) {
            (Source::Packet, Some(port), _) => format!("{} {}", canonical(words[port - 1]), words[port]),
            (Source::Packet, None, [_, address, ..]) => format!("{} 0", canonical(address)),
            (Source::Proxy, _, [_, host, ..]) => host.split(':').next().unwrap_or_default().to_owned(),
            _ => self.object.to_owned(),
        };
        let mechanism = |rung: Rung| match self.source {
            Source::Proxy => "proxy",
            Source::Packet if !rung.is_without_namespaces() => "firewall",
            _ => "notifier",
        };
        let told = |rung: Rung| Told {
            axis: self.axis.to_owned(),
            mechanism: mechanism(rung).to_owned(),
            operation: self.operation.to_owned(),
            object: object.clone(),
            errno: self.errno.to_owned(),
            rule: self.rule.to_owned(),
        };
        Expected { by_rung: RUNGS.map(|rung| self.on[rung as usize].then(|| told(rung))) }
    }
}

/// An address as packets have it.
fn canonical(address: &str) -> IpAddr {
    address.parse::<IpAddr>().unwrap_or_else(|cause| panic!("{address}: {cause}")).to_canonical()
}

/// A record in the order of [`RUNGS`].
#[derive(Debug, Clone)]
pub struct Expected {
    pub by_rung: [Option<Told>; 4],
}

impl Expected {
    /// About this object.
    pub fn with_object(mut self, object: &str) -> Expected {
        self.by_rung.iter_mut().flatten().for_each(|told| told.object = object.to_owned());
        self
    }

    /// With a number where an object says `OWN`.
    pub fn with_number(mut self, number: u32) -> Expected {
        let number = number.to_string();
        self.by_rung.iter_mut().flatten().for_each(|told| told.object = told.object.replace("OWN", &number));
        self
    }
}

/// An act.
#[derive(Debug)]
pub struct Case {
    pub id: usize,
    /// What it is, for messages.
    pub what: String,
    pub program: Program,
    /// What the program is told.
    pub line: String,
    pub outcome: ByRung,
    pub recorded: Vec<Expected>,
}
