//! What is shielded is not read, listed or written by any route, on any rung, and each attempt is on record (issue 7).

mod common;
#[path = "rungs/rung.rs"]
mod rung;

use common::{Ended, Fence, as_root, own_user};
use ringfence::ledger::record::{Denial, ShieldState};
use rung::{RUNGS, Rung, WORKSPACE};
use std::time::{Duration, Instant};

/// What must not be read.
const TOKEN: &str = "CANARY-7f3a91c";
const SHIELD: &str = "/srv/kept/grading/reference";
const HOSTILE: &str = "/usr/local/lib/hostile.py";

/// A box with something to be kept, under three names.
fn prepared(user: u32, home: &str) -> Fence {
    let fence = Fence::new();
    rung::prepare(&fence, user, home);
    fence.world.write(HOSTILE, include_bytes!("shields/hostile.py"), 0o644);
    // Where another name of a file is looked for on all of its file system, that is a small one.
    fence.world.mount_memory("/srv/kept").expect("a file system");
    let make = format!(
        "mkdir -p {SHIELD} /mnt/alias; echo {TOKEN} > {SHIELD}/answer.txt; \
         printf '#!/bin/sh\\necho {TOKEN}\\n' > {SHIELD}/run.sh; chmod 755 {SHIELD}/run.sh; \
         ln -s {TOKEN} {SHIELD}/pointer; echo {TOKEN} > {SHIELD}/linked; ln {SHIELD}/linked /srv/kept/other-name; chmod 666 {SHIELD}/linked; \
         mount --bind {SHIELD} /mnt/alias; cp $(command -v cat) /usr/local/bin/suidcat; chmod 4755 /usr/local/bin/suidcat"
    );
    as_root(&fence, &make);
    fence
}

fn hostile(rung: Rung, fence: &Fence, user: u32, home: &str, flags: &[&str]) -> Ended {
    let script = format!("python3 {HOSTILE} {SHIELD} {WORKSPACE} $PPID");
    rung.run(fence, user, home, flags, &["bash", "-c", &script])
}

/// The routes and what each gave.
fn outcomes(ended: &Ended) -> Vec<(&str, &str)> {
    ended.said.out.lines().filter_map(|line| line.split_once('=')).collect()
}

/// Whether a denial is of an attempt by this route: by its process, or by one that it started.
fn is_by(denial: &Denial, route: &str) -> bool {
    let name = format!("r-{route}");
    let name: String = name.chars().take(15).collect();
    let subject = &denial.subject;
    let ancestors = subject.ancestors.iter().flatten();
    subject.comm.iter().chain(ancestors).any(|comm| *comm == name)
}

/// What no rung has on record, and why: the answer of the first is that of a kernel without the call, and what a script names
/// as its interpreter is the kernel's own to open.
const UNRECORDED: &[&str] = &["io-uring", "interpreter"];

/// Of these routes the ones that lead the same caller there without ringfence: what is refused to it anyway is no denial.
fn free(rung: Rung, fence: &Fence, user: u32, home: &str, routes: &[&str]) -> Vec<String> {
    let mut command = fence.world.command("bash");
    let script = format!("python3 {HOSTILE} {SHIELD} {WORKSPACE} $PPID {}", routes.join(" "));
    command.args(["-c", &script]).env("HOME", home).current_dir(WORKSPACE);
    let said = world::Said::from(fence.world.output_with(&rung.less(user), command));
    let got = said.out.lines().filter_map(|line| line.strip_suffix("=GOT"));
    got.map(str::to_owned).collect()
}

