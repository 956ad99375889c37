//! Without ringfence every attack of the suite arrives: a test that sees nothing arrive then says something.

use std::net::{IpAddr, Ipv4Addr};
use world::address::{
    GATEWAY4, GATEWAY6, METADATA4, METADATA6, NAT64_PRIVATE, PRIVATE4, PRIVATE6, PUBLIC4, PUBLIC4_B, PUBLIC6,
    RESOLVER4, SIX_TO_FOUR_PRIVATE, WIRE_SERVER4,
};
use world::internet::{self, STRANGER};
use world::{Internet, Resolver, Sink, Transport, World, dns};

const PORT: u16 = 4444;

fn targets() -> Vec<IpAddr> {
    let v4 = [GATEWAY4, PUBLIC4, PUBLIC4_B, PRIVATE4, METADATA4, WIRE_SERVER4, Ipv4Addr::new(9, 9, 9, 9)];
    let v6 = [GATEWAY6, PUBLIC6, PRIVATE6, METADATA6, NAT64_PRIVATE, SIX_TO_FOUR_PRIVATE];
    v4.into_iter().map(IpAddr::V4).chain(v6.into_iter().map(IpAddr::V6)).collect()
}

#[test]
fn tcp_and_udp_arrive_at_every_address() {
    let world = World::new().expect("a world");
    let (tcp, _udp) = internet::everywhere(&world, PORT).expect("sinks");
    for target in targets() {
        let (before, packets) = (tcp.arrivals().len(), world.packets_to(target).len());
        let said = world.shell(&format!(
            "bash -c 'echo over tcp > /dev/tcp/{target}/{PORT}' && bash -c 'echo over udp > /dev/udp/{target}/{PORT}'"
        ));
        assert_eq!(said.code, Some(0), "{target}: {said}");
        let arrived = tcp.wait_for(before + 1);
        let arrival = arrived.last().expect("one");
        assert_eq!((arrival.local.ip(), arrival.bytes.as_slice()), (target, &b"over tcp\n"[..]));
        let new = world.packets_to(target).split_off(packets);
        assert!(new.iter().any(|one| one.protocol == 17 && one.destination_port == Some(PORT)), "{target}: {new:?}");
    }
}

#[test]
fn a_datagram_reaches_its_sink() {
    let world = World::new().expect("a world");
    let sink = Sink::udp(world.outside(), PUBLIC4, PORT).expect("a sink");
    let said = world.shell(&format!("bash -c 'echo hello > /dev/udp/{PUBLIC4}/{PORT}'"));
    assert_eq!(said.code, Some(0), "{said}");
    assert_eq!(sink.wait_for(1)[0].bytes, b"hello\n");
}

#[test]
fn curl_fetches_by_name_over_both_schemes_and_families() {
    let world = World::new().expect("a world");
    let internet = Internet::start(&world).expect("servers");
    let said =
        world.shell("curl -sS -4 http://pypi.org/ && curl -sS -4 https://pypi.org/ && curl -sS -6 https://pypi.org/");
    assert_eq!(said.out, "hello from pypi.org\n".repeat(3), "{said}");
    assert_eq!(internet.http.requests().len(), 1);
    assert_eq!(internet.https.requests()[0].server_name.as_deref(), Some("pypi.org"));
    assert_eq!(internet.https6.requests()[0].local.ip(), IpAddr::V6(PUBLIC6));
    let asked = internet.resolver.questions_about("pypi.org");
    assert!(asked.iter().any(|one| one.kind == dns::A) && asked.iter().any(|one| one.kind == dns::AAAA), "{asked:?}");
    assert!(asked.iter().all(|one| one.transport == Transport::Udp));
    let said = world.shell(&format!("curl -sS https://{STRANGER}/ && curl -sS http://169.254.169.254/"));
    assert_eq!(said.out, format!("hello from {STRANGER}\nhello from 169.254.169.254\n"), "{said}");
    assert_eq!(internet.metadata.requests().len(), 1);
}

#[test]
fn an_origin_keeps_bodies_heads_and_connections() {
    let world = World::new().expect("a world");
    let internet = Internet::start(&world).expect("servers");
    let said = world.shell(
        "curl -sS -4 http://pypi.org/ http://pypi.org/bytes/70000 -o /tmp/one -o /tmp/two && stat -c %s /tmp/two && \
         curl -sS -4 -d hello http://pypi.org/echo && head -c 2000000 /dev/zero | curl -sS -4 -T - http://pypi.org/echo | wc -c && \
         curl -sSL -o /dev/null -w '%{url_effective} %{http_code}\\n' 'http://pypi.org/redirect?http://pypi.org/nowhere'",
    );
    assert_eq!(said.out, "70000\nhello2000000\nhttp://pypi.org/nowhere 404\n", "{said}");
    let requests = internet.http.requests();
    assert_eq!(requests[0].peer, requests[1].peer, "the connection is kept");
    assert!(requests[0].head.starts_with("GET / HTTP/1.1\r\n"), "{:?}", requests[0].head);
}

#[test]
fn git_clones_over_https() {
    let world = World::new().expect("a world");
    let files = tempfile::tempdir().expect("a directory");
    world::repository(files.path()).expect("a repository");
    let internet = Internet::serving(&world, world::origin::directory(files.path()).expect("files")).expect("servers");
    let said = world.shell("cd /workspace && git clone -q https://github.com/project.git && cat project/README");
    assert_eq!(said.out, "a project of the closed world\n", "{said}");
    assert!(!internet.https.requests().is_empty() || !internet.https6.requests().is_empty());
}

#[test]
fn a_loopback_forwarder_stands_in_the_box() {
    let world = World::new().expect("a world");
    let resolver = Resolver::start(world.inside(), Ipv4Addr::new(127, 0, 0, 53)).expect("a resolver");
    resolver.host("inside.example.org", &[IpAddr::V4(RESOLVER4)]);
    world.write("/etc/resolv.conf", "nameserver 127.0.0.53\n", 0o644);
    let said = world.shell("getent ahostsv4 inside.example.org");
    assert!(said.out.starts_with("11.22.33.53"), "{said}");
}
