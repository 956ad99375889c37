//! With `--shield-git` a repository shows the command what HEAD reaches and nothing else, by no route, while the command works
//! in it as in any other; what it commits is in the real one afterwards (issue 7).

mod common;
#[path = "shield_git/repository.rs"]
mod repository;
#[path = "rungs/rung.rs"]
mod rung;

use common::{Fence, RINGFENCE, as_root, own_user};
use repository::*;
use ringfence::ledger::record::ShieldState;
use rung::{Rung, WORKSPACE};

fn nothing_of_the_future(rung: Rung, more: &str, init: &str) {
    let user = own_user();
    let home = format!("/home/dev{user}");
    let (fence, future) = prepared(user, &home, more, init);
    let script = format!("python3 {HOSTILE} {WORKSPACE} {future}");
    // Live vector: without the flag the same routes lead there.
    let open = run(rung, &fence, user, &home, &[], &script);
    let got: Vec<&str> = open.said.out.lines().filter_map(|line| line.strip_suffix("=GOT")).collect();
    for route in
        ["log-all", "log-reflog", "show", "batch-all", "stash", "branch", "tag", "origin", "clone", "raw", "config"]
    {
        assert!(got.contains(&route), "{rung:?}: {route} leads nowhere without a shield: {open}");
    }
    for route in
        ["upload-pack", "bundle", "files", "proc-root", "proc-cwd", "alias", "alias-git", "alternates", "moved"]
    {
        assert!(got.contains(&route), "{rung:?}: {route} leads nowhere without a shield: {open}");
    }
    let ended = run(rung, &fence, user, &home, &["--shield-git"], &script);
    assert_eq!(ended.said.code, Some(0), "{rung:?}: {ended}");
    assert!(!ended.said.out.contains("GOT") && ended.said.out.lines().count() == 27, "{rung:?}: {ended}");
    let denied = ended.denials();
    let on_alias = denied.iter().filter(|d| d.object.path.as_deref().is_some_and(|p| p.starts_with("/mnt/alias/.git")));
    assert!(on_alias.clone().count() > 0 && on_alias.clone().all(|d| d.rule == "shield"), "{rung:?}: {ended}");
    let seal = ended.seal();
    assert_eq!(seal.shields.as_ref().map(|shields| shields.state), Some(ShieldState::Intact), "{ended}");
    let shielded = &ended.start().shields[0];
    assert_eq!((shielded.path.as_str(), shielded.digest.len()), (&*format!("{WORKSPACE}/.git"), 64));
    assert_eq!(shielded.other_names, ["/mnt/alias/.git"]);
    assert_eq!((seal.git.len(), seal.git[0].kept.as_deref()), (1, None), "{ended}");
    assert_eq!(git(&fence, "rev-parse future"), future);
    assert_eq!(git(&fence, "stash list").lines().count(), 1);
    assert_tidy(&fence);
}

#[test]
fn on_full_nothing_of_the_future_is_found_by_any_route() {
    nothing_of_the_future(Rung::Full, "git gc -q", "");
}

#[test]
fn on_rootless_nothing_of_the_future_is_found_by_any_route() {
    nothing_of_the_future(Rung::Rootless, "git gc -q", "");
}

#[test]
fn loose_objects_and_many_packs_are_filtered_too() {
    nothing_of_the_future(Rung::Full, "", "");
    let packs = "git repack -q; git commit -q --allow-empty -m more; git repack -q; git multi-pack-index write; git pack-refs --all";
    nothing_of_the_future(Rung::Full, packs, "--object-format=sha256");
}

