//! The network wall, tried from outside and in: what it refuses, what it admits, and how its loss is seen.
//! Needs root; every test has its own network namespaces.

mod netns;

use netns::*;
use ringfence::install::firewall::{self, Egress, Integrity, Loopback, WallSpec};

const ROUND: [&str; 6] = [
    "tcp 11.22.33.2 7777",
    "tcp 2a00:1:2:3::2 7777",
    "udp 11.22.33.2 7777",
    "udp 2a00:1:2:3::2 7777",
    "ping 11.22.33.2",
    "ping 2a00:1:2:3::2",
];

fn all_ok(count: usize) -> Vec<&'static str> {
    vec!["ok"; count]
}

#[test]
fn everything_that_reached_outside_is_refused_at_once_for_the_command_and_for_no_one_else() {
    let outside = Outside::new();
    assert_eq!(
        command(&ROUND),
        all_ok(6),
        "the vector is live without the wall"
    );
    for protocol in ["tcp", "tcp", "udp", "udp"] {
        outside.expect(protocol);
    }
    let wall = firewall::install(&spec()).unwrap();
    assert_eq!(
        command(&ROUND),
        [
            "ECONNREFUSED",
            "ECONNREFUSED",
            "EPERM",
            "EPERM",
            "EPERM",
            "timeout"
        ]
    );
    outside.expect_silence();
    assert_eq!(root(&ROUND), all_ok(6), "root is not judged");
    for protocol in ["tcp", "tcp", "udp", "udp"] {
        outside.expect(protocol);
    }
    wall.remove().unwrap();
    assert_eq!(
        command(&ROUND),
        all_ok(6),
        "and it was the wall that refused"
    );
}

#[test]
fn loopback_is_open_but_for_names() {
    enter();
    for (address, port) in [
        ("127.0.0.1", 8080),
        ("::1", 8080),
        ("127.0.0.1", 53),
        ("::1", 53),
        ("127.0.0.11", 53),
    ] {
        serve(address, port);
    }
    serve("127.0.0.11", 41000);
    serve("127.0.0.1", 853);
    let names = [
        "tcp 127.0.0.1 53",
        "tcp ::1 53",
        "tcp 127.0.0.11 53",
        "tcp 127.0.0.11 41000",
        "tcp 127.0.0.1 853",
        "udp 127.0.0.1 53 echo",
        "udp ::1 53 echo",
        "udp 127.0.0.11 53 echo",
        "udp 127.0.0.11 41000 echo",
    ];
    let others = [
        "tcp 127.0.0.1 8080",
        "tcp ::1 8080",
        "udp 127.0.0.1 8080 echo",
        "udp ::1 8080 echo",
        "ping 127.0.0.1",
    ];
    assert_eq!(
        command(&names),
        all_ok(names.len()),
        "live without the wall"
    );
    let wall = firewall::install(&spec()).unwrap();
    assert_eq!(
        command(&names),
        [vec!["ECONNREFUSED"; 5], vec!["EPERM"; 4]].concat()
    );
    assert_eq!(command(&others), all_ok(others.len()));
    let counters = wall.counters().unwrap();
    let dns = counters.iter().find(|c| c.rule == "dns").unwrap();
    assert_eq!(dns.packets, names.len() as u64);
}

#[test]
fn a_narrower_loopback_admits_the_proxy_and_what_is_listed() {
    enter();
    for port in [3128, 8080, 9090] {
        serve("127.0.0.1", port);
        serve("::1", port);
    }
    let acts = [
        "tcp 127.0.0.1 3128",
        "tcp ::1 3128",
        "tcp 127.0.0.1 8080",
        "tcp ::1 8080",
        "tcp 127.0.0.1 9090",
    ];
    let proxy = Some("127.0.0.1:3128".parse().unwrap());
    let only = WallSpec {
        proxy,
        loopback: Loopback::ProxyOnly,
        ..spec()
    };
    let wall = firewall::install(&only).unwrap();
    assert_eq!(
        command(&acts),
        [
            "ok",
            "ECONNREFUSED",
            "ECONNREFUSED",
            "ECONNREFUSED",
            "ECONNREFUSED"
        ]
    );
    wall.remove().unwrap();
    let _wall = firewall::install(&WallSpec {
        loopback: Loopback::Ports(vec![8080]),
        ..only
    })
    .unwrap();
    assert_eq!(
        command(&acts),
        ["ok", "ECONNREFUSED", "ok", "ok", "ECONNREFUSED"]
    );
}

