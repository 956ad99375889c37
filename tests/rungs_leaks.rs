//! Nothing reaches anybody outside on any rung: every way out that is known, each shown to lead out where nothing holds it,
//! by the packets on the link and by sinks behind it.

mod attempts;
mod common;
#[path = "rungs/programs.rs"]
mod programs;
#[path = "rungs/rung.rs"]
mod rung;

use common::{Fence, as_root, own_user};
use programs::{Outside, outcomes};
use rung::RUNGS;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use world::Sink;
use world::internet::everywhere;

/// The first of the acts' ports, of which each has its own.
const PORTS: u16 = 20_000;
/// Where sinks listen.
const SINK: u16 = 4477;

/// What is to be seen outside when nothing holds an act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// A packet to the address and port that the act names; of another protocol than TCP and UDP by the address alone.
    Packet,
    /// A connection or a datagram at the sink.
    AtSink,
    /// Something at an abstract name.
    AtName,
    /// The firewall or the routes are other ones.
    Changed,
    /// Nothing that could be seen from here: the act's own outcome tells that it is live.
    Outcome,
}
use Seen::{AtName, AtSink, Changed, Outcome, Packet};

/// `PORT` is the act's own, `SINK` the sinks', `OWN` a number of the test's process.
const LEAKS: &[(&str, Seen)] = &[
    ("tcp 11.22.33.44 PORT", Packet),
    ("tcp-nonblocking 11.22.33.44 PORT", Packet),
    ("tcp-after-bind 11.22.33.44 PORT", Packet),
    ("tcp-again 11.22.33.44 PORT", Packet),
    ("tcp 2a00:1:2:3::44 PORT", Packet),
    ("tcp-after-bind 2a00:1:2:3::44 PORT", Packet),
    ("tcp ::ffff:11.22.33.44 PORT", Packet),
    ("tcp 169.254.169.254 PORT", Packet),
    ("tcp 10.0.0.5 PORT", Packet),
    ("tcp 64:ff9b::a00:5 PORT", Packet),
    ("tcp 11.22.33.45 53", Packet),
    ("tcp 11.22.33.53 53", Packet),
    ("tcp 11.22.33.45 853", Packet),
    ("tcp 11.22.33.44 SINK", AtSink),
    ("tcp 2a00:1:2:3::44 SINK", AtSink),
    ("fast-open 11.22.33.44 PORT", Packet),
    ("fast-open-connect 11.22.33.44 PORT", Packet),
    ("tcp-of-protocol 11.22.33.44 PORT 262", Packet),
    ("tcp-of-protocol 11.22.33.44 PORT 132", Packet),
    ("udp 11.22.33.44 PORT", Packet),
    ("udp 2a00:1:2:3::44 PORT", Packet),
    ("udp ::ffff:11.22.33.44 PORT", Packet),
    ("udp 11.22.33.44 443", Packet),
    ("udp 11.22.33.45 53", Packet),
    ("udp 11.22.33.53 53", Packet),
    ("udp 11.22.33.44 SINK", AtSink),
    ("udp 2a00:1:2:3::44 SINK", AtSink),
    ("udp-connect-send 11.22.33.44 PORT", Packet),
    ("udp-after 11.22.33.44 PORT", Packet),
    ("udp-message 11.22.33.44 PORT", Packet),
    ("udp-messages 11.22.33.44 PORT", Packet),
    ("udp-interface 11.22.33.44 PORT", Packet),
    ("udp-interface 2a00:1:2:3::44 PORT", Packet),
    ("udp-unspecified 11.22.33.44 PORT", Packet),
    ("udp-device 11.22.33.44 PORT eth0", Packet),
    ("udp-options 11.22.33.44 PORT", Packet),
    ("udp 224.0.0.251 PORT", Packet),
    ("udp-broadcast 255.255.255.255 PORT", Packet),
    ("udp-broadcast 11.22.33.255 PORT", Packet),
    ("echo 11.22.33.45", Packet),
    ("echo 2a00:1:2:3::1", Packet),
    ("raw 11.22.33.53", Packet),
    ("frame 11.22.33.44 PORT", Packet),
    ("i386 11.22.33.44 PORT", Packet),
    ("x32 11.22.33.44 PORT", Packet),
    ("ring-connect 11.22.33.44 PORT", Packet),
    ("vsock 1 PORT", Outcome),
    ("unix @outside-OWN", AtName),
    ("unix-datagram @outside-OWN.d", AtName),
    ("table rungs", Changed),
    ("route 11.22.33.99", Changed),
];

/// What a kernel may be built without: the outcome tells it, and there is no such way out.
const OPTIONAL: [(&str, &[&str]); 5] = [
    ("tcp-of-protocol", &["EPROTONOSUPPORT", "ENOPROTOOPT"]),
    ("i386", &["ENOSYS"]),
    ("x32", &["ENOSYS"]),
    ("ring-connect", &["ENOSYS", "EPERM"]),
    ("vsock", &["EAFNOSUPPORT", "ENODEV"]),
];

