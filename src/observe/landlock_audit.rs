//! What Landlock has refused to the command, by the kernel's audit (Documentation/admin-guide/LSM/landlock.rst), where
//! the machine has it switched on and this process may read it. Audit is the machine's: nothing of it is ever changed.
//!
//! The records are the whole machine's. Ours are those of the one domain that the command's process made, which the
//! kernel tells of before the command's program runs (`confine::landlock`): the first domain of that process and uid.
//!
//! The kernel's thread sends records in the order in which they were made, some time after the call has returned. So a
//! record that this process has made, when nothing of the sandbox is left, comes after all of the sandbox's. What was lost on
//! the way the kernel counts machine-wide; if anything was, the domain's own count, told when the domain ends, says how
//! much of it was ours.

mod refusals;
mod socket;

pub mod record;

pub use socket::{AuditError, Found, Reader, Status};

use crate::confine::landlock;
use crate::ledger::record::{Denial, Gap};
use crate::policy::Axis;
use crate::sys::{self, Fork};
use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, getuid};
use record::Tells;
use refusals::Refusals;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// How long the kernel may take to send what it has recorded, in a trial: audit may be read only if it is that quick.
const TRYING: Duration = Duration::from_millis(250);
/// The same when a run ends: a flood may be before it.
const FINISHING: Duration = Duration::from_secs(5);
/// After how long another one of them is made.
const MARKING: Duration = Duration::from_secs(1);
/// How long the kernel may take to end a domain whose last process has ended.
const ENDING: Duration = Duration::from_secs(2);

/// Audit's log, read for one run.
#[derive(Debug)]
pub struct LandlockAudit {
    reader: Reader,
    /// Audit's state when the log was opened.
    before: Status,
    /// `None` before the command runs: its records wait in the socket until it is known whose they are.
    refusals: Option<Refusals>,
}

impl LandlockAudit {
    /// Opens audit's log.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn open() -> Result<LandlockAudit, AuditError> {
        let (reader, before) = Reader::open()?;
        Ok(LandlockAudit { reader, before, refusals: None })
    }

    /// The command runs: this process of this uid has made the domain that counts.
    pub fn of_command(&mut self, pid: u32, uid: u32) {
        self.refusals = Some(Refusals::of(pid, uid));
    }

    /// What to wait for; `None` before the command runs.
    pub fn awaited(&self) -> Option<BorrowedFd<'_>> {
        self.refusals.as_ref().map(|_| self.reader.as_fd())
    }

    /// When a refusal whose caller has not been told of is to be taken in without.
    pub fn due(&self) -> Option<Instant> {
        self.refusals.as_ref().and_then(Refusals::due)
    }

    /// Hands over the refusals that are there, looking at no more than `most` records. Returns whether there may be more.
    ///
    /// # Errors
    /// Where the log cannot be read any more. Loss is no error.
    pub fn collect(&mut self, most: usize, mut take: impl FnMut(Denial)) -> Result<bool, AuditError> {
        let Some(refusals) = &mut self.refusals else { return Ok(false) };
        for _ in 0..most {
            match self.reader.take()? {
                Found::Record(record) => refusals.hear(record).into_iter().for_each(&mut take),
                Found::Other => {}
                Found::Overrun => refusals.doubt("the audit socket's buffer overran"),
                Found::Nothing => {
                    refusals.overdue(Some(Instant::now())).into_iter().for_each(&mut take);
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Hands over what is still on its way, when nothing of the sandbox is left that could add to it, and says what is
    /// missing.
    pub fn finish(mut self, mut take: impl FnMut(Denial)) -> Option<Gap> {
        self.refusals.as_ref()?;
        let come = self.await_all(&mut take);
        let refusals = self.refusals.as_mut()?;
        refusals.overdue(None).into_iter().for_each(take);
        if let Err(error) = come {
            refusals.doubt(&error.to_string());
        }
        let (lost, cause) = refusals.missing()?;
        Some(Gap { axis: Some(Axis::Privilege), source: "landlock-audit".into(), lost, cause })
    }

    fn await_all(&mut self, take: &mut impl FnMut(Denial)) -> Result<(), AuditError> {
        let status = Status::ask()?;
        if !status.enabled {
            while self.collect(usize::MAX, &mut *take)? {}
            return Err(AuditError::Off);
        }
        self.await_mark(take)?;
        if status.lost != self.before.lost {
            let lost = status.lost.wrapping_sub(self.before.lost);
            self.refusals.iter_mut().for_each(|refusals| refusals.doubt(&format!("audit lost {lost} records")));
        }
        if self.refusals.as_ref().is_some_and(Refusals::in_doubt) {
            self.await_until(ENDING, "end of the command's Landlock domain", take, Refusals::is_over)?;
        }
        Ok(())
    }

    /// Waits for a record of this process's own. One that the machine's rate limit has taken is followed by another.
    fn await_mark(&mut self, take: &mut impl FnMut(Denial)) -> Result<(), AuditError> {
        let deadline = Instant::now() + FINISHING;
        loop {
            let mark = confine_a_child()?;
            match self.await_until(MARKING, "record of this process's own", take, |seen| seen.marked(mark)) {
                Err(AuditError::Silent { .. }) if Instant::now() < deadline => {}
                outcome => return outcome,
            }
        }
    }

    fn await_until(
        &mut self,
        patience: Duration,
        what: &'static str,
        take: &mut impl FnMut(Denial),
        over: impl Fn(&Refusals) -> bool,
    ) -> Result<(), AuditError> {
        let deadline = Instant::now() + patience;
        loop {
            while self.collect(usize::MAX, &mut *take)? {}
            if self.refusals.as_ref().is_none_or(&over) {
                return Ok(());
            }
            self.reader.await_more(deadline, what, patience)?;
        }
    }
}

/// Waits until the log tells of the domain that the process `pid` of this user has made a moment ago.
///
/// # Errors
/// [`AuditError::Silent`] where it does not: the records go elsewhere, or the machine's rules exclude them.
pub fn await_domain_of(reader: &Reader, pid: Pid) -> Result<(), AuditError> {
    let deadline = Instant::now() + TRYING;
    let mut refusals = Refusals::of(0, 0);
    loop {
        match reader.take()? {
            Found::Record(record) if matches!(record.tells, Tells::Allocated { .. }) => {
                refusals.hear(record);
                if refusals.marked((pid.as_raw().unsigned_abs(), getuid().as_raw())) {
                    return Ok(());
                }
            }
            Found::Record(_) | Found::Other | Found::Overrun => {}
            Found::Nothing => reader.await_more(deadline, "record of a refusal of Landlock's", TRYING)?,
        }
    }
}

/// A child that is refused one thing by a domain of its own, as the command's process was. Its pid and uid.
fn confine_a_child() -> Result<(u32, u32), AuditError> {
    let failed = |call| move |errno| AuditError::Call { call, errno };
    match sys::fork_single_threaded().map_err(failed("fork"))? {
        Fork::Child => {
            let confined =
                nix::sys::prctl::set_no_new_privs().is_ok() && landlock::restrict_scopes(true, false).is_ok();
            sys::exit_now(i32::from(!confined));
        }
        Fork::Parent(child) => match waitpid(child, None).map_err(failed("waitpid"))? {
            WaitStatus::Exited(_, 0) => Ok((child.as_raw().unsigned_abs(), getuid().as_raw())),
            _ => Err(failed("landlock_restrict_self in a child")(Errno::EPERM)),
        },
    }
}