#[test]
fn with_egress_open_the_control_plane_ports_alone_are_refused_everywhere() {
    let _outside = Outside::new();
    for address in ["127.0.0.1", "::1", INSIDE4] {
        serve(address, 8500);
    }
    let open = WallSpec {
        egress: Egress::Open,
        control_plane_ports: vec![8500, 7777],
        ..spec()
    };
    let acts = [
        "tcp 127.0.0.1 8500",
        "tcp ::1 8500",
        "tcp 11.22.33.1 8500",
        "tcp 11.22.33.2 7777",
        "tcp 2a00:1:2:3::2 7777",
        "udp 127.0.0.1 8500",
        "udp 2a00:1:2:3::2 7777",
    ];
    assert_eq!(command(&acts), all_ok(acts.len()), "live without the wall");
    let wall = firewall::install(&open).unwrap();
    assert_eq!(
        command(&acts),
        [vec!["ECONNREFUSED"; 5], vec!["EPERM"; 2]].concat()
    );
    assert_eq!(
        command(&["ping 11.22.33.2", "udp 11.22.33.2 53", "udp 11.22.33.2 9"]),
        all_ok(3)
    );
    assert_eq!(root(&acts[..5]), all_ok(5));
    let refused: u64 = wall
        .counters()
        .unwrap()
        .iter()
        .filter(|c| c.rule == "control-plane")
        .map(|c| c.packets)
        .sum();
    assert_eq!(refused, acts.len() as u64);
}

#[test]
fn the_commands_servers_answer_whoever_calls() {
    let outside = Outside::new();
    // Nothing is admitted but answers.
    let only = WallSpec {
        loopback: Loopback::ProxyOnly,
        ..spec()
    };
    let wall = firewall::install(&only).unwrap();
    let _server = Server::start(8000);
    for address in ["127.0.0.1", "::1", INSIDE4, INSIDE6] {
        let acts = [
            format!("tcp {address} 8000"),
            format!("udp {address} 8000 echo"),
        ];
        assert_eq!(root(&[&acts[0], &acts[1]]), all_ok(2), "{address}");
        if [INSIDE4, INSIDE6].contains(&address) {
            assert_eq!(
                outside.act(&[&acts[0], &acts[1]]),
                all_ok(2),
                "{address} from outside"
            );
        }
    }
    assert_eq!(
        wall.counters()
            .unwrap()
            .iter()
            .map(|c| c.packets)
            .sum::<u64>(),
        0
    );
}

/// Docker's and others' rules turn a loopback destination into one outside.
const TRANSLATION: &str = "table ip hostnat {
  chain output {
    type nat hook output priority -100
    ip daddr 127.0.0.1 tcp dport 8080 dnat to 11.22.33.2:7777
    ip daddr 127.0.0.1 udp dport 8080 dnat to 11.22.33.2:7777
  }
  chain postrouting {
    type nat hook postrouting priority 100
    oifname inside masquerade
  }
}\n";

fn with_translation() -> Outside {
    let outside = Outside::new();
    run("echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet");
    nft(TRANSLATION);
    assert_eq!(
        command(&["tcp 127.0.0.1 8080", "udp 127.0.0.1 8080"]),
        all_ok(2),
        "the detour is live"
    );
    outside.expect("tcp");
    outside.expect("udp");
    outside
}

#[test]
fn a_translated_destination_is_judged_again() {
    let outside = with_translation();
    let wall = firewall::install(&spec()).unwrap();
    assert_eq!(
        command(&["tcp 127.0.0.1 8080", "udp 127.0.0.1 8080"]),
        ["ECONNREFUSED", "EPERM"]
    );
    outside.expect_silence();
    assert_eq!(
        wall.counters()
            .unwrap()
            .iter()
            .map(|c| c.packets)
            .sum::<u64>(),
        2
    );
}

#[test]
fn a_refused_destination_is_refused_before_a_translation_can_make_it_an_admitted_one() {
    enter();
    serve("127.0.0.1", 41000);
    nft("table ip docker {
      chain output {
        type nat hook output priority -100
        ip daddr 127.0.0.11 tcp dport 53 dnat to 127.0.0.1:41000
        ip daddr 127.0.0.11 udp dport 53 dnat to 127.0.0.1:41000
      }
    }\n");
    let acts = ["tcp 127.0.0.11 53", "udp 127.0.0.11 53 echo"];
    assert_eq!(command(&acts), all_ok(2), "the forwarder is live");
    let _wall = firewall::install(&spec()).unwrap();
    assert_eq!(command(&acts), ["ECONNREFUSED", "EPERM"]);
}