#[test]
fn the_command_works_as_in_any_repository_and_the_outside_has_what_it_commits() {
    for rung in WITH_MOUNTS {
        let user = own_user();
        let home = format!("/home/dev{user}");
        let (fence, future) = prepared(user, &home, "git gc -q", "");
        let look = "git status --porcelain; git diff; git diff --cached; git log --oneline --decorate-refs=refs/heads; git describe; \
                    git show --stat HEAD~2; git blame -s deep/er/file";
        let before = run(rung, &fence, user, &home, &[], look);
        let same = run(rung, &fence, user, &home, &["--shield-git"], look);
        assert_eq!((before.said.code, before.said.out.lines().count() > 10), (Some(0), true), "live: {before}");
        assert_eq!(same.said.out, before.said.out, "{rung:?}: {same}");
        assert_eq!(same.said.err, "", "{rung:?}: {same}");
        let work = "set -e; git add -A; git commit -qm mine; echo mine=$(git rev-parse HEAD); echo stash >> numbers; git stash -q; \
                    git stash pop -q; git checkout -q numbers; git checkout -qb topic; echo new > new; git add new; git commit -qm topic; \
                    echo topic=$(git rev-parse HEAD); git tag done; git gc -q; git fsck --strict; echo later > later; git add later; \
                    git config core.hooksPath /tmp/evil; printf '#!/bin/sh\\ntouch /tmp/hooked\\n' > .git/hooks/post-checkout 2>/dev/null \
                    || { mkdir -p .git/hooks; printf '#!/bin/sh\\n' > .git/hooks/post-checkout; }";
        let config = as_root(
            &fence,
            &format!("sha256sum {WORKSPACE}/.git/config; ls {WORKSPACE}/.git/hooks {WORKSPACE}/.git/logs"),
        );
        let ended = run(rung, &fence, user, &home, &["--shield-git"], work);
        assert_eq!(ended.said.code, Some(0), "{rung:?}: {ended}");
        assert_eq!(git(&fence, "rev-parse main"), ended.value("mine"), "{rung:?}: {ended}");
        assert_eq!(git(&fence, "rev-parse HEAD topic done"), [ended.value("topic"); 3].join("\n"), "{rung:?}");
        assert_eq!(git(&fence, "symbolic-ref HEAD"), "refs/heads/topic", "{rung:?}");
        assert_eq!(git(&fence, "status --porcelain"), "A  later", "{rung:?}: {ended}");
        assert_eq!(git(&fence, "log --oneline topic").lines().count(), 5);
        assert_eq!(git(&fence, "rev-parse future"), future, "{rung:?}: the others are as they were");
        assert_eq!(git(&fence, "stash list").lines().count(), 1);
        let config_after = as_root(
            &fence,
            &format!("sha256sum {WORKSPACE}/.git/config; ls {WORKSPACE}/.git/hooks {WORKSPACE}/.git/logs"),
        );
        assert_eq!(config_after, config, "{rung:?}: nothing else is carried back");
        let seal = ended.seal();
        assert_eq!((seal.git[0].left.as_slice(), seal.git[0].carried.len()), (&[][..], 4), "{rung:?}: {ended}");
        assert_eq!(seal.shields.as_ref().map(|shields| shields.state), Some(ShieldState::Intact));
        let owner = as_root(&fence, &format!("find {WORKSPACE}/.git ! -user {user} | head"));
        assert_eq!(owner, "", "{rung:?}: what was carried back belongs to whom the repository does");
        assert_tidy(&fence);
    }
}

#[test]
fn where_it_cannot_be_done_it_is_refused_by_name() {
    let user = own_user();
    let home = format!("/home/dev{user}");
    let (fence, _) = prepared(user, &home, "git gc -q", "");
    for rung in [Rung::Container, Rung::Bare] {
        let ended = run(rung, &fence, user, &home, &["--shield-git"], "touch /dev/shm/started");
        assert_eq!(ended.said.code, Some(125), "{rung:?}: {ended}");
        assert!(ended.said.err.contains("a filtered git directory takes a mount"), "{rung:?}: {ended}");
    }
    as_root(
        &fence,
        &format!(
            "mkdir -p /srv/none /srv/link /srv/half; ln -s {WORKSPACE}/.git /srv/link/.git; git init -q --ref-format=reftable /srv/table || true; \
             git -c safe.directory='*' -C {WORKSPACE} worktree add -q /srv/linked HEAD; git init -q /srv/split; cd /srv/split; touch a; \
             git add a; git update-index --split-index; git init -q /srv/broken; cd /srv/broken; touch a; git add a; \
             git -c user.name=a -c user.email=a@a.test commit -qm a; rm -r .git/objects/[0-9a-f][0-9a-f]"
        ),
    );
    let refused = |flags: &[&str], what: &str| fence.refuses(flags, what);
    refused(&["--shield-git", "--workspace", "/srv/none"], "it lies in no work tree of git");
    refused(&["--shield-git=/srv/none"], "it lies in no work tree of git");
    refused(&["--shield-git=/srv/missing"], "it does not exist");
    refused(&["--shield-git=relative"], "relative");
    refused(&["--shield-git=/srv/link"], "it is a symbolic link");
    refused(&["--shield-git=/srv/linked"], "it is a file that leads to a repository elsewhere");
    refused(&["--shield-git=/srv/split"], "it is split in two");
    refused(&["--shield-git=/srv/broken"], "is named and not there");
    refused(
        &["--workspace", WORKSPACE, "--shield-git", "--shield", &format!("{WORKSPACE}/.git")],
        "exclude each other",
    );
    refused(&["--policy", "non-root", "--workspace", WORKSPACE, "--shield-git"], "it needs privilege locked");
    assert_eq!(
        as_root(&fence, "find / -xdev -name 'ringfence-*' -path '*/.git/*'"),
        "",
        "nothing is left of a refused run"
    );
}

