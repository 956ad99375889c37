//! The operations that probes try: primitive calls, no shell tools. Each says what it saw, one word a try.

use super::{Surroundings, arena, network};
use crate::confine::known_capabilities;
use crate::install::{mountinfo, mounts};
use crate::sys::{self, Fork};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::sys::signal::kill;
use nix::sys::stat::{Mode, lstat};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{AccessFlags, LinkatFlags, Pid, access, getgroups, getresgid, getresuid, linkat, mkdir, unlink};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// What a probe tries.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operation {
    /// Creates a file in each protected tree and in each mount beneath one.
    CreateInProtected,
    /// The same by way of /proc/self/root and through a symbolic link in a writable place.
    CreateByAlias,
    /// The same from a grandchild in a session of its own.
    CreateFromGrandchild,
    /// Links a file of a protected tree into a writable place and opens it for writing there.
    LinkOutOfProtected,
    /// Mounts a file system over each protected tree.
    MountOverProtected,
    /// Reads an entry of each protected tree.
    ListProtected,
    /// Creates, writes, renames and removes a file in each path of the writable set.
    WriteInWritable,
    /// Looks for propagation in the mount table.
    Propagation,
    /// Looks for mounts on which set-id bits count.
    SetIdMounts,
    /// Looks at the mode of each masked path.
    Masked,
    /// Opens each masked path.
    OpenMasked,
    /// Reads the account files that are mounted over.
    Accounts,
    /// Tells the four uids and gids.
    Ids,
    /// Tells the supplementary groups.
    Groups,
    /// Tells the capability sets that are not empty.
    CapabilitySets,
    /// Tells the capabilities in the bounding set.
    BoundingSet,
    /// Tells no_new_privs.
    NoNewPrivs,
    /// Becomes uid 0.
    BecomeRoot,
    /// The same from a grandchild.
    BecomeRootFromGrandchild,
    /// Executes a set-id program of root's.
    SetIdProgram,
    /// Executes a program with a file capability.
    FileCapability,
    /// Creates a user namespace.
    UserNamespace,
    /// The same by clone(2).
    UserNamespaceByClone,
    /// Mounts a tmpfs.
    Mount,
    /// Opens a raw socket.
    RawSocket,
    /// Asks nftables for a change.
    Nftables,
    /// Opens a socket of a family that the firewall does not see.
    OtherFamily,
    /// Sets up an io_uring.
    IoUring,
    /// Pushes a byte into the terminal's input, with high bits set in the request too.
    TerminalInput,
    /// Traces the supervisor, and opens its memory.
    TraceSupervisor,
    /// Asks whether the supervisor could be signalled, without a signal: one that came through would hold up the run.
    SignalSupervisor,
    /// Connects to an abstract unix socket of the outside.
    AbstractSocket,
    /// Looks for the caller's session keyring.
    Keyring,
    /// Looks for descriptors beside stdio.
    Descriptors,
    /// Looks for variables that must not reach the command, and for the proxy's.
    Environment,
    /// Forks a child that exits with a status of its own.
    Fork,
    /// An operation on the network.
    #[serde(untagged)]
    Network(network::Operation),
}