#[test]
fn the_last_look_stops_what_a_lost_late_chain_would_let_out() {
    let outside = with_translation();
    let wall = firewall::install(&spec()).unwrap();
    nft(&format!("flush chain inet {} late\n", wall.table_name()));
    assert_eq!(command(&["udp 127.0.0.1 8080"]), ["EPERM"]);
    outside.expect_silence();
    assert!(matches!(wall.is_intact().unwrap(), Integrity::Altered(_)));
}

#[test]
fn an_opening_forged_in_an_outsiders_name_does_not_make_an_answer_of_what_follows() {
    let outside = Outside::new();
    let forged = format!("forged {INSIDE6} {OUTSIDE6} {PORT}");
    assert_eq!(command(&[&forged]), ["ok"]);
    outside.expect("udp");
    let _wall = firewall::install(&spec()).unwrap();
    assert_eq!(command(&[&forged]), ["EPERM"]);
    outside.expect_silence();
}

#[test]
fn neither_a_device_nor_header_options_get_round_the_wall() {
    let outside = Outside::new();
    serve("127.0.0.1", 8080);
    serve("::1", 8080);
    run(
        "echo 1 > /proc/sys/net/ipv6/conf/all/seg6_enabled; echo 1 > /proc/sys/net/ipv6/conf/lo/seg6_enabled",
    );
    let acts = ["tcp 127.0.0.1 8080 options", "tcp ::1 8080 options"];
    assert_eq!(command(&acts), all_ok(2), "live without the wall");
    let _wall = firewall::install(&spec()).unwrap();
    assert_eq!(command(&acts), ["ECONNREFUSED", "ECONNREFUSED"]);
    assert_eq!(command(&["udp 11.22.33.2 7777 lo"]), ["EPERM"]);
    outside.expect_silence();
}

#[test]
fn no_other_protocol_or_spelling_of_an_address_gets_out() {
    let outside = Outside::new();
    let acts = [
        ("tcp ::ffff:11.22.33.2 7777", "ECONNREFUSED"),
        ("udp ::ffff:11.22.33.2 7777", "EPERM"),
        ("mptcp 11.22.33.2 7777", "ECONNREFUSED"),
        ("mptcp 2a00:1:2:3::2 7777", "ECONNREFUSED"),
        ("udplite 11.22.33.2 7777", "EPERM"),
    ];
    // A kernel may have no MPTCP or UDP-Lite; what is live without the wall must be refused by it.
    let without = command(&acts.map(|(act, _)| act));
    assert_eq!(without[..2], ["ok", "ok"]);
    let live: Vec<_> = acts
        .into_iter()
        .zip(without)
        .filter(|(_, outcome)| outcome == "ok")
        .map(|(act, _)| act)
        .collect();
    let wall = firewall::install(&spec()).unwrap();
    let tried: Vec<_> = live.iter().map(|(act, _)| *act).collect();
    let refused: Vec<_> = live.iter().map(|(_, refusal)| *refusal).collect();
    assert_eq!(command(&tried), refused);
    let counted: u64 = wall.counters().unwrap().iter().map(|c| c.packets).sum();
    assert_eq!(counted, live.len() as u64);
    drop(outside);
}

#[test]
fn own_addresses_are_as_loopback_says_but_metadata_is_refused_even_there() {
    enter();
    run("ip addr add 10.9.8.7/32 dev lo; ip addr add 169.254.169.254/32 dev lo");
    serve("10.9.8.7", 8080);
    serve("169.254.169.254", 8080);
    let acts = [
        "tcp 10.9.8.7 8080",
        "udp 10.9.8.7 8080 echo",
        "tcp 169.254.169.254 8080",
    ];
    assert_eq!(command(&acts), all_ok(3), "live without the wall");
    let wall = firewall::install(&spec()).unwrap();
    assert_eq!(command(&acts), ["ok", "ok", "ECONNREFUSED"]);
    wall.remove().unwrap();
    let _wall = firewall::install(&WallSpec {
        loopback: Loopback::ProxyOnly,
        ..spec()
    })
    .unwrap();
    assert_eq!(command(&acts), ["ECONNREFUSED", "EPERM", "ECONNREFUSED"]);
}
