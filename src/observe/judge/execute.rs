//! The verdict on executions of programs that would give privilege.

use super::file_capabilities::FileCapabilities;
use super::{Looked, Verdict};
use crate::observe::act::Place;
use crate::observe::caller::Unread;
use crate::observe::predict;
use crate::observe::told::{PathTarget, Refusal, Target};
use crate::observe::walk::{self, path_of};
use nix::sys::stat::{Mode, SFlag, fstat};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

impl Looked<'_> {
    /// A program whose set-id bits or file capabilities will have no effect: what sudo's own log is to a refused sudo.
    pub(super) fn execute(&self, place: &Place) -> Result<Verdict, Unread> {
        let name = self.caller.name(place)?;
        let Ok(object) = walk::pin(&name) else { return Ok(Verdict::GoOn) };
        let Ok(stat) = fstat(&object) else { return Ok(Verdict::GoOn) };
        let ids = self.judge.ids;
        let has = |bits: Mode| stat.st_mode & bits.bits() == bits.bits();
        let regular = walk::is(&stat, SFlag::S_IFREG);
        let gives = has(Mode::S_ISUID) && stat.st_uid != ids.uid
            || has(Mode::S_ISGID | Mode::S_IXGRP) && stat.st_gid != ids.gid
            || FileCapabilities::of(&object).is_some();
        // What it may not execute at all has no bits to be without effect.
        if !regular || !gives || !predict::is_executable(&name) {
            return Ok(Verdict::GoOn);
        }
        let refused = self.refusal_of_program(&object);
        let object = target_of(path_of(object.as_fd()));
        Ok(match self.without_effect(object) {
            Verdict::GoOnRecorded(refusal) if refused.is_some() => {
                Verdict::GoOnRecorded(Refusal { errno: refused.map(|errno| errno as i32), ..refusal })
            }
            verdict => verdict,
        })
    }
}

fn target_of(path: Option<PathBuf>) -> Target {
    let Some(path) = path else { return Target::None };
    let path = path.as_os_str().as_bytes().to_vec();
    Target::Path(PathTarget { decisive: path.clone(), path, to: None, read_only: false, makes: false })
}
