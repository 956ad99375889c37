//! A shadow: `control` is what is run, and each `would_deny` is one act that the stricter level refuses when it is enforced, one
//! to one; nothing is refused by it, and nothing of it can be taken for a denial.

mod attempts;
mod common;
#[path = "common/live.rs"]
mod live;
mod shadows;

use common::{Fence, as_root};
use live::Live;
use ringfence::ledger::record::{Evidence, Mechanism};
use serde_json::json;
use shadows::{ACTS, Stage, answers, held_against, multiset, would_deny};
use std::net::Ipv4Addr;
use world::Origin;

#[test]
fn locked_is_shadowed_one_to_one() {
    let (enforced, _) = held_against(&Stage::new(), "locked");
    assert!(enforced.denials().len() >= 80, "{enforced}");
}

#[test]
fn a_workspace_that_would_be_idmapped_is_shadowed_one_to_one() {
    let stage = Stage::new();
    stage.fence.world.mount_ext4("/app").expect("a file system that can be idmapped");
    let (enforced, shadowed) = held_against(&stage, "nist-high");
    assert_eq!(enforced.start().workspaces["/app"], "idmapped", "{enforced}");
    assert!(shadowed.start().workspaces.is_empty(), "{shadowed}");
}

#[test]
fn a_first_packet_that_is_sent_again_is_told_once() {
    let fence = Fence::new();
    // No answer arrives.
    let deaf = "nft add table inet deaf; nft add chain inet deaf input '{ type filter hook input priority 0; }'
        nft add rule inet deaf input tcp sport 81 drop";
    as_root(&fence, deaf);
    let counters = "nft list ruleset | grep -A3 'chain default-deny'";
    let script = format!("timeout 4 bash -c 'exec 3<>/dev/tcp/11.22.33.44/81'; {counters}");
    let ended = fence.run(&["--policy", "control", "--shadow", "nist-high"], &script);
    let told: Vec<_> = would_deny(&ended).iter().map(|d| (d.operation.clone(), d.object.port, d.count)).collect();
    assert_eq!(told, [("tcp".to_owned(), Some(81), 1)], "{ended}");
    let packets = ended.said.out.split("counter packets ").nth(1).and_then(|rest| rest.split(' ').next());
    assert!(packets.is_some_and(|count| count.parse::<u64>().is_ok_and(|count| count > 1)), "{ended}");
    assert!(ended.seal().complete, "{ended}");
}

#[test]
fn non_root_is_shadowed_one_to_one() {
    let (enforced, _) = held_against(&Stage::new(), "non-root");
    assert!(enforced.denials().len() >= 30, "{enforced}");
    assert_eq!(enforced.seal().denials["network"], 0, "{enforced}");
}

#[test]
fn a_session_of_acts_is_told_one_to_one_and_goes_on_as_without() {
    let stage = Stage::new();
    let (enforced, shadowed) = held_against(&stage, "nist-high");
    let plain = stage.run(&["--policy", "control"]);

    assert!(answers(&enforced).len() >= 100, "{enforced}");
    assert!(enforced.denials().len() >= 80, "{enforced}");
    for mechanism in [Mechanism::Proxy, Mechanism::Firewall, Mechanism::Notifier] {
        assert!(would_deny(&shadowed).iter().any(|denial| denial.mechanism == mechanism), "{shadowed}");
    }

    // The same answers as where nobody looks, but for the proxy, which is not there then.
    let by_proxy = |name: &&str| name.starts_with("proxy-");
    let mut seen = answers(&shadowed);
    seen.retain(|name, _| !by_proxy(name));
    assert_eq!(seen, answers(&plain));
    assert!(plain.denials().is_empty() && would_deny(&plain).is_empty(), "{plain}");
    assert!(enforced.seal().would_deny.is_empty() && plain.seal().would_deny.is_empty());
}

/// A library, a program, a wheel and a tarball, built and installed beneath the workspace, by root as it is under `control`.
const BUILD: &str = "
set -e
export LC_ALL=C; . /usr/local/lib/project.sh
cd /workspace; make_project thing; cd thing
./configure --prefix=/workspace/out >log; make -j2 >>log 2>&1; make check >>log 2>&1; make install >>log 2>&1; make clean >>log
/workspace/out/bin/thing
tar -C /workspace -czf /workspace/out.tar.gz out; mkdir /workspace/copy; tar -C /workspace/copy -xzf /workspace/out.tar.gz
cp -r /workspace/out /workspace/again; rm -rf /workspace/copy /workspace/again
ln -s nowhere /tmp/link; mv /tmp/link /tmp/moved; rm /tmp/moved; mkdir -m 700 /tmp/closed; echo x > /tmp/closed/x; chmod 600 /tmp/closed/x
touch /tmp/closed/x; echo y >> /workspace/old; mv /workspace/old /workspace/older; strace -f -o /tmp/trace true 2>/dev/null || true
mkdir /usr/local/x
echo built
";