/// Tries an operation; what it saw, one word a try.
pub fn make(operation: &Operation, run: &Surroundings) -> Vec<String> {
    let one = |seen: String| vec![seen];
    match operation {
        Operation::CreateInProtected => create_in(&protected_places(run)),
        Operation::CreateByAlias => create_by_alias(run),
        Operation::CreateFromGrandchild => in_grandchild(|| create_in(&protected_places(run))),
        Operation::LinkOutOfProtected => link_out(run),
        Operation::MountOverProtected => run.protected.iter().map(|p| errno_of(mount_tmpfs(p))).collect(),
        Operation::ListProtected => {
            run.protected.iter().map(|p| io_outcome(std::fs::read_dir(p).map(|_| ()))).collect()
        }
        Operation::WriteInWritable => run.writable.iter().map(|p| written(p)).collect(),
        Operation::Propagation => mount_faults(|m| !m.propagation.is_empty(), "private"),
        Operation::SetIdMounts => {
            mount_faults(|m| !m.has("nosuid") && m.point != Path::new(arena::DIRECTORY), "nosuid")
        }
        Operation::Masked => run.masked.iter().map(|p| mode_of(p)).collect(),
        Operation::OpenMasked => {
            run.masked.iter().map(|p| errno_of(open(p, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()))).collect()
        }
        Operation::Accounts => accounts(run),
        Operation::Ids => one(ids(run)),
        Operation::Groups => one(getgroups().map_or_else(
            |e| e.to_string(),
            |g| {
                if g.is_empty() { "none".into() } else { format!("{g:?}") }
            },
        )),
        Operation::CapabilitySets => one(capability_sets()),
        Operation::BoundingSet => one(bounding_set()),
        Operation::NoNewPrivs => {
            one(nix::sys::prctl::get_no_new_privs().map_or_else(name_of, |held| u8::from(held).to_string()))
        }
        Operation::BecomeRoot => one(become_root()),
        Operation::BecomeRootFromGrandchild => in_grandchild(|| one(become_root())),
        Operation::SetIdProgram => one(executed(arena::SET_ID)),
        Operation::FileCapability => one(executed(arena::FILE_CAPABILITY)),
        Operation::UserNamespace => {
            one(in_child(|| vec![attempt(libc::SYS_unshare, [libc::CLONE_NEWUSER as u64, 0, 0, 0, 0, 0])]).concat())
        }
        Operation::UserNamespaceByClone => one(clone_namespace()),
        Operation::Mount => one(errno_of(mount_tmpfs(Path::new("/")))),
        Operation::RawSocket => {
            let raw = |family: i32| attempt(libc::SYS_socket, [family as u64, libc::SOCK_RAW as u64, 1, 0, 0, 0]);
            let packet = attempt(libc::SYS_socket, [libc::AF_PACKET as u64, libc::SOCK_RAW as u64, 0, 0, 0, 0]);
            vec![raw(libc::AF_INET), raw(libc::AF_INET6), packet]
        }
        Operation::Nftables => one(network::nftables_change()),
        Operation::OtherFamily => {
            let stream = |family: i32| attempt(libc::SYS_socket, [family as u64, libc::SOCK_STREAM as u64, 0, 0, 0, 0]);
            vec![stream(libc::AF_VSOCK), stream(libc::AF_ALG), stream(libc::AF_BLUETOOTH), stream(1 << 20)]
        }
        Operation::IoUring => one(attempt(libc::SYS_io_uring_setup, [1, 0, 0, 0, 0, 0])),
        Operation::TerminalInput => {
            let push = |request: u64| attempt(libc::SYS_ioctl, [0, request, 0, 0, 0, 0]);
            vec![push(libc::TIOCSTI), push(libc::TIOCSTI | 0xdead_0000_0000), push(u64::from(libc::TIOCLINUX as u32))]
        }
        Operation::TraceSupervisor => trace(run.supervisor),
        Operation::SignalSupervisor => one(errno_of(kill(Pid::from_raw(run.supervisor), None))),
        Operation::AbstractSocket => one(network::abstract_socket(&run.outside)),
        Operation::Keyring => one(keyring(run)),
        Operation::Descriptors => descriptors(),
        Operation::Environment => environment(run),
        Operation::Fork => one(in_child(|| vec!["ok".into()]).concat()),
        Operation::Network(operation) => network::make(operation, run),
    }
}

/// `ok`, or the errno's name.
pub fn errno_of<T>(outcome: Result<T, Errno>) -> String {
    outcome.map_or_else(name_of, |_| "ok".into())
}

fn name_of(errno: Errno) -> String {
    format!("{errno:?}")
}

fn io_outcome<T>(outcome: std::io::Result<T>) -> String {
    errno_of(outcome.map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO))))
}

fn attempt(call: libc::c_long, arguments: [u64; 6]) -> String {
    errno_of(sys::attempt(call, arguments))
}

/// The protected trees and every mount beneath one that a path leads to, less the writable set.
fn protected_places(run: &Surroundings) -> Vec<PathBuf> {
    // What /proc takes in is no file.
    let exempt = |path: &Path| path.starts_with("/proc") || run.writable.iter().any(|w| path.starts_with(w));
    let mut places = run.protected.clone();
    if let Ok(mounts) = mounts::read_mountinfo() {
        for mount in mountinfo::reachable(&mounts) {
            let below = run.protected.iter().any(|tree| mount.point.starts_with(tree) && mount.point != *tree);
            // A mount on a file cannot have a file created in it; one that the command may not search answers for itself.
            if below && !exempt(&mount.point) && mount.point.is_dir() && !run.masked.contains(&mount.point) {
                places.push(mount.point.clone());
            }
        }
    }
    places
}

fn scratch_name() -> String {
    format!(".preflight-{}", std::process::id())
}

fn create_in(places: &[PathBuf]) -> Vec<String> {
    places
        .iter()
        .map(|place| match access(place, AccessFlags::X_OK) {
            // The kernel looks at the directory's mode before it looks at the mount.
            Err(Errno::EACCES) => "not to be searched".into(),
            _ => created(&place.join(scratch_name())),
        })
        .collect()
}

fn created(path: &Path) -> String {
    match open(path, OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::S_IRWXU) {
        Ok(_) => {
            let removed = if unlink(path).is_ok() { "" } else { " and left there" };
            format!("{}: created{removed}", path.display())
        }
        Err(Errno::EROFS) => "EROFS".into(),
        Err(errno) => format!("{}: {errno:?}", path.display()),
    }
}

