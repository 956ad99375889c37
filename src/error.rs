//! What can end a run, one variant a step, and the exit statuses.

use crate::canary::CanaryError;
use crate::cli::UsageError;
use crate::confine::exec::ExecFailure;
use crate::connect::ConnectError;
use crate::host::HostError;
use crate::install::InstallError;
use crate::install::account::AccountError;
use crate::install::reserve::ReserveError;
use crate::install::shields::ShieldError;
use crate::install::undo::UndoError;
use crate::ledger::{LedgerError, UnsafePath, VerifyError};
use crate::plan::Refusal;
use crate::policy::PolicyError;
use crate::policy::show::CheckError;
use crate::probe::external::ExternalError;
use crate::probe::suite_file::SuiteError;
use crate::report::ReportError;
use crate::session::SessionError;
use crate::supervise::AbortCause;
use crate::why::WhyError;
use nix::errno::Errno;
use std::path::PathBuf;

/// The status of any failure that is ours: the command's own is passed on unchanged (chroot(1), env(1) use it alike).
pub const OURS: i32 = 125;

/// Why a run, or another subcommand, did not do what was asked. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// The policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A policy file to be checked.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// The account.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// A fact of the host.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The plan.
    #[error("plan: {0}")]
    Refused(#[from] Refusal),
    /// A shield.
    #[error("plan: {0}")]
    Shield(#[from] ShieldError),
    /// A control file that the command could write.
    #[error("{what}: {fault}")]
    ControlFile {
        /// Which one.
        what: &'static str,
        /// Why.
        fault: UnsafePath,
    },
    /// A control file inside the writable set.
    #[error("{what} {path:?} lies in what the command may write; accepted: a path outside the writable set")]
    ControlFileWritable {
        /// Which one.
        what: &'static str,
        /// Where it is.
        path: PathBuf,
    },
    /// Credentials that the command could read.
    #[error(
        "{}: it holds an upstream's credentials, has mode {mode:04o}, and rung {rung} has no mask for it; accepted: upstream = \"environment\"{}", file.display(), if *rung == "container" { ", or a file of mode 0600" } else { "" }
    )]
    CredentialsReadable {
        /// The policy file.
        file: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// The rung.
        rung: &'static str,
    },
    /// A descriptor that the command must not have.
    #[error(
        "inherited descriptor {fd} is {kind}; close or redirect it: the policy does not hold what was opened outside"
    )]
    Inherited {
        /// Its number.
        fd: i32,
        /// What it is.
        kind: &'static str,
    },
    /// `--json-status-fd`.
    #[error("--json-status-fd {fd}: {errno}; accepted: an open descriptor from 3 up")]
    StatusDescriptor {
        /// Its number.
        fd: i32,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Numbers of the run.
    #[error(transparent)]
    Reserve(#[from] ReserveError),
    /// What a run that was killed left.
    #[error(transparent)]
    Undo(#[from] UndoError),
    /// The set-up.
    #[error("install: {0}")]
    Install(#[from] InstallError),
    /// The probes as data.
    #[error(transparent)]
    Suite(#[from] SuiteError),
    /// Probes of what others have built.
    #[error(transparent)]
    External(#[from] ExternalError),
    /// A pre-flight probe.
    #[error("probe {id}: expected {expected}, saw {seen}; nothing was started ({why})")]
    Probe {
        /// Its id.
        id: String,
        /// What was expected.
        expected: String,
        /// What was seen.
        seen: String,
        /// Why the probe is there.
        why: String,
    },
    /// `ringfence probe` has no time left.
    #[error("probe: the {timeout} s of --timeout were over {after}; accepted: --timeout with more seconds")]
    ProbesLate {
        /// What `--timeout` says.
        timeout: u64,
        /// When that was.
        after: &'static str,
    },
    /// The command could not be started.
    #[error(transparent)]
    Exec(#[from] ExecFailure),
    /// The run was ended by us.
    #[error("the run was ended: {0}")]
    Aborted(#[from] AbortCause),
    /// A ledger could not be verified.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// A ledger could not be reported.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// Canaries.
    #[error("canary: {0}")]
    Canary(#[from] CanaryError),
    /// A connection through the proxy.
    #[error("connect: {0}")]
    Connect(#[from] ConnectError),
    /// A judgement that was asked for.
    #[error("why: {0}")]
    Why(#[from] WhyError),
    /// A session that cannot be had or asked.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A session whose policy would end what its commands leave behind.
    #[error(
        "leftovers = \"kill\": what a command of a session leaves behind is there for the next one; accepted: keep, or none"
    )]
    SessionKills,
    /// A call.
    #[error("{call}: {source}")]
    Call {
        /// The call.
        call: &'static str,
        /// The cause.
        source: std::io::Error,
    },
}

impl Error {
    /// The exit status: 126 and 127 as a shell has them, 125 for what is ours.
    pub fn status(&self) -> i32 {
        match self {
            Error::Exec(failure) => failure.status,
            _ => OURS,
        }
    }
}

/// Turns a call's cause into an error.
pub fn call<E: Into<std::io::Error>>(call: &'static str) -> impl FnOnce(E) -> Error {
    move |source| Error::Call { call, source: source.into() }
}
