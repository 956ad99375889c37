//! Where sessions are: a directory of the user's own with a socket and a file of state for each.
//!
//! A session lives as long as somebody listens on its socket. What a supervisor that was killed has left is found by that, and
//! removed by whoever asks next.

use super::{Name, SessionError};
use crate::procfs;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, Flock, FlockArg, OFlag, fcntl, open};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept4, bind, connect, getsockopt, listen, socket, sockopt,
};
use nix::sys::stat::{Mode, fstat, stat, umask};
use nix::unistd::{Pid, geteuid};
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where root's sessions are.
const ROOTS: &str = "/run/ringfence";
/// Clients that may wait to be taken in.
const WAITING: i32 = 512;

/// How long others may have the directory to themselves, or keep a supervisor from taking in a client.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(2);

/// What is known of a session whose supervisor cannot be asked.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct State {
    /// The run's identifier.
    pub run: String,
    /// The supervisor's process id.
    pub supervisor: i32,
    /// Where the record is.
    pub ledger: String,
}

/// A name's place, whether there is a session or not.
#[derive(Debug, Clone)]
pub struct Place {
    directory: PathBuf,
    name: Name,
}

/// A session's place, taken; given up when this is dropped.
#[derive(Debug)]
pub struct Claimed {
    place: Place,
    listener: OwnedFd,
}

/// What became of an attempt to speak to a session.
#[derive(Debug)]
pub enum Reached {
    /// It listens.
    Living(OwnedFd),
    /// There is none.
    Nobody,
    /// There was one. What it left of itself here is removed.
    Dead(State),
}

impl Place {
    /// The place of a name among the caller's sessions.
    ///
    /// # Errors
    /// Where XDG_RUNTIME_DIR is not set and the caller is not root.
    pub fn of(name: Name) -> Result<Place, SessionError> {
        let directory = if geteuid().is_root() {
            PathBuf::from(ROOTS)
        } else {
            let base = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
            base.ok_or(SessionError::NoDirectory)?.join("ringfence")
        };
        Ok(Place { directory, name })
    }

    /// The name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The directory of the user's sessions.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The session's socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.join(format!("{}.sock", self.name))
    }

    fn state(&self) -> PathBuf {
        self.directory.join(format!("{}.json", self.name))
    }

    /// Takes the place for the calling process. With it, what a dead supervisor had left there.
    pub fn claim(self) -> Result<(Claimed, Option<State>), SessionError> {
        let _locked = loop {
            self.make_directory()?;
            match self.lock() {
                // Whoever had the last place there has removed it meanwhile.
                Err(SessionError::File { errno: Errno::ENOENT, .. }) => {}
                locked => break locked?,
            }
        };
        let dead = match self.look()? {
            Reached::Living(_) => return Err(SessionError::IsUp { name: self.name }),
            Reached::Dead(state) => Some(state),
            Reached::Nobody => None,
        };
        let path = self.socket();
        let listener = seqpacket()?;
        let address = UnixAddr::new(&path).map_err(self.failed("bind", &path))?;
        let before = umask(Mode::from_bits_truncate(0o177));
        let bound = bind(listener.as_raw_fd(), &address);
        umask(before);
        bound.map_err(self.failed("bind", &path))?;
        let claimed = Claimed { place: self, listener };
        let backlog = Backlog::new(WAITING).unwrap_or(Backlog::MAXCONN);
        listen(&claimed.listener, backlog).map_err(claimed.place.failed("listen", &path))?;
        Ok((claimed, dead))
    }

    /// Speaks to the session.
    pub fn reach(&self) -> Result<Reached, SessionError> {
        match std::fs::symlink_metadata(&self.directory) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Reached::Nobody),
            _ => self.check_directory()?,
        }
        // Nobody takes or leaves a place meanwhile, so that what is found dead is not another one already.
        let _locked = match self.lock() {
            Err(SessionError::File { errno: Errno::ENOENT, .. }) => return Ok(Reached::Nobody),
            locked => locked?,
        };
        let reached = self.look()?;
        if let Reached::Dead(_) = &reached {
            self.remove_directory();
        }
        Ok(reached)
    }

    /// The names of the sessions that have a place here.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".sock")?.to_owned())).collect();
        names.sort();
        names
    }

    fn look(&self) -> Result<Reached, SessionError> {
        let path = self.socket();
        let address = UnixAddr::new(&path).map_err(self.failed("connect", &path))?;
        let client = seqpacket()?;
        let deadline = Instant::now() + PATIENCE;
        let connected = loop {
            match connect(client.as_raw_fd(), &address) {
                // As many wait as may; the supervisor takes them in one by one.
                Err(Errno::EAGAIN) if Instant::now() < deadline => std::thread::sleep(PAUSE),
                connected => break connected,
            }
        };
        match connected {
            Ok(()) => {
                fcntl(&client, FcntlArg::F_SETFL(OFlag::empty())).map_err(self.failed("fcntl", &path))?;
                Ok(Reached::Living(client))
            }
            Err(Errno::ENOENT) => Ok(Reached::Nobody),
            Err(Errno::ECONNREFUSED) => {
                let text = std::fs::read(self.state()).unwrap_or_default();
                // It may have died before it wrote one.
                let state = serde_json::from_slice(&text).unwrap_or_default();
                self.remove_files();
                Ok(Reached::Dead(state))
            }
            Err(errno) => Err(self.failed("connect", &path)(errno)),
        }
    }

    fn make_directory(&self) -> Result<(), SessionError> {
        if let Some(parent) = self.directory.parent().filter(|_| geteuid().is_root()) {
            // An image may have no /run.
            std::fs::create_dir_all(parent).map_err(self.failed("mkdir", parent))?;
        }
        match std::fs::DirBuilder::new().mode(0o700).create(&self.directory) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(self.failed("mkdir", &self.directory)(error));
            }
            _ => {}
        }
        self.check_directory()
    }

    /// Whoever else could change the directory could be asked in the session's place.
    fn check_directory(&self) -> Result<(), SessionError> {
        let found = std::fs::symlink_metadata(&self.directory).map_err(self.failed("lstat", &self.directory))?;
        let uid = geteuid().as_raw();
        let fault = match found.mode() & 0o7777 {
            _ if !found.is_dir() => "it is no directory".to_owned(),
            _ if found.uid() != uid => format!("it belongs to uid {}", found.uid()),
            0o700 => return Ok(()),
            mode => format!("its mode is {mode:04o}"),
        };
        Err(SessionError::Untrusted { path: self.directory.clone(), fault, uid })
    }

    /// Locks the directory: the one that is there, for the last to leave it removes it.
    fn lock(&self) -> Result<Flock<OwnedFd>, SessionError> {
        let deadline = Instant::now() + PATIENCE;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        loop {
            let directory =
                open(&self.directory, flags, Mode::empty()).map_err(self.failed("open", &self.directory))?;
            match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
                Ok(locked) => {
                    let held = fstat(&*locked).map_err(self.failed("fstat", &self.directory))?;
                    let there = stat(&self.directory).map_err(self.failed("stat", &self.directory))?;
                    if (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino) {
                        return Ok(locked);
                    }
                }
                Err((_, Errno::EAGAIN)) if Instant::now() < deadline => std::thread::sleep(PAUSE),
                Err((_, errno)) => return Err(self.failed("flock", &self.directory)(errno)),
            }
        }
    }

    fn remove_files(&self) {
        for path in [self.socket(), self.state()] {
            match std::fs::remove_file(path) {
                // One that is not there need not be removed; one that cannot be is found again by the next who asks.
                Ok(()) | Err(_) => {}
            }
        }
    }

    fn remove_directory(&self) {
        match std::fs::remove_dir(&self.directory) {
            // Others have a place there.
            Ok(()) | Err(_) => {}
        }
    }

    fn failed<E: Into<std::io::Error>>(&self, call: &'static str, path: &Path) -> impl FnOnce(E) -> SessionError {
        let path = path.to_owned();
        move |e| {
            let errno = Errno::from_raw(e.into().raw_os_error().unwrap_or(libc::EIO));
            SessionError::File { call, path, errno }
        }
    }
}