fn create_by_alias(run: &Surroundings) -> Vec<String> {
    let Some(tree) = run.protected.first() else {
        return Vec::new();
    };
    let relative = tree.strip_prefix("/").unwrap_or(tree);
    let mut seen: Vec<String> = ["/proc/self/root", "/proc/thread-self/root"]
        .iter()
        .map(|root| created(&Path::new(root).join(relative).join(scratch_name())))
        .collect();
    if let Some(place) = run.writable.iter().find(|w| w.is_dir()) {
        let link = place.join(scratch_name());
        if std::os::unix::fs::symlink(tree, &link).is_ok() {
            seen.push(created(&link.join("file")));
            seen.push(io_outcome(std::fs::remove_file(&link)).replace("ok", "EROFS"));
        }
    }
    seen
}

fn link_out(run: &Surroundings) -> Vec<String> {
    let Some(place) = run.writable.iter().find(|w| w.is_dir()) else {
        return Vec::new();
    };
    let link = place.join(scratch_name());
    run.overlays
        .iter()
        .map(|(file, _)| {
            let outcome = linkat(nix::fcntl::AT_FDCWD, file, nix::fcntl::AT_FDCWD, &link, LinkatFlags::empty());
            if outcome.is_ok() {
                return format!("{}: linked, {}", file.display(), errno_of(unlink(&link)));
            }
            errno_of(outcome)
        })
        .collect()
}

fn written(place: &Path) -> String {
    if !place.is_dir() {
        return errno_of(open(place, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty()));
    }
    let (directory, moved) = (place.join(scratch_name()), place.join(format!("{}-moved", scratch_name())));
    let tried = mkdir(&directory, Mode::S_IRWXU).and_then(|()| {
        let file = directory.join("file");
        let outcome = std::fs::write(&file, "x")
            .and_then(|()| std::fs::remove_file(&file))
            .and_then(|()| std::fs::rename(&directory, &moved));
        outcome.map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO)))?;
        std::fs::remove_dir(&moved).map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO)))
    });
    match tried {
        Ok(()) => "ok".into(),
        Err(errno) => format!("{}: {errno:?}", place.display()),
    }
}

fn mount_faults(fault: impl Fn(&mountinfo::Mount) -> bool, sound: &str) -> Vec<String> {
    let mounts = match mounts::read_mountinfo() {
        Ok(mounts) => mounts,
        Err(error) => return vec![error.to_string()],
    };
    let faulty = mountinfo::reachable(&mounts).into_iter().find(|m| fault(m));
    vec![faulty.map_or_else(|| sound.into(), |m| format!("{}: not {sound}", m.point.display()))]
}

fn mode_of(path: &Path) -> String {
    lstat(path).map_or_else(name_of, |s| format!("mode {:03o} uid {}", s.st_mode & 0o777, s.st_uid))
}

fn accounts(run: &Surroundings) -> Vec<String> {
    run.overlays
        .iter()
        .map(|(path, content)| match std::fs::read(path) {
            Ok(seen) if seen == *content => "as planned".into(),
            Ok(_) => format!("{}: the image's own", path.display()),
            // Not readable for the command: then its size must be the planned one's.
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => match lstat(path) {
                Ok(stat) if stat.st_size as usize == content.len() => "as planned".into(),
                Ok(_) => format!("{}: the image's own", path.display()),
                Err(errno) => name_of(errno),
            },
            Err(e) => format!("{}: {e}", path.display()),
        })
        .collect()
}

fn ids(run: &Surroundings) -> String {
    let (Ok(u), Ok(g)) = (getresuid(), getresgid()) else {
        return "unknown".into();
    };
    let all = [u.real, u.effective, u.saved].map(|i| i.as_raw());
    let groups = [g.real, g.effective, g.saved].map(|i| i.as_raw());
    match run.ids {
        Some((uid, gid)) if all == [uid; 3] && groups == [gid; 3] => "the account's".into(),
        _ => format!("uid {all:?} gid {groups:?}"),
    }
}

fn capability_sets() -> String {
    let ambient = known_capabilities().is_ok_and(|mut all| all.any(|n| sys::ambient_has(n) == Ok(true)));
    match sys::capget() {
        Ok(sets) if sets == sys::CapabilitySets::default() && !ambient => "empty".into(),
        Ok(sets) => format!("{sets:x?} ambient {ambient}"),
        Err(errno) => name_of(errno),
    }
}

fn bounding_set() -> String {
    match known_capabilities() {
        Ok(all) => {
            let held: Vec<u32> = all.filter(|n| sys::bounding_has(*n) != Ok(false)).collect();
            if held.is_empty() { "empty".into() } else { format!("holds {held:?}") }
        }
        Err(errno) => name_of(errno),
    }
}

