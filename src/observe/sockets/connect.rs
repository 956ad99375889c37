//! connect(2), and names of unix sockets.

use super::Sockets;
use super::address::{Destination, destination};
use super::calls::{Behind, done, has_one_thread, refuse};
use super::held::{Held, Kind, Tcp};
use super::rules::Transport;
use super::table::Known;
use super::waiting::{Later, Outcome};
use crate::observe::act::{Act, Address, Base, Place};
use crate::observe::ask::with_mask_of;
use crate::observe::caller::Unread;
use crate::observe::decode;
use crate::observe::judge::{Looked, Verdict};
use crate::observe::told::{PathTarget, Refusal, Target};
use crate::observe::walk::{self, path_of, split};
use crate::observe::watched::PERMISSION;
use crate::policy::Axis;
use crate::sys;
use nix::errno::Errno;
use nix::libc;
use nix::poll::PollFlags;
use nix::sys::stat::fstat;
use nix::unistd::{chdir, fchdir};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A unix socket by its name: the address that leads there from here.
pub(super) struct Named {
    /// The address.
    pub address: Vec<u8>,
    /// What it goes through.
    _pinned: OwnedFd,
}

impl Looked<'_> {
    pub(super) fn connect(&self, sockets: &Arc<Sockets>, fd: i32, address: Vec<u8>) -> Result<Verdict, Unread> {
        if address.len() < 2 {
            return Ok(Verdict::RefuseSilently(Errno::EINVAL));
        }
        let is_unspecified = address[..2] == [0, 0];
        let held = match self.behind(sockets, fd)? {
            Err(verdict) => return Ok(verdict),
            Ok(Behind::Held(held)) => held,
            // What is connected stays so: to undo that takes a duplicate.
            Ok(Behind::Known(Known::Tcp)) if is_unspecified => {
                let object = Target::Text("a connection that is to be undone".into());
                return Ok(self.refused_on_network(Errno::EPERM, object, "default-deny"));
            }
            Ok(Behind::Known(Known::Tcp)) => return Ok(Verdict::RefuseSilently(Errno::EISCONN)),
            Ok(Behind::Known(known)) => {
                let kind = if known == Known::Unix { Kind::Unix } else { Kind::Netlink };
                if let Some(verdict) = self.refused_path(fd, &address)? {
                    return Ok(verdict);
                }
                let own = self.is_own(sockets, kind, &address);
                return Ok(if own { Verdict::Passes } else { Verdict::RefuseSilently(Errno::EISCONN) });
            }
            Ok(Behind::Unknown) => return Ok(self.unknown()),
        };
        match held.kind {
            Kind::Inet(transport, _) => Ok(self.connect_inet(sockets, held, transport, &address)),
            Kind::Netlink if has_one_thread(self.caller.tid) => Ok(Verdict::Passes),
            Kind::Netlink => Ok(self.later(Later::once(self.caller.tid, move || done(held.connect(&address))))),
            Kind::Unix => self.connect_unix(sockets, fd, held, address),
        }
    }

    fn connect_inet(&self, sockets: &Arc<Sockets>, held: Arc<Held>, transport: Transport, address: &[u8]) -> Verdict {
        let tid = self.caller.tid;
        let (to, bytes) = match destination(held.kind, address, false) {
            Destination::To(to, bytes) => (to, bytes),
            Destination::Nowhere => return self.later(Later::once(tid, move || done(held.disconnect()))),
            Destination::Malformed => {
                let family = u16::from_ne_bytes([address[0], address[1]]);
                let own = match held.kind {
                    Kind::Inet(_, true) => libc::AF_INET6,
                    _ => libc::AF_INET,
                };
                let errno = if i32::from(family) == own { Errno::EINVAL } else { Errno::EAFNOSUPPORT };
                return Verdict::RefuseSilently(errno);
            }
        };
        let (bytes, note) = match self.lead(sockets, &held, transport, to) {
            Some((bytes, note)) => (bytes, Some(note)),
            None => {
                if let Some(refusal) = self.refused(sockets, &held, transport, to) {
                    return refuse(transport.refusal(), refusal);
                }
                let to = super::rules::meant(to);
                (bytes, sockets.rules.is_proxy(to).then(|| self.note(&held, transport, to)))
            }
        };
        if transport != Transport::Tcp {
            return self.later(Later { note, ..Later::once(tid, move || done(held.connect(&bytes))) });
        }
        let blocks = held.blocks();
        let on = Some((held.clone(), PollFlags::POLLOUT));
        let deadline = held.send_timeout().map(|wait| (wait, Errno::EINPROGRESS));
        let sockets = sockets.clone();
        let attempt = move || connect_tcp(&sockets, &held, &bytes, blocks);
        self.later(Later { note, on, deadline, interruptible: true, ..Later::once(tid, attempt) })
    }

    fn connect_unix(
        &self,
        sockets: &Arc<Sockets>,
        fd: i32,
        held: Arc<Held>,
        address: Vec<u8>,
    ) -> Result<Verdict, Unread> {
        if let Some(verdict) = self.refused_path(fd, &address)? {
            return Ok(verdict);
        }
        let stays = held.is_datagram();
        if self.is_own(sockets, held.kind, &address) {
            if !stays {
                sockets.table.release(&held);
            }
            return Ok(Verdict::Passes);
        }
        let named = match self.named(sockets, &address)? {
            Ok(named) => named,
            Err(verdict) => return Ok(verdict),
        };
        let blocks = held.blocks();
        let deadline = held.send_timeout().map(|wait| (wait, Errno::EAGAIN));
        let refusal = self.refusal_of_name(&address);
        let (sockets, tid) = (sockets.clone(), self.caller.tid);
        let attempt = move || match held.connect(named.as_ref().map_or(&address, |named| &named.address)) {
            Ok(()) => {
                if !stays {
                    sockets.table.release(&held);
                }
                Outcome::Done(0)
            }
            // There is no room in who listens.
            Err(Errno::EAGAIN) if blocks => Outcome::Blocked,
            Err(errno) => refused_or_failed(errno, refusal.as_deref()),
        };
        Ok(self.later(Later { deadline, interruptible: true, ..Later::once(tid, attempt) }))
    }

    /// The verdict on the path of a unix socket that is to be reached, as on every rung; `None` where nothing is refused.
    pub(super) fn refused_path(&self, socket: i32, address: &[u8]) -> Result<Option<Verdict>, Unread> {
        let Address::Unix(at) = decode::address(address) else { return Ok(None) };
        let verdict = self.verdict(Act::Reach { socket, address: Address::Unix(at) })?;
        Ok(Some(verdict).filter(|verdict| matches!(verdict, Verdict::Refuse(..))))
    }

    /// Where a path leads the caller, pinned, and whether it may be reached; `None` for an address that is no path.
    pub(super) fn named(&self, sockets: &Sockets, address: &[u8]) -> Result<Result<Option<Named>, Verdict>, Unread> {
        let Address::Unix(at) = decode::address(address) else { return Ok(Ok(None)) };
        let pinned = match self.object(&at)? {
            Ok(pinned) => pinned,
            Err(errno) => return Ok(Err(Verdict::RefuseSilently(errno))),
        };
        self.caller.still_waits()?;
        if is_masked(&sockets.rules.masked, &pinned) {
            // As where a mask is mounted over it, whose mode is nobody's.
            let path = path_of(pinned.as_fd()).map_or(at.given, |path| path.into_os_string().into_encoded_bytes());
            let target = PathTarget { decisive: path.clone(), path, to: None, read_only: false, makes: false };
            let refusal = self.refusal(Errno::EACCES, Target::Path(target), PERMISSION);
            return Ok(Err(refuse(Errno::EACCES, Refusal { axis: Some(Axis::Privilege), ..refusal })));
        }
        let address = unix_address(format!("/proc/self/fd/{}", pinned.as_raw_fd()).as_bytes());
        Ok(Ok(address.map(|address| Named { address, _pinned: pinned })))
    }

    /// bind(2) to a path, which is relative to the caller's directory, and is told as it was given.
    pub(super) fn bind_unix(&self, held: &Arc<Held>, address: Vec<u8>) -> Result<Verdict, Unread> {
        let (held, tid) = (held.clone(), self.caller.tid);
        let directory = self.caller.hold(Base::Cwd)?;
        let address = match self.by_own_links(&address)? {
            None => address,
            Some(Ok(named)) => {
                let bind = move || {
                    // As a whole, with the directory that it holds.
                    let Named { address, _pinned } = &named;
                    done(with_mask_of(tid, || held.bind(address)))
                };
                return Ok(self.later(Later::once(tid, bind)));
            }
            Some(Err(errno)) => return Ok(Verdict::RefuseSilently(errno)),
        };
        Ok(self.later(Later::once(tid, move || {
            done(with_mask_of(tid, || {
                fchdir(&directory)?;
                let bound = held.bind(&address);
                // All that is done here is by names from the root, and stays so.
                if chdir("/").is_err() {
                    sys::exit_now(1);
                }
                bound
            }))
        })))
    }

    /// The address of a name that goes through links by which a process means itself (/proc/self), by the directory that they
    /// lead the caller to, which is held.
    fn by_own_links(&self, address: &[u8]) -> Result<Option<Result<Named, Errno>>, Unread> {
        let Address::Unix(at) = decode::address(address) else { return Ok(None) };
        let Some((above, last)) = split(&at.given) else { return Ok(None) };
        let above = Place { given: above.to_vec(), follow: true, ..at.clone() };
        if walk::is_plain(self.caller, &above) {
            return Ok(None);
        }
        let pinned = match self.object(&above)? {
            Ok(pinned) => pinned,
            Err(errno) => return Ok(Some(Err(errno))),
        };
        self.caller.still_waits()?;
        let path = [format!("/proc/self/fd/{}/", pinned.as_raw_fd()).as_bytes(), last].concat();
        let address = unix_address(&path).ok_or(Errno::ENAMETOOLONG);
        Ok(Some(address.map(|address| Named { address, _pinned: pinned })))
    }
}