fn holds(rung: Rung) {
    let user = own_user();
    let home = format!("/home/dev{user}");
    let fence = prepared(user, &home);
    // Live vector: without the shield the same routes lead there.
    let open = hostile(rung, &fence, user, &home, &[]);
    let got: Vec<&str> = outcomes(&open).into_iter().filter(|(_, word)| *word == "GOT").map(|(name, _)| name).collect();
    const ROUTES: &str = "cat cp tar ls open proc-root alias hard-link exec o-path race stat access empty-path xattr-at \
                          xattrs-at file-attributes mmap sendfile splice place-by-link interpreter exec-by-fd \
                          fanotify";
    // A container's own filter refuses the last one.
    for route in ROUTES.split(' ').filter(|route| rung != Rung::Container || *route != "fanotify") {
        assert!(got.contains(&route), "{rung:?}: {route} leads nowhere without a shield: {open}");
    }
    as_root(&fence, &format!("rm -r {}; rm -rf {WORKSPACE}/*", open.ledger));
    let ended = hostile(rung, &fence, user, &home, &["--shield", SHIELD]);
    assert_eq!(ended.said.code, Some(0), "{rung:?}: {ended}");
    assert_eq!(ended.start().rung, rung.name());
    let outcomes = outcomes(&ended);
    assert!(outcomes.len() > 75, "{rung:?}: {ended}");
    let led: Vec<_> = outcomes.iter().filter(|(_, word)| *word == "GOT").collect();
    assert!(led.is_empty(), "{rung:?}: {led:?}\n{ended}");
    assert!(!ended.said.out.contains(TOKEN) && !ended.said.err.contains(TOKEN));
    let denials = ended.denials();
    let unseen = outcomes
        .iter()
        .map(|(route, _)| *route)
        .filter(|route| !UNRECORDED.contains(route) && !denials.iter().any(|denial| is_by(denial, route)));
    let unseen: Vec<&str> = unseen.collect();
    let (seen, unseen) = (outcomes.len() - unseen.len(), if unseen.is_empty() { vec!["none"] } else { unseen });
    assert!(seen >= 42, "{rung:?}: not on record {unseen:?}\n{ended}");
    if unseen != ["none"] {
        let free = free(rung, &fence, user, &home, &unseen);
        assert!(
            free.is_empty(),
            "{rung:?}: not on record, and open without ringfence: {free:?} of {unseen:?}\n{ended}"
        );
    }
    let attempts = denials.iter().filter(|denial| denial.rule == "shield");
    assert!(attempts.clone().all(|d| d.errno.as_deref() == Some("EACCES") && d.reason == "shielded"), "{rung:?}");
    assert!(attempts.clone().any(|d| d.object.path.as_deref() == Some(&format!("{SHIELD}/answer.txt"))), "{rung:?}");
    let seal = ended.seal();
    assert!(seal.complete, "{rung:?}: {seal:?}");
    assert_eq!(seal.shields.as_ref().map(|shields| shields.state), Some(ShieldState::Intact));
    let shield = &ended.start().shields[0];
    assert_eq!((shield.path.as_str(), shield.entries, shield.digest.len()), (SHIELD, 5, 64));
    assert_eq!(shield.other_names, ["/mnt/alias", "/srv/kept/other-name"]);
    let found = as_root(&fence, &format!("grep -rls {TOKEN} {WORKSPACE} || true"));
    assert_eq!(found, "", "{rung:?}: it has been written down");
}

#[test]
fn on_full_a_hostile_script_comes_back_empty_handed_and_each_attempt_is_on_record() {
    holds(Rung::Full);
}

#[test]
fn on_container_a_hostile_script_comes_back_empty_handed_and_each_attempt_is_on_record() {
    holds(Rung::Container);
}

#[test]
fn on_rootless_a_hostile_script_comes_back_empty_handed_and_each_attempt_is_on_record() {
    holds(Rung::Rootless);
}

#[test]
fn on_bare_a_hostile_script_comes_back_empty_handed_and_each_attempt_is_on_record() {
    holds(Rung::Bare);
}

