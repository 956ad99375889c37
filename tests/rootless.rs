//! Rung `rootless`: an ordinary user on a dev box.

mod common;

use common::{Ended, Fence};
use std::os::unix::process::CommandExt;
use world::Said;

const UID: u32 = 1000;

/// A dev box: an ordinary user with a home, a project and no capability.
struct Dev {
    fence: Fence,
}

impl Dev {
    fn new() -> Dev {
        let fence = Fence::new();
        let mut passwd = fence.world.read("/etc/passwd").unwrap_or_default();
        passwd.extend_from_slice(b"dev:x:1000:1000::/home/dev:/bin/bash\n");
        fence.world.write("/etc/passwd", passwd, 0o644);
        common::as_root(&fence, "mkdir -p /home/dev/project && chown -R 1000:1000 /home/dev");
        Dev { fence }
    }

    fn run(&self, flags: &[&str], script: &str) -> Ended {
        let ledger = "/home/dev/.local/state/ringfence/x.jsonl";
        let mut command = self.fence.world.command("bash");
        command.uid(UID).gid(UID).env("HOME", "/home/dev").current_dir("/home/dev/project");
        command.args(["-c", "exec \"$@\"", "bash", common::RINGFENCE, "run"]).args(flags);
        command.args(["--", "bash", "-c", script]);
        let said = Said::from(self.fence.world.output(command));
        self.fence.ended(said, ledger.into())
    }
}

#[test]
fn try_it() {
    let dev = Dev::new();
    let ended = dev.run(
        &["--workspace", "/home/dev/project"],
        "id; cat /proc/self/uid_map; touch x; ls -la; env; exec 3<>/dev/tcp/11.22.33.44/443",
    );
    println!("{ended}");
    println!("{}", dev.fence.as_root("cat /home/dev/.local/state/ringfence/*").out);
    panic!();
}
