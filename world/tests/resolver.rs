//! The scripted resolver, asked by a client that is not ours.

use std::net::{IpAddr, Ipv4Addr};
use world::address::{PRIVATE4, PUBLIC4, RESOLVER4};
use world::{Answer, Resolver, Transport, World, dns};

fn address(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(11, 22, 33, last))
}

fn look_up(world: &World, name: &str) -> String {
    let said = world.shell(&format!("getent ahostsv4 {name} | cut -d' ' -f1 | uniq; true"));
    said.out.lines().collect::<Vec<_>>().join(",")
}

#[test]
fn answers_go_by_question_number_and_the_last_stays() {
    let world = World::new().expect("a world");
    let resolver = Resolver::start(world.outside(), RESOLVER4).expect("a resolver");
    let answers = [PUBLIC4, PRIVATE4].map(|one| Answer::Addresses(vec![IpAddr::V4(one)], 0));
    resolver.answers("rebinding.example.org", dns::A, answers);
    let seen = [0; 3].map(|_| look_up(&world, "rebinding.example.org"));
    assert_eq!(seen, ["11.22.33.44", "10.0.0.5", "10.0.0.5"]);
    let asked = resolver.questions_about("rebinding.example.org");
    assert_eq!(asked.len(), 3, "{asked:?}");
}

#[test]
fn aliases_failures_and_tcp() {
    let world = World::new().expect("a world");
    let resolver = Resolver::start(world.outside(), RESOLVER4).expect("a resolver");
    resolver.host("target.example.org", &[address(44)]);
    resolver.alias("alias.example.org", "target.example.org");
    resolver.alias("loop.example.org", "loop.example.org");
    resolver.answers("broken.example.org", dns::A, [Answer::ServerFailure]);
    resolver.answers("empty.example.org", dns::A, [Answer::Empty]);
    resolver.answers("large.example.org", dns::A, [Answer::OverTcp(vec![address(45)])]);
    assert_eq!(look_up(&world, "alias.example.org"), "11.22.33.44");
    assert_eq!(look_up(&world, "LARGE.example.org"), "11.22.33.45");
    for name in ["loop", "broken", "empty", "absent"] {
        assert_eq!(look_up(&world, &format!("{name}.example.org")), "", "{name}");
        assert!(!resolver.questions_about(&format!("{name}.example.org")).is_empty(), "{name}");
    }
    let large: Vec<_> = resolver.questions_about("large.example.org").iter().map(|one| one.transport).collect();
    assert_eq!(large, [Transport::Udp, Transport::Tcp]);
}
