//! A shadow's way to judge: the observer has the whole confinement of a policy that its callers do not have. The kernel
//! answers it as it would answer the command under that policy, and the command's own calls go on whatever it says.
//!
//! Two things differ from a command that is held. Its view of the file system is another: what it has open is looked for
//! here under the same path. And it is root, so that what it makes is root's, and would have been its own account's there:
//! about such a file the kernel is asked as root without a capability, to whom it is what the account's own would be to the
//! account.

mod found;
mod names;

use super::act::{Act, SocketCall};
use super::caller::{Caller, Name, Unread, with_ptrace};
use super::judge::Verdict;
use super::walk::{self, path_of, pin};
use crate::install::mountinfo;
use crate::sys::call::{Argument, born, call_for_fd};
use found::Found;
pub use names::Said;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2, readlink};
use nix::libc;
use nix::unistd::{Pid, Uid, setfsuid};
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Whom the command runs as where nothing is enforced.
const ROOT: u32 = 0;

/// What the judge of a shadow knows beside.
#[derive(Debug)]
pub struct Shadow {
    /// The account that the stricter policy would have the command run as.
    account: Uid,
    /// Trees that would be its own.
    handed_over: Vec<PathBuf>,
    /// When the run began: what is younger is the command's.
    began: Duration,
    /// The namespaces and the root of the command, as /proc shows them.
    home: Vec<Option<OsString>>,
    /// What is older though its birth is not.
    found: Found,
}

/// The entries of a process's directory in /proc by which its view is told from another.
const VIEW: [&str; 4] = ["ns/user", "ns/mnt", "ns/net", "root"];

fn view(of: &str) -> Vec<Option<OsString>> {
    VIEW.iter().map(|entry| readlink(format!("/proc/{of}/{entry}").as_str()).ok()).collect()
}

impl Shadow {
    /// For a run that begins now, whose stage is where its command will be.
    ///
    /// # Errors
    /// SYS_PTRACE is not there to be used, without which nothing is seen of a command that is root.
    pub fn begin(account: u32, handed_over: Vec<PathBuf>, stage: Pid) -> Result<Shadow, String> {
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let home = with_ptrace(|| view(&stage.to_string())).map_err(|unread| format!("SYS_PTRACE: {unread:?}"))?;
        match home.iter().all(Option::is_some) {
            true => {
                let account = Uid::from_raw(account);
                Ok(Shadow { account, handed_over, began, home, found: Found::default() })
            }
            false => Err("the stage's namespaces cannot be seen".to_owned()),
        }
    }

    /// Whether a caller is where the command was started, and whom it was started as. What is done elsewhere, or by others,
    /// means something else here.
    pub fn is_at_home(&self, caller: &Caller<'_>) -> bool {
        let tid = caller.tid.to_string();
        let status = crate::procfs::read(&format!("/proc/{tid}/status")).unwrap_or_default();
        let uids = crate::procfs::field(&status, "Uid:").unwrap_or_default();
        let is_root = !uids.is_empty() && uids.split_whitespace().all(|uid| uid.parse() == Ok(ROOT));
        is_root && caller.with_memory(|| Ok(view(&tid) == self.home)).unwrap_or(false)
    }

    /// What is answered where nothing is refused. What was done here on the way, a change of a file, is not done twice.
    pub fn let_go(verdict: Verdict) -> Verdict {
        match verdict {
            Verdict::Refuse(_, refusal) | Verdict::GoOnRecorded(refusal) => Verdict::GoOnRecorded(refusal),
            Verdict::RefuseSilently(_) | Verdict::Passes | Verdict::Later(_) => Verdict::GoOn,
            other => other,
        }
    }

    /// A socket that the firewall knows as the stricter policy's, whose command it would be. Where the kernel makes none it is for
    /// the kernel to say so.
    pub fn open_socket(&self, asked: &SocketCall) -> Verdict {
        let SocketCall::Make { family, kind, protocol } = asked else { return Verdict::GoOn };
        let numbers = [*family, kind | libc::SOCK_CLOEXEC, *protocol];
        match call_for_fd(libc::SYS_socket, numbers.map(|number| Argument::Number(number as u64))) {
            Ok(socket) => Verdict::Opened(socket, kind & libc::SOCK_CLOEXEC != 0),
            Err(_) => Verdict::GoOn,
        }
    }

    /// Does `look` as root without a capability.
    fn as_root<T>(&self, look: impl FnOnce() -> T) -> T {
        let _root = AsOwner::enter(self.account);
        look()
    }

    /// Has the kernel answer this thread as the account would be answered about the object of a name, until it is dropped.
    pub fn as_owner(&self, name: &Name, stage: Pid) -> AsOwner {
        match self.as_root(|| pin(name)) {
            Ok(object) if self.owns(&object, stage) => AsOwner::enter(self.account),
            _ => AsOwner(None),
        }
    }

