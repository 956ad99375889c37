//! What a hostile command leaves in its own git directory, or an earlier one has left in the real one, does not lead anything
//! that ringfence reads or writes elsewhere, nor stand for something else in the real repository afterwards (issue 7).

mod common;
#[path = "shield_git/repository.rs"]
mod repository;
#[path = "rungs/rung.rs"]
mod rung;

use common::{Ended, Fence, RINGFENCE, as_root, own_user};
use repository::*;
use rung::{Rung, WORKSPACE};

/// Where nobody but root may look or write.
const PRIVATE: &str = "/root/private";

/// A repository in a workspace of the user's, beside files of root's.
fn with_private() -> (Fence, u32, String) {
    let user = own_user();
    let home = format!("/home/dev{user}");
    let (fence, _) = prepared(user, &home, "git gc -q", "");
    as_root(&fence, &format!("install -d -m 0700 {PRIVATE} {PRIVATE}/refs; echo hidden-from-it > {PRIVATE}/file"));
    (fence, user, home)
}

fn as_owner(fence: &Fence, user: u32, script: &str) -> String {
    let script = format!(
        "set -e; export HOME=/tmp GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@a.test GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@a.test; \
         cd {WORKSPACE}; {script}"
    );
    let said = fence.as_user(user, &script);
    assert_eq!(said.code, Some(0), "{script}: {said}");
    said.out.trim_end().to_owned()
}

fn left(ended: &Ended) -> &[String] {
    &ended.seal().git[0].left
}

#[test]
fn what_was_kept_from_the_command_is_not_checked_out_by_it() {
    let user = own_user();
    let home = format!("/home/dev{user}");
    let rung = Rung::Full;
    {
        for (attack, left) in [
            ("echo $FUTURE > .git/refs/heads/main", "is named and not there"),
            ("echo $FUTURE > .git/refs/heads/mine; git symbolic-ref HEAD refs/heads/mine", "is named and not there"),
            ("git symbolic-ref HEAD refs/heads/future", "refs/heads/future was not given to the command"),
            ("git symbolic-ref HEAD refs/heads/alias", "refs/heads/alias was not given to the command"),
            ("echo 'ref: refs/heads/--output=x' > .git/HEAD", "was not given to the command"),
            ("echo $FUTURE > .git/HEAD", "is named and not there"),
            (
                "echo $(pwd)/.git/objects/../../../objects > .git/objects/info/alternates; echo ../../../objects >> .git/objects/info/alternates; \
                 echo $FUTURE > .git/refs/heads/main",
                "is named and not there",
            ),
            (
                "rm -rf .git/objects/pack; ln -s ../../../objects/pack .git/objects/pack; echo $FUTURE > .git/refs/heads/main",
                "",
            ),
            ("git update-index --add --cacheinfo 100644,$BLOB,stolen", "index: object"),
            (
                "git checkout -q -b future; git commit -qm other --allow-empty",
                "the real repository has another one of that name",
            ),
            (
                "mkdir -p .git/refs/heads/future; git rev-parse HEAD > .git/refs/heads/future/x",
                "the real repository has refs/heads/future",
            ),
            (
                "ln -s /etc/passwd .git/refs/heads/passwd; mkfifo .git/refs/heads/fifo; rm .git/index; mkfifo .git/index",
                "",
            ),
            ("rm -rf .git/* ; ln -s / .git/objects; ln -s /etc .git/refs", ""),
            (
                "o=$(git hash-object -w numbers); f=.git/objects/${o:0:2}/${o:2}; mkdir -p ${f%/*}; chmod u+w $f; \
                 t=$(printf '100644 blob %s\\t.git\\n' $o | git mktree); c=$(git commit-tree -m x $t -p HEAD); echo $c > .git/refs/heads/main",
                "it is no sound tree",
            ),
        ] {
            let (fence, future) =
                prepared(user, &home, "git gc -q; git symbolic-ref refs/heads/alias refs/heads/future", "");
            let blob = git(&fence, "rev-parse future:fix.txt");
            let (main, head) = (git(&fence, "rev-parse main"), git(&fence, "symbolic-ref HEAD"));
            let index = as_root(&fence, &format!("sha256sum {WORKSPACE}/.git/index"));
            let script = format!("FUTURE={future}; BLOB={blob}; {attack}; true");
            let ended = run(rung, &fence, user, &home, &["--shield-git"], &script);
            assert_eq!(ended.said.code, Some(0), "{rung:?} {attack}: {ended}");
            assert_eq!(git(&fence, "rev-parse main"), main, "{rung:?} {attack}: {ended}");
            assert_eq!(
                (git(&fence, "symbolic-ref HEAD"), git(&fence, "rev-parse future")),
                (head, future),
                "{attack}: {ended}"
            );
            assert_eq!(as_root(&fence, &format!("sha256sum {WORKSPACE}/.git/index")), index, "{attack}: {ended}");
            let end = &ended.seal().git[0];
            assert!(end.left.iter().any(|cause| cause.contains(left)), "{rung:?} {attack}: {end:?}");
            let kept = end.kept.as_deref().unwrap_or_else(|| panic!("{attack}: {ended}"));
            assert!(
                kept.starts_with(&format!("{WORKSPACE}/.git/ringfence-")) && ended.said.err.contains(kept),
                "{ended}"
            );
            as_root(&fence, &format!("test -d {kept}"));
            // It is looked at once.
            let next = run(rung, &fence, user, &home, &["--shield-git"], "git log --oneline | wc -l");
            assert_eq!((next.said.code, next.said.out.trim()), (Some(0), "3"), "{attack}: {next}");
        }
    }
}

