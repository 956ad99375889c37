//! A shadow's verdict on acts on paths. Nothing is made or taken away by the asking: what the act is to do is the command's to do.

use super::paths::Led;
use super::{Looked, Verdict};
use crate::observe::act::{Act, Change, Place};
use crate::observe::ask::Answer;
use crate::observe::caller::{Name, Unread};
use crate::observe::predict::Expected;
use crate::observe::shadow::{AsOwner, Said, Shadow};
use crate::observe::walk;
use crate::observe::watched::Ids;
use nix::errno::Errno;
use nix::fcntl::ResolveFlag;
use nix::libc;
use std::os::fd::AsFd;

impl Looked<'_> {
    /// The verdict on an act whose names lead here.
    pub(super) fn by_shadow(&self, shadow: &Shadow, act: &Act, led: Led) -> Result<Verdict, Unread> {
        shadow.note(&led.names);
        let answer = match shadow.on_names(act, &led.names, self.judge.stage) {
            Said::Passes => return Ok(Verdict::GoOn),
            Said::Refused(errno) => Answer::Refused(errno),
            Said::Ask => {
                let _owner = match (act, &led.names[..]) {
                    (Act::Change(_, Change::Owner(uid, gid)), [name]) if self.gives_to_account(name, *uid, *gid) => {
                        return Ok(Verdict::GoOn);
                    }
                    // To whom else a file may be given does not depend on who made it.
                    (Act::Change(_, Change::Owner(..)), _) => None,
                    (_, [name]) => Some(self.as_owner(shadow, name)),
                    _ => None,
                };
                let act = without_making(act);
                if self.expected(&act, &led.names) == Expected::Passes {
                    return Ok(Verdict::GoOn);
                }
                // What is done from here on is done with what was read.
                self.caller.still_waits()?;
                self.ask(&act, &led.names)
            }
        };
        self.caller.still_waits()?;
        Ok(self.told(answer, act, &led))
    }

    /// openat2(2) with `RESOLVE_*`: the kernel finds where it leads, from the caller's own base.
    pub(super) fn opened_within_by_shadow(
        &self,
        shadow: &Shadow,
        at: &Place,
        flags: u64,
        mode: u64,
        resolve: u64,
    ) -> Result<Verdict, Unread> {
        let act = Act::Open { at: at.clone(), flags, mode, resolve };
        let base = self.caller.hold(at.base)?;
        let creates = flags & libc::O_CREAT as u64 != 0;
        match walk::pin_within(base.as_fd(), &at.given, at.follow, resolve) {
            Ok(_) | Err(Errno::EACCES) => {}
            Err(Errno::ENOENT) if creates => {}
            // It leads where it must not, or nowhere: the kernel says so.
            Err(_) => return Ok(Verdict::GoOn),
        }
        let found = match ResolveFlag::from_bits_retain(resolve) {
            within if within.intersects(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_IN_ROOT) => {
                walk::found_within(base.as_fd(), &at.given, at.follow, resolve)
            }
            _ => walk::walk(self.caller, &self.caller.name(at)?).ok(),
        };
        let Some(found) = found else { return Ok(Verdict::GoOn) };
        let (targets, read_only) = (vec![found.path()], vec![self.is_read_only(&found)]);
        let hidden = found.hidden;
        let Some(name) = found.into_name(at.follow) else { return Ok(Verdict::GoOn) };
        self.by_shadow(shadow, &act, Led { names: vec![name], targets, read_only, hidden })
    }

    /// Has this thread asked as the owner of what the command has made, where the name leads to such.
    fn as_owner(&self, shadow: &Shadow, name: &Name) -> AsOwner {
        let owner = shadow.as_owner(name, self.judge.stage);
        if let Some(uid) = owner.uid() {
            self.ids.set(Ids { uid, ..self.judge.ids });
        }
        owner
    }

    /// Whether what a shadow's command has made is given to whom it belongs to, root, or would belong to, the account.
    fn gives_to_account(&self, name: &Name, uid: u32, gid: u32) -> bool {
        let Ids { uid: own, gid: group } = self.judge.ids;
        let is_own = || self.judge.shadow.as_ref().is_some_and(|s| s.is_accounts(name, self.judge.stage));
        [0, own, u32::MAX].contains(&uid) && [0, group, u32::MAX].contains(&gid) && is_own()
    }
}

/// The act on what is there: a file that has gone meanwhile is not made by the asking.
fn without_making(act: &Act) -> Act {
    match act {
        Act::Open { at, flags, mode, resolve } => {
            let flags = flags & !((libc::O_CREAT | libc::O_EXCL) as u64);
            Act::Open { at: at.clone(), flags, mode: *mode, resolve: *resolve }
        }
        act => act.clone(),
    }
}
