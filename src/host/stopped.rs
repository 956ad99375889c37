//! What the rungs without a firewall and without mounts work by, tried as they will do it: a process confined like the
//! command makes calls, and one confined like the observer, its parent, is notified of them, reads its memory, answers one
//! and gives a descriptor in answer to the other (seccomp_unotify(2)).

use super::finding::{Finding, Teller, Tried};
use super::landlock::restrict_files;
use crate::confine::abi::Table;
use crate::confine::landlock::restrict_scopes;
use crate::confine::rules::Rule;
use crate::confine::seccomp::program_with_listener;
use crate::observe::process::{Handed, Of, hand_over, receive_handed};
use crate::policy::Axis;
use crate::sys::call::{Argument, call};
use crate::sys::notify::{self, Notification};
use crate::sys::{self, CapabilitySets, Fork, capability};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_dumpable;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socket, socketpair, sockopt};
use nix::sys::stat::Mode;
use nix::sys::uio::pread;
use nix::sys::wait::waitpid;
use nix::unistd::{Gid, Uid, geteuid, setgroups, setresgid, setresuid};
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

/// Uids that no account has (Debian's policy, 9.2.2) and a user namespace with the usual map knows.
const COMMAND: u32 = 65_532;
const OBSERVER: u32 = 65_533;

/// The call that is notified. Nothing is at its path.
const CALL: &str = "truncate";
const PATH: &std::ffi::CStr = c"/ringfence is told of this path/and of no other";
/// What the first one is answered with: no errno that truncate(2) has.
const ANSWER: Errno = Errno::EXDEV;
/// How long the other process may take, in milliseconds.
const PATIENCE: u16 = 5000;

/// Tries it, in a child that ends with it.
pub(super) fn try_it(tell: &Teller) {
    tell.tell(Tried::SetPcap, drop_one_capability());
    let no_new_privs = set_no_new_privs();
    tell.tell(Tried::NoNewPrivs, no_new_privs.clone());
    let go_on = no_new_privs.and_then(|()| {
        // The observer and the stage are in the domain of the file rules, and the command in one within.
        tell.tell(Tried::LandlockFiles, restrict_files());
        both(tell)
    });
    if let Err(cause) = go_on {
        for tried in [Tried::LandlockFiles, Tried::BindToLo, Tried::Notification, Tried::AddFd, Tried::ReadsCallers] {
            tell.tell(tried, Err(cause.clone()));
        }
    }
}

fn drop_one_capability() -> Finding {
    let dropped = sys::bounding_drop(capability::SYS_BOOT).and_then(|()| sys::bounding_has(capability::SYS_BOOT));
    match dropped {
        Ok(false) => Ok(()),
        Ok(true) => Err("prctl PR_CAPBSET_DROP: the capability is still there".into()),
        Err(errno) => Err(format!("prctl PR_CAPBSET_DROP: {errno}")),
    }
}

fn set_no_new_privs() -> Finding {
    let set = nix::sys::prctl::set_no_new_privs().and_then(|()| nix::sys::prctl::get_no_new_privs());
    match set {
        Ok(true) => Ok(()),
        Ok(false) => Err("prctl PR_SET_NO_NEW_PRIVS: it is not in force".into()),
        Err(errno) => Err(format!("prctl PR_SET_NO_NEW_PRIVS: {errno}")),
    }
}

fn both(tell: &Teller) -> Finding {
    let failed = |call: &'static str| move |errno: Errno| format!("{call}: {errno}");
    let pair = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC);
    let (takes, gives) = pair.map_err(failed("socketpair"))?;
    match sys::fork_single_threaded().map_err(failed("fork"))? {
        Fork::Child => {
            drop(takes);
            command(tell, gives);
            sys::exit_now(0)
        }
        Fork::Parent(child) => {
            // Each ends with the other: this one hears the end of the socket, and the command's calls give ENOSYS.
            drop(gives);
            observer(tell, takes);
            waitpid(child, None).map(drop).map_err(failed("waitpid"))
        }
    }
}

/// Takes the ids, where there is more than one uid, and gives up all capabilities.
fn take_ids(real: u32, effective: u32) -> Finding {
    let failed = |call: &'static str| move |errno: Errno| format!("{call}: {errno}");
    if geteuid().is_root() {
        let (gid, real, effective) = (Gid::from_raw(COMMAND), Uid::from_raw(real), Uid::from_raw(effective));
        setgroups(&[]).map_err(failed("setgroups"))?;
        setresgid(gid, gid, gid).map_err(failed("setresgid"))?;
        setresuid(real, effective, real).map_err(failed("setresuid"))?;
    }
    sys::capset(CapabilitySets::default()).map_err(failed("capset"))
}

/// The part of the command.
fn command(tell: &Teller, gives: OwnedFd) {
    let listener = match load() {
        Ok(listener) => listener,
        Err(cause) => return no_notification(tell, &cause),
    };
    // The observer's alone from here on: whoever waits for it hears its end.
    let sent = hand_over(gives.as_fd(), listener, Of::Probes);
    drop(gives);
    if let Err(errno) = sent.and(notify::close_number(listener)) {
        return no_notification(tell, &format!("sendmsg: {errno}"));
    }
    let ask = || call(libc::SYS_truncate, [Argument::Text(PATH), Argument::Number(0)]);
    match ask() {
        Err(errno) if errno == ANSWER => tell.tell(Tried::Notification, Ok(())),
        // The observer has told why.
        Err(Errno::ENOSYS) => return,
        other => return no_notification(tell, &format!("a notified call ended with {other:?}, not with {ANSWER}")),
    }
    match ask() {
        Ok(number) if i32::try_from(number).is_ok_and(sys::is_open) => tell.tell(Tried::AddFd, Ok(())),
        Ok(number) => tell.tell(Tried::AddFd, Err(format!("the descriptor {number} that was given is not open"))),
        Err(_) => {}
    }
}

