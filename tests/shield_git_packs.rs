//! With `--shield-git` the command's packs have exactly what HEAD reaches: where a pack has nothing else it is copied as it is,
//! where it has one object more it is not (issue 7).

mod common;
#[path = "rungs/rung.rs"]
mod rung;

use common::{Ended, Fence, as_root, own_user};
use rung::{Rung, WORKSPACE};

/// What is in objects that HEAD does not reach.
const TOKEN: &str = "CANARY-51c0e7d";
const HISTORY: &str = "/usr/local/lib/history.py";
/// The names of all objects that are there.
const ALL: &str = "git cat-file --batch-all-objects --batch-check='%(objectname)'";

struct Repository {
    fence: Fence,
    user: u32,
    home: String,
}

impl Repository {
    /// Made by a script of its owner's in the workspace.
    fn new(script: &str) -> Repository {
        let (fence, user) = (Fence::new(), own_user());
        let home = format!("/home/dev{user}");
        rung::prepare(&fence, user, &home);
        fence.world.write(HISTORY, include_bytes!("shield_git/history.py"), 0o644);
        let repository = Repository { fence, user, home };
        repository.outside(&format!(
            "git init -q -b main .; git config user.name a; git config user.email a@a.test; {script}"
        ));
        repository
    }

    /// What a script of its owner's says, without a shield.
    fn outside(&self, script: &str) -> String {
        let said =
            self.fence.as_user(self.user, &format!("set -e -o pipefail; export HOME=/tmp; cd {WORKSPACE}; {script}"));
        assert_eq!(said.code, Some(0), "{script}: {said}");
        said.out.trim_end().to_owned()
    }

    /// What a command says that sees the shielded one.
    fn inside(&self, rung: Rung, script: &str) -> Ended {
        as_root(&self.fence, "rm -f /var/log/rungs*/*.jsonl");
        let ended = rung.run(&self.fence, self.user, &self.home, &["--shield-git"], &["bash", "-c", script]);
        assert_eq!(ended.said.code, Some(0), "{rung:?} {script}: {ended}");
        ended
    }
}

#[test]
fn the_command_has_exactly_what_head_reaches() {
    let history = format!(
        "python3 {HISTORY} 2000 {TOKEN} | git fast-import --quiet; git branch -q -D side; git tag -a -m one v1.0 main~70"
    );
    let reached = "(git rev-list --objects HEAD; git rev-parse v1.0) | cut -c 1-40 | sort -u > /tmp/reached; wc -l < /tmp/reached; \
                   sha256sum < /tmp/reached";
    for (packing, rung) in [
        ("git repack -q -a -d -f", Rung::Full),
        // Two packs that share objects, and some of each in neither; the first has nothing that is to be left out.
        (
            "git rev-list --objects main~900 | cut -c 1-40 | git pack-objects -q .git/objects/pack/pack; \
             git rev-list --objects --all ^main~950 | cut -c 1-40 | git pack-objects -q .git/objects/pack/pack; \
             for n in 1 2 3; do echo $n > loose-$n; git add .; git commit -q -m $n; done",
            Rung::Rootless,
        ),
    ] {
        let repository = Repository::new(&format!("{history}; git reset -q --hard; {packing}"));
        assert_ne!(
            repository.outside(&format!("{ALL} | git cat-file --batch | grep -c -a {TOKEN} || true")),
            "0",
            "live"
        );
        let expected = repository.outside(reached);
        assert!(expected.split('\n').next().unwrap().trim().parse::<u32>().unwrap() > 8000, "{expected}");
        let look = format!(
            "set -e; {ALL} > all; wc -l < all; sha256sum < all; rm all; git fsck --strict --no-dangling --no-progress; \
             {ALL} | git cat-file --batch | grep -c -a {TOKEN} || true; git verify-pack .git/objects/pack/*.idx && echo verified"
        );
        let ended = repository.inside(rung, &look);
        assert_eq!(ended.said.out.trim_end(), format!("{expected}\n0\nverified"), "{packing}: {ended}");
    }
}

#[test]
fn a_pack_that_is_all_reached_is_copied_and_the_copy_is_the_commands_own() {
    let history = format!(
        "python3 {HISTORY} 300 {TOKEN} | git fast-import --quiet; git branch -q -D side future; git reset -q --hard"
    );
    let sums = "cd .git/objects/pack; sha256sum *.pack | cut -c 1-64 | sort";
    for rung in [Rung::Full, Rung::Rootless] {
        let repository = Repository::new(&format!(
            "{history}; git repack -q -a -d -f; echo more > more; git add more; git commit -q -m more; git repack -q"
        ));
        let packs = repository.outside(sums);
        assert_eq!(packs.lines().count(), 2, "{packs}");
        let ended = repository.inside(rung, &format!("{sums}; git fsck --strict --no-progress"));
        assert_eq!(ended.said.out.trim_end(), packs, "{rung:?}: {ended}");
        // The command does with its copy what it likes.
        let spoil = "cd .git/objects/pack && chmod u+w * && for f in *; do printf spoilt | dd of=$f bs=1 seek=40 conv=notrunc \
                     status=none; printf more >> $f; done; ! git fsck > /dev/null 2>&1";
        repository.inside(rung, spoil);
        assert_eq!(repository.outside(sums), packs, "{rung:?}");
        repository.outside("git fsck --strict --no-progress");
        // One object more in one of the packs, and that one is made anew.
        let more = repository.outside(&format!(
            "old=$(ls -S .git/objects/pack/*.pack | head -1); git rev-list --objects HEAD~1 | cut -c 1-40 > /tmp/names; \
             echo {TOKEN} | git hash-object -w --stdin | tee -a /tmp/names; \
             git pack-objects -q .git/objects/pack/pack < /tmp/names > /dev/null; rm -f ${{old%.pack}}.*; git prune-packed"
        ));
        let now = repository.outside(sums);
        assert_eq!(repository.outside(&format!("git cat-file -p {more}")), TOKEN, "{rung:?}: live");
        let look = format!(
            "{sums}; git cat-file -e {more} 2>/dev/null && echo there; git fsck --strict --no-progress; {ALL} | git cat-file --batch | grep -c -a {TOKEN}; true"
        );
        let ended = repository.inside(rung, &look);
        let (kept, rest) = ended.said.out.trim_end().rsplit_once('\n').unwrap();
        let is_same = |sum: &&str| now.contains(*sum);
        assert_eq!(
            (kept.lines().filter(is_same).count(), kept.lines().count(), rest),
            (1, 2, "0"),
            "{rung:?}: {now} {ended}"
        );
    }
}
