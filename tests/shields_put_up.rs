//! A shield that cannot be put up is an error, and so is one that is another by then (issue 7).

mod common;
#[path = "rungs/rung.rs"]
mod rung;

use common::{Fence, as_root, own_user};
use rung::Rung;

/// What must not be read.
const TOKEN: &str = "CANARY-7f3a91c";

#[test]
fn a_shield_that_is_replaced_while_it_is_put_up_is_refused() {
    // What is found differs from what was looked at every other time.
    const RUNS: u32 = 24;
    let user = own_user();
    let home = format!("/home/dev{user}");
    let exchange = "import ctypes, os, time\nlibc = ctypes.CDLL(None)\n\
                    while not os.path.exists(\"/tmp/enough\"):\n  \
                    libc.renameat2(-100, b\"/srv/ref\", -100, b\"/srv/other\", 2)\n  time.sleep(0.004)";
    for rung in [Rung::Full, Rung::Container] {
        let fence = Fence::new();
        rung::prepare(&fence, user, &home);
        as_root(&fence, &format!("mkdir -p /srv/ref /srv/other; echo {TOKEN} | tee /srv/ref/a > /srv/other/a"));
        let mut swapper = fence.world.command("python3");
        swapper.args(["-c", exchange]);
        let mut swapper = fence.world.spawn_with(&world::Less::new(), swapper).expect("python3");
        // Of the runs that come to be, what is exchanged later has no mask: the seal tells of it.
        let refused = (0..RUNS).any(|_| {
            let ended = rung.run(&fence, user, &home, &["--shield", "/srv/ref"], &["true"]);
            as_root(&fence, &format!("rm -f {}", ended.ledger));
            let replaced = ended.said.err.contains("the shield there was replaced since it was looked at");
            assert!(!replaced || ended.said.code == Some(125), "{rung:?}: {ended}");
            replaced
        });
        as_root(&fence, "touch /tmp/enough");
        swapper.wait().expect("it ends");
        assert!(refused, "{rung:?}: none of {RUNS} runs was refused");
        let ended = rung.run(&fence, user, &home, &["--shield", "/srv/ref"], &["cat", "/srv/ref/a"]);
        assert_eq!(ended.said.code, Some(1), "{rung:?}: left alone it is put up: {ended}");
    }
}

#[test]
fn a_shield_that_cannot_be_put_up_is_an_error() {
    let fence = Fence::new();
    as_root(&fence, "mkdir -p /srv/ref /app/in; touch /srv/ref/a /app/in/b; ln -s /srv/ref /srv/link");
    fence.world.mount_memory("/srv/small").expect("a file system");
    as_root(&fence, "mkdir /srv/small/ref; echo x > /srv/small/ref/far");
    let refused = |flags: &[&str], what: &str| fence.refuses(flags, what);
    refused(&["--shield", "/srv/missing"], "/srv/missing: to be shielded, but it does not exist");
    refused(&["--shield", "/"], "takes / from every program");
    refused(&["--shield", "/usr"], "takes /usr from every program");
    refused(&["--shield", "/proc/sys"], "what is in /proc is the kernel's");
    refused(&["--shield", "/app"], "takes /app from the command");
    refused(&["--shield", "/srv", "--workspace", "/srv/ref"], "takes /srv/ref from the command");
    refused(&["--policy", "non-root", "--shield", "/srv/ref"], "a shield can't be held with privilege restricted");
    refused(&["--policy", "control", "--shield", "/srv/ref"], "a shield can't be held with privilege open");
    refused(&["--shield", "relative"], "relative");
    // A symbolic link of root's is followed, and what it leads to is shielded.
    let ended = fence.run(&["--shield", "/srv/link"], "cat /srv/ref/a /srv/link/a; true");
    assert_eq!((ended.said.code, ended.start().shields[0].path.as_str()), (Some(0), "/srv/ref"), "{ended}");
    // Within the workspace, where the rung has mounts.
    let ended = fence.run(
        &["--shield", "/app/in"],
        "cat /app/in/b; mv /app/in /app/out; touch /app/mine && cat /app/mine && echo works",
    );
    assert!(ended.said.out.contains("works") && ended.said.err.contains("ermission denied"), "{ended}");
    // A name of a file that cannot be found: another one covers the way to it.
    as_root(
        &fence,
        "mkdir /srv/small/hidden; ln /srv/small/ref/far /srv/small/hidden/name; mount -t tmpfs none /srv/small/hidden",
    );
    refused(&["--shield", "/srv/small/ref"], "/srv/small/ref/far has 2 names (hard links) and 1 of them were found");
}