#[test]
fn what_the_level_lets_pass_is_not_told_though_root_has_made_it() {
    let fence = Fence::new();
    fence.world.write("/usr/local/lib/project.sh", include_str!("acts/project.sh"), 0o644);
    let furnish = "rm -rf /workspace /tmp/*; mkdir /workspace; echo x > /workspace/old";
    as_root(&fence, furnish);
    let enforced =
        fence.run(&["--policy", "nist-high"], &BUILD.replace("mkdir /usr/local/x", "mkdir /usr/local/x || true"));
    as_root(&fence, furnish);
    let ended = fence.run(&["--policy", "control", "--shadow", "nist-high"], BUILD);
    assert!(ended.said.out.ends_with("built\n"), "{ended}");
    let objects: Vec<_> = would_deny(&ended).iter().map(|d| (d.operation.as_str(), d.object.path.as_deref())).collect();
    // The last act is refused: what is recorded of it shows that someone looks.
    assert_eq!(objects, [("mkdir", Some("/usr/local/x"))], "{ended}");
    assert_eq!(multiset(would_deny(&ended)), multiset(enforced.denials()), "{ended}\n{enforced}");
    assert_eq!(as_root(&fence, "stat -c '%u:%g %F' /usr/local/x /workspace/out /workspace/older").lines().count(), 3);
    let owners = as_root(&fence, "find /workspace /usr/local/x ! -user root | wc -l");
    assert_eq!(owners.trim(), "0", "all that was made is root's");
}

/// A run that must not start: its status, and the one line that says why.
fn refused(fence: &Fence, flags: &[&str]) -> String {
    let (command, ledger) = fence.command(flags, &["touch", "/tmp/started"]);
    let said = fence.output(command);
    assert_eq!((said.code, said.out.as_str(), said.err.lines().count()), (Some(125), "", 1), "{said}");
    assert!(fence.world.read("/tmp/started").is_none() && fence.world.read(&ledger).is_none(), "{flags:?}");
    said.err
}

#[test]
fn what_cannot_be_shadowed_one_to_one_is_refused() {
    let fence = Fence::new();
    for (flags, why) in [
        (
            &["--policy", "nist-high", "--shadow", "non-root"][..],
            "network open is laxer than what is enforced, restricted",
        ),
        (&["--policy", "control", "--shadow", "control"], "accepted: a policy that is stricter on an axis"),
        (&["--policy", "nist-high", "--shadow", "locked"], "accepted: --policy control"),
        (&["--policy", "non-root", "--shadow", "nist-high"], "accepted: --policy control"),
        (&["--policy", "control", "--shadow", "hihg"], "is no level; accepted: control, non-root, nist-high, locked"),
        (&["--policy", "control", "--shadow", "./none.toml"], "policy file ./none.toml: No such file"),
        (&["--policy", "control", "--shadow", "nist-high", "--abi", "i386"], "abi i386"),
        (&["--policy", "control", "--shadow", "nist-high", "--rung", "container"], "rung container has no shadow"),
    ] {
        let said = refused(&fence, flags);
        assert!(said.contains(why), "{flags:?}: {said}");
    }
    // The live vector of all of them.
    let ended = fence.run(&["--policy", "control", "--shadow", "nist-high"], "touch /tmp/started");
    assert_eq!(ended.said.code, Some(0), "{ended}");
    assert!(fence.world.read("/tmp/started").is_some());
}

#[test]
fn other_rungs_refuse_and_plan_says_so() {
    for less in [world::Less::new().container(), world::Less::new().uid(20_001, 20_001)] {
        let fence = Fence::new().less(less);
        let said = refused(&fence, &["--policy", "control", "--shadow", "nist-high"]);
        assert!(said.contains("accepted: rung full, which is root with CAP_SYS_ADMIN and CAP_NET_ADMIN"), "{said}");
        let plan = fence.output(fence.ringfence(&["plan", "--policy", "control", "--shadow", "nist-high"]));
        assert!(plan.code == Some(125) && plan.err.contains("accepted: rung full"), "{plan}");
        let plain = fence.run(&["--policy", "control"], "echo runs");
        assert_eq!(plain.said.out, "runs\n", "{plain}");
    }
}

