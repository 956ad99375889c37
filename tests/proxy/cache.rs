//! Answers that are kept: for the TTL of their records, and judged anew at every attempt.

use crate::rig::*;
use ringfence::proxy::Limits;
use std::time::{Duration, Instant};

const LONG: u32 = 300;

/// How often each of a name's two questions came.
fn asked(world: &World, name: &str) -> [usize; 2] {
    let questions = world.resolver.questions();
    ["A", "AAAA"].map(|kind| {
        questions.iter().filter(|question| (question.0.as_str(), question.1.as_str()) == (name, kind)).count()
    })
}

#[test]
fn a_name_is_asked_for_once_within_its_ttl_whoever_asks_and_however_it_is_spelt() {
    let origin = Origin::plain();
    let port = origin.port;
    let script = |name: &str, _: &str, _: usize| match name {
        "lasting.test" => lasting(LONG, &["127.0.0.1"]),
        _ => lasting(0, &["127.0.0.1"]),
    };
    let world = world(&[format!("lasting.test:{port}"), format!("fleeting.test:{port}")], script);
    for name in ["lasting.test", "fleeting.test", "LASTING.test", "Lasting.Test.", "fleeting.test"] {
        assert_eq!(status(&world.get(&format!("http://{name}:{port}/"))), 200, "{name}");
        assert_eq!(status(&world.connect_to(&format!("{name}:{port}"))), 200, "{name}");
    }
    assert_eq!(asked(&world, "lasting.test"), [1, 1]);
    assert_eq!(asked(&world, "fleeting.test"), [4, 4]);
    // Another port is another judgement, without another question.
    assert_eq!(status(&world.connect_to("lasting.test:1")), 403);
    assert_eq!(asked(&world, "lasting.test"), [1, 1]);
}

#[test]
fn a_changed_answer_is_seen_when_the_ttl_is_over() {
    let origin = Origin::plain();
    let port = origin.port;
    let script = |_: &str, _: &str, before: usize| match before {
        0 => lasting(2, &["127.0.0.1"]),
        _ => lasting(LONG, &["10.0.0.5"]),
    };
    let start = Instant::now();
    let world = world(&[format!("flip.test:{port}")], script);
    let url = format!("http://flip.test:{port}/");
    assert_eq!(status(&world.get(&url)), 200);
    let second = status(&world.get(&url));
    if start.elapsed() < Duration::from_secs(2) {
        assert_eq!((second, asked(&world, "flip.test")), (200, [1, 1]));
    }
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(status(&world.get(&url)), 403);
    assert_eq!(asked(&world, "flip.test"), [2, 2]);
}

#[test]
fn a_kept_answer_is_judged_at_every_attempt_and_each_refusal_is_on_record() {
    let world = world(&["inside.test:80".to_owned()], |_, _, _| lasting(LONG, &["11.22.33.44", "10.0.0.5"]));
    for attempt in 1..=4 {
        assert_eq!(status(&world.connect_to("inside.test:80")), 403);
        let denials = world.records.denials();
        assert_eq!(denials.len(), attempt);
        assert_eq!(denials[attempt - 1].rule, "private-range");
        assert_eq!(denials[attempt - 1].object.addrs.len(), 2);
    }
    assert_eq!(asked(&world, "inside.test"), [1, 1]);
}

/// What is no whole answer: the next attempt asks for both families again.
#[test]
fn failures_are_not_kept_nor_what_is_found_beside_them() {
    let origin = Origin::plain();
    let port = origin.port;
    let script = |name: &str, kind: &str, before: usize| match (name, kind, before) {
        ("late.test", _, 0) => Answer::Code(2),
        ("new.test", _, 0) => Answer::Code(3),
        ("filled.test", _, 0) => empty(),
        ("half.test", "AAAA", 0) => Answer::Code(2),
        _ => lasting(LONG, &["127.0.0.1"]),
    };
    let names = ["late.test", "new.test", "filled.test", "half.test"];
    let world = world(&names.map(|name| format!("{name}:{port}")), script);
    for name in names {
        let url = format!("http://{name}:{port}/");
        let first = status(&world.get(&url));
        assert_eq!(first, if name == "half.test" { 200 } else { 502 }, "{name}");
        assert_eq!((status(&world.get(&url)), asked(&world, name)), (200, [2, 2]), "{name}");
        assert_eq!((status(&world.get(&url)), asked(&world, name)), (200, [2, 2]), "{name}");
    }
}

#[test]
fn the_shortest_record_of_the_chain_and_of_both_families_counts() {
    let origin = Origin::plain();
    let port = origin.port;
    let alias = ("", "CNAME", "target.test".to_owned());
    let script = move |name: &str, kind: &str, _: usize| match (name, kind) {
        // A chain without a lifetime, and one with.
        ("alias.test", _) => {
            Answer::Lasting(vec![(0, alias.clone()), (LONG, ("target.test", "A", "127.0.0.1".into()))])
        }
        ("chain.test", _) => {
            Answer::Lasting(vec![(LONG, alias.clone()), (LONG, ("target.test", "A", "127.0.0.1".into()))])
        }
        ("family.test", "AAAA") => lasting(0, &["::ffff:127.0.0.1"]),
        _ => lasting(LONG, &["127.0.0.1"]),
    };
    let names = ["alias.test", "chain.test", "family.test"];
    let world = world(&names.map(|name| format!("{name}:{port}")), script);
    for name in names {
        for _ in 0..3 {
            assert_eq!(status(&world.get(&format!("http://{name}:{port}/"))), 200, "{name}");
        }
        let times = if name == "chain.test" { 1 } else { 3 };
        assert_eq!(asked(&world, name), [times; 2], "{name}");
    }
}

#[test]
fn so_many_names_are_kept_and_the_one_that_ends_first_is_asked_for_again() {
    let origin = Origin::plain();
    let port = origin.port;
    let script = |name: &str, _: &str, _: usize| match name {
        "first.wild.test" => lasting(LONG - 100, &["127.0.0.1"]),
        _ => lasting(LONG, &["127.0.0.1"]),
    };
    let limits = Limits { cached_names: 2, ..limits() };
    let world = world_with(&[format!("*.wild.test:{port}")], limits, script);
    for name in ["first", "second", "third", "second", "third", "first"] {
        assert_eq!(status(&world.get(&format!("http://{name}.wild.test:{port}/"))), 200, "{name}");
    }
    assert_eq!(asked(&world, "first.wild.test"), [2, 2]);
    assert_eq!(asked(&world, "second.wild.test"), [1, 1]);
    assert_eq!(asked(&world, "third.wild.test"), [1, 1]);
}
