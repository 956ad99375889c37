//! The load: so many connections at once, each fresh, each for one small request; and bulk; and tunnels that stay.

use super::origin::{self, BODY, NAME, PATIENCE, SMALL, STAY, drain};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, connect, socket};
use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// How the server is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By a tunnel: CONNECT, then the request.
    Tunnel,
    /// By the proxy: a request in absolute form.
    Plain,
}

/// What came of a load.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How long each request took that was answered, from connect(2) to the connection's end.
    pub took: Vec<Duration>,
    /// How many were not answered, or not as they should be.
    pub errors: u64,
    /// From the first connect(2) to the last end.
    pub lasted: Duration,
}

/// The bytes that one connection says.
struct Words {
    /// What comes first; nothing without a proxy.
    opening: Option<String>,
    request: String,
}

impl Words {
    fn of(proxy: bool, way: Way, path: &str) -> Words {
        let host = format!("{NAME}:{SMALL}");
        let opening = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let target = if proxy && way == Way::Plain { format!("http://{host}{path}") } else { path.to_owned() };
        let last = if path == STAY { "" } else { "Connection: close\r\n" };
        let mut request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{last}X-Fill: ");
        // 1 KiB in all.
        let fill = 1024 - 4 - request.len();
        request.push_str(&"a".repeat(fill));
        request.push_str("\r\n\r\n");
        Words { opening: (proxy && way == Way::Tunnel).then_some(opening), request }
    }
}

/// One connection under way.
struct Under {
    stream: TcpStream,
    begun: Instant,
    at: At,
    heard: Vec<u8>,
}

#[derive(PartialEq)]
enum At {
    Connecting,
    Opening,
    Asked,
}

/// Keeps `many` connections under way, to the proxy or to the server itself, for so long; in one thread.
pub fn load(proxy: Option<SocketAddrV4>, way: Way, many: usize, lasting: Duration) -> Outcome {
    let words = Words::of(proxy.is_some(), way, "/");
    let to = proxy.unwrap_or(SocketAddrV4::new(origin::ADDRESS, SMALL));
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("epoll_create1");
    let (mut outcome, begun) = (Outcome::default(), Instant::now());
    let mut under: Vec<Option<Under>> = (0..many).map(|slot| Some(start(&epoll, slot, to))).collect();
    let mut events = vec![EpollEvent::empty(); 512];
    let (mut left, mut piece) = (many, [0; 4096]);
    while left > 0 && begun.elapsed() < lasting + PATIENCE {
        let count = epoll.wait(&mut events, EpollTimeout::from(100u16)).unwrap_or(0);
        for slot in events[..count].iter().map(|event| event.data() as usize) {
            let Some(one) = &mut under[slot] else { continue };
            match go_on(one, &words, &mut piece) {
                Ok(false) => continue,
                Ok(true) => outcome.took.push(one.begun.elapsed()),
                Err(_) => outcome.errors += 1,
            }
            // The old one is closed first.
            under[slot] = None;
            if begun.elapsed() < lasting {
                under[slot] = Some(start(&epoll, slot, to));
            } else {
                left -= 1;
            }
        }
    }
    // Who has not ended by now is an error too.
    outcome.errors += left as u64;
    outcome.lasted = begun.elapsed();
    outcome
}

fn start(epoll: &Epoll, slot: usize, to: SocketAddrV4) -> Under {
    let begun = Instant::now();
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Inet, SockType::Stream, flags, None).expect("socket");
    match connect(socket.as_raw_fd(), &SockaddrIn::from(to)) {
        Ok(()) | Err(Errno::EINPROGRESS) => {}
        Err(cause) => panic!("connect {to}: {cause}"),
    }
    let wanted = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
    epoll.add(&socket, EpollEvent::new(wanted, slot as u64)).expect("epoll_ctl");
    Under { stream: TcpStream::from(socket), begun, at: At::Connecting, heard: Vec::new() }
}

/// As far as it goes now; whether it is over.
fn go_on(one: &mut Under, words: &Words, piece: &mut [u8]) -> io::Result<bool> {
    if one.at == At::Connecting {
        let (first, at) = match &words.opening {
            Some(opening) => (opening, At::Opening),
            None => (&words.request, At::Asked),
        };
        match one.stream.write_all(first.as_bytes()) {
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            outcome => outcome?,
        }
        one.at = at;
        return Ok(false);
    }
    loop {
        let count = match one.stream.read(piece) {
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            count => count?,
        };
        one.heard.extend_from_slice(&piece[..count]);
        let end = one.heard.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
        match (&one.at, end) {
            (At::Opening, Some(end)) if end == one.heard.len() && is_ok(&one.heard) => {
                one.heard.clear();
                one.at = At::Asked;
                one.stream.write_all(words.request.as_bytes())?;
            }
            (At::Asked, Some(end)) if count == 0 && one.heard.len() == end + BODY && is_ok(&one.heard) => {
                return Ok(true);
            }
            _ if count == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => {}
        }
    }
}

fn is_ok(head: &[u8]) -> bool {
    head.starts_with(b"HTTP/1.1 200 ") || head.starts_with(b"HTTP/1.0 200 ")
}

/// A connection to a port of the server's, by a tunnel where there is a proxy.
fn open(proxy: Option<SocketAddrV4>, port: u16) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(proxy.unwrap_or(SocketAddrV4::new(origin::ADDRESS, port)))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    if proxy.is_some() {
        write!(stream, "CONNECT {NAME}:{port} HTTP/1.1\r\nHost: {NAME}:{port}\r\n\r\n")?;
        head(&mut stream)?;
    }
    Ok(stream)
}

/// Reads a head, whose status must be 200, to its empty line and no further.
fn head(stream: &mut TcpStream) -> io::Result<()> {
    let (mut heard, mut byte) = (Vec::new(), [0; 1]);
    while !heard.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        heard.push(byte[0]);
    }
    match is_ok(&heard) {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&heard).into_owned())),
    }
}

/// How long so many bytes take; `up`, or down.
pub fn bulk(proxy: Option<SocketAddrV4>, size: u64, up: bool) -> Duration {
    let mut stream = open(proxy, origin::BULK).expect("a tunnel");
    let mut piece = vec![7; 1 << 20];
    let begun = Instant::now();
    let order = [&size.to_be_bytes()[..], if up { b"u" } else { b"d" }].concat();
    stream.write_all(&order).expect("the proxy takes it");
    let got = if up {
        for _ in 0..size >> 20 {
            stream.write_all(&piece).expect("the proxy takes it");
        }
        let mut told = [0; 8];
        stream.read_exact(&mut told).expect("what has come");
        u64::from_be_bytes(told)
    } else {
        drain(&mut stream, &mut piece, size)
    };
    assert_eq!(got, size);
    begun.elapsed()
}

/// Opens tunnels until there are so many, each of which has carried a request, and then says no more.
pub fn stay(tunnels: &mut Vec<TcpStream>, proxy: SocketAddrV4, many: usize) -> io::Result<()> {
    let words = Words::of(true, Way::Tunnel, STAY);
    while tunnels.len() < many {
        let mut stream = open(Some(proxy), SMALL)?;
        stream.write_all(words.request.as_bytes())?;
        head(&mut stream)?;
        stream.read_exact(&mut [0; BODY])?;
        tunnels.push(stream);
    }
    Ok(())
}
