//! Acts on the network: who may be reached by which way, and what comes of the others.

use super::case::{BUT_FULL, ByRung, Case, OF_ROOT, OF_USERS, Program, Recorded, Row, WITH_FIREWALL, WITHOUT_FIREWALL};
use Row::*;
/// The first port of acts to outside; each act has its own, by which the firewall's record of it is told from others.
pub const PORTS: usize = 20_000;

/// A way to an address, without the port.
struct Way {
    what: &'static str,
    line: &'static str,
    outcome: ByRung,
    recorded: Vec<Recorded>,
}

fn way<const N: usize>(what: &'static str, line: &'static str, outcome: ByRung, recorded: [Recorded; N]) -> Way {
    Way { what, line, outcome, recorded: recorded.into() }
}
fn ok(what: &'static str, line: &'static str) -> Way {
    way(what, line, ByRung::Same("ok"), [])
}
/// Refused as the firewall refuses TCP.
fn tcp(what: &'static str, line: &'static str, rule: &'static str) -> Way {
    way(what, line, ByRung::Same("ECONNREFUSED"), [Recorded::packet("tcp", "ECONNREFUSED", rule)])
}
fn udp(what: &'static str, line: &'static str, rule: &'static str) -> Way {
    way(what, line, ByRung::Same("EPERM"), [Recorded::packet("udp", "EPERM", rule)])
}
/// Refused by the filter, by register arguments.
fn family(what: &'static str, line: &'static str, object: &'static str) -> Way {
    way(what, line, ByRung::Same("EPERM"), [socket("network", object, "socket-family")])
}
/// The same of what a container refuses by itself.
fn of_users(what: &'static str, line: &'static str, object: &'static str) -> Way {
    way(what, line, ByRung::Same("EPERM"), [socket("network", object, "socket-family").only_on(OF_USERS)])
}
fn http(what: &'static str, line: &'static str, operation: &'static str) -> Way {
    way(what, line, ByRung::Same("403"), [Recorded::proxy(operation, "default-deny")])
}
fn socket(axis: &'static str, object: &'static str, rule: &'static str) -> Recorded {
    Recorded::call(axis, "socket", object, "EPERM", rule)
}
fn option(object: &'static str, errno: &'static str, rule: &'static str) -> Recorded {
    Recorded::call("network", "setsockopt", object, errno, rule).only_on(WITHOUT_FIREWALL)
}
fn abi(what: &'static str, line: &'static str, object: &'static str) -> Way {
    way(what, line, ByRung::Same("ENOSYS"), [Recorded::call("privilege", "abi", object, "ENOSYS", "abi")])
}
/// An abstract name of somebody's outside: kept by Landlock's scopes, and by an own network namespace not there. The kernel's
/// audit alone tells of what Landlock refuses, and is not read everywhere.
fn abstract_name(what: &'static str, line: &'static str, object: &'static str) -> Way {
    let outcome = ByRung::Differs(OwnNamespace, ["EPERM", "EPERM", "ECONNREFUSED", "EPERM"]);
    way(
        what,
        line,
        outcome,
        [Recorded::call("privilege", "connect", object, "EPERM", "scope").only_on(WITHOUT_FIREWALL)],
    )
}