/// An abstract name that is refused is so by Landlock: nothing else gives EPERM there (unix(7)).
pub(super) fn refused_or_failed(errno: Errno, refusal: Option<&Refusal>) -> Outcome {
    match (errno, refusal) {
        (Errno::EPERM, Some(refusal)) => Outcome::Refused(errno, Box::new(refusal.clone())),
        _ => Outcome::Failed(errno),
    }
}

fn connect_tcp(sockets: &Sockets, held: &Held, to: &[u8], blocks: bool) -> Outcome {
    let mut outcome = held.connect(to);
    if blocks && matches!(outcome, Err(Errno::EINPROGRESS | Errno::EALREADY)) {
        if held.tcp() == Tcp::Connecting {
            return Outcome::Blocked;
        }
        // What has become of it is what is told.
        outcome = held.connect(to);
    }
    // Another thread of the command's has seen it connected meanwhile.
    if outcome == Err(Errno::EBADF) {
        return if blocks { Outcome::Done(0) } else { Outcome::Failed(Errno::EISCONN) };
    }
    match held.tcp() {
        // No one is told of the connection before the command alone has it.
        Tcp::Beyond => sockets.table.release(held),
        Tcp::Connecting => {
            held.connecting.store(true, Relaxed);
            if let Err(errno) = sockets.line.wake() {
                return Outcome::Failed(errno);
            }
        }
        Tcp::Closed => {}
    }
    done(outcome)
}

