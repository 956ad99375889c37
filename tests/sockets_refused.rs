//! Where every socket is made for the command and bound to `lo`, nothing leaves the machine, by whatever protocol, family, entry
//! or option, and each refusal is on record with the rule by which the firewall of rung `full` would have refused it.

mod common;
mod protocols;
mod sockets;

use common::value;
use protocols::{ATTEMPTS, PORT, outcomes};
use sockets::{RUNGS, fence_on, left_since, run_on};
use std::net::IpAddr;
use std::path::Path;
use world::World;
use world::address::{BOX4, PUBLIC4, PUBLIC6};
use world::internet::everywhere;

const OFF_LO: &str = "/usr/bin/python3 /usr/local/lib/off_lo.py eth0 4444";

/// The ways off `lo`: what each is answered, here and without ringfence.
const WAYS: [(&str, &str, &str); 22] = [
    ("pktinfo4", "EPERM", "sent"),
    ("pktinfo6", "EPERM", "sent"),
    ("pktinfo4_of_ipv6", "EPERM", "sent"),
    ("pktinfo4_to_loopback", "EPERM", "sent"),
    ("pktinfo4_connected_to_loopback", "EPERM", "sent"),
    ("unspecified_then_out", "EPERM", "sent"),
    ("unspecified_then_device", "EPERM", "sent"),
    ("without_a_family", "EPERM", "sent"),
    ("device_by_name", "EPERM", "sent"),
    ("device_by_number", "EPERM", "sent"),
    ("unicast_interface", "EINVAL", "sent"),
    ("own_address_udp", "EPERM", "sent"),
    ("own_address_tcp", "ECONNREFUSED", "ECONNREFUSED"),
    ("out_tcp_without_waiting", "ECONNREFUSED", "sent"),
    ("header_option", "EPERM", "sent"),
    ("fast_open_by_option", "ENOTSUP", "sent"),
    ("fast_open_by_message", "ENOTSUP", "sent"),
    ("silent_after_its_way", "EPERM", "sent"),
    ("shared_table", "EPERM", "sent"),
    ("pktinfo4_of_many_threads", "EPERM", "sent"),
    ("stream_while_datagrams_are_open", "EPERM", "sent"),
    ("stream_without_datagrams", "sent", "sent"),
];

/// [`OFF_LO`] is in the box beside the attempts of every protocol.
fn prepare(world: &World) {
    protocols::prepare(world);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/off_lo.py");
    world.install(&script, "/usr/local/lib/off_lo.py");
}

#[test]
fn nothing_leaves_by_any_protocol_family_or_entry() {
    for rung in RUNGS {
        let fence = fence_on(rung);
        prepare(&fence.world);
        let (tcp, udp) = everywhere(&fence.world, PORT).expect("sinks");
        let free = outcomes(&fence.as_nobody(ATTEMPTS));
        let live = free.values().filter(|outcome| *outcome == "sent").count();
        assert!(live >= 36, "the attempts are live: {free:#?}");
        let (before, arrived) = (fence.world.packets(), tcp.arrivals().len() + udp.arrivals().len());
        assert!(before.len() >= 36 && arrived > 10, "{before:?} {arrived}");

        let ended = run_on(&fence, rung, &[], ATTEMPTS);
        assert_eq!(ended.said.code, Some(0), "{ended}");
        let results = outcomes(&ended.said);
        for (name, result) in &results {
            let wanted: &[&str] = match name.as_str() {
                "io_uring" | "int80" | "x32" => &["ENOSYS", "EPERM"],
                _ if name.ends_with("-device") => &["EPERM"],
                _ if name.contains("fast-open") => &["ENOTSUP"],
                "udp4-zero-copy" => &["ENOTSUP"],
                "broadcast4-all" => &["EPERM"],
                _ if name.starts_with("family-") => &["EPERM"],
                _ if name.starts_with("tcp") => &["ECONNREFUSED", "EINVAL"],
                _ if name.starts_with("mptcp") => &["EPROTONOSUPPORT"],
                _ => &["EPERM", "ESOCKTNOSUPPORT", "EPROTONOSUPPORT", "EAFNOSUPPORT"],
            };
            assert!(wanted.contains(&result.as_str()), "{rung}: {name}={result}: {ended}");
        }
        assert_eq!(results.len(), free.len(), "every attempt was made: {ended}");
        let left = left_since(&fence, &before);
        assert!(left.is_empty(), "{rung}: {left:?}");
        assert_eq!(tcp.arrivals().len() + udp.arrivals().len(), arrived, "{ended}");

        // By protocol and destination, as the firewall's log has them on rung `full`.
        let seen = |operation: &str, to: IpAddr, port: Option<u16>| -> u64 {
            let same = ended.denials().into_iter().filter(|one| {
                let object = &one.object;
                one.operation == operation && object.addrs == [to] && object.port == port && one.rule == "default-deny"
            });
            same.map(|one| one.count).sum()
        };
        for to in [IpAddr::V4(PUBLIC4), IpAddr::V6(PUBLIC6)] {
            assert_eq!(seen("udp", to, Some(443)), 3, "{ended}");
            assert_eq!(seen("udp", to, Some(123)), 2, "{ended}");
            assert!(seen("tcp", to, Some(PORT)) >= 2, "{ended}");
            assert_eq!(seen(if to.is_ipv4() { "icmp" } else { "icmpv6" }, to, None), 1, "{ended}");
        }
        assert!(ended.denials().iter().all(|one| one.subject.pid.is_some()), "each is somebody's: {ended}");
        assert!(ended.seal().complete, "{ended}");
    }
}

