//! Everything that is no ordinary TCP connection (case N15): the wire shows what the proxy sent and nothing else.

mod common;
mod protocols;

use common::{Fence, value};
use protocols::{ATTEMPTS, PORT, outcomes, prepare};
use std::net::IpAddr;
use world::address::{PUBLIC4, PUBLIC6, RESOLVER4};
use world::internet::everywhere;

const FLAGS: [&str; 2] = ["--policy", "nist-high"];

/// The attempts that must be live on any kernel: without ringfence the kernel takes them and a packet comes out.
const LIVE: [&str; 36] = [
    "udp4-443",
    "udp4-443-connected",
    "udp4-123",
    "udp4-123-connected",
    "udp4-4444",
    "udp4-4444-connected",
    "quic4",
    "udp6-443",
    "udp6-443-connected",
    "udp6-123",
    "udp6-123-connected",
    "udp6-4444",
    "udp6-4444-connected",
    "quic6",
    "udp4-device",
    "udp6-device",
    "tcp4-device",
    "tcp6-device",
    "tcp4-fast-open",
    "tcp6-fast-open",
    "tcp4-from-own-address",
    "tcp6-from-own-address",
    "udp4-from-own-address",
    "udp6-from-own-address",
    "tcp4-mapped",
    "udp4-mapped",
    "udp4-segments",
    "udp4-fragments",
    "udp4-zero-copy",
    "echo4",
    "echo6",
    "multicast4",
    "multicast6-link",
    "multicast6-site",
    "broadcast4-all",
    "broadcast4-net",
];

/// The entries beside the ordinary one; the 32-bit one exists on x86-64 only, and either may be left out of a kernel.
const ENTRIES: [&str; 3] = ["io_uring", "int80", "x32"];

#[test]
fn nothing_leaves_by_any_protocol_family_or_entry() {
    let fence = Fence::new();
    prepare(&fence.world);
    let (tcp, udp) = everywhere(&fence.world, PORT).expect("sinks");
    let free = fence.as_nobody(ATTEMPTS);
    for name in LIVE {
        assert_eq!(value(&free, name), "sent", "the attempt is live: {free}");
    }
    let live = fence.world.packets();
    for (protocol, to) in
        [(1, IpAddr::V4(PUBLIC4)), (58, PUBLIC6.into()), (17, "239.1.2.3".parse().expect("an address"))]
    {
        assert!(live.iter().any(|one| one.protocol == protocol && one.destination == to), "{protocol} {to} {free}");
    }
    let entries: Vec<&str> = ENTRIES.into_iter().filter(|name| value(&free, name) == "sent").collect();
    eprintln!("entries that this kernel has: {entries:?}");
    let (before, arrived) = (live.len(), tcp.arrivals().len() + udp.arrivals().len());

    let ended = fence.run(&FLAGS, &format!("curl -sS -o /dev/null https://pypi.org/ && echo proxy=ok\n{ATTEMPTS}"));
    assert_eq!(ended.said.code, Some(0), "{ended}");
    assert_eq!(ended.value("proxy"), "ok", "{ended}");
    let results = outcomes(&ended.said);
    eprintln!("{results:#?}");
    for (name, result) in &results {
        let wanted: &[&str] = match name.as_str() {
            "proxy" => continue,
            // Its socket does not tell that the packet was refused (ping_v6_sendmsg).
            "echo6" => &["sent", "EPERM"],
            // Its source is forged: an answer would go there, so there is none.
            "tcp6-freebind" => &["EINPROGRESS"],
            "io_uring" | "int80" | "x32" => &["ENOSYS"],
            _ if name.starts_with("family-") => &["EPERM"],
            _ if name.starts_with("tcp") => &["ECONNREFUSED", "EINVAL"],
            _ if name.starts_with("mptcp") => &["EPROTONOSUPPORT"],
            _ => &["EPERM", "ESOCKTNOSUPPORT", "EPROTONOSUPPORT", "EAFNOSUPPORT"],
        };
        assert!(wanted.contains(&result.as_str()), "{name}={result}: {ended}");
    }
    assert_eq!(results.len() - 1, outcomes(&free).len(), "every attempt was made: {ended}");

    // The proxy's own flows, by the ports that its peers saw.
    let origins = [&fence.internet.https, &fence.internet.https6];
    let flows: Vec<(IpAddr, u16)> = origins
        .iter()
        .flat_map(|origin| origin.requests())
        .map(|request| (request.local.ip(), request.peer.port()))
        .chain(fence.internet.resolver.questions().iter().map(|one| (RESOLVER4.into(), one.source.port())))
        .collect();
    let left = fence.world.packets().split_off(before);
    let strays: Vec<_> = left
        .iter()
        .filter(|packet| !flows.iter().any(|flow| (packet.destination, packet.source_port) == (flow.0, Some(flow.1))))
        .collect();
    assert!(strays.is_empty(), "{strays:?}");
    assert!(!left.is_empty(), "the capture sees the proxy");
    assert_eq!(tcp.arrivals().len() + udp.arrivals().len(), arrived, "{ended}");

    // What the firewall can see is on record, by protocol and destination.
    let seen = |operation: &str, to: IpAddr, port: Option<u16>| -> u64 {
        let denials = ended.denials().into_iter();
        let same =
            denials.filter(|one| one.operation == operation && one.object.addrs == [to] && one.object.port == port);
        same.map(|one| one.count).sum()
    };
    for (to, six) in [(IpAddr::V4(PUBLIC4), false), (IpAddr::V6(PUBLIC6), true)] {
        assert_eq!(seen("udp", to, Some(443)), 3, "{ended}");
        assert_eq!(seen("udp", to, Some(123)), 2, "{ended}");
        assert!(seen("tcp", to, Some(PORT)) >= 4, "{ended}");
        assert_eq!(seen(if six { "icmpv6" } else { "icmp" }, to, None), 1, "{ended}");
    }
    for group in ["239.1.2.3", "ff02::1", "ff05::2", "255.255.255.255", "11.22.33.255"] {
        assert_eq!(seen("udp", group.parse().expect("an address"), Some(PORT)), 1, "{group}: {ended}");
    }
    assert!(ended.seal().complete, "{ended}");
}