/// `struct sockaddr_un`; `None` for a path that is too long for it.
fn unix_address(path: &[u8]) -> Option<Vec<u8>> {
    const PATH: usize = 108;
    (path.len() < PATH).then(|| [&(libc::AF_UNIX as u16).to_ne_bytes()[..], path, &[0]].concat())
}

/// Whether an object is a masked one, by its path or by another name of the same.
fn is_masked(masked: &[std::path::PathBuf], pinned: &OwnedFd) -> bool {
    if masked.is_empty() {
        return false;
    }
    let Ok(found) = fstat(pinned) else { return true };
    let path = path_of(pinned.as_fd());
    let within = |mask: &Path| path.as_deref().is_none_or(|path| path.starts_with(mask));
    let same = |mask: &Path| {
        nix::sys::stat::stat(mask).is_ok_and(|mask| (mask.st_dev, mask.st_ino) == (found.st_dev, found.st_ino))
    };
    masked.iter().any(|mask| within(mask) || same(mask))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{OFlag, open};
    use nix::sys::stat::Mode;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_masked_socket_is_masked_by_any_name() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().canonicalize().unwrap().join(name);
        std::fs::create_dir(at("tree")).unwrap();
        let _listeners = ["one", "other", "tree/three"].map(|name| UnixListener::bind(at(name)).unwrap());
        std::fs::hard_link(at("one"), at("alias")).unwrap();
        let masked = [at("one"), at("tree")];
        let pin = |name: &str| open(&at(name), OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).unwrap();
        for (name, expected) in [("one", true), ("alias", true), ("tree/three", true), ("other", false)] {
            assert_eq!(is_masked(&masked, &pin(name)), expected, "{name}");
        }
        assert!(!is_masked(&[], &pin("one")));
    }

    #[test]
    fn a_path_is_an_address_if_it_fits() {
        assert_eq!(unix_address(b"/a"), Some(b"\x01\0/a\0".to_vec()));
        assert_eq!(unix_address(&[b'a'; 108]), None);
        let is_abstract = super::super::calls::is_abstract;
        assert!(is_abstract(b"\x01\0\0name") && is_abstract(b"\x01\0") && !is_abstract(b"\x01\0/a"));
    }
}
