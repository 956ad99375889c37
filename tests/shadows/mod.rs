//! A session of acts under a level and under a shadow of it, held against each other.
#![allow(dead_code, reason = "each test binary uses its own part")]

use crate::attempts;
use crate::common::{Ended, Fence, as_root};
use ringfence::ledger::record::{Body, Denial};
use serde_json::json;
use std::collections::BTreeMap;
use std::process::Child;

/// Where the acts lie in the box.
pub const ACTS: &str = "/usr/local/bin/shadow-acts";

/// What they meet. It is made anew before each run.
pub const FURNISH: &str = "
    rm -rf /usr/fix /etc/fix /usr/closed /tmp/* /app/* /new-top /run/new /root/new /var/tmp/new /dev/shm/shadow-act \
        /mnt/shadow-* /media/shadow-* /usr/games/shadow-*
    mkdir -p /usr/fix/open /usr/fix/empty /etc/fix /usr/closed/sub /tmp/work /tmp/roots-directory /app
    for name in file victim from out one two open/file; do echo x > /usr/fix/$name; done
    chmod 0666 /usr/fix/open/file; chmod 0777 /usr/fix/open /tmp/work; ln -s file /usr/fix/link
    echo x > /usr/closed/file; chmod 0700 /usr/closed
    for name in roots roots2 roots3 roots4 roots5 roots6; do echo x > /tmp/$name; done
    echo x > /app/there; echo x > /app/old
    cp /usr/bin/true /usr/local/bin/set-id; chmod 4755 /usr/local/bin/set-id
    cp /usr/bin/true /usr/local/bin/set-gid; chmod 2755 /usr/local/bin/set-gid
    cp /usr/bin/true /usr/local/bin/with-capability
    python3 -c '
import os, struct, socket
os.setxattr(\"/usr/local/bin/with-capability\", \"security.capability\", struct.pack(\"<5I\", 0x02000001, 1 << 13, 0, 0, 0))
path = \"/run/roots.sock\"
os.path.exists(path) and os.unlink(path)
socket.socket(socket.AF_UNIX).bind(path)'";

/// A box with the acts, and a process in it that is none of any run's.
pub struct Stage {
    pub fence: Fence,
    outside: Child,
}

impl Stage {
    pub fn new() -> Stage {
        let fence = Fence::new();
        fence.world.write(ACTS, attempts::compile("tests/shadow/acts.c"), 0o755);
        let mut sleep = fence.world.command("sleep");
        sleep.arg("600");
        let outside = fence.world.spawn(sleep).expect("a process outside");
        Stage { fence, outside }
    }

    pub fn run(&self, flags: &[&str]) -> Ended {
        as_root(&self.fence, FURNISH);
        let ended = self.fence.run(flags, &format!("exec {ACTS} {}", self.outside.id()));
        assert_eq!(ended.said.code, Some(0), "{ended}");
        ended
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // It may have ended with its world.
        let _gone = self.outside.kill().and_then(|()| self.outside.wait());
    }
}

/// What is the same of an act's refusal whoever records it.
fn essence(denial: &Denial) -> String {
    let Denial { axis, operation, object, errno, http_status, rule, reason, mechanism, .. } = denial;
    json!([axis, operation, object, errno, http_status, rule, reason, mechanism.name()]).to_string()
}

/// Refusals, and how often each was made.
pub fn multiset<'d>(denials: impl IntoIterator<Item = &'d Denial>) -> BTreeMap<String, u64> {
    let mut counted = BTreeMap::new();
    for denial in denials {
        *counted.entry(essence(denial)).or_default() += denial.count;
    }
    counted
}

pub fn would_deny(ended: &Ended) -> Vec<&Denial> {
    let records = ended.records.iter();
    records.filter_map(|record| if let Body::WouldDeny(denial) = &record.body { Some(denial) } else { None }).collect()
}

/// The answers to the acts by their names.
pub fn answers(ended: &Ended) -> BTreeMap<&str, &str> {
    ended.said.out.lines().map(|line| line.split_once(' ').unwrap_or_else(|| panic!("{line:?}: {ended}"))).collect()
}

fn difference<'m>(one: &'m BTreeMap<String, u64>, other: &BTreeMap<String, u64>) -> Vec<(&'m String, u64)> {
    let more = |(text, count): (&'m String, &u64)| {
        let left = count.saturating_sub(other.get(text).copied().unwrap_or_default());
        (left > 0).then_some((text, left))
    };
    one.iter().filter_map(more).collect()
}

/// Runs the session under a level and under its shadow, and holds one against the other.
pub fn held_against(stage: &Stage, level: &str) -> (Ended, Ended) {
    let enforced = stage.run(&["--policy", level]);
    let shadowed = stage.run(&["--policy", "control", "--shadow", level]);
    let (refused, told) = (multiset(enforced.denials()), multiset(would_deny(&shadowed)));
    let (missing, made_up) = (difference(&refused, &told), difference(&told, &refused));
    assert!(missing.is_empty() && made_up.is_empty(), "not told: {missing:#?}\nmade up: {made_up:#?}\n{shadowed}");
    assert!(shadowed.denials().is_empty(), "{shadowed}");
    assert_eq!(shadowed.seal().denials.values().sum::<u64>(), 0);
    assert_eq!(shadowed.seal().would_deny, enforced.seal().denials, "{shadowed}");
    assert!(shadowed.seal().complete, "{shadowed}");
    (enforced, shadowed)
}
