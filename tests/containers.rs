//! ringfence inside a real container engine: each cell is either wholly protected, as the probes, the command and the world
//! outside say, or refused in one line that names the cause, and then the command has not started.

mod attempts;
mod common;
mod engine;

use engine::cell::{Brief, Cell, STOLEN, TRIED, assert_protected, outcomes, session};
use engine::images::{SESSION, Tree};
use engine::{NETWORK, SINK_PORT, direct};
use ringfence::ledger::record::Outcome;
use std::io::Write;
use std::process::Stdio;
use world::Said;
use world::address::RESOLVER4;
use world::internet::everywhere;

/// A container as Docker's documents harden it.
const HARDENED: [&str; 6] = ["--user", "1000", "--cap-drop", "all", "--security-opt", "no-new-privileges"];
/// A container in which a firewall and mounts can be made.
const ADDED: [&str; 6] = ["--cap-add", "SYS_ADMIN", "--cap-add", "NET_ADMIN", "--security-opt", "apparmor=unconfined"];

/// Without ringfence every attack of the session arrives from the same container, or fails by the container's own doing.
#[test]
fn the_attacks_are_live() {
    let Some(engine) = engine::start() else { return };
    engine.import(Tree::Scratch);
    let (connections, datagrams) = everywhere(&engine.fence.world, SINK_PORT).expect("sinks");
    let cell = Cell { engine: &engine, tree: Tree::Scratch, name: "live", docker: &[], flags: &[] };
    // What stands where a record would.
    engine.fence.world.write(&cell.outside("ledger", "run.jsonl"), "a record\n", 0o600);
    let said = cell.docker(&[], &session());
    let seen = outcomes(&said.out);
    let assert_is = |what: &str, expected: &str| assert_eq!(seen.get(what), Some(&expected), "{what}: {said}");
    for what in ["create /usr/new", "change open", "change chmod", "change rename", "privilege setuid", "loopback tcp"]
    {
        assert_is(what, "ok");
    }
    for way in ["read", "append", "truncate", "link", "rename", "replace", "unlink"] {
        assert_is(&format!("seize {way}"), "ok");
    }
    for address in TRIED {
        for act in ["tcp", "udp", "udp-connected", "udp-pktinfo"] {
            assert_is(&format!("{act} {address}"), "ok");
        }
    }
    assert_is(&format!("name-udp {RESOLVER4}"), "ok");
    assert_eq!(engine.fence.internet.resolver.questions_about(STOLEN).len(), 1, "{said}");
    // All of it is without ringfence.
    engine.fence.admits(&[STOLEN]);
    assert!(connections.wait_for(3).len() >= 3 && datagrams.wait_for(9).len() >= 9, "{said}");
    assert!(!engine.bridge.wait_for(1).is_empty(), "{said}");
    assert!(cell.marked() && engine.reached().others > 12, "{said}");
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

/// What a container leaves, without an engine: the same session, judged in the same way.
#[test]
fn applied_directly_added_privilege_is_the_rung_full() {
    direct::protects("full");
}

#[test]
fn applied_directly_the_default_profile_is_protected() {
    direct::protects("container");
}

#[test]
fn applied_directly_the_hardened_profile_is_protected() {
    direct::protects("bare");
}

/// Each image, run with these flags, is protected on that rung.
fn each_tree(rung: &str, docker: &[&str]) {
    let Some(engine) = engine::start() else { return };
    for tree in Tree::ALL {
        engine.import(tree);
        let cell = Cell { engine: &engine, tree, name: &format!("{rung}-{}", tree.name()), docker, flags: &[] };
        let ended = cell.protects(rung);
        assert_eq!(ended.seal().outcome, Outcome::Exited, "{}", Brief(&ended));
    }
}

/// The ways in which a container is narrowed further, each as root with the default capabilities and hardened.
#[test]
fn narrowed_containers_are_protected_or_refused_by_name() {
    let Some(engine) = engine::start() else { return };
    engine.import(Tree::Busybox);
    let home = "/home:mode=0755";
    for (kind, base) in [("container", &[][..]), ("bare", &HARDENED[..])] {
        let run = |name: &str, more: &[&str], check: &dyn Fn(&Cell<'_>)| {
            let (name, docker) = (format!("{kind}-{name}"), [base, more].concat());
            check(&Cell { engine: &engine, tree: Tree::Busybox, name: &name, docker: &docker, flags: &[] });
        };
        let protects = |cell: &Cell<'_>| drop(cell.protects(kind));
        run("pids-limit", &["--pids-limit", "64"], &protects);
        run("too-few-pids", &["--pids-limit", "6"], &|cell| drop(cell.refuses("EAGAIN")));
        run("noexec-tmp", &["--tmpfs", "/tmp:noexec,mode=1777"], &protects);
        run("read-only", &["--read-only"], &|cell| drop(cell.refuses("EROFS")));
        run("read-only-but", &["--read-only", "--tmpfs", "/tmp", "--tmpfs", home, "--tmpfs", "/run"], &protects);
    }
}

/// Other ways that containers are started in, each protected on the rung that is named, or refused with that cause.
#[test]
fn other_containers_are_protected_or_refused_by_name() {
    let Some(engine) = engine::start() else { return };
    engine.import(Tree::Busybox);
    let unconfined = ["--security-opt", "seccomp=unconfined"];
    let home = ["--workdir", "/app", "--env", "HOME=/home/me", "--tmpfs", "/home/me:uid=1000,mode=0700"];
    let user = |more: &[&'static str]| [&["--user", "1000:1000"], more].concat();
    let protected = [
        ("init", "container", vec!["--init"]),
        ("terminal", "container", vec!["--tty"]),
        ("no-new-privileges", "container", vec!["--security-opt", "no-new-privileges"]),
        ("no-outer-filter", "container", unconfined.to_vec()),
        ("net-admin-alone", "container", vec!["--cap-add", "NET_ADMIN"]),
        ("sys-admin-alone", "container", vec!["--cap-add", "SYS_ADMIN"]),
        ("user-alone", "bare", user(&[])),
        // With namespaces of its own, and the workspace as where it works.
        ("user-with-namespaces", "rootless", user(&[&unconfined[..], &home].concat())),
    ];
    for (name, rung, docker) in protected {
        Cell { engine: &engine, tree: Tree::Busybox, name, docker: &docker, flags: &[] }.protects(rung);
    }
    let refused = [
        ("no-capability", "CAP_SETUID is missing", vec!["--cap-drop", "all"]),
        ("no-setpcap", "CAP_SETPCAP is missing", vec!["--cap-drop", "SETPCAP"]),
        ("no-kill", "CAP_KILL is missing", vec!["--cap-drop", "KILL"]),
    ];
    for (name, cause, docker) in refused {
        Cell { engine: &engine, tree: Tree::Busybox, name, docker: &docker, flags: &[] }.refuses(cause);
    }
    let hardened = Cell { engine: &engine, tree: Tree::Busybox, name: "no-ledger", docker: &HARDENED, flags: &[] };
    let said = hardened.docker(&[], &["ringfence", "run", "--", SESSION, "mark", "/app/started"]);
    assert_eq!((said.code, said.out.as_str(), said.err.lines().count()), (Some(125), "", 1), "{said}");
    assert!(said.err.contains("ledger: ") && said.err.contains("EACCES") && !hardened.marked(), "{said}");
}

/// What root owns of a workspace changes hands for the run, and is root's again when it is over.
#[test]
fn a_workspace_is_put_back() {
    let Some(engine) = engine::start() else { return };
    engine.import(Tree::Scratch);
    for (rung, docker) in [("full", &ADDED[..]), ("container", &[])] {
        let cell = Cell { engine: &engine, tree: Tree::Scratch, name: rung, docker, flags: &["--workspace", "/work"] };
        let work = engine.volume(&format!("{rung}-work"));
        engine.fence.world.write(&format!("{work}/file"), "before\n", 0o644);
        engine.fence.as_root(&format!("chmod 0755 {work}"));
        let owners = || engine.fence.as_root(&format!("stat -c '%n %u:%g %a' {work} {work}/*")).out;
        let before = owners();
        let work = format!("{work}:/work");
        let acts = [SESSION, "create", "/work/new", "create", "/work/file", "end", "0"];
        let ended = cell.ended(cell.docker(&["--volume", &work], &cell.fenced(&acts)));
        assert_eq!(ended.said.out, "create /work/new ok\ncreate /work/file ok\n", "{rung}: {}", Brief(&ended));
        let after = owners();
        let made = after.lines().find(|line| line.contains("/new")).unwrap_or_default();
        assert!(made.ends_with(" 0:0 600"), "{rung}: {after}");
        let kept: Vec<&str> = after.lines().filter(|line| !line.contains("/new")).collect();
        assert_eq!(kept, before.lines().collect::<Vec<_>>(), "{rung}");
    }
}

/// In a network with Docker's own resolver at 127.0.0.11: it carries names outside for whoever reaches it, so only the proxy
/// does.
#[test]
fn dockers_own_resolver_serves_the_proxy_alone() {
    let Some(engine) = engine::start() else { return };
    engine.import(Tree::Scratch);
    engine.make_network();
    let network = ["--network", NETWORK.0];
    let ask = [SESSION, "mark", "/app/started", "fetch", "pypi.org", "name", "127.0.0.11"];
    let live = Cell { engine: &engine, tree: Tree::Scratch, name: "live", docker: &network, flags: &[] };
    let said = live.docker(&[], &ask);
    assert_eq!(outcomes(&said.out).get("name-udp 127.0.0.11"), Some(&"ok"), "{said}");
    assert_eq!(engine.fence.internet.resolver.questions_about(STOLEN).len(), 1, "{said}");
    // That was the live vector; each run's questions are counted below.
    engine.fence.admits(&[STOLEN]);
    for (rung, docker) in [("full", &ADDED[..]), ("container", &[]), ("bare", &HARDENED)] {
        let docker = [&network[..], docker].concat();
        let cell = Cell { engine: &engine, tree: Tree::Scratch, name: rung, docker: &docker, flags: &[] };
        let ended = cell.run(&ask);
        let (seen, shown) = (outcomes(&ended.said.out), Brief(&ended));
        assert_eq!(ended.start().rung, rung, "{shown}");
        assert_eq!(seen.get("fetch pypi.org"), Some(&"200"), "{shown}");
        assert_eq!(seen.get("name-udp 127.0.0.11"), Some(&"EPERM"), "{shown}");
        assert_eq!(seen.get("name-tcp 127.0.0.11"), Some(&"ECONNREFUSED"), "{shown}");
        assert_eq!(engine.fence.internet.resolver.questions_about(STOLEN).len(), 1, "{shown}");
        assert!(ended.denials().iter().any(|denial| denial.rule == "dns"), "{shown}");
        assert!(ended.seal().complete, "{shown}");
    }
}

/// README's example, built and run as it stands there, but for the image that it begins with.
#[test]
fn the_readmes_entry_point_works_in_a_default_container() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).expect("README.md");
    let (_, rest) = readme.split_once("```dockerfile\n").expect("README.md has a Dockerfile");
    let (text, _) = rest.split_once("```").expect("its end");
    let (first, lines) = text.split_once('\n').expect("lines");
    assert!(first.starts_with("FROM debian:"), "{first}");

    let Some(engine) = engine::start() else { return };
    engine.import(Tree::Debian);
    engine.build("readme", &format!("FROM {}\n{lines}", Tree::Debian.name()));
    let before = engine.reached();
    let said = engine.docker(&[&["run", "--name", "readme", "readme"], session().as_slice()].concat());
    assert_eq!(said.code, Some(0), "{said}");
    let copied = engine.volume("readme-ledger");
    engine.done(&["cp", "readme:/var/log/ringfence/.", &copied]);
    engine.done(&["cp", "readme:/app/started", &engine.volume("readme-app")]);
    let ledger = engine.fence.world.shell(&format!("ls {copied}/*.jsonl")).out;
    let ended = engine.fence.ended(said, ledger.trim_end().to_owned());
    let cell = Cell { engine: &engine, tree: Tree::Debian, name: "readme", docker: &[], flags: &[] };
    cell.is_protected("container", &ended, before);

    // As a user without any capability, with a HOME to keep the record in; which user it takes stands there as well.
    let named = format!("({}", ["`", &HARDENED.join(" "), "`)"].concat());
    assert!(readme.contains(&named), "README.md lacks {named}");
    let home = format!("{}:/home/me", engine.volume("readme-home"));
    let app = format!("{}:/app", engine.volume("readme-users-app"));
    let places = ["--env", "HOME=/home/me", "--volume", &home, "--volume", &app];
    let said = engine.docker(&[&["run"], &HARDENED[..], &places, &["readme"], session().as_slice()].concat());
    let ledger = engine.fence.world.shell("ls /run/engine/volumes/readme-home/.local/state/ringfence/*.jsonl").out;
    let ended = engine.fence.ended(said, ledger.trim_end().to_owned());
    assert_protected("readme, hardened", "bare", &ended, &engine.fence);

    // The image's command, an interactive shell by nature, and its status.
    let mut command = engine.command(&["run", "--interactive", "--rm", "readme"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = engine.fence.world.spawn(command).expect("docker starts");
    let script = "curl -sS https://pypi.org/; touch /usr/new; echo $? $$; exit 7\n";
    child.stdin.take().expect("piped").write_all(script.as_bytes()).expect("bash reads");
    let said = Said::from(child.wait_with_output().expect("docker ends"));
    assert_eq!(said.code, Some(7), "{said}");
    let (first, second) = said.out.split_once('\n').expect("two lines");
    assert_eq!(first, "hello from pypi.org", "{said}");
    assert!(second.starts_with("1 "), "{said}");
    assert_eq!(said.err.trim_end(), "touch: cannot touch '/usr/new': Read-only file system", "{said}");
}
