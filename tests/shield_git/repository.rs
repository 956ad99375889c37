//! The repository that is shielded, with a past and a future, and runs in it.
#![allow(dead_code, reason = "each test binary uses its own part")]

use crate::common::{Ended, Fence, as_root};
use crate::rung::{self, Rung, WORKSPACE};
use world::Said;

/// What lies ahead of HEAD.
pub const TOKEN: &str = "CANARY-7f3a91c";
/// What a remote's address holds.
pub const SECRET: &str = "hunter2-password";
pub const HOSTILE: &str = "/usr/local/lib/hostile.py";
/// The rungs that have mounts.
pub const WITH_MOUNTS: [Rung; 2] = [Rung::Full, Rung::Rootless];

/// A repository whose future is in a pack, on a branch, behind a tag, in the reflog, at a remote's branch and in a stash; with
/// something staged, and something changed.
pub fn repository(more: &str, init: &str) -> String {
    let secret = format!("https://me:{SECRET}@git.example.test/x.git");
    format!(
        "export HOME=/tmp GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'; cd {WORKSPACE}
         git init -q -b main {init} .; git config user.name dev; git config user.email dev@example.test
         for n in 1 2 3; do mkdir -p deep/er; seq $n 2000 > numbers; echo $n > deep/er/file; git add .; git commit -qm past-$n; done
         git tag -a v1.0 -m one HEAD~1
         git checkout -qb future; seq 4 2000 > numbers; echo {TOKEN} > fix.txt; git add .; git commit -qm '{TOKEN} the fix'; git tag v2.0
         git checkout -q main; git merge -q --ff-only future; git reset -q --hard HEAD~1
         git remote add origin {secret}; git update-ref refs/remotes/origin/main future
         echo '{TOKEN} stashed' >> numbers; git stash -q
         {more}
         echo changed >> deep/er/file; echo staged > staged; git add staged"
    )
}

pub fn prepared(user: u32, home: &str, more: &str, init: &str) -> (Fence, String) {
    let fence = Fence::new();
    rung::prepare(&fence, user, home);
    fence.world.write(HOSTILE, include_bytes!("hostile.py"), 0o644);
    let said = fence.as_user(user, &format!("set -e; {}", repository(more, init)));
    assert_eq!(said.code, Some(0), "{said}");
    as_root(&fence, &format!("mkdir -p /mnt/alias; mount --bind {WORKSPACE} /mnt/alias"));
    let future = git(&fence, "rev-parse future");
    (fence, future)
}

/// What git says of the real repository, outside.
pub fn git(fence: &Fence, arguments: &str) -> String {
    as_root(fence, &format!("git --no-optional-locks -c safe.directory='*' -C {WORKSPACE} {arguments}"))
        .trim_end()
        .to_owned()
}

pub fn run(rung: Rung, fence: &Fence, user: u32, home: &str, flags: &[&str], script: &str) -> Ended {
    as_root(fence, "rm -f /var/log/rungs*/*.jsonl; rm -rf /tmp/mirror /tmp/alt /tmp/b");
    rung.run(fence, user, home, flags, &["bash", "-c", script])
}

/// The real repository has nothing of the run's any more.
pub fn assert_tidy(fence: &Fence) {
    assert_eq!(
        as_root(fence, &format!("find {WORKSPACE}/.git -name '*ringfence*' -o -name '*.lock' -o -name 'tmp_*'")),
        ""
    );
    let said = fence.as_root(&format!("git -c safe.directory='*' -C {WORKSPACE} fsck --strict"));
    assert_eq!(said.code, Some(0), "{said}");
}

/// Runs a script on `full`; when it has made the file `ready`, `act` has its turn outside, and then the file `end` is there.
pub fn run_while(fence: &Fence, user: u32, home: &str, flags: &[&str], script: &str, act: impl FnOnce()) -> Ended {
    as_root(fence, &format!("rm -f /var/log/rungs*/*.jsonl {WORKSPACE}/ready {WORKSPACE}/end"));
    let script = format!("{script}\ntouch ready; until test -e end; do sleep 0.1; done; rm -f ready end");
    let (mut command, ledger) = Rung::Full.command(fence, user, home, flags, &["bash", "-c", &script]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = fence.world.spawn_with(&Rung::Full.less(user), command).expect("ringfence starts");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while fence.world.read(&format!("{WORKSPACE}/ready")).is_none() && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    act();
    as_root(fence, &format!("touch {WORKSPACE}/end"));
    let said = Said::from(child.wait_with_output().expect("ringfence ends"));
    fence.ended(said, ledger)
}