fn lines() -> Vec<Vec<String>> {
    let line = |(index, (line, _)): (usize, &(&str, Seen))| {
        let line = line.replace("PORT", &(PORTS + index as u16).to_string());
        let line = line.replace("SINK", &SINK.to_string()).replace("OWN", &std::process::id().to_string());
        line.split(' ').map(str::to_owned).collect()
    };
    LEAKS.iter().enumerate().map(line).collect()
}

/// The box with the program and the script, and whoever listens outside.
struct Leaking {
    fence: Fence,
    sinks: (Sink, Sink),
    outside: Outside,
}

const SCRIPT: &str = "/usr/local/lib/leaks/network /usr/local/lib/leaks/script";

impl Leaking {
    fn new() -> Leaking {
        let fence = Fence::new();
        let sinks = everywhere(&fence.world, SINK).expect("sinks");
        let outside = Outside::start(&fence);
        // That something of the same runs, and would be seen to.
        let control = format!("{}\tserve-tcp\t127.0.0.1\t127.0.0.1", LEAKS.len());
        let numbered =
            lines().iter().enumerate().map(|(id, words)| format!("{id}\t{}", words.join("\t"))).collect::<Vec<_>>();
        let script = [numbered, vec![control]].concat().join("\n") + "\n";
        fence.world.write("/usr/local/lib/leaks/network", programs::network(), 0o755);
        fence.world.write("/usr/local/lib/leaks/script", script, 0o644);
        as_root(&fence, "echo 0 2147483647 > /proc/sys/net/ipv4/ping_group_range");
        Leaking { fence, sinks, outside }
    }

    /// Destinations of what has left the box, with the port where there is one.
    fn left(&self) -> BTreeSet<(IpAddr, Option<u16>)> {
        self.fence.world.packets().iter().map(|packet| (packet.destination, packet.destination_port)).collect()
    }

    /// Routes and tables of the firewall.
    fn settings(&self) -> String {
        as_root(&self.fence, "ip route show table all; ip -6 route show table all; nft list tables")
    }
}

/// Where an act's packet goes.
fn destination(words: &[String]) -> (IpAddr, Option<u16>) {
    let address: IpAddr = words[1].parse().expect("an address");
    (address.to_canonical(), words.get(2).map(|port| port.parse().expect("a port")))
}

#[test]
fn every_way_out_is_live() {
    let leaking = Leaking::new();
    let said = leaking.fence.as_root(SCRIPT);
    assert_eq!(said.code, Some(0), "{said}");
    let (outcomes, left, settings) = (outcomes(&said.out), leaking.left(), leaking.settings());
    let (connections, datagrams) = (leaking.sinks.0.wait_for(2), leaking.sinks.1.wait_for(2));
    assert_eq!((connections.len(), datagrams.len()), (2, 2), "{said}");
    assert!(datagrams.iter().all(|arrival| arrival.bytes == b"secret"), "{datagrams:?}");
    assert_eq!(leaking.outside.heard_by_abstract_name(), (1, 1), "{said}");
    let mut missing = Vec::new();
    for (id, (words, (_, seen))) in lines().iter().zip(LEAKS).enumerate() {
        let outcome = outcomes.get(&id).copied().unwrap_or("nothing");
        let optional = OPTIONAL.iter().find(|(verb, _)| *verb == words[0]);
        if let Some((_, without)) = optional
            && without.contains(&outcome)
        {
            eprintln!("this kernel has no such way out: {} ({outcome})", words.join(" "));
            continue;
        }
        let is_live = match seen {
            Packet => left.contains(&destination(words)),
            AtSink | AtName => outcome == "ok",
            Changed => outcome == "ok" && settings.contains(words[1].as_str()),
            Outcome => outcome != "EPERM",
        };
        if !is_live {
            missing.push(format!("{}: {outcome}", words.join(" ")));
        }
    }
    assert!(missing.is_empty(), "{missing:#?}\n{left:?}\n{settings}");
}

#[test]
fn none_is_open_on_any_rung() {
    let user = own_user();
    let home = format!("/home/dev{user}");
    for rung in RUNGS {
        let leaking = Leaking::new();
        rung::prepare(&leaking.fence, user, &home);
        let before = leaking.settings();
        let ended = rung.run(&leaking.fence, user, &home, &[], &["sh", "-c", SCRIPT]);
        assert_eq!((ended.said.code, ended.start().rung.as_str()), (Some(0), rung.name()), "{ended}");
        let outcomes: BTreeMap<usize, &str> = outcomes(&ended.said.out);
        // Each was tried, and what is allowed went through.
        assert_eq!((outcomes.len(), outcomes[&LEAKS.len()]), (LEAKS.len() + 1, "ok"), "{rung:?} {}", ended.said);
        let left = leaking.left();
        assert!(left.is_empty(), "{rung:?}: {left:?}\n{}", ended.said);
        assert!(leaking.sinks.0.arrivals().is_empty() && leaking.sinks.1.arrivals().is_empty(), "{rung:?}");
        assert_eq!(leaking.outside.heard_by_abstract_name(), (0, 0), "{rung:?}");
        assert_eq!(leaking.settings(), before, "{rung:?}");
        let vsock = LEAKS.iter().position(|(line, _)| line.starts_with("vsock")).expect("an act");
        assert_eq!(outcomes[&vsock], "EPERM", "{rung:?}");
    }
}