#[test]
fn a_socket_that_is_bound_to_lo_stays_there() {
    for rung in RUNGS {
        let fence = fence_on(rung);
        prepare(&fence.world);
        let (tcp, udp) = everywhere(&fence.world, PORT).expect("sinks");
        let free = fence.as_nobody(OFF_LO);
        for (name, _, live) in WAYS {
            assert_eq!(value(&free, name), live, "without ringfence: {free}");
        }
        assert!(tcp.wait_for(1).len() + udp.wait_for(9).len() > 9, "the ways are live");
        let arrived = tcp.settled().len() + udp.settled().len();
        let before = fence.world.packets();
        let ended = run_on(&fence, rung, &[], OFF_LO);
        for (name, refused, _) in WAYS {
            assert_eq!(ended.value(name), refused, "{rung} {name}: {ended}");
        }
        let left = left_since(&fence, &before);
        assert!(left.is_empty(), "{rung}: {left:?}");
        assert_eq!(tcp.arrivals().len() + udp.arrivals().len(), arrived, "{ended}");

        let told = |operation: &str, rule: &str| {
            ended.denials().iter().any(|one| (one.operation.as_str(), one.rule.as_str()) == (operation, rule))
        };
        for (operation, rule) in [
            ("udp", "default-deny"),
            ("tcp", "default-deny"),
            ("setsockopt", "socket-device"),
            ("setsockopt", "fast-open"),
            ("sendmsg", "fast-open"),
            ("sendmsg", "default-deny"),
            ("clone", "shared-descriptors"),
        ] {
            assert!(told(operation, rule), "{operation} {rule}: {ended}");
        }
        assert!(ended.denials().iter().any(|one| one.object.addrs == [IpAddr::V4(BOX4)]), "{ended}");
    }
}

/// What of loopback is refused, with the rule: as the firewall has it.
#[test]
fn loopback_is_less_what_leads_outside() {
    const ASK: &str = r#"
import errno, socket
for name, kind, host, port in [
    ("dns-tcp", 1, "127.0.0.1", 53), ("dns-udp", 2, "127.0.0.1", 53), ("dns-any", 1, "0.0.0.0", 853),
    ("resolver", 2, "127.0.0.11", 4000), ("resolver-tcp", 1, "127.0.0.53", 4000),
    ("proxies", 1, "127.82.70.1", 9), ("control", 1, "127.0.0.1", 8500), ("control-udp", 2, "127.0.0.1", 8500),
    ("control-out", 1, "11.22.33.44", 8500), ("metadata", 1, "169.254.169.254", 80), ("private", 1, "10.0.0.5", 80),
    ("open", 2, "127.0.0.1", 4000),
]:
    s = socket.socket(socket.AF_INET, kind)
    try:
        s.connect((host, port)) if kind == 1 else s.sendto(b"x", (host, port))
        said = "sent"
    except OSError as cause:
        said = errno.errorcode[cause.errno]
    print(f"{name}={said}")
"#;
    for rung in RUNGS {
        let fence = fence_on(rung);
        fence.world.write("/usr/local/lib/ask.py", ASK, 0o644);
        let ended = run_on(&fence, rung, &["--control-plane-port", "8500"], "python3 /usr/local/lib/ask.py");
        for (name, said, rule, reason, axis) in [
            ("dns-tcp", "ECONNREFUSED", "dns", "resolver", "Network"),
            ("dns-udp", "EPERM", "dns", "resolver", "Network"),
            ("dns-any", "ECONNREFUSED", "dns", "resolver", "Network"),
            ("resolver", "EPERM", "dns", "resolver", "Network"),
            ("resolver-tcp", "ECONNREFUSED", "dns", "resolver", "Network"),
            ("proxies", "ECONNREFUSED", "default-deny", "not_allowed", "Network"),
            ("control", "ECONNREFUSED", "control-plane", "control_plane", "Privilege"),
            ("control-udp", "EPERM", "control-plane", "control_plane", "Privilege"),
            ("control-out", "ECONNREFUSED", "control-plane", "control_plane", "Privilege"),
            ("metadata", "ECONNREFUSED", "metadata", "denied_address", "Network"),
            ("private", "ECONNREFUSED", "private-range", "denied_address", "Network"),
        ] {
            assert_eq!(ended.value(name), said, "{rung} {name}: {ended}");
            let told = ended.denials().iter().any(|one| {
                let same = (one.rule.as_str(), one.reason.as_str(), format!("{:?}", one.axis))
                    == (rule, reason, axis.to_owned());
                same && one.errno.as_deref() == Some(said)
            });
            assert!(told, "{rung} {name}: {ended}");
        }
        assert_eq!(ended.value("open"), "sent", "{ended}");
        assert_eq!(ended.denials().len(), 11, "{ended}");
    }
}