/// `PORT` is the act's own, `OWN` a number of the test's process.
fn ways() -> Vec<Way> {
    let denied = |operation, errno| Recorded::packet(operation, errno, "default-deny");
    let mut ways = refused();
    ways.extend(served());
    ways.extend([
        way("an echo request", "echo 11.22.33.44", ByRung::Same("EPERM"), [denied("icmp", "EPERM")]),
        // The kernel tells nobody that a packet of this kind was dropped.
        way(
            "an echo request by IPv6",
            "echo 2a00:1:2:3::44",
            ByRung::Differs(Datagrams, ["ok", "EPERM", "ok", "EPERM"]),
            [denied("icmpv6", "EPERM").only_on(WITHOUT_FIREWALL), denied("icmpv6", "").only_on(WITH_FIREWALL)],
        ),
        way(
            "a datagram's connection",
            "udp-connect 11.22.33.44 PORT",
            ByRung::Differs(Datagrams, ["ok", "EPERM", "ok", "EPERM"]),
            [denied("udp", "EPERM").only_on(WITHOUT_FIREWALL)],
        ),
        way(
            "a second datagram on a connection",
            "udp-after 11.22.33.44 PORT",
            ByRung::Differs(Datagrams, ["ECONNREFUSED", "EDESTADDRREQ", "EPERM", "EDESTADDRREQ"]),
            [denied("udp", "EPERM"), denied("udp", "EPERM").only_on([false, false, true, false])],
        ),
        way(
            "a server of one's own by this machine's address",
            "serve-tcp 0.0.0.0 11.22.33.2 PORT",
            ByRung::Differs(OwnAddress, ["ok", "ECONNREFUSED", "ECONNREFUSED", "ECONNREFUSED"]),
            [denied("tcp", "ECONNREFUSED").only_on(BUT_FULL)],
        ),
        way(
            "a datagram to this machine's address",
            "udp 11.22.33.2 PORT",
            ByRung::Differs(OwnAddress, ["ok", "EPERM", "EPERM", "EPERM"]),
            [denied("udp", "EPERM").only_on(BUT_FULL)],
        ),
        way(
            "header options",
            "udp-options 127.0.0.1 PORT",
            ByRung::Same("EPERM"),
            [denied("udp", "EPERM").only_on(WITH_FIREWALL), option("level 0 option 4", "EPERM", "header-options")],
        ),
        way(
            "header options to outside",
            "udp-options 11.22.33.44 PORT",
            ByRung::Same("EPERM"),
            [denied("udp", "EPERM").only_on(WITH_FIREWALL), option("level 0 option 4", "EPERM", "header-options")],
        ),
        way(
            "a device",
            "udp-device 127.0.0.1 PORT lo",
            ByRung::Differs(SocketOptions, ["ok", "EPERM", "ok", "EPERM"]),
            [option("level 1 option 25", "EPERM", "socket-device")],
        ),
        way(
            "fast open",
            "fast-open 11.22.33.44 PORT",
            ByRung::Differs(FastOpen, ["ECONNREFUSED", "EOPNOTSUPP", "ECONNREFUSED", "EOPNOTSUPP"]),
            [
                denied("tcp", "ECONNREFUSED").only_on(WITH_FIREWALL),
                Recorded::call("network", "sendto", "sendto", "EOPNOTSUPP", "fast-open").only_on(WITHOUT_FIREWALL),
            ],
        ),
        way(
            "fast open by connect",
            "fast-open-connect 11.22.33.44 PORT",
            ByRung::Differs(FastOpen, ["ECONNREFUSED", "EOPNOTSUPP", "ECONNREFUSED", "EOPNOTSUPP"]),
            [
                denied("tcp", "ECONNREFUSED").only_on(WITH_FIREWALL),
                option("level 6 option 30", "EOPNOTSUPP", "fast-open"),
            ],
        ),
        // The kernel of the suite has none by itself.
        way(
            "SCTP",
            "tcp-of-protocol 11.22.33.44 PORT 132",
            ByRung::Same("EPROTONOSUPPORT"),
            [Recorded::call("network", "socket", "family 2 type 1 protocol 132", "EPROTONOSUPPORT", "socket-protocol")
                .only_on(WITHOUT_FIREWALL)],
        ),
        way(
            "TCP over several paths",
            "tcp-of-protocol 11.22.33.44 PORT 262",
            ByRung::Same("EPROTONOSUPPORT"),
            [Recorded::call("network", "socket", "family 2 type 1 protocol 262", "EPROTONOSUPPORT", "socket-protocol")],
        ),
        way(
            "a raw socket",
            "raw 11.22.33.44",
            ByRung::Same("EPERM"),
            [socket("privilege", "family 2 type 3 protocol 1", "capability").only_on(OF_ROOT)],
        ),
        way(
            "a frame",
            "frame 11.22.33.44 PORT",
            ByRung::Same("EPERM"),
            [socket("privilege", "family 17 type 2 protocol 8", "socket-family").only_on(OF_ROOT)],
        ),
        // The kernel's answer to a message, which nobody else sees.
        way("a route", "route 11.22.33.44", ByRung::Same("EPERM"), []),
        way("a table of the firewall's", "table rungs", ByRung::Same("EPERM"), []),
        // A filter that looks at arguments of socket(2) refuses socketcall(2), which has them in memory.
        Way {
            outcome: ByRung::Differs(Container, ["ENOSYS", "EPERM", "ENOSYS", "ENOSYS"]),
            recorded: vec![
                Recorded::call("privilege", "abi", "call 102 of 0x40000003", "ENOSYS", "abi").only_on(OF_USERS),
            ],
            ..abi("a datagram by the i386 entry", "i386 11.22.33.44 PORT", "")
        },
        abi("a datagram by the x32 entry", "x32 11.22.33.44 PORT", "call 1073741865 of 0xc000003e"),
        way("io_uring", "ring", ByRung::Same("ENOSYS"), []),
        way("clone3", "clone3", ByRung::Same("ENOSYS"), []),
        abstract_name("an abstract name outside", "unix @outside-OWN", "outside-OWN"),
        abstract_name("a datagram to an abstract name outside", "unix-datagram @outside-OWN.d", "outside-OWN.d"),
    ]);
    ways
}