#[test]
fn what_outlives_the_command_gets_nothing_either() {
    for rung in RUNGS {
        let user = own_user();
        let home = format!("/home/dev{user}");
        let fence = prepared(user, &home);
        let child = |name: &str| {
            format!(
                "sleep 1; cat {SHIELD}/answer.txt > {WORKSPACE}/late-{name} 2>&1; cat /mnt/alias/answer.txt >> {WORKSPACE}/late-{name}; \
                 touch {WORKSPACE}/done"
            )
        };
        // A session of its own, a process that hangups leave alone, and a daemon: the child of one that has ended, which holds
        // the directories that it had.
        let daemon = format!(
            "import os\nos.chdir(os.path.dirname(\"{SHIELD}\"))\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n    \
             os.execvp(\"bash\", [\"bash\", \"-c\", \"{}; cat reference/answer.txt >> {WORKSPACE}/late-daemon\"])",
            child("daemon")
        );
        let script = format!(
            "setsid bash -c '{}' >/dev/null 2>&1 & nohup bash -c '{}' >/dev/null 2>&1 & \
             python3 -c '{daemon}' >/dev/null 2>&1; sleep 0.2",
            child("session"),
            child("nohup")
        );
        let flags = ["--shield", SHIELD, "--leftovers", "keep"];
        let (command, ledger) = rung.command(&fence, user, &home, &flags, &["bash", "-c", &script]);
        let less = rung.less(user);
        let said = world::Said::from(fence.world.output_with(&less, command));
        assert_eq!(said.code, Some(0), "{rung:?}: {said}");
        assert!(fence.world.read(&format!("{WORKSPACE}/done")).is_none(), "{rung:?}: nothing has outlived the command");
        let deadline = Instant::now() + Duration::from_secs(20);
        let sealed =
            || String::from_utf8_lossy(&fence.world.read(&ledger).unwrap_or_default()).contains("\"kind\":\"seal\"");
        while !sealed() {
            assert!(Instant::now() < deadline, "{rung:?}: no seal");
            std::thread::sleep(Duration::from_millis(50));
        }
        for name in ["session", "nohup", "daemon"] {
            let late = fence.world.read(&format!("{WORKSPACE}/late-{name}"));
            let late = String::from_utf8(late.unwrap_or_else(|| panic!("{rung:?}: {name} has not lived on"))).unwrap();
            assert!(late.contains("ermission denied") && !late.contains(TOKEN), "{rung:?}: {name}: {late}");
        }
        let ended = fence.ended(said, ledger);
        let attempts =
            ended.denials().iter().filter(|denial| denial.rule == "shield").map(|denial| denial.count).sum::<u64>();
        assert!(attempts >= 7, "{rung:?}: {ended}");
    }
}

#[test]
fn a_descriptor_that_refers_into_a_shield_is_refused() {
    let fence = Fence::new();
    as_root(
        &fence,
        &format!("mkdir -p /srv/ref; echo {TOKEN} > /srv/ref/a; mkdir /mnt/b; mount --bind /srv/ref /mnt/b"),
    );
    for input in ["/srv/ref/a", "/mnt/b/a"] {
        let line = format!("{} run --shield /srv/ref --ledger /var/log/x.jsonl -- cat < {input}", common::RINGFENCE);
        let said = fence.as_root(&line);
        assert_eq!((said.code, said.out.as_str()), (Some(125), ""), "{said}");
        assert!(said.err.contains("inherited descriptor 0 is of a file in a shield"), "{said}");
    }
    let said = fence.as_root(&format!("{} run --ledger /var/log/y.jsonl -- cat < /srv/ref/a", common::RINGFENCE));
    assert!(said.out.contains(TOKEN), "live vector: {said}");
    let above = format!(
        "exec 5< /srv/ref/a; {} run --shield /srv/ref --ledger /var/log/z.jsonl -- bash -c 'cat <&5'",
        common::RINGFENCE
    );
    let said = fence.as_root(&above);
    assert!(!said.out.contains(TOKEN) && said.code != Some(0), "{said}");
}

#[test]
fn a_directory_on_stdin_leads_past_no_shield_even_where_files_are_open() {
    let fence = Fence::new();
    as_root(&fence, &format!("mkdir -p /srv/ref; echo {TOKEN} > /srv/ref/a"));
    let (ringfence, open) = (common::RINGFENCE, "--network open --filesystem open");
    let route = "cat /proc/self/fd/0/ref/a /dev/fd/0/ref/a";
    let said = fence.as_root(&format!(
        "{ringfence} run {open} --shield /srv/ref --ledger /var/log/x.jsonl -- bash -c '{route}' < /srv"
    ));
    assert_eq!((said.code, said.out.as_str()), (Some(125), ""), "{said}");
    assert!(said.err.contains("inherited descriptor 0 is a directory"), "{said}");
    // A place alone leads there as well.
    let place = |run: &str| {
        let place = "import os, sys; os.dup2(os.open(\"/srv\", os.O_PATH), 0); os.execvp(sys.argv[1], sys.argv[1:])";
        fence.as_root(&format!("python3 -c '{place}' {ringfence} run {open} {run} -- {route}"))
    };
    let said = place("--shield /srv/ref --ledger /var/log/p.jsonl");
    assert_eq!((said.code, said.out.as_str()), (Some(125), ""), "{said}");
    let said = place("--ledger /var/log/q.jsonl");
    assert!(said.out.contains(TOKEN), "live vector: {said}");
    let said = fence.as_root(&format!("{ringfence} run {open} --ledger /var/log/y.jsonl -- bash -c '{route}' < /srv"));
    assert!(said.out.contains(TOKEN), "live vector: {said}");
    let said = fence.as_root(&format!(
        "{ringfence} up {open} --shield /srv/ref --ledger /var/log/s.jsonl; {ringfence} exec -- {route} < /srv; \
         {ringfence} exec -- echo works; {ringfence} down"
    ));
    assert!(!said.out.contains(TOKEN) && said.out.contains("works"), "{said}");
    assert!(said.err.contains("inherited descriptor 0 is a directory"), "{said}");
}

