//! SOCKS version 5 (RFC 1928), of which CONNECT by name is served: the client's messages, read strictly, and the replies.
//! A user's name and password (RFC 1929) are read and mean nothing.

use super::admission::{Asked, Unadmitted, admit_and_reach, reach_all_the_same};
use super::carry::Opened;
use super::core::{Core, Late};
use super::judge::Permit;
use super::malformed::Malformed;
use super::record::{self, Connection, Recorder, Unrecorded};
use super::wire::Wire;
use crate::policy::Authority;
use std::net::{IpAddr, SocketAddr};
use tokio::time::{Instant, timeout_at};

/// The first byte of a client's greeting.
pub const VERSION: u8 = 5;
/// The version of the negotiation of a user's name and password.
const AUTH_VERSION: u8 = 1;
const NO_AUTHENTICATION: u8 = 0;
const USER_AND_PASSWORD: u8 = 2;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;
/// What the record calls a request by this protocol.
const OPERATION: &str = "SOCKS5";

/// Why bytes are no message of a SOCKS client that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadSocks {
    /// Another version than the message must have.
    #[error("the message has not the version that it must have")]
    Version,
    /// The client demands an authentication that is not served.
    #[error("the client offers neither no authentication nor a user's name")]
    Method,
    /// The reserved byte is not 0.
    #[error("the reserved byte of the request is not 0")]
    Reserved,
    /// A command that SOCKS does not have.
    #[error("the request's command is none of SOCKS")]
    Command,
    /// An address type that SOCKS does not have.
    #[error("the request's address type is none of SOCKS")]
    AddressType,
}

impl BadSocks {
    /// The class of the reason, as records carry it.
    pub fn reason(self) -> &'static str {
        match self {
            BadSocks::Version => "socks_version",
            BadSocks::Method => "socks_method",
            BadSocks::Reserved => "socks_reserved",
            BadSocks::Command => "socks_command",
            BadSocks::AddressType => "socks_address_type",
        }
    }
}

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// A connection with a host that is named.
    Connect(Authority),
    /// A connection with an address, which only a name could stand for.
    ByAddress(SocketAddr),
    /// BIND or UDP ASSOCIATE.
    OtherCommand(&'static str),
}

/// A message's value and its length, or nothing while it is not whole.
pub type Parsed<T> = Result<Option<(T, usize)>, Malformed>;

/// The greeting: the method that is taken of those that it offers.
pub fn greeting(bytes: &[u8]) -> Parsed<u8> {
    match bytes {
        [VERSION, count, rest @ ..] => {
            let Some(methods) = rest.get(..usize::from(*count)) else { return Ok(None) };
            let taken = [NO_AUTHENTICATION, USER_AND_PASSWORD].into_iter().find(|method| methods.contains(method));
            Ok(Some((taken.ok_or(BadSocks::Method)?, 2 + methods.len())))
        }
        [VERSION] | [] => Ok(None),
        _ => Err(BadSocks::Version.into()),
    }
}

/// The user's name and password, whatever they are.
pub fn credentials(bytes: &[u8]) -> Parsed<()> {
    match bytes {
        [] => Ok(None),
        [AUTH_VERSION, rest @ ..] => {
            let name = rest.first().map_or(0, |&length| usize::from(length));
            let password = rest.get(1 + name).map(|&length| usize::from(length));
            let whole = password.map(|password| 3 + name + password).filter(|whole| bytes.len() >= *whole);
            Ok(whole.map(|whole| ((), whole)))
        }
        _ => Err(BadSocks::Version.into()),
    }
}

/// The request.
pub fn request(bytes: &[u8]) -> Parsed<Request> {
    let [version, command, reserved, kind, rest @ ..] = bytes else {
        return match bytes.first() {
            Some(&version) if version != VERSION => Err(BadSocks::Version.into()),
            _ => Ok(None),
        };
    };
    if *version != VERSION {
        return Err(BadSocks::Version.into());
    }
    if *reserved != 0 {
        return Err(BadSocks::Reserved.into());
    }
    let (skipped, length) = match (kind, rest.first()) {
        (1, _) => (0, 4),
        (4, _) => (0, 16),
        (3, Some(&length)) => (1, usize::from(length)),
        (3, None) => return Ok(None),
        _ => return Err(BadSocks::AddressType.into()),
    };
    let Some(&[ref host @ .., high, low]) = rest.get(skipped..skipped + length + 2) else { return Ok(None) };
    let port = u16::from_be_bytes([high, low]);
    let asked = match (command, kind) {
        (1, 3) => Request::Connect(Authority::parse_connect(&[host, b":", port.to_string().as_bytes()].concat())?),
        (1, _) => {
            let v4 = <[u8; 4]>::try_from(host).map(IpAddr::from);
            let addr = v4.or_else(|_| <[u8; 16]>::try_from(host).map(IpAddr::from));
            Request::ByAddress(SocketAddr::new(addr.map_err(|_| BadSocks::AddressType)?, port))
        }
        (2, _) => Request::OtherCommand("BIND"),
        (3, _) => Request::OtherCommand("UDP ASSOCIATE"),
        _ => return Err(BadSocks::Command.into()),
    };
    Ok(Some((asked, 4 + skipped + length + 2)))
}

/// A reply's code (RFC 1928, 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reply {
    Succeeded = 0,
    Failure = 1,
    NotAllowed = 2,
    HostUnreachable = 4,
    Expired = 6,
    CommandNotSupported = 7,
    AddressTypeNotSupported = 8,
}