#[test]
fn without_a_repository_there_is_nothing_to_filter() {
    let ended = Fence::new().run(&["--shield-git"], "true");
    assert_eq!(ended.said.code, Some(125), "{ended}");
    assert!(ended.said.err.contains("there is no repository in the workspace"), "{ended}");
}

#[test]
fn borrowed_objects_and_submodules_are_filtered_with_it() {
    let user = own_user();
    let home = format!("/home/dev{user}");
    let fence = Fence::new();
    rung::prepare(&fence, user, &home);
    fence.world.write(HOSTILE, include_bytes!("shield_git/hostile.py"), 0o644);
    let script = format!(
        "set -e; export HOME=/tmp; git config --global user.name a; git config --global user.email a@a.test; git config --global protocol.file.allow always; \
         git config --global safe.directory '*'; git init -q -b main /srv/library; cd /srv/library; echo 1 > a; git add a; git commit -qm one; \
         git clone -q --bare /srv/library /srv/pool; git clone -q --shared /srv/pool /srv/w; echo {TOKEN} > a; git commit -qam '{TOKEN}'; \
         git push -q /srv/pool main; rm -rf {WORKSPACE}/* ; cd /srv/w; git submodule --quiet add /srv/library lib; cd lib; git fetch -q; \
         git checkout -q HEAD~1; cd ..; git add -A; git commit -qm sub; cp -a /srv/w/. {WORKSPACE}; rm -rf /srv/w; chown -R {user}:{user} {WORKSPACE}"
    );
    as_root(&fence, &script);
    let future = as_root(&fence, "git -c safe.directory='*' -C /srv/pool rev-parse main").trim().to_owned();
    let look = format!(
        "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'; git status --porcelain; git log --oneline | wc -l; \
         git -C lib log --oneline | wc -l; git submodule status | cut -d ' ' -f 3; git show {future}; git -C lib show {future}; \
         git --git-dir /srv/pool show {future}; true"
    );
    as_root(&fence, "rm -rf /srv/library");
    let open = run(Rung::Full, &fence, user, &home, &[], &look);
    assert_eq!(open.said.out.matches(TOKEN).count(), 6, "live vector: {open}");
    let ended = run(Rung::Full, &fence, user, &home, &["--shield-git"], &look);
    assert_eq!(ended.said.out.lines().take(3).collect::<Vec<_>>(), ["2", "1", "lib"], "{ended}");
    assert!(!ended.said.out.contains(TOKEN), "{ended}");
    assert!(ended.start().shields[0].other_names.contains(&"/srv/pool/objects".to_owned()), "{ended}");
    assert!(ended.denials().iter().any(|denial| denial.rule == "shield"), "{ended}");
    let work = "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'; cd lib; echo mine > mine; git checkout -qb own; \
                git add mine; git -c user.name=a -c user.email=a@a.test commit -qm mine && cd .. && git add lib && \
                git -c user.name=a -c user.email=a@a.test commit -qm both; git rev-parse HEAD HEAD:lib";
    let ended = run(Rung::Full, &fence, user, &home, &["--shield-git"], work);
    assert_eq!(git(&fence, "rev-parse HEAD HEAD:lib"), ended.said.out.trim_end(), "{ended}");
    assert_eq!(git(&fence, "-C lib rev-parse own"), git(&fence, "rev-parse HEAD:lib"), "{ended}");
}