#[test]
fn access_tells_of_what_is_read_only_with_a_shield_as_without() {
    let user = own_user();
    let home = format!("/home/dev{user}");
    let script = "python3 -c 'import os; print([os.access(path, os.W_OK, effective_ids=own) \
                  for path in [\"/usr/data\", \"/usr/data/file\", \"/workspace\"] for own in [False, True]])'";
    for rung in RUNGS {
        let fence = prepared(user, &home);
        as_root(&fence, "mkdir /usr/data; touch /usr/data/file; chmod 777 /usr/data /usr/data/file");
        for flags in [&[][..], &["--shield", SHIELD]] {
            let ended = rung.run(&fence, user, &home, flags, &["bash", "-c", script]);
            let told = "[False, False, False, False, True, True]\n";
            assert_eq!(ended.said.out, told, "{rung:?} {flags:?}: {ended}");
            let of = |denial: &&&Denial| denial.object.path.iter().any(|path| path.starts_with("/usr/data"));
            assert_eq!(ended.denials().iter().filter(of).count(), 0, "{rung:?}: to ask is no denial: {ended}");
            as_root(&fence, &format!("rm {}", ended.ledger));
        }
        let mut command = fence.world.command("bash");
        command.args(["-c", script]);
        let free = world::Said::from(fence.world.output_with(&rung.less(user), command));
        assert_eq!(free.out, "[True, True, True, True, True, True]\n", "live vector: {free}");
    }
}

#[test]
fn with_all_else_open_a_shield_holds_alone() {
    let user = own_user();
    let home = format!("/home/dev{user}");
    for rung in RUNGS {
        let fence = prepared(user, &home);
        let script = format!(
            "cat {SHIELD}/answer.txt /mnt/alias/answer.txt /proc/self/root{SHIELD}/answer.txt; ls {SHIELD}; echo x > {home}/new && cat {home}/new"
        );
        let open = ["--network", "open", "--filesystem", "open"];
        let ended =
            rung.run(&fence, user, &home, &[&open[..], &["--shield", SHIELD]].concat(), &["bash", "-c", &script]);
        assert_eq!((ended.said.code, ended.said.out.as_str()), (Some(0), "x\n"), "{rung:?}: {ended}");
        let attempts: u64 = ended.denials().iter().filter(|d| d.rule == "shield").map(|d| d.count).sum();
        assert!(attempts >= 4, "{rung:?}: {ended}");
        as_root(&fence, &format!("rm {}", ended.ledger));
        let unshielded = rung.run(&fence, user, &home, &open, &["bash", "-c", &script]);
        assert!(unshielded.said.out.contains(TOKEN), "{rung:?}: live vector: {unshielded}");
    }
}

#[test]
fn the_way_to_a_shield_cannot_be_moved() {
    let fence = Fence::new();
    let place = "mkdir -p /data/way/ref; echo answer > /data/way/ref/a; chmod 777 /data /data/way";
    let script = "mv /data/way /data/gone && mkdir -p /data/way/ref && echo mine > /data/way/ref/a; touch /data/way/new && echo works";
    for (flags, expected) in [(&[][..], "mine\n"), (&["--shield", "/data/way/ref"], "answer\n")] {
        as_root(&fence, &format!("rm -rf /data; {place}"));
        let ended = fence.run(flags, script);
        assert!(ended.said.out.contains("works"), "{ended}");
        assert_eq!(as_root(&fence, "cat /data/way/ref/a"), expected, "{ended}");
    }
}