#[test]
fn it_is_told_everywhere_that_nothing_of_it_was_enforced() {
    let fence = Fence::new();
    let script = "mkdir /usr/local/x; mkdir /usr/local/y";
    let flags = ["--policy", "control", "--shadow", "nist-high", "--json-status-fd", "3"];
    let (command, ledger) = fence.command(&flags, &["bash", "-c", script]);
    let mut outer = fence.world.command("bash");
    outer.args(["-c", "exec 3>/tmp/status; \"$@\"", "bash"]).arg(command.get_program()).args(command.get_args());
    let ended = fence.ended(world::Said::from(fence.world.output(outer)), ledger);
    assert_eq!(ended.said.code, Some(0), "{ended}");
    let start = ended.start();
    let shadow = start.shadow.as_ref().expect("a shadow");
    assert_eq!((shadow.level.as_str(), ended.records[0].level.as_str()), ("nist-high", "control"));
    assert_eq!((start.postures["network"].as_str(), shadow.postures["network"].as_str()), ("open", "restricted"));
    let shown = fence.output(fence.ringfence(&["plan", "--policy", "nist-high"]));
    assert!(shown.out.contains(&shadow.policy_digest), "{shown}");
    let planned = fence.output(fence.ringfence(&["plan", "--policy", "control", "--shadow", "nist-high"]));
    let line =
        "shadow of nist-high, not enforced: network restricted, filesystem restricted, privilege locked  digest ";
    assert!(planned.code == Some(0) && planned.out.contains(&format!("{line}{}", shadow.policy_digest)), "{planned}");
    assert!(planned.out.contains("level control ") && planned.out.contains("unobserved: "), "{planned}");
    assert!(start.unobserved.iter().any(|text| text.contains("io_uring")), "{:?}", start.unobserved);

    let status: serde_json::Value =
        serde_json::from_slice(&fence.world.read("/tmp/status").expect("a status")).unwrap();
    let counts = json!({"network": 0, "filesystem": 2, "privilege": 0});
    assert_eq!((&status["would_deny"], &status["denials"]["filesystem"]), (&counts, &json!(0)), "{status}");
    let verified = fence.verify(&ended.ledger);
    let lines: Vec<_> = verified.out.lines().collect();
    assert_eq!(verified.code, Some(0), "{verified}");
    assert!(lines[0].starts_with("complete: ") && lines[0].contains(" 0 denials"), "{verified}");
    assert_eq!(lines[1], "a shadow of nist-high, enforcing control: 2 would be denied, and none of it was refused");

    let report = |args: &[&str]| fence.output(fence.ringfence(&[&["report"], args].concat())).out;
    let one = report(&[&ended.ledger]);
    for line in [
        "shadow of nist-high, not enforced: ",
        "would_deny",
        "denials: network 0, filesystem 0, privilege 0\n",
        "would be denied under nist-high, none of it refused: network 0, filesystem 2, privilege 0\n",
        "record: a shadow of nist-high, enforcing control: 2 would be denied",
    ] {
        assert!(one.contains(line), "{line}: {one}");
    }
    // Beside a run that is held, none of it is added to what was refused.
    let held = fence.run(&["--policy", "nist-high"], "mkdir /usr/local/z");
    assert!(would_deny(&ended).iter().all(|denial| denial.evidence == Evidence::ShadowObserved), "{ended}");
    assert!(held.denials().iter().all(|denial| denial.evidence == Evidence::EnforcementObserved), "{held}");
    assert!(one.contains(" (EROFS) ") && !one.contains(" EROFS "), "{one}");
    let both = report(&[&ended.ledger, &held.ledger]);
    let title = "A SHADOW OF NIST-HIGH: NOTHING OF THIS WAS ENFORCED, AND NONE OF IT IS COUNTED ABOVE";
    assert!(both.contains(title), "{both}");
    let json: serde_json::Value = serde_json::from_str(&report(&["--json", &ended.ledger, &held.ledger])).unwrap();
    let total = &json["total"];
    assert_eq!(
        (&total["axes"][1]["denials"], &total["would_deny"]["filesystem"], &total["shadowed"]),
        (&json!(1), &json!(2), &json!(1))
    );
    let alone = report(&[&held.ledger]);
    assert!(!alone.contains("shadow") && !alone.to_uppercase().contains("WOULD"), "{alone}");
    let plain = fence.verify(&held.ledger);
    assert_eq!(plain.out.lines().count(), 1, "{plain}");
}