/// What is refused alike everywhere.
fn refused() -> Vec<Way> {
    vec![
        tcp("TCP", "tcp 11.22.33.44 PORT", "default-deny"),
        tcp("TCP to a port that is served", "tcp 11.22.33.44 443", "default-deny"),
        tcp("TCP without waiting", "tcp-nonblocking 11.22.33.44 PORT", "default-deny"),
        tcp("TCP from an address that was bound", "tcp-after-bind 11.22.33.44 PORT", "default-deny"),
        tcp("TCP by a socket that has failed before", "tcp-again 11.22.33.44 PORT", "default-deny"),
        tcp("TCP by IPv6", "tcp 2a00:1:2:3::44 PORT", "default-deny"),
        tcp("TCP by IPv6 without waiting", "tcp-nonblocking 2a00:1:2:3::44 PORT", "default-deny"),
        tcp("TCP by IPv6 from an address that was bound", "tcp-after-bind 2a00:1:2:3::44 PORT", "default-deny"),
        tcp("TCP by IPv4 in IPv6", "tcp ::ffff:11.22.33.44 PORT", "default-deny"),
        tcp("TCP to the metadata service", "tcp 169.254.169.254 PORT", "metadata"),
        tcp("TCP to the metadata service by IPv6", "tcp fd00:ec2::254 PORT", "metadata"),
        tcp("TCP to the wire server", "tcp 168.63.129.16 PORT", "metadata"),
        tcp("TCP to a private address", "tcp 10.0.0.5 PORT", "private-range"),
        tcp("TCP to a private address by NAT64", "tcp 64:ff9b::a00:5 PORT", "private-range"),
        tcp("DNS by TCP", "tcp 11.22.33.44 53", "dns"),
        tcp("DNS over TLS", "tcp 11.22.33.45 853", "dns"),
        tcp("DNS by TCP to the resolver", "tcp 11.22.33.53 53", "dns"),
        tcp("TCP to the resolver", "tcp 11.22.33.53 PORT", "dns"),
        tcp("DNS by TCP on loopback", "tcp 127.0.0.1 53", "dns"),
        tcp("DNS by TCP on loopback by IPv6", "tcp ::1 53", "dns"),
        tcp("DNS by TCP to Docker's resolver", "tcp 127.0.0.11 53", "dns"),
        tcp("DNS by TCP to systemd's resolver", "tcp 127.0.0.53 53", "dns"),
        tcp("another port of Docker's resolver", "tcp 127.0.0.11 PORT", "dns"),
        udp("a datagram", "udp 11.22.33.44 PORT", "default-deny"),
        udp("a datagram by IPv6", "udp 2a00:1:2:3::44 PORT", "default-deny"),
        udp("a datagram by IPv4 in IPv6", "udp ::ffff:11.22.33.44 PORT", "default-deny"),
        udp("QUIC", "udp 11.22.33.44 443", "default-deny"),
        udp("DNS", "udp 11.22.33.44 53", "dns"),
        udp("DNS to the resolver", "udp 11.22.33.53 53", "dns"),
        udp("DNS on loopback", "udp 127.0.0.1 53", "dns"),
        udp("DNS on loopback by IPv6", "udp ::1 53", "dns"),
        udp("DNS to Docker's resolver", "udp 127.0.0.11 53", "dns"),
        udp("DNS to systemd's resolver", "udp 127.0.0.53 53", "dns"),
        udp("a datagram to the metadata service", "udp 169.254.169.254 PORT", "metadata"),
        udp("a datagram to a private address", "udp 10.0.0.5 PORT", "private-range"),
        udp("sendmsg", "udp-message 11.22.33.44 PORT", "default-deny"),
        udp("sendmmsg", "udp-messages 11.22.33.44 PORT", "default-deny"),
        udp("a datagram by another interface", "udp-interface 11.22.33.44 PORT", "default-deny"),
        udp("a datagram by IPv6 by another interface", "udp-interface 2a00:1:2:3::44 PORT", "default-deny"),
        udp("a datagram after a connection that was undone", "udp-unspecified 11.22.33.44 PORT", "default-deny"),
        udp("a datagram to a group", "udp 224.0.0.251 PORT", "private-range"),
        udp("a datagram to everyone", "udp-broadcast 255.255.255.255 PORT", "private-range"),
        udp("a connected datagram", "udp-connect-send 11.22.33.44 PORT", "default-deny"),
        of_users("a socket of the virtual machine's host", "vsock 2 PORT", "family 40 type 1 protocol 0"),
        family("TIPC", "socket 30 1 0", "family 30 type 1 protocol 0"),
        family("RDS", "socket 21 5 0", "family 21 type 5 protocol 0"),
        family("SMC", "socket 43 1 0", "family 43 type 1 protocol 0"),
        family("XDP", "socket 44 3 0", "family 44 type 3 protocol 0"),
        family("a key socket", "socket 15 3 2", "family 15 type 3 protocol 2"),
        of_users("the kernel's ciphers", "socket 38 5 0", "family 38 type 5 protocol 0"),
        http("a tunnel to a stranger", "tunnel stranger.example.org:443", "CONNECT"),
        http("a page of a stranger's", "fetch stranger.example.org", "GET"),
        http("the metadata service by the proxy", "fetch 169.254.169.254", "GET"),
        http("a private address by the proxy", "tunnel 10.0.0.5:443", "CONNECT"),
    ]
}

