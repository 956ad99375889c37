//! A socket that was made for the command, of which a duplicate is held: whatever is done on the duplicate is done on the
//! command's own socket, whichever of its descriptors that has by then.

use super::living::inode_at;
use super::rules::Transport;
use crate::mutation;
use crate::sys::call::{Argument, call, call_for_fd};
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{Shutdown, getsockopt, setsockopt, shutdown, sockopt};
use nix::sys::stat::fstat;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

/// The device that sockets of the inet families are bound to.
const LO: &str = "lo";

/// What a socket is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Of AF_INET, or of AF_INET6 if true.
    Inet(Transport, bool),
    /// Of AF_UNIX.
    Unix,
    /// Of AF_NETLINK.
    Netlink,
}

impl Kind {
    /// Whether a single message of it could be given another way than the device that it is bound to: an IP_PKTINFO control
    /// message names one (ip(7)).
    pub fn is_inet_datagram(self) -> bool {
        matches!(self, Kind::Inet(transport, _) if transport != Transport::Tcp)
    }

    /// Whether it is of the inet families.
    pub fn is_inet(self) -> bool {
        matches!(self, Kind::Inet(..))
    }

    /// Whether it is TCP.
    pub fn is_tcp(self) -> bool {
        matches!(self, Kind::Inet(Transport::Tcp, _))
    }
}

/// One such socket.
#[derive(Debug)]
pub struct Held {
    /// The duplicate, until it is let go: who still knows of the socket then does not keep it from closing.
    file: RwLock<Option<OwnedFd>>,
    /// Its inode, by which it is known behind any descriptor.
    pub inode: u64,
    /// What it is.
    pub kind: Kind,
    /// One call at a time: while its binding to the device is renewed, or the flag by which it waits is another, nothing else
    /// may use it.
    alone: Mutex<()>,
    /// Whether the command has it by now.
    pub given: AtomicBool,
    /// How often in a row nobody was seen to have it.
    pub missed: AtomicU32,
    /// The descriptor in /proc by which someone was last seen to have it.
    place: Mutex<Option<String>>,
    /// Whether a connection is on its way that nobody waits for.
    pub connecting: AtomicBool,
    /// Whom its last datagram was meant for, where it was led elsewhere.
    led: Mutex<Option<Led>>,
}

/// A way that was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Led {
    /// Where the caller wanted to send to.
    pub asked: SocketAddr,
    /// Where it was sent.
    pub to: SocketAddr,
}

impl Held {
    /// Opens a socket, of the inet families bound to `lo`, which is read back. It closes on exec here; whether it blocks is
    /// as `kind`'s flags say.
    ///
    /// # Errors
    /// The kernel's to socket(2) or, for the device, to setsockopt(2); ENODEV where the device does not read back.
    pub fn open(family: i32, kind: i32, protocol: i32, what: Kind) -> Result<Held, Errno> {
        let numbers = [family, kind | libc::SOCK_CLOEXEC, protocol].map(|number| Argument::Number(number as u64));
        let file = call_for_fd(libc::SYS_socket, numbers)?;
        let inode = fstat(&file)?.st_ino;
        let held = Held {
            file: RwLock::new(Some(file)),
            inode,
            kind: what,
            alone: Mutex::new(()),
            given: AtomicBool::new(false),
            missed: AtomicU32::new(0),
            place: Mutex::new(None),
            connecting: AtomicBool::new(false),
            led: Mutex::new(None),
        };
        if what.is_inet() && !mutation::left_out("lo-device") {
            held.bind_to_lo()?;
        }
        Ok(held)
    }

    /// Binds it to the device `lo`, which takes no privilege where it is bound to none (socket(7), Linux 5.7).
    fn bind_to_lo(&self) -> Result<(), Errno> {
        self.with(bind_to_lo)
    }

    /// Whether it is bound to that device.
    pub fn is_on_lo(&self) -> Result<bool, Errno> {
        self.with(is_on_lo)
    }

