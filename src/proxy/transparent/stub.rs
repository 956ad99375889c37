//! The resolver of the command's: it answers for admitted names, by addresses that stand for them, and forwards nothing.

use super::caught::translated;
use super::question::{A, Question, ResponseCode};
use super::{Serving, Told};
use crate::policy::{Host, Name};
use crate::proxy::core::Core;
use crate::proxy::judge::Judgement;
use crate::proxy::record::{self, Connection, Recorder, Unrecorded};
use crate::proxy::resolve::Unresolved;
use crate::proxy::{ProxyError, setup};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// How long clients may use an answer, in seconds. What stands for a name does so for the whole run; what it leads to is judged
/// at each connection.
const TTL: u32 = 60;
/// Questions of datagrams that are answered at a time; the kernel keeps further ones, or drops them.
const AT_ONCE: usize = 256;
/// More than any question has: a message of 512 bytes (RFC 1035, 4.2.1), and what EDNS lets a client send.
const MESSAGE_LIMIT: usize = 4096;

/// Questions by datagrams.
pub struct Datagrams {
    socket: Rc<tokio::net::UdpSocket>,
    local: SocketAddr,
}

impl Datagrams {
    /// Those that come to this socket.
    pub fn new(socket: UdpSocket) -> Result<Datagrams, ProxyError> {
        let local = socket.local_addr().map_err(setup("getsockname"))?;
        socket.set_nonblocking(true).map_err(setup("fcntl"))?;
        let socket = tokio::net::UdpSocket::from_std(socket).map_err(setup("epoll_ctl"))?;
        Ok(Datagrams { socket: Rc::new(socket), local })
    }

    /// Answers them until recvfrom(2) fails for good.
    pub async fn serve<R: Recorder>(self, serving: Rc<Serving>, core: Rc<Core<R>>) -> ProxyError {
        let free = Arc::new(Semaphore::new(AT_ONCE));
        let mut buffer = vec![0; MESSAGE_LIMIT];
        loop {
            let Ok(place) = free.clone().acquire_owned().await else {
                return ProxyError::Accept(io::Error::other("no place for a question"));
            };
            let (length, client) = match self.socket.recv_from(&mut buffer).await {
                Ok(received) => received,
                // What an answer of before met: whoever had asked is gone (udp(7)).
                Err(cause) if cause.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(cause) => return ProxyError::Accept(cause),
            };
            let message = buffer[..length].to_vec();
            let (socket, serving, core) = (self.socket.clone(), serving.clone(), core.clone());
            let on = Connection { client, proxy: self.local, datagram: true };
            tokio::task::spawn_local(async move {
                match answer(&message, on, &serving, &core).await {
                    // One that cannot be sent is one that has not come.
                    Ok(Some(bytes)) => drop(socket.send_to(&bytes, client).await),
                    Ok(None) => {}
                    Err(cause) => core.fail(cause),
                }
                drop(place);
            });
        }
    }
}

/// Questions over TCP (RFC 7766), one after the other. Errors: a refusal could not be recorded.
pub async fn conversation<R: Recorder>(
    mut stream: TcpStream,
    client: SocketAddr,
    proxy: SocketAddr,
    serving: Rc<Serving>,
    core: Rc<Core<R>>,
) -> Result<(), Unrecorded> {
    let proxy = match serving.told {
        Told::ByTranslation => translated(&stream).unwrap_or(proxy),
        Told::ByDestination => proxy,
    };
    let on = Connection { client, proxy, datagram: false };
    while let Ok(Ok(message)) = timeout(core.limits.keep_alive, next(&mut stream)).await {
        let Some(bytes) = answer(&message, on, &serving, &core).await? else { break };
        let length = u16::try_from(bytes.len()).unwrap_or_default().to_be_bytes();
        let whole = [&length[..], &bytes].concat();
        if !matches!(timeout(core.limits.head, stream.write_all(&whole)).await, Ok(Ok(()))) {
            break;
        }
    }
    Ok(())
}

async fn next(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut message = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

/// The answer to a message, if it gets one. What is refused is on record by then.
async fn answer<R: Recorder>(
    message: &[u8],
    on: Connection,
    serving: &Serving,
    core: &Core<R>,
) -> Result<Option<Vec<u8>>, Unrecorded> {
    let question = match Question::read(message) {
        Ok(question) => question,
        Err(bad) => {
            core.recorder.denial(record::bad_question(message, bad), Some(on)).await?;
            return Ok(bad.answer(message));
        }
    };
    let refuse = async |rule: &str, reason: &str, addrs: &[std::net::IpAddr]| {
        let denial = record::lookup(&question.name, &question.kind_name(), rule, reason, addrs);
        core.recorder.denial(denial, Some(on)).await?;
        Ok(Some(question.answer(ResponseCode::Refused)))
    };
    let parsed = Name::parse(&question.name);
    let admitted = parsed.as_ref().is_ok_and(|name| core.judge.admits_at_any_port(&Host::Name(name.clone())));
    if !admitted && core.judge.is_search_of_admitted(&String::from_utf8_lossy(&question.name)) {
        // A resolver's client asks for a name below each search domain as well (resolv.conf(5)); it is not what is meant.
        return Ok(Some(question.answer(ResponseCode::NXDomain)));
    }
    if !question.is_for_addresses() {
        return refuse("dns-type", "type_not_served", &[]).await;
    }
    let name = match parsed {
        Ok(name) => name,
        Err(bad) => return refuse(record::RULE_MALFORMED, bad.reason(), &[]).await,
    };
    let authority = core.judge.at_first_port(Host::Name(name.clone()));
    match core.judge.judge(&authority).await {
        Judgement::Permitted(_) => core.recorder.free_to_admit().await,
        Judgement::Refused(refusal) => return refuse(&refusal.rule, &refusal.reason, &refusal.addrs).await,
        Judgement::Unresolved(cause) => {
            let code = match cause {
                Unresolved::NoAddress(_) => ResponseCode::NXDomain,
                _ => ResponseCode::ServFail,
            };
            let failure = record::failed(record::OPERATION_LOOKUP, &authority, &[], cause.to_string(), None);
            core.recorder.infrastructure(failure).await?;
            return Ok(Some(question.answer(code)));
        }
    }
    Ok(Some(match question.kind {
        A => question.answer_with(serving.stand_ins.borrow_mut().of(&name), TTL),
        // There is one of the other kind.
        _ => question.answer(ResponseCode::NoError),
    }))
}