#[test]
fn a_session_keeps_its_shields_from_each_of_its_commands() {
    let fence = Fence::new();
    as_root(&fence, &format!("mkdir -p /srv/ref; echo {TOKEN} > /srv/ref/a"));
    let ringfence = common::RINGFENCE;
    let said = fence.as_root(&format!(
        "{ringfence} up --shield /srv/ref --ledger /var/log/s.jsonl; {ringfence} exec -- cat /srv/ref/a; \
         {ringfence} exec -- cat < /srv/ref/a; {ringfence} exec -- echo works; {ringfence} down"
    ));
    assert!(!said.out.contains(TOKEN) && said.out.contains("works"), "{said}");
    assert!(said.err.contains("inherited descriptor 0 is of a file in a shield"), "{said}");
    let ended = fence.ended(said, "/var/log/s.jsonl".into());
    let attempts: Vec<_> = ended.denials().into_iter().filter(|denial| denial.rule == "shield").collect();
    assert_eq!(attempts.len(), 1, "{ended}");
    assert_eq!(ended.seal().shields.as_ref().map(|shields| shields.state), Some(ShieldState::Intact));
}

#[test]
fn harbors_known_places_are_shielded_as_far_as_they_are_there() {
    let fence = Fence::new();
    as_root(
        &fence,
        &format!(
            "mkdir -p /solution /logs/verifier /logs/agent; echo {TOKEN} | tee /solution/solve.sh /logs/verifier/reward.txt"
        ),
    );
    let script = "cat /solution/solve.sh /logs/verifier/reward.txt; echo 1 > /logs/verifier/reward.txt; ls /logs; true";
    let ended = fence.run(&["--shield-harbor"], script);
    let shields: Vec<&str> = ended.start().shields.iter().map(|shield| shield.path.as_str()).collect();
    assert_eq!(shields, ["/logs/verifier", "/solution"], "{ended}");
    assert!(!ended.said.out.contains(TOKEN) && ended.said.out.contains("agent"), "{ended}");
    let open = fence.run(&[], script);
    assert!(open.said.out.contains(TOKEN), "live vector: {open}");
}

#[test]
fn what_is_not_shielded_is_read_as_before() {
    let user = own_user();
    let home = format!("/home/dev{user}");
    for rung in RUNGS {
        let fence = prepared(user, &home);
        let script = "ls /usr/bin > /dev/null && cat /etc/passwd > /dev/null && cd /workspace && mkdir a && echo x > a/b && mv a/b c \
                      && cat c && ls -la && python3 -c 'import json, ssl; print(json.dumps(1))' && stat /srv && find /usr/share -maxdepth 1 > /dev/null \
                      && ls -l /proc/self/ /proc/self/fd > /dev/null && ls / /srv | grep -q kept \
                      && python3 -c 'import os; os.lstat(\"/proc/1/root\"); os.readlink(\"/proc/self/exe\")'";
        let ended = rung.run(&fence, user, &home, &["--shield", SHIELD], &["bash", "-c", script]);
        assert_eq!((ended.said.code, ended.said.err.as_str()), (Some(0), ""), "{rung:?}: {ended}");
        let denied: Vec<_> = ended.denials().into_iter().filter(|d| d.rule == "shield").cloned().collect();
        assert!(denied.is_empty(), "{rung:?}: {denied:?}");
    }
}

#[test]
fn the_plan_names_what_carries_a_shield_and_where_a_copy_may_be() {
    let fence = Fence::new();
    as_root(
        &fence,
        "mkdir -p /srv/repo/.git /srv/repo/ref; touch /srv/repo/ref/a; mkdir /mnt/other; mount --bind /srv/repo /mnt/other",
    );
    let said = fence.output(fence.ringfence(&["plan", "--shield", "/srv/repo/ref"]));
    assert_eq!(said.code, Some(0), "{said}");
    assert!(said.out.contains("shields: empty masks mounted over, attempts seen by the notifier"), "{said}");
    assert!(said.out.contains("whose objects in /srv/repo/.git may hold a copy of it"), "{said}");
    let missing = fence.output(fence.ringfence(&["plan", "--shield", "/srv/nothing"]));
    assert!(missing.code != Some(0) && format!("{missing}").contains("/srv/nothing"), "{missing}");
}