/// What is allowed.
fn served() -> Vec<Way> {
    vec![
        way("a closed port of loopback", "tcp 127.0.0.1 1", ByRung::Same("ECONNREFUSED"), []),
        ok("a server of one's own", "serve-tcp 127.0.0.1 127.0.0.1"),
        ok("one by IPv6", "serve-tcp ::1 ::1"),
        ok("one that serves both, by IPv4", "serve-tcp :: 127.0.0.1"),
        ok("one on every address", "serve-tcp 0.0.0.0 127.0.0.1"),
        ok("one by no address", "serve-tcp 0.0.0.0 0.0.0.0"),
        ok("one by IPv4 in IPv6", "serve-tcp 0.0.0.0 ::ffff:127.0.0.1"),
        ok("one by another address of loopback", "serve-tcp 127.5.5.5 127.5.5.5"),
        ok("datagrams of one's own", "serve-udp 127.0.0.1 127.0.0.1"),
        ok("datagrams by IPv6", "serve-udp ::1 ::1"),
        ok("datagrams by IPv4 in IPv6", "serve-udp 127.0.0.1 ::ffff:127.0.0.1"),
        ok("a tunnel to an admitted host", "tunnel pypi.org:443"),
        ok("a page of an admitted host's", "fetch pypi.org"),
        ok("a unix socket of one's own", "unix-own /workspace/own-socket"),
        ok("an abstract name of one's own", "unix-own @rungs-own"),
        ok("links, as the kernel lists them", "links"),
        // A dev box keeps the sockets of others from the command unless they are named.
        way(
            "a unix socket outside",
            "unix /run/outside/socket",
            ByRung::Differs(DevBox, ["ok", "ok", "EACCES", "ok"]),
            [],
        ),
        way(
            "a datagram to a unix socket outside",
            "unix-datagram /run/outside/socket.d",
            ByRung::Differs(DevBox, ["ok", "ok", "EACCES", "ok"]),
            [],
        ),
    ]
}

/// The acts, with numbers from `first` on.
pub fn cases(first: usize) -> Vec<Case> {
    let cases = ways().into_iter().enumerate().map(|(index, way)| {
        let (id, line) = (first + index, way.line.replace("PORT", &(PORTS + index).to_string()));
        let own = std::process::id();
        let line = line.replace("OWN", &own.to_string());
        let words: Vec<&str> = line.split(' ').collect();
        Case {
            id,
            what: format!("{}: {line}", way.what),
            program: Program::Network,
            outcome: way.outcome,
            recorded: way.recorded.iter().map(|recorded| recorded.about(&words).with_number(own)).collect(),
            line: format!("{id}\t{}", line.replace(' ', "\t")),
        }
    });
    cases.collect()
}
