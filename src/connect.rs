//! `ringfence connect`: a client of CONNECT (RFC 9110 section 9.3.6) between stdin and stdout, as ssh's ProxyCommand takes one
//! (ssh_config(5)). It runs inside the sandbox, with what the command may do.

use crate::ledger::escape::{TEXT_LIMIT, escape};
use crate::policy::{Authority, BadAuthority};
use crate::stage::release_input_and_output;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::thread;
use std::time::{Duration, Instant};

/// Where the proxy is looked for; the first that is set, and not to nothing, counts. A CONNECT is what `https` stands for.
const VARIABLES: [&str; 4] = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
/// The longest head of an answer, in bytes.
const HEAD_LIMIT: usize = 64 * 1024;
/// The most fields of one.
const FIELD_LIMIT: usize = 128;
/// How long the proxy may take to accept the connection.
const CONNECTING: Duration = Duration::from_secs(10);
/// How long it may take to answer: it resolves the name and tries each of its addresses first.
const ANSWERING: Duration = Duration::from_secs(120);
/// How much is passed on at once, in bytes.
const PIECE: usize = 64 * 1024;

/// Why there is no tunnel, or why it broke. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// What was asked for is no host and port.
    #[error("\"{host}\" \"{port}\" is no host and port: {fault}; accepted: a name or an address, and a port")]
    Target {
        /// The host as given, escaped.
        host: String,
        /// The port as given, escaped.
        port: String,
        /// What is wrong.
        fault: BadAuthority,
    },
    /// No variable names a proxy.
    #[error("no proxy: none of https_proxy, HTTPS_PROXY, all_proxy and ALL_PROXY is set")]
    NoProxy,
    /// A variable names something else.
    #[error("{name}=\"{value}\" is no proxy to connect to; accepted: http://ADDRESS:PORT, an IPv6 address in brackets")]
    BadProxy {
        /// The variable.
        name: &'static str,
        /// Its value, escaped.
        value: String,
    },
    /// The proxy is not there, or broke off.
    #[error("{target}: proxy {proxy}: {cause}")]
    Proxy {
        /// What was asked for.
        target: Authority,
        /// The proxy.
        proxy: SocketAddr,
        /// What happened.
        cause: io::Error,
    },
    /// Its answer is none of HTTP's.
    #[error("{target}: proxy {proxy}: {fault}")]
    Answer {
        /// What was asked for.
        target: Authority,
        /// The proxy.
        proxy: SocketAddr,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// It refuses.
    #[error("{target}: the proxy answered {status} {reason}")]
    Refused {
        /// What was asked for.
        target: Authority,
        /// The HTTP status.
        status: u16,
        /// The phrase beside it, escaped.
        reason: String,
    },
    /// The tunnel broke.
    #[error("{target}: {side}: {cause}")]
    Broken {
        /// Where it led.
        target: Authority,
        /// `read from` or `write to` one of the ends.
        side: &'static str,
        /// What happened.
        cause: io::Error,
    },
}

/// Asks the proxy of the environment for `host` and `port` and passes bytes both ways between it and stdin and stdout until both
/// ways have ended, each on its own.
pub fn connect(host: &str, port: &str) -> Result<(), ConnectError> {
    let target = authority(host, port)?;
    let proxy = proxy_of(|name| std::env::var_os(name))?;
    let broken = |cause| ConnectError::Proxy { target: target.clone(), proxy, cause };
    let mut socket = TcpStream::connect_timeout(&proxy, CONNECTING).map_err(broken)?;
    // Keys that are typed are sent as they come.
    socket.set_nodelay(true).map_err(broken)?;
    let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
    socket.write_all(request.as_bytes()).map_err(broken)?;
    let early = answer(&mut socket, Instant::now() + ANSWERING).map_err(|fault| fault.of(&target, proxy))?;
    pass(&socket, &early).map_err(|Broken { side, cause }| ConnectError::Broken { target, side, cause })
}

/// What is asked for, in the one spelling that the proxy judges. An IPv6 address needs no brackets: ssh gives it without.
fn authority(host: &str, port: &str) -> Result<Authority, ConnectError> {
    let text = match host.parse::<Ipv6Addr>() {
        Ok(address) => format!("[{address}]:{port}"),
        Err(_) => format!("{host}:{port}"),
    };
    let shown = |text: &str| escape(text.as_bytes(), TEXT_LIMIT);
    Authority::parse_connect(text.as_bytes()).map_err(|fault| ConnectError::Target {
        host: shown(host),
        port: shown(port),
        fault,
    })
}

/// The proxy that the environment names.
fn proxy_of(variable: impl Fn(&str) -> Option<OsString>) -> Result<SocketAddr, ConnectError> {
    let set = VARIABLES.into_iter().find_map(|name| Some((name, variable(name).filter(|value| !value.is_empty())?)));
    let (name, value) = set.ok_or(ConnectError::NoProxy)?;
    address(&value).ok_or_else(|| ConnectError::BadProxy { name, value: escape(value.as_bytes(), TEXT_LIMIT) })
}

/// The address of `http://ADDRESS:PORT[/]`. A name would have to be resolved, which nothing in the sandbox does.
fn address(url: &OsStr) -> Option<SocketAddr> {
    let rest = url.as_bytes().strip_prefix(b"http://")?;
    let authority = Authority::parse_connect(rest.strip_suffix(b"/").unwrap_or(rest)).ok()?;
    Some(SocketAddr::new(authority.host.ip()?, authority.port))
}

