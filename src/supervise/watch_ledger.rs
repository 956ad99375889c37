//! When the ledger's file is to be looked at: the kernel's notices of what happens to it (inotify(7)), or the clock where
//! there are none to be had.

use crate::ledger::Ledger;
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// The least time between two looks: the ledger's own records are notices too.
const REST: Duration = Duration::from_millis(100);
/// The time between two looks without notices.
const ROUND: Duration = Duration::from_millis(500);

/// Where the kernel's notices come from.
#[derive(Debug)]
enum Notices {
    /// Nothing yet: they are asked for at the first look. The kernel takes some ten milliseconds to take an instance down, which
    /// a run that is shorter than that look need not wait for.
    ToCome([String; 2]),
    /// Here.
    Here(Inotify),
    /// The caller has no more to be had (max_user_instances), or may not read the file, as on `bare`.
    Nowhere,
}

/// Tells when a look is needed, never what the look will find ([`Ledger::look`]).
#[derive(Debug)]
pub struct LedgerWatch {
    notices: Notices,
    /// When the next look may be, or is to be.
    next: Instant,
}

impl LedgerWatch {
    /// Watches a file that the ledger has made; `None` for a descriptor of the caller's.
    pub fn begin(ledger: &Ledger) -> Option<LedgerWatch> {
        let notices = Notices::ToCome(ledger.watched()?);
        Some(LedgerWatch { notices, next: Instant::now() + ROUND })
    }

    /// What to wait for, while a look may be.
    pub fn awaited(&self) -> Option<BorrowedFd<'_>> {
        match &self.notices {
            Notices::Here(notices) if Instant::now() >= self.next => Some(notices.as_fd()),
            _ => None,
        }
    }

    /// Until when to wait at most. With notices it is never once the rest is over: an idle run is not woken.
    pub fn due(&self) -> Option<Instant> {
        Some(self.next).filter(|next| !matches!(self.notices, Notices::Here(_)) || *next > Instant::now())
    }

    /// Whether a look is due, which is taken to be made now.
    pub fn take_due(&mut self) -> Result<bool, Errno> {
        if Instant::now() < self.next {
            return Ok(false);
        }
        let (noticed, rest) = match &self.notices {
            Notices::Here(notices) => (drain(notices)?, REST),
            Notices::Nowhere => (true, ROUND),
            // Asked for before the look, so that nothing happens between the two.
            Notices::ToCome(watched) => {
                self.notices = notices(watched).map_or(Notices::Nowhere, Notices::Here);
                (true, REST)
            }
        };
        if noticed {
            self.next = Instant::now() + rest;
        }
        Ok(noticed)
    }
}

/// A removal of the name shows as a change of the link count; of a file that is open nothing else is told (inotify(7)).
fn notices([file, directory]: &[String; 2]) -> Result<Inotify, Errno> {
    let notices = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    let moved = AddWatchFlags::IN_MOVE_SELF | AddWatchFlags::IN_DELETE_SELF;
    notices.add_watch(file.as_str(), AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_ATTRIB | moved)?;
    notices.add_watch(directory.as_str(), moved)?;
    Ok(notices)
}

fn drain(notices: &Inotify) -> Result<bool, Errno> {
    let mut noticed = false;
    loop {
        match notices.read_events() {
            Ok(events) => noticed |= !events.is_empty(),
            Err(Errno::EAGAIN) => return Ok(noticed),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}