impl Reply {
    fn to(why: &Unadmitted) -> Reply {
        match why {
            Unadmitted::Refused(_) => Reply::NotAllowed,
            Unadmitted::Failed(504) => Reply::Expired,
            Unadmitted::Failed(_) => Reply::HostUnreachable,
        }
    }

    /// The reply, whose bound address is left out: 0.0.0.0:0.
    fn bytes(self) -> [u8; 10] {
        [VERSION, self as u8, 0, 1, 0, 0, 0, 0, 0, 0]
    }
}

/// Why there is no request.
enum Unread {
    /// The client has ended.
    Ended,
    Late,
    Malformed(Malformed),
}

/// Serves a SOCKS client up to the tunnel that it is given, if it is given one. Its request must be whole at `by`. Errors: a
/// refusal could not be recorded; the client is left without an answer.
pub async fn serve<R: Recorder>(mut wire: Wire, core: &Core<R>, by: Instant) -> Result<Option<Opened>, Unrecorded> {
    let on = wire.ends();
    let (denial, reply) = match negotiate(&mut wire, core, by).await {
        Ok(Request::Connect(authority)) => return connect(wire, core, on, &authority).await,
        Ok(Request::ByAddress(addr)) if core.judge.is_shadow() => {
            return connect_by_address(wire, core, on, addr).await;
        }
        Ok(Request::ByAddress(addr)) => (record::by_address(OPERATION, addr), Reply::NotAllowed.bytes().to_vec()),
        Ok(Request::OtherCommand(name)) => {
            (record::other_command(OPERATION, name), Reply::CommandNotSupported.bytes().to_vec())
        }
        Err(Unread::Ended) => return Ok(None),
        Err(Unread::Late) => {
            core.late.count(Late::Head);
            return Ok(None);
        }
        Err(Unread::Malformed(why)) => {
            let mut denial = record::malformed(wire.inflow.unused(), &why);
            denial.operation = OPERATION.to_owned();
            denial.http_status = None;
            (denial, answer_to(&why))
        }
    };
    core.recorder.denial(denial, on).await?;
    wire.end_with(&reply, core.limits.head).await;
    Ok(None)
}

/// Records a request that has an address for a name, and serves it: a shadow's.
async fn connect_by_address<R: Recorder>(
    wire: Wire,
    core: &Core<R>,
    on: Option<Connection>,
    addr: SocketAddr,
) -> Result<Option<Opened>, Unrecorded> {
    core.recorder.denial(record::by_address(OPERATION, addr).let_through(), on).await?;
    let asked = Asked { operation: OPERATION, on, by_http: false };
    let reached = match Authority::parse_connect(addr.to_string().as_bytes()) {
        Ok(authority) => reach_all_the_same(core, asked, &authority).await?,
        Err(_) => Err(Unadmitted::Failed(502)),
    };
    answer(wire, core, reached).await
}

/// Serves a request for a connection.
async fn connect<R: Recorder>(
    wire: Wire,
    core: &Core<R>,
    on: Option<Connection>,
    authority: &Authority,
) -> Result<Option<Opened>, Unrecorded> {
    let asked = Asked { operation: OPERATION, on, by_http: false };
    let reached = admit_and_reach(core, asked, authority).await?;
    answer(wire, core, reached).await
}

/// Tells a client what came of its request for a connection.
async fn answer<R: Recorder>(
    mut wire: Wire,
    core: &Core<R>,
    reached: Result<(Permit, Wire), Unadmitted>,
) -> Result<Option<Opened>, Unrecorded> {
    let (permit, server) = match reached {
        Ok(reached) => reached,
        Err(why) => {
            wire.end_with(&Reply::to(&why).bytes(), core.limits.head).await;
            return Ok(None);
        }
    };
    let told = wire.send(&Reply::Succeeded.bytes(), core.limits.head).await;
    Ok(told.is_ok().then_some(Opened { client: wire, server, permit, caught: false }))
}

/// The last bytes for a client whose message is malformed.
fn answer_to(why: &Malformed) -> Vec<u8> {
    let reply = match why {
        Malformed::Socks(BadSocks::Method) => return vec![VERSION, NO_ACCEPTABLE_METHOD],
        Malformed::Socks(BadSocks::AddressType) => Reply::AddressTypeNotSupported,
        Malformed::Socks(BadSocks::Command) => Reply::CommandNotSupported,
        _ => Reply::Failure,
    };
    reply.bytes().to_vec()
}

/// Reads a client's messages up to its request.
async fn negotiate<R: Recorder>(wire: &mut Wire, core: &Core<R>, deadline: Instant) -> Result<Request, Unread> {
    let method = message(wire, deadline, greeting).await?;
    send(wire, core, &[VERSION, method]).await?;
    if method == USER_AND_PASSWORD {
        message(wire, deadline, credentials).await?;
        send(wire, core, &[AUTH_VERSION, 0]).await?;
    }
    message(wire, deadline, request).await
}

async fn send<R: Recorder>(wire: &mut Wire, core: &Core<R>, bytes: &[u8]) -> Result<(), Unread> {
    wire.send(bytes, core.limits.head).await.map_err(|_| Unread::Ended)
}

/// One message; what comes behind it stays.
async fn message<T>(wire: &mut Wire, deadline: Instant, parse: impl Fn(&[u8]) -> Parsed<T>) -> Result<T, Unread> {
    loop {
        if let Some((value, length)) = parse(wire.inflow.unused()).map_err(Unread::Malformed)? {
            wire.inflow.consume(length);
            return Ok(value);
        }
        match timeout_at(deadline, wire.inflow.more()).await {
            Ok(Ok(count)) if count > 0 => {}
            Ok(_) => return Err(Unread::Ended),
            Err(_) => return Err(Unread::Late),
        }
    }
}