#[test]
fn what_the_proxy_and_the_firewall_would_refuse_is_served() {
    let fence = Fence::new();
    let script = format!(
        "curl -sS -o /tmp/by-proxy -w 'proxy=%{{http_code}}\n' http://{0}/; \
         curl -sS -o /tmp/by-tls -w 'tls=%{{http_code}}\n' https://{0}/; \
         curl -sS --noproxy '*' -o /tmp/direct -w 'direct=%{{http_code}}\n' http://{1}/; \
         setpriv --reuid 4242 --clear-groups curl -sS -o /dev/null -w 'other=%{{http_code}}\n' http://{0}/",
        world::internet::STRANGER,
        world::address::PUBLIC4
    );
    let ended = fence.run(&["--policy", "control", "--shadow", "nist-high"], &script);
    let plain = fence.run(&["--policy", "control"], &script);
    assert_eq!(ended.said.out, plain.said.out, "{ended}\n{plain}");
    assert!(ended.value("proxy") == "200" && ended.value("direct") == "200" && ended.value("tls") == "200", "{ended}");
    assert_eq!(ended.value("other"), "200", "whoever the command becomes: {ended}");
    let told = would_deny(&ended);
    let of_root: Vec<_> = told.iter().filter(|denial| denial.subject.comm.as_deref() == Some("curl")).collect();
    assert!(of_root.iter().all(|denial| denial.subject.uid == Some(0)), "{ended}");
    let rules: Vec<_> = of_root.iter().map(|d| (d.operation.as_str(), d.rule.as_str(), d.http_status)).collect();
    let [get, connect] = ["GET", "CONNECT"].map(|operation| (operation, "default-deny", Some(403)));
    assert_eq!(rules, [get, connect, ("tcp", "default-deny", None)], "{ended}");
    let by_proxy = told.iter().filter(|denial| denial.mechanism == Mechanism::Proxy).count();
    assert_eq!(by_proxy, 3, "the proxy tells of whoever asks it: {ended}");
}

#[test]
fn what_no_proxy_can_serve_is_told_apart() {
    let stage = Stage::new();
    let flags = ["--policy", "control", "--shadow", "nist-high"];
    let ended = stage.fence.run(&flags, &format!("{ACTS} 1 proxy-malformed; {ACTS} 1 proxy-get; mkdir /usr/local/x"));
    assert!(ended.said.out.starts_with("proxy-malformed 400 ") && ended.said.out.contains("proxy-get 200 "), "{ended}");
    let told: Vec<_> = would_deny(&ended).iter().map(|d| (d.rule.as_str(), d.evidence)).collect();
    let through = Evidence::ShadowObserved;
    let expected = [("malformed", Evidence::EnforcementObserved), ("default-deny", through), ("read-only", through)];
    assert_eq!(told, expected, "{ended}");
    let verified = stage.fence.verify(&ended.ledger);
    let line = "a shadow of nist-high, enforcing control: 3 would be denied, and 1 of it was refused, which its proxy could \
                not serve";
    assert_eq!(verified.out.lines().nth(1), Some(line), "{verified}");
    let report = stage.fence.output(stage.fence.ringfence(&["report", &ended.ledger])).out;
    assert!(report.contains(" (EROFS) ") && report.contains(" (403) ") && report.contains(" 400 "), "{report}");
    assert!(report.contains("would be denied under nist-high, 1 of it refused, which the proxy could not serve: "));
}

#[test]
fn its_proxy_is_no_way_past_what_another_run_enforces() {
    let fence = Fence::new();
    let control_plane = Origin::http(fence.world.inside(), Ipv4Addr::LOCALHOST, 8500, world::origin::standard());
    let control_plane = control_plane.expect("a server on loopback");
    let script = "import os\nprint(os.environ['http_proxy'], flush=True)\ninput()\n";
    let mut shadow = Live::start(&fence, &[], &["--policy", "control", "--shadow", "nist-high"], script);
    let proxy = shadow.line();
    let ask = format!("curl -sS -x {proxy} -o /dev/null -w 'code=%{{http_code}}\n' http://127.0.0.1:8500/");
    let free = fence.run(&["--policy", "non-root"], &ask);
    assert_eq!(free.value("code"), "200", "{free}");
    let served = control_plane.requests().len();
    assert_eq!(served, 1);
    let held = fence.run(&["--policy", "non-root", "--control-plane-port", "8500"], &ask);
    assert_eq!(held.value("code"), "000", "{held}");
    assert_eq!(control_plane.requests().len(), served, "{held}");
    let rules: Vec<_> = held.denials().iter().map(|denial| denial.rule.clone()).collect();
    assert!(!rules.is_empty() && rules.iter().all(|rule| rule == "control-plane"), "{held}");
    shadow.go_on();
    shadow.end(&fence);
}

