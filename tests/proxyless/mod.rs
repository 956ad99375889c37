//! Boxes for tools that ask no proxy: a rung's own user, who has no setting that names one.

#[path = "../rungs/rung.rs"]
pub mod rung;

use crate::common::{Ended, Fence, as_root, own_user};
use rung::Rung;

pub const TRANSPARENT: [&str; 1] = ["--transparent"];
/// Takes away every setting that names the proxy.
pub const UNSET: &str = "for name in $(env -0 | tr '\\n' ' ' | tr '\\0' '\\n' | grep -iE 'proxy|127\\.82\\.70' | cut -d= -f1); do unset $name; done\n";

/// A rung's own user and home.
pub struct Box {
    pub fence: Fence,
    pub user: u32,
    pub home: String,
}

impl Box {
    pub fn of(fence: Fence) -> Box {
        let (user, home) = (own_user(), "/home/dev".to_owned());
        rung::prepare(&fence, user, &home);
        Box { fence, user, home }
    }

    pub fn run(&self, rung: Rung, flags: &[&str], script: &str) -> Ended {
        // Each rung has one name for its ledger.
        as_root(&self.fence, "rm -f /var/log/rungs*/*.jsonl");
        rung.run(&self.fence, self.user, &self.home, flags, &["bash", "-c", script])
    }
}