/// What an answer's head comes to.
#[derive(Debug, PartialEq, Eq)]
enum Head {
    /// It goes on.
    Partial,
    /// It is interim (RFC 9110 section 15.2), and this long.
    Interim(usize),
    /// The tunnel stands; the head is this long, and fields that tell of a body mean nothing (RFC 9110 section 9.3.6).
    Tunnel(usize),
    /// Any other status and its phrase.
    Refused(u16, String),
}

/// Why there is no tunnel.
#[derive(Debug)]
enum NoTunnel {
    Io(io::Error),
    Fault(&'static str),
    Refused(u16, String),
}

impl NoTunnel {
    fn of(self, target: &Authority, proxy: SocketAddr) -> ConnectError {
        let target = target.clone();
        match self {
            NoTunnel::Io(cause) => ConnectError::Proxy { target, proxy, cause },
            NoTunnel::Fault(fault) => ConnectError::Answer { target, proxy, fault },
            NoTunnel::Refused(status, reason) => ConnectError::Refused { target, status, reason },
        }
    }
}

fn head(bytes: &[u8]) -> Result<Head, &'static str> {
    let mut fields = [httparse::EMPTY_HEADER; FIELD_LIMIT];
    let mut response = httparse::Response::new(&mut fields);
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(Head::Partial),
        Err(_) => return Err("its answer is no HTTP"),
    };
    Ok(match response.code.unwrap_or_default() {
        // It would change the protocol, which was not asked for.
        101 => return Err("its answer is 101, which nothing asked for"),
        100..200 => Head::Interim(length),
        200..300 => Head::Tunnel(length),
        status => Head::Refused(status, escape(response.reason.unwrap_or_default().as_bytes(), TEXT_LIMIT)),
    })
}

/// Reads the answer's head. Gives what came after it, which is the tunnel's.
fn answer(socket: &mut TcpStream, deadline: Instant) -> Result<Vec<u8>, NoTunnel> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        match head(&bytes).map_err(NoTunnel::Fault)? {
            Head::Partial if bytes.len() >= HEAD_LIMIT => {
                return Err(NoTunnel::Fault("its answer's head is longer than 64 KiB"));
            }
            Head::Partial => {}
            Head::Interim(length) => {
                bytes.drain(..length);
                continue;
            }
            Head::Tunnel(length) => {
                bytes.drain(..length);
                socket.set_read_timeout(None).map_err(NoTunnel::Io)?;
                return Ok(bytes);
            }
            Head::Refused(status, reason) => return Err(NoTunnel::Refused(status, reason)),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(NoTunnel::Fault("it did not answer in time"));
        }
        socket.set_read_timeout(Some(left)).map_err(NoTunnel::Io)?;
        match socket.read(&mut piece) {
            Ok(0) => return Err(NoTunnel::Fault("it closed the connection without an answer")),
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
            // SO_RCVTIMEO ends a read with EAGAIN (socket(7)).
            Err(cause) if matches!(cause.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(cause) => return Err(NoTunnel::Io(cause)),
        }
    }
}

/// Where a tunnel broke.
struct Broken {
    side: &'static str,
    cause: io::Error,
}

fn broken(side: &'static str) -> impl FnOnce(io::Error) -> Broken {
    move |cause| Broken { side, cause }
}

/// Passes bytes both ways, `early` first. An end of one way is passed on as an end of that way alone; what breaks one way ends
/// the other, which would wait for nothing.
fn pass(socket: &TcpStream, early: &[u8]) -> Result<(), Broken> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned().map_err(broken("stdin"))?);
    let output = File::from(io::stdout().as_fd().try_clone_to_owned().map_err(broken("stdout"))?);
    // From here on each end has one descriptor, whose closing its other end sees.
    release_input_and_output().map_err(|errno| broken("dup2")(errno.into()))?;
    let outgoing = socket.try_clone().map_err(broken("dup"))?;
    let up = thread::Builder::new().spawn(move || {
        let ended = copy(input, &outgoing, ["read from stdin", "write to the proxy"]);
        let how = if ended.is_ok() { Shutdown::Write } else { Shutdown::Both };
        // Where it is down already the other way says so.
        outgoing.shutdown(how).ok();
        ended
    });
    let up = up.map_err(broken("start a thread"))?;
    write(&mut &output, early).map_err(broken("write to stdout"))?;
    copy(socket, &output, ["read from the proxy", "write to stdout"])?;
    // One socket may be stdin and stdout both, whose end closing the one does not tell; of a pipe this is ENOTSOCK.
    nix::sys::socket::shutdown(output.as_raw_fd(), nix::sys::socket::Shutdown::Write).ok();
    drop(output);
    up.join().unwrap_or_else(|_| Err(broken("stdin")(io::Error::other("its thread panicked"))))
}

/// Copies until the end of `from`.
fn copy(mut from: impl Read + AsFd, mut to: impl Write + AsFd, sides: [&'static str; 2]) -> Result<(), Broken> {
    let mut piece = vec![0; PIECE];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(count) => write(&mut to, &piece[..count]).map_err(broken(sides[1]))?,
            Err(cause) => await_again(cause, &from, PollFlags::POLLIN).map_err(broken(sides[0]))?,
        }
    }
}

fn write(to: &mut (impl Write + AsFd), mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(cause) => await_again(cause, to, PollFlags::POLLOUT)?,
        }
    }
    Ok(())
}

/// Waits where a call said to try again: the caller may share its stdio with us, and have it without blocking.
fn await_again(cause: io::Error, on: &impl AsFd, events: PollFlags) -> io::Result<()> {
    match cause.kind() {
        ErrorKind::Interrupted => Ok(()),
        ErrorKind::WouldBlock => match poll(&mut [PollFd::new(on.as_fd(), events)], PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        },
        _ => Err(cause),
    }
}

#[cfg(test)]
#[path = "connect_tests.rs"]
mod tests;