#[test]
fn the_command_has_the_callers_groups() {
    let fence = Fence::new();
    for groups in ["", "20,4242"] {
        let said = |flags: &[&str]| {
            let (command, ledger) = fence.command(flags, &["bash", "-c", "id -G; grep Groups: /proc/self/status"]);
            let mut caller = fence.world.command("setpriv");
            match groups {
                "" => caller.arg("--clear-groups"),
                some => caller.args(["--groups", some]),
            };
            caller.arg(command.get_program()).args(command.get_args());
            let ended = fence.ended(world::Said::from(fence.world.output(caller)), ledger);
            assert_eq!(ended.said.code, Some(0), "{ended}");
            ended.said.out
        };
        let plain = said(&["--policy", "control"]);
        assert_eq!(said(&["--policy", "control", "--shadow", "nist-high"]), plain, "{groups:?}");
        assert!(plain.contains("4242") != groups.is_empty(), "{plain}");
    }
}

#[test]
fn a_probe_of_a_shadow_is_refused() {
    let fence = Fence::new();
    let probe = |flags: &[&str]| fence.output(fence.ringfence(&[&["probe", "--policy"], flags].concat()));
    let said = probe(&["control", "--shadow", "nist-high"]);
    assert_eq!((said.code, said.err.lines().count()), (Some(125), 1), "{said}");
    assert!(said.err.contains("accepted: ringfence probe --policy nist-high"), "{said}");
    assert_eq!(probe(&["control"]).code, Some(0));
}

#[test]
fn a_session_can_be_a_shadow() {
    let fence = Fence::new();
    let ledger = "/var/log/ringfence/session.jsonl";
    let said =
        fence.output(fence.ringfence(&["up", "--policy", "control", "--shadow", "nist-high", "--ledger", ledger]));
    assert_eq!(said.code, Some(0), "{said}");
    for name in ["one", "two"] {
        let made = fence.output(fence.ringfence(&["exec", "--", "mkdir", &format!("/usr/local/{name}")]));
        assert_eq!(made.code, Some(0), "{made}");
    }
    let down = fence.output(fence.ringfence(&["down"]));
    assert_eq!(down.code, Some(0), "{down}");
    let ended = fence.ended(down, ledger.to_owned());
    let paths: Vec<_> = would_deny(&ended).iter().filter_map(|denial| denial.object.path.clone()).collect();
    assert_eq!(paths, ["/usr/local/one", "/usr/local/two"], "{ended}");
    assert!(ended.seal().complete, "{ended}");
    assert_eq!(as_root(&fence, "ls -d /usr/local/one /usr/local/two").lines().count(), 2);
}

#[test]
fn it_leaves_nothing_behind() {
    let fence = Fence::new();
    let before = common::survey(&fence);
    let ended =
        fence.run(&["--policy", "control", "--shadow", "nist-high"], "id -u; nft list ruleset | grep -c reject");
    assert_eq!(ended.said.out, "0\n0\n", "no rule refuses anything while it runs: {ended}");
    common::assert_left_nothing(&fence, &before, "a shadow");
}

#[test]
fn who_takes_its_table_away_leaves_a_hole_and_is_not_ended() {
    let fence = Fence::new();
    let script = "nft flush ruleset; sleep 1; mkdir /usr/local/x; echo goes on";
    let ended = fence.run(&["--policy", "control", "--shadow", "nist-high"], script);
    assert_eq!((ended.said.code, ended.said.out.as_str()), (Some(0), "goes on\n"), "{ended}");
    let seal = ended.seal();
    let whole = ["network", "privilege", "filesystem"].map(|axis| seal.complete_by_axis[axis]);
    assert_eq!((seal.complete, whole), (false, [false, false, true]), "{ended}");
    assert_eq!(seal.would_deny["filesystem"], 1, "{ended}");
}
