//! ringfence inside a real container engine: each cell is either wholly protected, as the probes, the command and the world
//! outside say, or refused in one line that names the cause, and then the command has not started.

mod attempts;
mod common;
mod engine;

use common::RINGFENCE;
use engine::cell::{Brief, Cell, Reached, STOLEN, TRIED, outcomes, session};
use engine::images::{SESSION, Tree};
use engine::{Engine, SINK_PORT};
use ringfence::ledger::record::Outcome;
use world::address::RESOLVER4;
use world::internet::everywhere;

/// A container as Docker's documents harden it.
const HARDENED: [&str; 6] = ["--user", "1000", "--cap-drop", "all", "--security-opt", "no-new-privileges"];
/// A container in which a firewall and mounts can be made.
const ADDED: [&str; 6] = ["--cap-add", "SYS_ADMIN", "--cap-add", "NET_ADMIN", "--security-opt", "apparmor=unconfined"];

fn start() -> Engine {
    Engine::start().unwrap_or_else(|cause| panic!("no container engine: {cause}"))
}

/// Without ringfence every attack of the session arrives from the same container, or fails by the container's own doing.
#[test]
fn the_attacks_are_live() {
    let engine = start();
    engine.import(Tree::Scratch);
    let (connections, datagrams) = everywhere(&engine.fence.world, SINK_PORT).expect("sinks");
    let cell = Cell { engine: &engine, tree: Tree::Scratch, name: "live", docker: &[], flags: &[] };
    let said = cell.docker(&[], &session());
    let seen = outcomes(&said.out);
    let assert_is = |what: &str, expected: &str| assert_eq!(seen.get(what), Some(&expected), "{what}: {said}");
    for what in ["create /usr/new", "change open", "change chmod", "change rename", "privilege setuid", "loopback tcp"]
    {
        assert_is(what, "ok");
    }
    for address in TRIED {
        for act in ["tcp", "udp", "udp-connected", "udp-pktinfo"] {
            assert_is(&format!("{act} {address}"), "ok");
        }
    }
    assert_is(&format!("name-udp {RESOLVER4}"), "ok");
    assert_eq!(engine.fence.internet.resolver.questions_about(STOLEN).len(), 1, "{said}");
    assert!(connections.wait_for(3).len() >= 3 && datagrams.wait_for(9).len() >= 9, "{said}");
    assert!(!engine.bridge.wait_for(1).is_empty(), "{said}");
    assert!(cell.marked() && Reached::of(&engine).others > 12, "{said}");
    let changes = cell.changes();
    assert!(changes.iter().any(|change| change == "A /usr/local/share/protected/moved"), "{changes:?}");
}

#[test]
fn with_added_privilege_the_rung_is_full() {
    each_tree("full", &ADDED);
}

#[test]
fn a_default_container_is_protected() {
    each_tree("container", &[]);
}

#[test]
fn a_hardened_container_is_protected() {
    each_tree("bare", &HARDENED);
}

/// Each image, run with these flags, is protected on that rung.
fn each_tree(rung: &str, docker: &[&str]) {
    let engine = start();
    for tree in Tree::ALL {
        engine.import(tree);
        let cell = Cell { engine: &engine, tree, name: &format!("{rung}-{}", tree.name()), docker, flags: &[] };
        let ended = cell.protects(rung);
        assert_eq!(ended.seal().outcome, Outcome::Exited, "{}", Brief(&ended));
    }
}
