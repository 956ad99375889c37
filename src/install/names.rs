//! Names that one holder has at a time: abstract unix sockets (unix(7)) of the network namespace, which go with the last
//! process that holds them.
//!
//! Any process may bind any abstract name, the command too. So a name by itself says nothing: it counts where the socket
//! belongs to this program's own user, as the kernel tells (sock_diag(7)), and each holder adds a random part of its own,
//! so that nobody can have it first. Without sock_diag every holder counts.

use crate::ledger::RunId;
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, bind, socket};
use nix::unistd::geteuid;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// A name that is held until this is dropped, in every process that inherited it.
#[derive(Debug)]
pub struct Name {
    _socket: OwnedFd,
}

/// Takes a name; `None` when another process of this user holds it. Of two that take it at once neither may get it.
pub fn take(name: &str) -> Result<Option<Name>, (&'static str, Errno)> {
    let failed = |call| move |errno| (call, errno);
    let own = RunId::random().map_err(|_| ("getrandom", Errno::EIO))?;
    let full = format!("{name}/{}", own.as_str());
    let fd = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).map_err(failed("socket"))?;
    let address = UnixAddr::new_abstract(full.as_bytes()).map_err(failed("bind"))?;
    bind(fd.as_raw_fd(), &address).map_err(failed("bind"))?;
    // After our own is there, so that of two at least one sees the other.
    let user = geteuid().as_raw();
    let others = held().map_err(failed("sock_diag"))?;
    let taken = others.iter().any(|other| {
        let same = other.name.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"));
        same && other.name != full.as_bytes() && other.uid.is_none_or(|uid| uid == user)
    });
    Ok((!taken).then_some(Name { _socket: fd }))
}

/// An abstract name that is bound.
struct Held {
    name: Vec<u8>,
    /// Whose the socket is, where the kernel tells.
    uid: Option<u32>,
}

/// Every abstract name of the network namespace.
fn held() -> Result<Vec<Held>, Errno> {
    let errno = |e: io::Error| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO));
    match diagnosed() {
        Ok(names) => Ok(names),
        // The kernel has no unix_diag, or a container's filter refuses its sockets.
        Err(_) => {
            let table = std::fs::read("/proc/net/unix").map_err(errno)?;
            let held = |line: &[u8]| {
                let at = line.windows(2).position(|pair| pair == b" @")?;
                Some(Held { name: line[at + 2..].to_vec(), uid: None })
            };
            Ok(table.split(|byte| *byte == b'\n').filter_map(held).collect())
        }
    }
}

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const REQUEST_DUMP: u16 = 0x301;
const UDIAG_SHOW_NAME: u32 = 0x1;
const UDIAG_SHOW_UID: u32 = 0x40;
const UNIX_DIAG_NAME: u16 = 0;
const UNIX_DIAG_UID: u16 = 7;
const NETLINK_HEADER: usize = 16;
/// `struct unix_diag_req` and `struct unix_diag_msg` (linux/unix_diag.h).
const REQUEST: usize = 24;
const ANSWER: usize = 16;

/// Asks the kernel for the unix sockets of the network namespace.
fn diagnosed() -> io::Result<Vec<Held>> {
    let channel = Socket::new(NETLINK_SOCK_DIAG)?;
    let mut request = Vec::with_capacity(NETLINK_HEADER + REQUEST);
    request.extend_from_slice(&((NETLINK_HEADER + REQUEST) as u32).to_ne_bytes());
    for half in [SOCK_DIAG_BY_FAMILY, REQUEST_DUMP] {
        request.extend_from_slice(&half.to_ne_bytes());
    }
    let no_cookie = [u32::MAX; 2];
    let every_state = u32::MAX;
    let family = u32::from_ne_bytes([libc::AF_UNIX as u8, 0, 0, 0]);
    let fields = [0, 0, family, every_state, 0, UDIAG_SHOW_NAME | UDIAG_SHOW_UID, no_cookie[0], no_cookie[1]];
    fields.iter().for_each(|field| request.extend_from_slice(&field.to_ne_bytes()));
    channel.send(&request, 0)?;
    let mut names = Vec::new();
    loop {
        let (datagram, _) = channel.recv_from_full()?;
        for message in messages(&datagram) {
            match u16::from_ne_bytes([message[4], message[5]]) {
                DONE => return Ok(names),
                SOCK_DIAG_BY_FAMILY => names.extend(answer(message)),
                _ => return Err(io::Error::from_raw_os_error(libc::EPROTO)),
            }
        }
        if datagram.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

const DONE: u16 = 3;

/// The messages of a datagram (netlink(7)), each at least a header long.
fn messages(datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(*rest.first_chunk::<4>()?) as usize;
        let message = rest.get(..length).filter(|_| length >= NETLINK_HEADER)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// What a message says of an abstract socket.
fn answer(message: &[u8]) -> Option<Held> {
    let mut rest = message.get(NETLINK_HEADER + ANSWER..)?;
    let (mut name, mut uid) = (None, None);
    while let Some(&[l0, l1, k0, k1]) = rest.first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = rest.get(4..length)?;
        match u16::from_ne_bytes([k0, k1]) {
            UNIX_DIAG_NAME => name = value.strip_prefix(b"\0").map(<[u8]>::to_vec),
            UNIX_DIAG_UID => uid = value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)),
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(Held { name: name?, uid: Some(uid?) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sched::{CloneFlags, unshare};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    #[test]
    fn a_name_has_one_holder_and_goes_with_it() {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace needs root");
        let held = take("a/name").unwrap().expect("free");
        assert!(take("a/name").unwrap().is_none());
        assert!(take("a/na").unwrap().is_some() && take("a/name/x").unwrap().is_some(), "others are others");
        drop(held);
        assert!(take("a/name").unwrap().is_some());
    }

    #[test]
    fn a_name_that_another_user_binds_is_not_taken_by_it() {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace needs root");
        let squat = "import socket, sys\n\
            all = [socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2)]\n\
            all[0].bind(b'\\0a/name'); all[1].bind(b'\\0a/name/0123456789abcdef'); print('ready', flush=True)\n\
            sys.stdin.read()";
        let mut other = Command::new("python3");
        other.args(["-c", squat]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut of_root = other.spawn().unwrap();
        await_line(&mut of_root);
        assert!(take("a/name").unwrap().is_none(), "live: held by this user it counts");
        of_root.kill().and_then(|()| of_root.wait()).unwrap();
        let mut of_another = other.uid(12_345).spawn().unwrap();
        await_line(&mut of_another);
        assert!(take("a/name").unwrap().is_some());
        of_another.kill().and_then(|()| of_another.wait()).unwrap();
    }

    fn await_line(child: &mut std::process::Child) {
        use std::io::{BufRead, BufReader};
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
    }
}