/// Confines the calling process and loads a filter; its listener's number.
fn load() -> Result<RawFd, String> {
    take_ids(COMMAND, COMMAND)?;
    // As the exec of a program that its user may read makes it.
    set_dumpable(true).map_err(|errno| format!("prctl PR_SET_DUMPABLE: {errno}"))?;
    // Where there are none nothing depends on them here: they are a fact of their own.
    drop(restrict_scopes(false, false));
    let rule = Rule {
        call: CALL,
        conditions: Vec::new(),
        errno: 0,
        axis: Some(Axis::Privilege),
        name: "trial",
        capability: None,
    };
    let program = program_with_listener(&[rule], &[], &[Table::Native]).map_err(|error| error.to_string())?;
    notify::load_seccomp_with_listener(&program).map_err(|errno| match errno {
        Errno::EBUSY => "seccomp: EBUSY: another listener is in this process's filter chain".into(),
        errno => format!("seccomp with a listener: {errno}"),
    })
}

/// Without notification there is nothing of what comes by it.
fn no_notification(tell: &Teller, cause: &str) {
    for tried in [Tried::Notification, Tried::AddFd, Tried::ReadsCallers] {
        tell.tell(tried, Err(cause.to_owned()));
    }
}

/// The part of the observer.
fn observer(tell: &Teller, takes: OwnedFd) {
    let taken = take_ids(OBSERVER, COMMAND)
        .and_then(|()| set_dumpable(false).map_err(|errno| format!("prctl PR_SET_DUMPABLE: {errno}")));
    tell.tell(Tried::BindToLo, taken.clone().and_then(|()| bind_to_lo()));
    let answered = taken.and_then(|()| {
        let handed = receive_handed(takes.as_fd()).map_err(|errno| format!("recvmsg: {errno}"))?;
        // Without a listener the command has told why.
        let Some(Handed::Listener(listener, _)) = handed else { return Ok(()) };
        let first = next_call(listener.as_fd())?;
        tell.tell(Tried::ReadsCallers, read_caller(&first));
        notify::refuse(listener.as_fd(), first.id, ANSWER).map_err(|errno| format!("NOTIF_SEND: {errno}"))?;
        let second = next_call(listener.as_fd())?;
        match notify::succeed_with_file(listener.as_fd(), second.id, tell.as_fd(), true) {
            Ok(_) => Ok(()),
            Err(errno) => {
                tell.tell(Tried::AddFd, Err(format!("NOTIF_ADDFD: {errno}")));
                notify::refuse(listener.as_fd(), second.id, ANSWER).map_err(|errno| format!("NOTIF_SEND: {errno}"))
            }
        }
    });
    if let Err(cause) = answered {
        no_notification(tell, &cause);
    }
}

fn next_call(listener: BorrowedFd<'_>) -> Result<Notification, String> {
    let mut fds = [PollFd::new(listener, PollFlags::POLLIN)];
    match poll(&mut fds, PollTimeout::from(PATIENCE)) {
        Ok(_) if fds[0].revents().is_some_and(|seen| seen.contains(PollFlags::POLLIN)) => {
            notify::receive(listener).map_err(|errno| format!("NOTIF_RECV: {errno}"))
        }
        Ok(_) => Err("a notified call did not come through".into()),
        Err(errno) => Err(format!("poll: {errno}")),
    }
}

/// Reads the path of a stopped call, as [`crate::observe::caller`] does without SYS_PTRACE.
fn read_caller(stopped: &Notification) -> Finding {
    let path = format!("/proc/{}/mem", stopped.tid);
    let memory = open(path.as_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|errno| format!("open /proc/TID/mem: {errno}"))?;
    let mut found = vec![0; PATH.count_bytes()];
    let address = i64::try_from(stopped.call.arguments[0]).map_err(|error| format!("pread: {error}"))?;
    match pread(&memory, &mut found, address) {
        Ok(_) if found == PATH.to_bytes() => Ok(()),
        Ok(_) => Err("read /proc/TID/mem: it is another's memory".into()),
        Err(errno) => Err(format!("read /proc/TID/mem: {errno}")),
    }
}

/// Binds a socket to `lo` and sees that who has no NET_RAW cannot undo it (socket(7), SO_BINDTODEVICE).
fn bind_to_lo() -> Finding {
    let failed = |call: &'static str| move |errno: Errno| format!("{call}: {errno}");
    let stream =
        socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).map_err(failed("socket"))?;
    let bind = |device: &str| setsockopt(&stream, sockopt::BindToDevice, &OsString::from(device));
    bind("lo").map_err(failed("setsockopt SO_BINDTODEVICE"))?;
    match bind("") {
        Err(Errno::EPERM) => Ok(()),
        other => Err(format!("setsockopt SO_BINDTODEVICE: undoing it gives {other:?}, not EPERM")),
    }
}