    /// Whether a name leads to what is the account's, or would be.
    pub fn is_accounts(&self, name: &Name, stage: Pid) -> bool {
        let Ok(object) = self.as_root(|| pin(name)) else { return false };
        born(object.as_fd()).is_ok_and(|found| found.uid == self.account.as_raw()) || self.owns(&object, stage)
    }

    /// Whether an object, which is root's, would be the account's own.
    fn owns(&self, object: &OwnedFd, stage: Pid) -> bool {
        let Ok(found) = born(object.as_fd()) else { return false };
        if found.uid != ROOT {
            return false;
        }
        let Some(path) = path_of(object.as_fd()) else { return true };
        if walk::is_proc(object.as_fd()) {
            return is_of_sandbox(&path, stage);
        }
        self.handed_over.iter().any(|tree| path.starts_with(tree)) || found.at >= self.began && !self.found.has(&found)
    }

    /// Notes what is there before an act changes it.
    pub fn note(&self, names: &[Name]) {
        self.as_root(|| {
            for name in names {
                let parent = || {
                    walk::split(name.text.as_bytes())
                        .and_then(|(parent, _)| openat2(AT_FDCWD, parent, place_only()).ok())
                };
                if let Some(object) = pin(name).ok().or_else(parent) {
                    self.found.note(object, self.began);
                }
            }
        });
    }

    /// Forgets what an act takes away: what is made next may have its number.
    pub fn forget(&self, act: &Act, names: &[Name]) {
        let ((Act::Remove(..), [gone]) | (Act::Rename(..), [_, gone])) = (act, names) else { return };
        self.as_root(|| {
            let path = std::path::Path::new(std::ffi::OsStr::from_bytes(gone.text.as_bytes()));
            // What is not empty stays.
            let stays = std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
            let gone = Name { text: gone.text.clone(), follow: false, held: None };
            if let (false, Ok(object)) = (stays, pin(&gone)) {
                self.found.forget(&object);
            }
        });
    }
}

fn place_only() -> OpenHow {
    OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
}

/// Whether a file of /proc is of a process of the sandbox.
fn is_of_sandbox(path: &std::path::Path, stage: Pid) -> bool {
    let process = path.iter().nth(2).and_then(|entry| entry.to_str()?.parse().ok());
    process.is_some_and(|id| super::judge::is_inside(super::act::Whom::Process(id), stage))
}

/// While it lives the calling thread's access to files is that of root without capabilities.
#[derive(Debug)]
pub struct AsOwner(Option<Uid>);

impl AsOwner {
    fn enter(account: Uid) -> AsOwner {
        setfsuid(Uid::from_raw(ROOT));
        AsOwner(Some(account))
    }

    /// The uid by which the thread is known to the kernel while this one lives.
    pub fn uid(&self) -> Option<u32> {
        self.0.map(|_| ROOT)
    }
}

impl Drop for AsOwner {
    fn drop(&mut self) {
        if let Some(account) = self.0 {
            setfsuid(account);
            // A thread that goes on as root would answer for root.
            if setfsuid(Uid::from_raw(u32::MAX)) != account {
                crate::sys::exit_now(1);
            }
        }
    }
}

/// What this process has under the path of what a caller in another view holds; what has no path, or another thing at it here, is
/// taken as it is.
///
/// # Errors
/// [`Unread::Form`] of what lies on a file system that is served by a process, and that this view has not: the process may
/// be one of the command's, which waits for an answer here before it gives one.
pub fn here(held: OwnedFd, of: Pid) -> Result<OwnedFd, Unread> {
    let Some(path) = path_of(held.as_fd()) else { return Ok(held) };
    let open = || openat2(AT_FDCWD, &path, place_only().resolve(ResolveFlag::RESOLVE_NO_SYMLINKS)).ok();
    let account = setfsuid(Uid::from_raw(u32::MAX));
    let found = open().or_else(|| {
        let _as_root = AsOwner::enter(account);
        open()
    });
    let identity = |fd: &OwnedFd| born(fd.as_fd()).map(|found| found.identity).ok();
    match found {
        Some(ours) if identity(&ours) == identity(&held) => Ok(ours),
        _ if is_served_by_process(&held, of)? => Err(Unread::Form),
        _ => Ok(held),
    }
}

/// Whether what a caller holds is on a file system of FUSE, by the caller's own mounts: a question to the file system itself
/// would be its process's to answer.
fn is_served_by_process(held: &OwnedFd, of: Pid) -> Result<bool, Unread> {
    let info = crate::procfs::read(&format!("/proc/self/fdinfo/{}", held.as_raw_fd())).unwrap_or_default();
    let Some(id) = crate::procfs::field(&info, "mnt_id:").and_then(|id| id.parse::<u32>().ok()) else {
        return Ok(false);
    };
    let mounts = with_ptrace(|| std::fs::read(format!("/proc/{of}/mountinfo")).unwrap_or_default())?;
    let mounts = mountinfo::parse(&mounts).unwrap_or_default();
    Ok(mounts.iter().any(|mount| mount.id == id && mount.fs_type.starts_with("fuse")))
}