#[test]
fn links_in_the_real_git_directory_show_the_command_nothing_that_is_not_its() {
    let (fence, user, home) = with_private();
    as_root(&fence, "echo to-be-read > /srv/open-hook");
    as_owner(
        &fence,
        user,
        &format!(
            "rm -f .git/description .git/info/exclude; mkdir -p .git/hooks; for f in description info/exclude hooks/pre-push; do \
             ln -s {PRIVATE}/file .git/$f; done; ln -s /srv/open-hook .git/hooks/open; ln -s ../config .git/hooks/config"
        ),
    );
    let look =
        "for f in description info/exclude hooks/pre-push hooks/open hooks/config; do cat .git/$f 2>&1 || true; done";
    assert!(!as_owner(&fence, user, look).contains("hidden-from-it"), "live: the user himself may not read it");
    let ended = run(Rung::Full, &fence, user, &home, &["--shield-git"], look);
    assert_eq!(ended.said.code, Some(0), "{ended}");
    assert!(!ended.said.out.contains("hidden-from-it"), "{ended}");
    assert!(ended.said.out.contains("to-be-read") && ended.said.out.contains("[core]"), "{ended}");
    assert_tidy(&fence);
}

#[test]
fn links_in_the_real_git_directory_have_nothing_written_elsewhere() {
    let (fence, user, home) = with_private();
    let listing = || as_root(&fence, &format!("find {PRIVATE} -printf '%p %U %m %s\\n' | sort"));
    let before = listing();
    // From the start on: refused.
    for way in ["refs", "refs/tags", "objects", "objects/pack", "HEAD", "index", "config", "packed-refs"] {
        as_owner(&fence, user, &format!("mv .git/{way} .git/real; ln -s {PRIVATE}/refs .git/{way}"));
        let ended = run(Rung::Full, &fence, user, &home, &["--shield-git"], "touch started");
        as_owner(&fence, user, &format!("rm .git/{way}; mv .git/real .git/{way}; test ! -e started"));
        assert_eq!(ended.said.code, Some(125), "{way}: {ended}");
        assert!(ended.said.err.contains("symbolic link") && ended.said.err.contains(way), "{way}: {ended}");
    }
    // While the command works.
    let work = "git tag evil; git commit -qam mine";
    for way in ["refs/tags", "objects/pack"] {
        let ended = run_while(&fence, user, &home, &["--shield-git"], work, || {
            as_owner(&fence, user, &format!("mv .git/{way} .git/real; ln -s {PRIVATE}/refs .git/{way}"));
        });
        as_owner(&fence, user, &format!("rm .git/{way}; mv .git/real .git/{way}"));
        as_root(&fence, &format!("rm -r {WORKSPACE}/.git/ringfence-*"));
        assert!(left(&ended).iter().any(|cause| cause.contains("symbolic link")), "{way}: {ended}");
        assert_eq!(listing(), before, "{way}: {ended}");
        as_owner(&fence, user, "git fsck --strict");
    }
    let ended = run(Rung::Full, &fence, user, &home, &["--shield-git"], work);
    assert_eq!((left(&ended), listing()), (&[][..], before), "without a link it is carried: {ended}");
    assert_eq!(git(&fence, "rev-parse evil~0"), git(&fence, "rev-parse main~1"), "{ended}");
    assert_tidy(&fence);
}

