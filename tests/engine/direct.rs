//! Where no container can be started: the capabilities and the seccomp profile of a container, applied directly to ringfence
//! in the box of a closed world.

use super::cell::{self, Brief, Reached, session};
use super::images::{self, PROTECTED, SESSION};
use crate::common::{Fence, own_user};
use world::Less;
use world::less::container::CAPABILITIES;

/// CAP_NET_ADMIN and CAP_SYS_ADMIN (capabilities(7)).
const ADDED: [u32; 2] = [12, 21];

/// The rungs, and what a container leaves to ringfence where it takes them.
fn less(rung: &str) -> Less {
    match rung {
        "full" => Less::new().capabilities(&[&CAPABILITIES[..], &ADDED].concat()),
        "container" => Less::new().container(),
        "bare" => Less::new().container_user(own_user(), own_user()),
        other => panic!("no container takes the rung {other}"),
    }
}

/// The whole session under what a container leaves for this rung, judged as it is in a container.
pub fn protects(rung: &str) {
    let fence = Fence::new().less(less(rung));
    fence.world.write(SESSION, images::session(), 0o755);
    fence.world.write(PROTECTED, "as the image has it\n", 0o666);
    let prepared = fence.as_root("chmod 0777 /usr/local/share/protected && chmod 1777 /app");
    assert_eq!(prepared.code, Some(0), "{prepared}");
    let before = Reached::of(&fence, None);
    let (command, ledger) = fence.command(&["--leftovers", "kill"], &session());
    let ended = fence.ended(fence.output(command), ledger);
    let name = format!("{rung}, applied directly");
    cell::assert_protected(&name, rung, &ended, &fence);
    let shown = Brief(&ended);
    assert!(fence.world.read("/app/started").is_some(), "{name}: {shown}");
    let written = ended.denials().iter().any(|one| one.object.path.as_deref() == Some(PROTECTED));
    assert!(written, "{name}: {shown}");
    let after = Reached::of(&fence, None);
    assert_eq!((after.origin, after.others), (before.origin + 1, before.others), "{name}: {shown}");
    assert_eq!(fence.world.read(PROTECTED).as_deref(), Some(&b"as the image has it\n"[..]), "{name}: {shown}");
    assert!(fence.world.read("/usr/new").is_none(), "{name}: {shown}");
}
