//! The proxy process: forked while there is one thread, stripped of everything but its listener and its channel, and only
//! then let near what hostile clients send.

use super::firewall::rules::PROXIES;
use super::reserve::ReserveError;
use crate::confine::seccomp::{self, FilterError};
use crate::mutation;
use crate::plan::ProxyPlan;
use crate::probe::name;
use crate::proxy::channel::{self, ChannelRecorder, ReportReceiver};
use crate::proxy::transparent::Caught;
use crate::proxy::{self, Limits, Listeners, ProxySpec, descriptors};
use crate::stage::release_stdio;
use crate::sys::{self, CapabilitySets, Fork};
use landlock::{ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetStatus};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{Gid, Pid, Uid, getresuid, pipe2, setgroups, setpgid, setresgid, setresuid};
use std::io;
use std::net::{SocketAddrV4, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// A running proxy.
#[derive(Debug)]
pub struct ProxyProcess {
    /// Its process id.
    pub pid: Pid,
    /// Where it listens.
    pub address: SocketAddrV4,
    reports: Option<ReportReceiver>,
    /// Closes without a word when the process has given up what it gives up.
    stripped: OwnedFd,
}

/// Why there is no proxy.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// A call failed.
    #[error("proxy: {call}: {source}")]
    Call {
        /// The call.
        call: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// No uid.
    #[error("proxy: {0}")]
    Reserve(#[from] ReserveError),
    /// The process could not be confined.
    #[error("{0}")]
    Confine(String),
    /// No filter.
    #[error("proxy: {0}")]
    Filter(#[from] FilterError),
}

impl ProxyProcess {
    /// Its reports, for whoever takes them in; `None` the second time.
    pub fn take_reports(&mut self) -> Option<ReportReceiver> {
        self.reports.take()
    }

    /// Waits until the process is confined, or says why it isn't.
    pub fn await_confined(&self) -> Result<(), SpawnError> {
        let mut text = [0; 512];
        match nix::unistd::read(&self.stripped, &mut text).map_err(failed("read"))? {
            0 => Ok(()),
            length => Err(SpawnError::Confine(String::from_utf8_lossy(&text[..length]).into_owned())),
        }
    }
}

pub(super) fn failed<E: Into<io::Error>>(call: &'static str) -> impl FnOnce(E) -> SpawnError {
    move |source| SpawnError::Call { call, source: source.into() }
}

/// Starts the proxy on `listener` or else on a free port of [`PROXIES`], with a uid of its own if one is given.
/// A shadow's serves what it would refuse.
pub fn start(
    plan: &ProxyPlan,
    uid: Option<u32>,
    listener: Option<TcpListener>,
    caught: Option<Caught>,
    shadow: bool,
) -> Result<ProxyProcess, SpawnError> {
    let listener = listener.map_or_else(|| TcpListener::bind((PROXIES, 0)), Ok).map_err(failed("bind"))?;
    let listeners = Listeners { proxy: listener, caught };
    let port = listeners.proxy.local_addr().map_err(failed("getsockname"))?.port();
    let (recorder, reports) = channel::pair().map_err(failed("socketpair"))?;
    let filter = seccomp::proxy_program()?;
    let (stripped, told) = pipe2(OFlag::O_CLOEXEC).map_err(failed("pipe2"))?;
    match sys::fork_single_threaded().map_err(failed("fork"))? {
        Fork::Child => {
            drop((reports, stripped));
            match strip(&listeners, &recorder, &told, uid, &filter) {
                Ok(()) => {
                    drop(told);
                    sys::exit_now(serve(listeners, plan, recorder, shadow));
                }
                Err(error) => {
                    // Where even this cannot be told, the supervisor sees the channel close.
                    nix::unistd::write(&told, error.to_string().as_bytes()).ok();
                    sys::exit_now(1);
                }
            }
        }
        Fork::Parent(pid) => {
            drop(told);
            let address = SocketAddrV4::new(PROXIES, port);
            Ok(ProxyProcess { pid, address, reports: Some(reports), stripped })
        }
    }
}

/// Serves until it is asked to end, or something ends it; its status tells which.
fn serve(listeners: Listeners, plan: &ProxyPlan, recorder: ChannelRecorder, shadow: bool) -> i32 {
    let ProxyPlan { allowlist, address_rules, dns, upstream, nonce } = plan.clone();
    let (allowlist, dns) = name::admit(&allowlist, dns, upstream.is_some());
    let spec = ProxySpec { allowlist, address_rules, dns, upstream, nonce, shadow, limits: Limits::default() };
    i32::from(proxy::run(listeners, spec, recorder).is_err())
}

/// Gives up everything that serving does not need, and reads back that it is gone.
fn strip(
    listeners: &Listeners,
    recorder: &ChannelRecorder,
    told: &OwnedFd,
    uid: Option<u32>,
    filter: &[u8],
) -> Result<(), SpawnError> {
    // Out of the caller's process group, so that the terminal's signals are the command's alone.
    setpgid(Pid::from_raw(0), Pid::from_raw(0)).map_err(failed("setpgid"))?;
    release_stdio().map_err(failed("dup2"))?;
    let channel = recorder.descriptor().ok_or_else(|| failed("dup")(Errno::EBADF))?;
    let caught = listeners.caught.iter().flat_map(Caught::descriptors);
    let kept: Vec<RawFd> = [listeners.proxy.as_raw_fd(), channel, told.as_raw_fd()].into_iter().chain(caught).collect();
    sys::close_all_but(&kept).map_err(failed("close_range"))?;
    // While there is the privilege to.
    descriptors::raise(descriptors::needed(&Limits::default())).map_err(failed("setrlimit"))?;
    match uid {
        Some(uid) if !mutation::left_out("proxy-ids") => drop_ids(Uid::from_raw(uid), Gid::from_raw(uid))?,
        Some(_) => {}
        None => keep_ids()?,
    }
    nix::sys::prctl::set_no_new_privs().map_err(failed("prctl PR_SET_NO_NEW_PRIVS"))?;
    no_files()?;
    if mutation::left_out("proxy-seccomp") {
        return Ok(());
    }
    sys::load_seccomp(filter).map_err(failed("seccomp"))
}

/// What a process gives up that serves with the caller's own uid and has closed its descriptors; so many it needs.
pub(super) fn strip_as_caller(filter: &[u8], needed: u64) -> Result<(), SpawnError> {
    descriptors::raise(needed).map_err(failed("setrlimit"))?;
    keep_ids()?;
    nix::sys::prctl::set_no_new_privs().map_err(failed("prctl PR_SET_NO_NEW_PRIVS"))?;
    no_files()?;
    sys::load_seccomp(filter).map_err(failed("seccomp"))
}

/// For a process with the caller's own uid, which the command has too: Landlock keeps the command from it, and its memory
/// is closed besides (proc(5)).
fn keep_ids() -> Result<(), SpawnError> {
    sys::ambient_clear().map_err(failed("prctl PR_CAP_AMBIENT"))?;
    sys::capset(CapabilitySets::default()).map_err(failed("capset"))?;
    if sys::capget().map_err(failed("capget"))? != CapabilitySets::default() {
        return Err(failed("read back the drop")(Errno::EPERM));
    }
    nix::sys::prctl::set_dumpable(false).map_err(failed("prctl PR_SET_DUMPABLE"))
}

fn drop_ids(uid: Uid, gid: Gid) -> Result<(), SpawnError> {
    setgroups(&[]).map_err(failed("setgroups"))?;
    setresgid(gid, gid, gid).map_err(failed("setresgid"))?;
    setresuid(uid, uid, uid).map_err(failed("setresuid"))?;
    sys::capset(CapabilitySets::default()).map_err(failed("capset"))?;
    let now = getresuid().map_err(failed("getresuid"))?;
    if [now.real, now.effective, now.saved] != [uid; 3]
        || sys::capget().map_err(failed("capget"))? != CapabilitySets::default()
    {
        return Err(failed("read back the drop")(Errno::EPERM));
    }
    Ok(())
}

/// Every access to a file system refused by Landlock; a kernel without it (before 5.13, or not built in) has the uid alone.
fn no_files() -> Result<(), SpawnError> {
    let restricted = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V1))
        .and_then(|ruleset| ruleset.create())
        .and_then(|created| created.restrict_self())
        .map_err(|e| failed("landlock")(io::Error::other(e)))?;
    match restricted.ruleset {
        RulesetStatus::FullyEnforced | RulesetStatus::NotEnforced => Ok(()),
        status => Err(failed("landlock")(io::Error::other(format!("{status:?}")))),
    }
}