#[test]
fn objects_that_the_user_may_not_read_are_not_borrowed_for_him() {
    let (fence, user, home) = with_private();
    as_root(&fence, &format!("git init -q --bare {PRIVATE}/pool"));
    let borrow = format!("echo {PRIVATE}/pool/objects > .git/objects/info/alternates");
    as_owner(&fence, user, &borrow);
    let ended = run(Rung::Full, &fence, user, &home, &["--shield-git"], "git log");
    assert_eq!(ended.said.code, Some(125), "{ended}");
    assert!(ended.said.err.contains("where the command's user may not read"), "{ended}");
    as_root(&fence, "chmod 0711 /root /root/private");
    let ended = run(Rung::Full, &fence, user, &home, &["--shield-git"], "git log --oneline");
    assert_eq!(ended.said.code, Some(0), "{ended}");
}

#[test]
fn no_reference_is_carried_that_git_takes_for_another() {
    let (fence, user, home) = with_private();
    as_owner(&fence, user, "git symbolic-ref refs/remotes/origin/HEAD refs/remotes/origin/main");
    let names = ["main", "origin/main", "origin", "HEAD", "v2.0"];
    let named = || names.map(|name| git(&fence, &format!("rev-parse {name}^{{commit}}")));
    let before = named();
    let attack = "c=$(git commit-tree -m evil HEAD^{tree}); for r in tags/main tags/origin/main tags/origin tags/v2.0 tags/HEAD heads/origin \
                  heads/origin/main heads/HEAD heads/-f tags/--output=x tags/good; do echo $c refs/$r >> .git/packed-refs; done; echo c=$c";
    let ended = run(Rung::Full, &fence, user, &home, &["--shield-git"], attack);
    assert_eq!(named(), before, "{ended}");
    assert_eq!(git(&fence, "rev-parse good"), ended.value("c"), "{ended}");
    assert!(!git(&fence, "for-each-ref").contains("/-"), "{ended}");
    assert_eq!(left(&ended).len(), 10, "{ended}");
}

#[test]
fn what_was_done_outside_meanwhile_stays() {
    let (fence, user, home) = with_private();
    let mut outside = String::new();
    let ended =
        run_while(&fence, user, &home, &["--shield-git"], "git commit -qam mine; git checkout -qb topic", || {
            outside = as_owner(
                &fence,
                user,
                "git commit -q --allow-empty -m outside; git pack-refs --all; git rev-parse HEAD",
            );
        });
    assert_eq!(
        (git(&fence, "rev-parse main"), git(&fence, "rev-parse HEAD")),
        (outside.clone(), git(&fence, "rev-parse topic"))
    );
    assert_ne!(git(&fence, "rev-parse topic"), outside);
    assert!(left(&ended).iter().any(|cause| cause.starts_with("refs/heads/main:")), "{ended}");
    // Who has the lock is not run over either.
    let ended = run_while(&fence, user, &home, &["--shield-git"], "git commit -qam more --allow-empty", || {
        outside = as_owner(&fence, user, "touch .git/refs/heads/topic.lock; git rev-parse topic");
    });
    assert_eq!(git(&fence, "rev-parse topic"), outside, "{ended}");
    assert!(left(&ended).iter().any(|cause| cause.contains("topic.lock")), "{ended}");
    as_owner(&fence, user, "rm .git/refs/heads/topic.lock; git fsck --strict");
}

#[test]
fn what_was_cleared_away_outside_is_carried_with_what_needs_it() {
    let (fence, user, home) = with_private();
    let work = "git checkout -qb topic; git commit -q --allow-empty -m mine; echo tip=$(git rev-parse HEAD)";
    let gone = git(&fence, "rev-parse main~1:numbers");
    let ended = run_while(&fence, user, &home, &["--shield-git"], work, || {
        let clear = "git checkout -q --orphan other; git rm -rfq --cached .; git commit -q --allow-empty -m other; git branch -D -q main future; \
                     git tag -d v1.0 v2.0 > /dev/null; git update-ref -d refs/remotes/origin/main; git stash clear; rm -f .git/ORIG_HEAD; \
                     git reflog expire --expire=all --all; rm -rf .git/logs; git gc -q --prune=now";
        as_owner(&fence, user, clear);
        assert_ne!(
            fence.as_root(&format!("git -c safe.directory='*' -C {WORKSPACE} cat-file -e {gone}")).code,
            Some(0),
            "live: it is gone"
        );
    });
    assert_eq!(git(&fence, "rev-parse topic"), ended.value("tip"), "{ended}");
    let said = fence.as_root(&format!("git -c safe.directory='*' -C {WORKSPACE} fsck --strict"));
    assert_eq!(said.code, Some(0), "{said} {ended}");
}

