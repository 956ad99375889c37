//! Acts on the network: who may be reached by which way, and what comes of the others.

use super::case::{ByRung, Case, Program, Recorded};
/// The first port of acts to outside; each act has its own, by which the firewall's record of it is told from others.
pub const PORTS: usize = 20_000;

/// A way to an address, without the port.
struct Way {
    what: &'static str,
    line: &'static str,
    outcome: ByRung,
    recorded: Option<Recorded>,
}

const fn way(what: &'static str, line: &'static str, outcome: ByRung, recorded: Option<Recorded>) -> Way {
    Way { what, line, outcome, recorded }
}
const fn ok(what: &'static str, line: &'static str) -> Way {
    way(what, line, ByRung::Same("ok"), None)
}
/// Refused as the firewall refuses TCP.
const fn tcp(what: &'static str, line: &'static str, rule: &'static str) -> Way {
    way(what, line, ByRung::Same("ECONNREFUSED"), Some(Recorded::packet("tcp", "ECONNREFUSED", rule)))
}
const fn udp(what: &'static str, line: &'static str, rule: &'static str) -> Way {
    way(what, line, ByRung::Same("EPERM"), Some(Recorded::packet("udp", "EPERM", rule)))
}
const fn echo(what: &'static str, line: &'static str, operation: &'static str) -> Way {
    way(what, line, ByRung::Same("EPERM"), Some(Recorded::packet(operation, "EPERM", "default-deny")))
}
/// Refused by the filter, by register arguments.
const fn family(what: &'static str, line: &'static str, object: &'static str) -> Way {
    way(what, line, ByRung::Same("EPERM"), Some(Recorded::call("network", "socket", object, "EPERM", "socket-family")))
}
const fn http(what: &'static str, line: &'static str, operation: &'static str, rule: &'static str) -> Way {
    way(what, line, ByRung::Same("403"), Some(Recorded::proxy(operation, rule)))
}

/// `PORT` is the act's own.
const WAYS: &[Way] = &[
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
    way("a closed port of loopback", "tcp 127.0.0.1 1", ByRung::Same("ECONNREFUSED"), None),
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
    echo("an echo request", "echo 11.22.33.44", "icmp"),
    echo("an echo request by IPv6", "echo 2a00:1:2:3::44", "icmpv6"),
    family("a packet socket of the virtual machine's host", "vsock 2 PORT", "family 40 type 2049 protocol 0"),
    family("TIPC", "socket 30 1 0", "family 30 type 1 protocol 0"),
    family("RDS", "socket 21 5 0", "family 21 type 5 protocol 0"),
    family("SMC", "socket 43 1 0", "family 43 type 1 protocol 0"),
    family("XDP", "socket 44 3 0", "family 44 type 3 protocol 0"),
    family("a key socket", "socket 15 3 2", "family 15 type 3 protocol 2"),
    family("the kernel's ciphers", "socket 38 5 0", "family 38 type 5 protocol 0"),
    http("a tunnel to a stranger", "tunnel stranger.example.org:443", "CONNECT", "default-deny"),
    http("a page of a stranger's", "fetch stranger.example.org", "GET", "default-deny"),
    http("the metadata service by the proxy", "fetch 169.254.169.254", "GET", "default-deny"),
    http("a private address by the proxy", "tunnel 10.0.0.5:443", "CONNECT", "default-deny"),
    ok("a tunnel to an admitted host", "tunnel pypi.org:443"),
    ok("a page of an admitted host's", "fetch pypi.org"),
    ok("a unix socket of one's own", "unix-own /workspace/own-socket"),
    ok("an abstract name of one's own", "unix-own @rungs-own"),
    ok("links, as the kernel lists them", "links"),
    way("io_uring", "ring", ByRung::Same("ENOSYS"), None),
    way("clone3", "clone3", ByRung::Same("ENOSYS"), None),
];

/// The acts, with numbers from `first` on.
pub fn cases(first: usize) -> Vec<Case> {
    let cases = WAYS.iter().enumerate().map(|(index, way)| {
        let (id, line) = (first + index, way.line.replace("PORT", &(PORTS + index).to_string()));
        let words: Vec<&str> = line.split(' ').collect();
        Case {
            id,
            what: format!("{}: {line}", way.what),
            program: Program::Network,
            outcome: way.outcome,
            recorded: way.recorded.iter().map(|recorded| recorded.about(&words)).collect(),
            line: format!("{id}\t{}", line.replace(' ', "\t")),
        }
    });
    cases.collect()
}