fn become_root() -> String {
    in_child(|| vec![attempt(libc::SYS_setresuid, [0; 6])]).concat()
}

fn mount_tmpfs(onto: &Path) -> Result<(), Errno> {
    nix::mount::mount(Some("tmpfs"), onto, Some("tmpfs"), nix::mount::MsFlags::empty(), None::<&str>)
}

fn clone_namespace() -> String {
    // With CLONE_NEWUSER a success would be a second process here; it ends at once.
    match sys::attempt(libc::SYS_clone, [(libc::CLONE_NEWUSER | libc::SIGCHLD) as u64, 0, 0, 0, 0, 0]) {
        Ok(0) => sys::exit_now(0),
        outcome => errno_of(outcome),
    }
}

fn trace(pid: i32) -> Vec<String> {
    let traced = attempt(libc::SYS_ptrace, [u64::from(libc::PTRACE_SEIZE), pid as u64, 0, 0, 0, 0]);
    let memory = open(Path::new(&format!("/proc/{pid}/mem")), OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty());
    vec![traced, errno_of(memory)]
}

fn keyring(run: &Surroundings) -> String {
    match sys::session_keyring() {
        Ok(serial) if serial == run.keyring => "the caller's".into(),
        Ok(_) => "its own".into(),
        // Where the calls are refused, the keyring still serves the kernel, and is listed to who possesses it (keyrings(7)).
        Err(errno) => match std::fs::read_to_string("/proc/keys") {
            Ok(keys) if keys.lines().any(|line| line.starts_with(&format!("{:08x} ", run.keyring))) => {
                "the caller's".into()
            }
            _ => name_of(errno),
        },
    }
}

/// Every descriptor beyond stdio and the report.
fn descriptors() -> Vec<String> {
    let stray = (4..1024).filter(|n| sys::is_open(*n));
    let found: Vec<String> = stray.map(|n| format!("descriptor {n}")).collect();
    if found.is_empty() { vec!["none".into()] } else { found }
}

fn environment(run: &Surroundings) -> Vec<String> {
    let names = || run.environment.iter().filter_map(|v| v.to_str().ok()?.split_once('='));
    let dropped = names().find(|(name, _)| ["LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT"].contains(name));
    let proxied = run.proxy.is_none_or(|p| {
        let address = p.to_string();
        ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"]
            .iter()
            .all(|n| names().any(|(name, v)| name == *n && v.contains(&address)))
    });
    match (dropped, proxied) {
        (Some((name, _)), _) => vec![format!("{name} is passed on")],
        (None, false) => vec!["the proxy's address is missing".into()],
        (None, true) => vec!["as planned".into()],
    }
}

fn executed(path: &str) -> String {
    let argv = [std::ffi::CString::new(path).unwrap_or_default()];
    match sys::fork_single_threaded() {
        Ok(Fork::Child) => {
            let Err(errno) = nix::unistd::execve(&argv[0], &argv, &argv[..0]);
            sys::exit_now(if errno == Errno::EPERM { 0 } else { 64 });
        }
        Ok(Fork::Parent(child)) => match waitpid(child, None) {
            Ok(WaitStatus::Exited(_, 0)) => "nothing gained".into(),
            Ok(WaitStatus::Exited(_, bits)) => format!("status {bits}"),
            other => format!("{other:?}"),
        },
        Err(errno) => name_of(errno),
    }
}

/// Runs `work` in a child of its own and returns what it saw.
fn in_child(work: impl FnOnce() -> Vec<String>) -> Vec<String> {
    use std::io::{Read, Write};
    let Ok((report, write)) = nix::unistd::pipe2(OFlag::O_CLOEXEC) else {
        return vec!["no pipe".into()];
    };
    match sys::fork_single_threaded() {
        Ok(Fork::Child) => {
            let text = work().join("\n");
            let done = std::fs::File::from(write).write_all(text.as_bytes());
            sys::exit_now(i32::from(done.is_err()));
        }
        Ok(Fork::Parent(child)) => {
            drop(write);
            let mut text = String::new();
            let read = std::fs::File::from(report).read_to_string(&mut text);
            let ended = waitpid(child, None);
            match (read, ended) {
                (Ok(_), Ok(WaitStatus::Exited(_, 0))) => text.lines().map(str::to_owned).collect(),
                (_, ended) => vec![format!("the child ended with {ended:?}")],
            }
        }
        Err(errno) => vec![name_of(errno)],
    }
}

/// The same two generations down, in a session of its own.
pub fn in_grandchild(work: impl FnOnce() -> Vec<String>) -> Vec<String> {
    in_child(|| {
        let session = nix::unistd::setsid();
        if session.is_err() {
            return vec![errno_of(session)];
        }
        in_child(work)
    })
}