#[test]
fn a_directory_that_goes_down_without_end_is_removed() {
    let (fence, user, home) = with_private();
    let dig = "git commit -qm mine --allow-empty; python3 -c 'import os; os.chdir(\".git\")\nfor n in range(30000): os.mkdir(\"d\"); os.chdir(\"d\")'; \
               mkdir .git/closed; touch .git/closed/x; chmod 0 .git/closed; echo mine=$(git rev-parse HEAD)";
    for rung in WITH_MOUNTS {
        let ended = run(rung, &fence, user, &home, &["--shield-git"], dig);
        assert_eq!(ended.said.code, Some(0), "{ended}");
        assert_eq!((left(&ended), git(&fence, "rev-parse main")), (&[][..], ended.value("mine").to_owned()), "{ended}");
        assert_tidy(&fence);
    }
}

#[test]
fn what_would_take_the_supervisor_all_its_memory_or_days_is_left() {
    let (fence, user, home) = with_private();
    let (main, index) = (git(&fence, "rev-parse main"), as_root(&fence, &format!("sha256sum {WORKSPACE}/.git/index")));
    fence.world.write("/usr/local/lib/bombs.py", include_bytes!("shield_git/bombs.py"), 0o644);
    for (bomb, cause) in
        [("paths", "it is no index"), ("indexes", "its indexes are longer"), ("sparse", "cannot be inflated")]
    {
        let script = format!("python3 /usr/local/lib/bombs.py {bomb}");
        let ended = run(Rung::Full, &fence, user, &home, &["--shield-git"], &script);
        assert_eq!(ended.said.code, Some(0), "{bomb}: {ended}");
        assert!(left(&ended).iter().any(|left| left.contains(cause)), "{bomb}: {ended}");
        assert_eq!(git(&fence, "rev-parse main"), main, "{bomb}: {ended}");
        assert_eq!(as_root(&fence, &format!("sha256sum {WORKSPACE}/.git/index")), index, "{bomb}: {ended}");
    }
}

#[test]
fn all_that_rewrites_history_is_carried() {
    for rung in WITH_MOUNTS {
        let user = own_user();
        let home = format!("/home/dev{user}");
        let (fence, future) = prepared(user, &home, "", "");
        let work = "set -e; git add -A; git commit -qm mine; git commit -q --amend -m better; git tag -a -m t annotated; \
                    git checkout -qb side HEAD~2; echo side > side; git add side; git commit -qm side; git rebase -q main; \
                    git checkout -q main; git merge -q --no-ff -m merge side; echo s >> numbers; git stash -q; git stash pop -q; \
                    git cherry-pick --allow-empty HEAD~1 -m 1 > /dev/null 2>&1 || git cherry-pick --abort || true; \
                    git repack -adq; git gc -q --prune=now; git pack-refs --all; git multi-pack-index write; \
                    git branch -q -m side renamed; git status --porcelain; git fsck --strict";
        let ended = run(
            rung,
            &fence,
            user,
            &home,
            &["--shield-git"],
            &format!("{work}; for r in HEAD main renamed annotated; do echo $r=$(git rev-parse $r); done"),
        );
        assert_eq!(ended.said.code, Some(0), "{rung:?}: {ended}");
        for name in ["HEAD", "main", "renamed", "annotated"] {
            assert_eq!(git(&fence, &format!("rev-parse {name}")), ended.value(name), "{rung:?} {name}: {ended}");
        }
        assert_eq!(left(&ended), &[] as &[String], "{rung:?}: {ended}");
        assert_eq!(git(&fence, "rev-parse future"), future);
        assert_eq!(git(&fence, "stash list").lines().count(), 1);
        assert_tidy(&fence);
    }
}

#[test]
fn the_report_says_what_was_carried_back() {
    let (fence, user, home) = with_private();
    let report = |ended: &Ended| as_root(&fence, &format!("{RINGFENCE} report {}", ended.ledger));
    let ended = run(Rung::Full, &fence, user, &home, &["--shield-git"], "git commit -qam mine; git tag done");
    let line = format!("git: {WORKSPACE}/.git: 2 carried back\n");
    assert!(report(&ended).contains(&line), "{}", report(&ended));
    let ended = run(
        Rung::Full,
        &fence,
        user,
        &home,
        &["--shield-git"],
        "git update-ref refs/heads/HEAD HEAD; git commit -q --allow-empty -m x",
    );
    let line = format!("git: {WORKSPACE}/.git: 1 carried back, 1 not: refs/heads/HEAD: ");
    assert!(report(&ended).contains(&line) && report(&ended).contains("/store\n"), "{}", report(&ended));
    let ended = run(Rung::Full, &fence, user, &home, &[], "true");
    assert!(!report(&ended).contains("git: "), "{}", report(&ended));
}