/// A socket that waits for nothing until it is told to.
fn seqpacket() -> Result<OwnedFd, SessionError> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).map_err(super::call("socket"))
}

impl Claimed {
    /// The place.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Writes down what is to be known if this process dies.
    pub fn write_state(&self, state: &State) -> Result<(), SessionError> {
        let path = self.place.state();
        let text = serde_json::to_vec(state).map_err(super::call("write"))?;
        let file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        file.and_then(|mut file| std::io::Write::write_all(&mut file, &text)).map_err(self.place.failed("write", &path))
    }

    /// Takes in a client that waits; `None` where it has gone, or may not ask: another user's, or one from the sandbox,
    /// whose processes all descend from `stage`.
    pub fn accept(&self, stage: Pid) -> Result<Option<OwnedFd>, SessionError> {
        let client = match accept4(&self.listener, SockFlag::SOCK_CLOEXEC) {
            Ok(client) => client,
            Err(Errno::EAGAIN | Errno::ECONNABORTED | Errno::EINTR) => return Ok(None),
            Err(errno) => return Err(super::call("accept4")(errno)),
        };
        let peer = getsockopt(&client, sockopt::PeerCredentials).map_err(super::call("getsockopt SO_PEERCRED"))?;
        let of_owner = peer.uid() == 0 || peer.uid() == geteuid().as_raw();
        Ok(Some(client).filter(|_| of_owner && is_outside(peer.pid(), stage)))
    }
}

/// Whether a process lives and has no ancestor among `stage` and those below it. One that the kernel shows as 0 is of an
/// outer PID namespace (pid_namespaces(7)), where nothing of the sandbox is.
fn is_outside(peer: i32, stage: Pid) -> bool {
    let mut pid = peer;
    // The table may change meanwhile: no chain is longer.
    for _ in 0..1 << 16 {
        if pid == stage.as_raw() {
            return false;
        }
        if pid <= 1 {
            return true;
        }
        let status = procfs::read(&format!("/proc/{pid}/status")).unwrap_or_default();
        let Some(parent) = procfs::field(&status, "PPid:").and_then(|text| text.parse().ok()) else { return false };
        pid = parent;
    }
    false
}

impl AsFd for Claimed {
    /// The listening socket.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        // Under the lock, so that nobody takes the place between the two.
        let _locked = self.place.lock();
        self.place.remove_files();
        self.place.remove_directory();
    }
}