    /// getsockopt(2): the value's length.
    fn option(&self, level: i32, option: i32, value: &mut [u8]) -> Result<usize, Errno> {
        let mut length = u32::try_from(value.len()).map_err(|_| Errno::EINVAL)?.to_ne_bytes();
        let [level, option] = [level, option].map(|number| Argument::Number(number as u64));
        self.with(|file| {
            let of = Argument::Fd(file);
            call(libc::SYS_getsockopt, [of, level, option, Argument::Memory(value), Argument::Memory(&mut length)])
        })?;
        Ok((u32::from_ne_bytes(length) as usize).min(value.len()))
    }

    /// Does `work` on the duplicate; EBADF where it was let go.
    pub fn with<T>(&self, work: impl FnOnce(BorrowedFd<'_>) -> Result<T, Errno>) -> Result<T, Errno> {
        match &*self.file() {
            Some(file) => work(file.as_fd()),
            None => Err(Errno::EBADF),
        }
    }

    /// The duplicate, which is not let go while this is kept.
    pub fn file(&self) -> RwLockReadGuard<'_, Option<OwnedFd>> {
        self.file.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the duplicate, when nothing is done on it.
    pub fn let_go(&self) {
        drop(self.file.write().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Datagrams that were meant for one address are led to another.
    pub fn lead(&self, led: Led) {
        *self.led.lock().unwrap_or_else(PoisonError::into_inner) = Some(led);
    }

    /// Whom the last datagram that was led elsewhere was meant for.
    pub fn led(&self) -> Option<Led> {
        *self.led.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Someone has it by this descriptor.
    pub fn is_at(&self, place: String) {
        self.missed.store(0, Ordering::Relaxed);
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = Some(place);
    }

    /// Whether someone still has it by the descriptor where it was seen last.
    pub fn is_where_it_was(&self) -> bool {
        let place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there = place.as_ref().is_some_and(|place| inode_at(place) == Some(self.inode));
        if is_there {
            self.missed.store(0, Ordering::Relaxed);
        }
        is_there
    }

    /// Nothing else is done on it while this is kept.
    pub fn alone(&self) -> MutexGuard<'_, ()> {
        self.alone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether calls on it wait, by the flag that the command has given its file (fcntl(2), O_NONBLOCK).
    pub fn blocks(&self) -> bool {
        let _alone = self.alone();
        self.has_no_flag()
    }

    fn has_no_flag(&self) -> bool {
        let get = Argument::Number(libc::F_GETFL as u64);
        let flags = self.with(|file| call(libc::SYS_fcntl, [Argument::Fd(file), get]));
        flags.is_ok_and(|flags| flags & i64::from(libc::O_NONBLOCK) == 0)
    }

    /// connect(2) that does not wait. Whether it would is a flag of the file that the command shares, so it is changed for
    /// the length of the call; nothing that another thread of the command's does on a socket that is not connected waits.
    pub fn connect(&self, address: &[u8]) -> Result<(), Errno> {
        let _alone = self.alone();
        self.connect_alone(address)
    }

    fn connect_alone(&self, address: &[u8]) -> Result<(), Errno> {
        let blocks = self.has_no_flag();
        if blocks {
            self.set_nonblocking(true)?;
        }
        let mut address = address.to_vec();
        let size = Argument::Number(address.len() as u64);
        let outcome = self.with(|file| {
            call(libc::SYS_connect, [Argument::Fd(file), Argument::Memory(&mut address), size]).map(|_| ())
        });
        if blocks {
            self.set_nonblocking(false)?;
        }
        outcome
    }

    /// The flag alone, whatever else is set beside it meanwhile (ioctl_tty(2), FIONBIO).
    fn set_nonblocking(&self, on: bool) -> Result<(), Errno> {
        let mut value = i32::from(on).to_ne_bytes();
        let request = Argument::Number(libc::FIONBIO);
        self.with(|file| call(libc::SYS_ioctl, [Argument::Fd(file), request, Argument::Memory(&mut value)])).map(|_| ())
    }

    /// connect(2) with AF_UNSPEC, which for datagrams takes the binding to the device away as well: it is renewed before
    /// anything else can be done here, and what the command could do meanwhile, name a device, the filter refuses.
    pub fn disconnect(&self) -> Result<(), Errno> {
        let _alone = self.alone();
        let outcome = self.connect_alone(&[0; 16]);
        if self.kind.is_inet_datagram() && !self.is_on_lo()? {
            // A socket that cannot be bound again is of no use to anyone.
            self.bind_to_lo().inspect_err(|_| self.silence())?;
        }
        outcome
    }

    /// bind(2).
    pub fn bind(&self, address: &[u8]) -> Result<(), Errno> {
        let _alone = self.alone();
        let mut address = address.to_vec();
        let size = Argument::Number(address.len() as u64);
        self.with(|file| call(libc::SYS_bind, [Argument::Fd(file), Argument::Memory(&mut address), size]))?;
        // A scope of IPv6 would have bound it to another device.
        if self.kind.is_inet() && !mutation::left_out("lo-device") && !self.is_on_lo()? {
            self.silence();
            return Err(Errno::EADDRNOTAVAIL);
        }
        Ok(())
    }

    /// Nothing is sent by it any more, whoever has it: for datagrams nothing undoes that.
    pub fn silence(&self) {
        // ENOTCONN, which it says of most of them, comes after it is done (inet_shutdown, net/ipv4/af_inet.c).
        let shut = self.with(|file| match shutdown(file.as_raw_fd(), Shutdown::Both) {
            Err(Errno::ENOTSOCK) => crate::sys::exit_now(1),
            Ok(()) | Err(_) => Ok(()),
        });
        // What was let go is no datagram socket.
        debug_assert!(shut.is_ok());
    }

    /// listen(2).
    pub fn listen(&self, backlog: i32) -> Result<(), Errno> {
        let backlog = Argument::Number(backlog as u64);
        self.with(|file| call(libc::SYS_listen, [Argument::Fd(file), backlog])).map(|_| ())
    }

    /// Whether it is of datagrams (socket(7), SO_TYPE).
    pub fn is_datagram(&self) -> bool {
        let mut kind = [0; 4];
        let told = self.option(libc::SOL_SOCKET, libc::SO_TYPE, &mut kind);
        told.is_ok() && i32::from_ne_bytes(kind) == libc::SOCK_DGRAM
    }

    /// Its port, where it has one.
    pub fn port(&self) -> Option<u16> {
        if !self.kind.is_inet() {
            return None;
        }
        let mut address = [0; 128];
        let mut length = 128u32.to_ne_bytes();
        self.with(|file| {
            let of = Argument::Fd(file);
            call(libc::SYS_getsockname, [of, Argument::Memory(&mut address), Argument::Memory(&mut length)])
        })
        .ok()?;
        Some(u16::from_be_bytes([address[2], address[3]])).filter(|port| *port != 0)
    }

    /// Whether its packets would have options in their header (ip(7), IP_OPTIONS), or headers beside it (ipv6(7)).
    pub fn has_header_options(&self) -> bool {
        const EXTENSIONS: [i32; 4] =
            [libc::IPV6_HOPOPTS, libc::IPV6_RTHDRDSTOPTS, libc::IPV6_RTHDR, libc::IPV6_DSTOPTS];
        let mut value = [0; 256];
        let mut has = |level, option| self.option(level, option, &mut value).is_ok_and(|length| length > 0);
        match self.kind {
            Kind::Inet(_, true) => EXTENSIONS.into_iter().any(|option| has(libc::IPPROTO_IPV6, option)),
            Kind::Inet(_, false) => has(libc::IPPROTO_IP, libc::IP_OPTIONS),
            Kind::Unix | Kind::Netlink => false,
        }
    }

    /// Where TCP stands with it (tcp(7), TCP_INFO).
    pub fn tcp(&self) -> Tcp {
        const CONNECTING: [u8; 2] = [2, 3];
        const CLOSED: u8 = 7;
        let mut info = [0];
        match self.option(libc::IPPROTO_TCP, libc::TCP_INFO, &mut info) {
            Ok(1) if info[0] == CLOSED => Tcp::Closed,
            Ok(1) if CONNECTING.contains(&info[0]) => Tcp::Connecting,
            Ok(_) | Err(_) => Tcp::Beyond,
        }
    }

    /// How long a call on it may wait to send or to connect (socket(7), SO_SNDTIMEO); `None` for as long as it takes.
    pub fn send_timeout(&self) -> Option<std::time::Duration> {
        self.timeout(libc::SO_SNDTIMEO)
    }

    /// How long a call on it may wait to receive (socket(7), SO_RCVTIMEO); `None` for as long as it takes.
    pub fn receive_timeout(&self) -> Option<std::time::Duration> {
        self.timeout(libc::SO_RCVTIMEO)
    }

    fn timeout(&self, option: i32) -> Option<std::time::Duration> {
        let mut value = [0; 16];
        let length = self.option(libc::SOL_SOCKET, option, &mut value).ok()?;
        let word = |at: usize| value[at..].first_chunk().map_or(0, |word| i64::from_ne_bytes(*word));
        let wait = std::time::Duration::from_secs(word(0) as u64) + std::time::Duration::from_micros(word(8) as u64);
        Some(wait).filter(|wait| length == value.len() && !wait.is_zero())
    }
}

/// Binds a socket to the device `lo`, and reads that back; ENODEV where it does not.
pub fn bind_to_lo(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    setsockopt(&socket, sockopt::BindToDevice, &OsString::from(LO))?;
    if is_on_lo(socket)? { Ok(()) } else { Err(Errno::ENODEV) }
}

fn is_on_lo(socket: BorrowedFd<'_>) -> Result<bool, Errno> {
    let device = getsockopt(&socket, sockopt::BindToDevice)?;
    Ok(device.as_bytes().split(|byte| *byte == 0).next() == Some(LO.as_bytes()))
}

/// Where TCP stands with a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tcp {
    /// It is not connected, or not any more.
    Closed,
    /// It is about to be.
    Connecting,
    /// It is or has been, or it listens.
    Beyond,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    fn open(kind: i32, transport: Transport) -> Held {
        Held::open(libc::AF_INET, kind, 0, Kind::Inet(transport, false)).unwrap()
    }

    fn v4(address: std::net::SocketAddr) -> Vec<u8> {
        super::super::address::of(address, 0, 0)
    }

    #[test]
    fn a_datagram_socket_that_is_disconnected_stays_on_the_device() {
        let held = open(libc::SOCK_DGRAM, Transport::Udp);
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(held.is_on_lo().unwrap());
        held.connect(&v4(peer.local_addr().unwrap())).unwrap();
        // Live: what connect(2) by itself does.
        held.connect(&[0; 16]).unwrap();
        assert!(!held.is_on_lo().unwrap(), "the kernel takes the binding away");
        held.bind_to_lo().unwrap();
        held.connect(&v4(peer.local_addr().unwrap())).unwrap();
        held.disconnect().unwrap();
        assert!(held.is_on_lo().unwrap());
    }

    #[test]
    fn a_connect_leaves_the_files_flags_as_they_were() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for flags in [0, libc::SOCK_NONBLOCK] {
            let held = open(libc::SOCK_STREAM | flags, Transport::Tcp);
            assert_eq!(held.tcp(), Tcp::Closed);
            let outcome = held.connect(&v4(listener.local_addr().unwrap()));
            assert!(matches!(outcome, Ok(()) | Err(Errno::EINPROGRESS)), "{outcome:?}");
            assert_eq!(held.blocks(), flags == 0);
            assert_eq!(held.tcp(), Tcp::Beyond, "loopback has no way that takes time");
        }
    }

    #[test]
    fn a_silenced_datagram_socket_sends_nothing_any_more() {
        let held = open(libc::SOCK_DGRAM, Transport::Udp);
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = v4(peer.local_addr().unwrap());
        let send = || held.with(|file| crate::sys::message::send_message(file, &to, b"x", &[], 0));
        assert_eq!(send(), Ok(1));
        held.silence();
        assert_eq!(send(), Err(Errno::EPIPE));
        held.disconnect().unwrap();
        held.connect(&to).unwrap();
        assert_eq!(send(), Err(Errno::EPIPE));
    }

    #[test]
    fn a_scope_that_is_another_devices_is_no_way_off_it() {
        let held = Held::open(libc::AF_INET6, libc::SOCK_STREAM, 0, Kind::Inet(Transport::Tcp, true)).unwrap();
        assert_eq!(held.port(), None);
        held.bind(&super::super::address::of("[::1]:0".parse().unwrap(), 0, 0)).unwrap();
        assert!(held.port().is_some() && held.is_on_lo().unwrap());
        held.let_go();
        assert_eq!(held.listen(1), Err(Errno::EBADF));
    }
}
