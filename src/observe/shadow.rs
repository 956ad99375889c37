//! A shadow's way to judge: the observer has the whole confinement of a policy that its callers do not have. The kernel
//! answers it as it would answer the command under that policy, and the command's own calls go on whatever it says.
//!
//! Two things differ from a command that is held. Its view of the file system is another: what it has open is looked for
//! here under the same path. And it is root, so that what it makes is root's, and would have been its own account's there:
//! about such a file the kernel is asked as root without a capability, to whom it is what the account's own would be to the
//! account.

use super::act::SocketCall;
use super::caller::{Caller, Name, with_ptrace};
use super::judge::Verdict;
use super::walk::{self, path_of};
use crate::sys::call::{Argument, born, call_for_fd};
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2, readlink};
use nix::libc;
use nix::sys::stat::fstat;
use nix::unistd::{AccessFlags, Pid, Uid, faccessat, setfsuid};
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Whom the command runs as where nothing is enforced.
const ROOT: u32 = 0;

/// What the judge of a shadow knows beside.
#[derive(Debug, Clone)]
pub struct Shadow {
    /// The account that the stricter policy would have the command run as.
    account: Uid,
    /// Trees that would be its own.
    handed_over: Vec<PathBuf>,
    /// When the run began: what is younger is the command's.
    began: Duration,
    /// The namespaces and the root of the command, as /proc shows them.
    home: Vec<Option<OsString>>,
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
            true => Ok(Shadow { account: Uid::from_raw(account), handed_over, began, home }),
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

    /// What is answered where nothing is refused.
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

    /// Has the kernel answer this thread as the account would be answered about these names, until it is dropped.
    pub fn as_owner(&self, names: &[Name], stage: Pid) -> AsOwner {
        let root = AsOwner::enter(self.account);
        let own = |name: &Name| self.is_commands(name, stage);
        let (own, others): (Vec<&Name>, Vec<&Name>) = names.iter().partition(|name| own(name));
        if own.is_empty() {
            return AsOwner(None);
        }
        drop(root);
        // What lies where the account could not go is refused for that, whatever is to come from there or go there.
        match others.iter().all(|name| is_open_to_account(name)) {
            true => AsOwner::enter(self.account),
            false => AsOwner(None),
        }
    }

    /// Whether all names lead to what is the account's, or would be.
    pub fn is_accounts(&self, names: &[Name], stage: Pid) -> bool {
        let _root = AsOwner::enter(self.account);
        let is_its_own = |name: &Name| {
            let owner = walk::pin(name).and_then(|object| born(object.as_fd())).map(|found| found.uid);
            owner == Ok(self.account.as_raw()) || self.is_commands(name, stage)
        };
        names.iter().all(is_its_own)
    }

    /// Whether what a name leads to, or else its directory, would be the account's own.
    fn is_commands(&self, name: &Name, stage: Pid) -> bool {
        let object = walk::pin(name).ok().or_else(|| {
            let (parent, _) = walk::split(name.text.as_bytes())?;
            openat2(AT_FDCWD, parent, place_only()).ok()
        });
        let Some(object) = object else { return false };
        let Ok(found) = born(object.as_fd()) else { return false };
        if found.uid != ROOT {
            return false;
        }
        let Some(path) = path_of(object.as_fd()) else { return true };
        if walk::is_proc(object.as_fd()) {
            return is_of_sandbox(&path, stage);
        }
        self.handed_over.iter().any(|tree| path.starts_with(tree)) || found.at >= self.began
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

/// Whether the account may make and take away the name: in a sticky directory, only one that is not there (inode(7)).
fn is_open_to_account(name: &Name) -> bool {
    let Some((parent, _)) = walk::split(name.text.as_bytes()) else { return false };
    let names = AccessFlags::W_OK | AccessFlags::X_OK;
    let sticky = nix::sys::stat::stat(parent).is_ok_and(|found| found.st_mode & libc::S_ISVTX != 0);
    let there = nix::sys::stat::lstat(name.text.as_c_str()).is_ok();
    faccessat(AT_FDCWD, parent, names, nix::fcntl::AtFlags::AT_EACCESS).is_ok() && !(sticky && there)
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
pub fn here(held: OwnedFd) -> OwnedFd {
    let Some(path) = path_of(held.as_fd()) else { return held };
    let open = || openat2(AT_FDCWD, &path, place_only().resolve(ResolveFlag::RESOLVE_NO_SYMLINKS)).ok();
    let account = setfsuid(Uid::from_raw(u32::MAX));
    let found = open().or_else(|| {
        let _as_root = AsOwner::enter(account);
        open()
    });
    let identity = |fd: &OwnedFd| fstat(fd).map(|found| (found.st_dev, found.st_ino)).ok();
    match found {
        Some(ours) if identity(&ours) == identity(&held) => ours,
        _ => held,
    }
}