#[test]
fn what_a_killed_run_has_left_is_carried_back_by_the_next() {
    for rung in WITH_MOUNTS {
        let user = own_user();
        let home = format!("/home/dev{user}");
        let (fence, _) = prepared(user, &home, "git gc -q", "");
        let script =
            "git add -A; git commit -qm mine; git rev-parse HEAD > done; until test -e end; do sleep 0.1; done";
        let (command, _) = rung.command(&fence, user, &home, &["--shield-git"], &["bash", "-c", script]);
        let mut child = fence.world.spawn_with(&rung.less(user), command).unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while fence.world.read(&format!("{WORKSPACE}/done")).is_none_or(|text| text.len() < 40) {
            assert!(std::time::Instant::now() < deadline, "{rung:?}: it has not got so far");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), nix::sys::signal::Signal::SIGKILL)
            .unwrap();
        child.wait().unwrap();
        let mine = as_root(&fence, &format!("cat {WORKSPACE}/done")).trim().to_owned();
        assert_ne!(git(&fence, "rev-parse main"), mine, "{rung:?}: live: nobody has carried it back");
        as_root(&fence, &format!("touch {WORKSPACE}/end; sleep 1"));
        let next = run(rung, &fence, user, &home, &["--shield-git"], "git rev-parse HEAD");
        assert_eq!(next.said.code, Some(0), "{rung:?}: {next}");
        assert_eq!(next.said.out.trim(), mine, "{rung:?}: {next}");
        assert_eq!(git(&fence, "rev-parse main"), mine, "{rung:?}: {next}");
        assert_tidy(&fence);
    }
}

#[test]
fn root_owned_workspaces_are_worked_in_by_the_commands_user() {
    let fence = Fence::new();
    // Of the two file systems one takes an id mapping, of the other the owners are changed.
    fence.world.mount_memory("/data").expect("a file system whose mounts can be idmapped");
    as_root(&fence, &format!("mkdir -p {WORKSPACE}; {}", repository("git gc -q", "")));
    as_root(
        &fence,
        &format!(
            "mkdir -p /app /data/w; cp -a {WORKSPACE}/. /app; cp -a {WORKSPACE}/. /data/w; rm -rf {WORKSPACE}/.git"
        ),
    );
    let mut ways = Vec::new();
    for tree in ["/app", "/data/w"] {
        let script = format!("cd {tree}; git status --porcelain && git commit -qam mine && git rev-parse HEAD");
        let flags = ["--workspace", tree, "--shield-git", "--leftovers", "kill"];
        let ended = fence.run(&flags, &script);
        assert_eq!(ended.said.code, Some(0), "{tree}: {ended}");
        ways.push(ended.start().workspaces[tree].clone());
        let look = format!(
            "git -C {tree} rev-parse main; find {tree}/.git ! -user root; ls {tree}/.git | grep ringfence || true"
        );
        assert_eq!(as_root(&fence, &look).trim(), ended.said.out.lines().last().unwrap(), "{tree}: {ended}");
    }
    ways.sort();
    assert_eq!(ways, ["changed", "idmapped"]);
    // A session, in which several commands work in one copy.
    let said = fence.as_root(&format!(
        "cd /app; {RINGFENCE} up --shield-git --workspace /app --ledger /var/log/s.jsonl > /dev/null && \
         {RINGFENCE} exec -- git commit -q --allow-empty -m a && {RINGFENCE} exec -- git commit -q --allow-empty -m b; \
         {RINGFENCE} exec -- git log --all --oneline; {RINGFENCE} down"
    ));
    assert_eq!((said.code, said.out.lines().count()), (Some(0), 6), "{said}");
    assert!(!said.out.contains(TOKEN), "{said}");
    assert_eq!(as_root(&fence, "git -C /app log --oneline | wc -l").trim(), "6", "{said}");
}

#[test]
fn what_is_protected_on_a_dev_box_gives_way_to_what_covers_it() {
    let user = own_user();
    let home = format!("/home/dev{user}");
    let (fence, future) = prepared(user, &home, "git gc -q", "");
    let mut command = fence.world.command(RINGFENCE);
    let script =
        format!("git commit -qam mine && git rev-parse HEAD; git show {future}; echo x > .git/config; echo > .envrc");
    let ledger = format!("/var/log/rungs-{user}/protected.jsonl");
    command.current_dir(WORKSPACE).env("HOME", &home).args(["run", "--workspace", WORKSPACE, "--shield-git"]);
    command.args(["--leftovers", "kill", "--ledger", &ledger, "--", "bash", "-c", &script]);
    let config = as_root(&fence, &format!("sha256sum {WORKSPACE}/.git/config"));
    let said = world::Said::from(fence.world.output_with(&Rung::Rootless.less(user), command));
    let ended = fence.ended(said, ledger);
    assert_eq!(git(&fence, "rev-parse main"), ended.said.out.trim(), "{ended}");
    assert!(ended.said.err.contains("bad object") && ended.said.err.contains(".envrc: Read-only"), "{ended}");
    assert_eq!(as_root(&fence, &format!("sha256sum {WORKSPACE}/.git/config")), config, "{ended}");
    assert_tidy(&fence);
}
