//! One plain HTTP exchange: a judged request sent on over a connection of its own, and the response passed back.

use super::answer::After;
use super::body::{BodyError, Recode, pass_chunked};
use super::field::{any_lists, end_to_end};
use super::head::{Framing, Head, Version};
use super::inflow::Inflow;
use super::malformed::Malformed;
use super::pulse::Pulse;
use super::pump::{Pipes, pass_all, pass_length};
use super::response::{BadResponse, ResponseFraming, ResponseHead, put};
use super::upstream;
use super::wire::Wire;
use crate::policy::{Authority, ParentProxy};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// Most interim (1xx) responses before the final one.
const INTERIM_LIMIT: usize = 16;

/// How an exchange ended.
#[derive(Debug)]
#[must_use]
pub enum Exchanged {
    /// The response got through; what becomes of the client's connection.
    Answered(After),
    /// The server switched to the websocket protocol: both connections carry it from here on.
    Switched,
    /// The client's body broke the chunked coding. `answered` tells whether a response had begun.
    BadBody {
        /// What is wrong.
        why: Malformed,
        /// Whether the client has part of a response.
        answered: bool,
    },
    /// The server failed before a response had begun.
    Failed(ExchangeError),
    /// One of the two connections failed, or went idle, with the response under way: it can only be cut off.
    Broken,
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The response can't be passed on.
    #[error(transparent)]
    Response(#[from] BadResponse),
    /// The connection failed.
    #[error("read of the response: {0}")]
    Read(io::Error),
    /// The parent proxy answered 407, which is no answer to the client.
    #[error("it answered 407: {}", upstream::CREDENTIALS)]
    Credentials,
    /// Nothing got through for too long.
    #[error("no byte got through within {0:?}")]
    Idle(Duration),
}

impl ExchangeError {
    /// The status that the client is given.
    pub fn status(&self) -> u16 {
        match self {
            ExchangeError::Idle(_) => 504,
            _ => 502,
        }
    }
}

/// Whether the request asks for the one switch of protocols that is passed on.
fn wants_websocket(head: &Head) -> bool {
    head.method == "GET"
        && head.version == Version::Http11
        && head.framing == Framing::None
        && any_lists(&head.fields, "connection", "upgrade")
        && head.fields.iter().filter(|f| f.is("upgrade")).count() == 1
        && any_lists(&head.fields, "upgrade", "websocket")
}

/// The head as the next hop gets it: Host from what was judged, the framing from what was read, nothing of one hop but what
/// a parent proxy is told.
fn head_for_next_hop(head: &Head, authority: &Authority, path: &[u8], parent: Option<&ParentProxy>) -> Vec<u8> {
    let version = match head.version {
        Version::Http10 => "HTTP/1.0",
        Version::Http11 => "HTTP/1.1",
    };
    let target = upstream::target(parent, authority, path);
    let mut sent = [head.method.as_bytes(), b" ", &target, b" ", version.as_bytes(), b"\r\n"].concat();
    put(&mut sent, "Host", upstream::host_field(authority).as_bytes());
    if let Some(parent) = parent {
        upstream::put_credentials(&mut sent, parent);
    }
    for field in end_to_end(&head.fields) {
        let interim = field.is("expect") && head.version == Version::Http10;
        if !(field.is("host") || field.is("content-length") || interim) {
            put(&mut sent, &field.name, &field.value);
        }
    }
    match head.framing {
        Framing::None => {}
        Framing::Length(length) => put(&mut sent, "Content-Length", length.to_string().as_bytes()),
        Framing::Chunked => put(&mut sent, "Transfer-Encoding", b"chunked"),
    }
    if wants_websocket(head) {
        put(&mut sent, "Connection", b"Upgrade");
        put(&mut sent, "Upgrade", b"websocket");
    } else {
        put(&mut sent, "Connection", b"close");
    }
    sent.extend_from_slice(b"\r\n");
    sent
}

/// Sends the request on and passes the response back, bodies streamed both ways at once. With `parent` the connection is
/// with that one, and no tunnel.
pub async fn exchange(
    client: &mut Wire,
    server: &mut Wire,
    head: &Head,
    authority: &Authority,
    path: &[u8],
    parent: Option<&ParentProxy>,
    idle: Duration,
) -> Exchanged {
    let pulse = Pulse::new();
    let answered = Cell::new(false);
    let request = head_for_next_hop(head, authority, path, parent);
    let upload = async {
        let to = &mut server.out;
        to.write_all(&request).await.map_err(BodyError::Write)?;
        pulse.beat();
        match head.framing {
            Framing::None => Ok(()),
            Framing::Length(length) => pass_length(&mut client.inflow, to, length, &pulse, &client.pipes).await,
            Framing::Chunked => pass_chunked(&mut client.inflow, to, Recode::Chunked, &pulse).await,
        }
    };
    let by_parent = parent.is_some();
    let (from, to) = (&mut server.inflow, &mut client.out);
    let download = respond(from, to, head, by_parent, &answered, &pulse, &server.pipes);
    tokio::pin!(upload, download);
    let mut uploaded = None;
    loop {
        tokio::select! {
            sent = &mut upload, if uploaded.is_none() => match sent {
                Ok(()) => uploaded = Some(true),
                // A server may answer without reading on; its answer counts.
                Err(BodyError::Write(_)) => uploaded = Some(false),
                Err(BodyError::Malformed(why)) => {
                    return Exchanged::BadBody { why, answered: answered.get() };
                }
                Err(BodyError::Read(_) | BodyError::Truncated) => return Exchanged::Broken,
            },
            done = &mut download => return match done {
                Ok(Responded::Whole(After::Keep)) if uploaded == Some(true) && head.persists() => {
                    Exchanged::Answered(After::Keep)
                }
                Ok(Responded::Whole(_)) => Exchanged::Answered(After::Close),
                Ok(Responded::Switched) => Exchanged::Switched,
                Err(_) if answered.get() => Exchanged::Broken,
                Err(RespondError::Client) => Exchanged::Broken,
                Err(RespondError::Server(cause)) => Exchanged::Failed(cause),
            },
            () = pulse.stopped(idle) => {
                return match answered.get() {
                    true => Exchanged::Broken,
                    false => Exchanged::Failed(ExchangeError::Idle(idle)),
                };
            }
        }
    }
}

enum Responded {
    Whole(After),
    Switched,
}

enum RespondError {
    Client,
    Server(ExchangeError),
}

impl From<BadResponse> for RespondError {
    fn from(bad: BadResponse) -> RespondError {
        RespondError::Server(bad.into())
    }
}

/// Passes interim responses and the final one. `by_parent`: they are a parent proxy's.
async fn respond(
    from: &mut Inflow<OwnedReadHalf>,
    to: &mut OwnedWriteHalf,
    request: &Head,
    by_parent: bool,
    answered: &Cell<bool>,
    pulse: &Pulse,
    pipes: &Rc<Pipes>,
) -> Result<Responded, RespondError> {
    for _ in 0..=INTERIM_LIMIT {
        let head = response_head(from, pulse).await?;
        if head.is_interim() {
            // HTTP/1.0 knows no interim responses.
            if request.version == Version::Http11 {
                send(to, &head.for_client(&[]), answered).await?;
            }
            // It is no answer yet: a failure after it is still answered.
            answered.set(false);
            continue;
        }
        if head.status == 101 {
            if !wants_websocket(request) || !any_lists(&head.fields, "upgrade", "websocket") {
                return Err(BadResponse::UnaskedSwitch.into());
            }
            let lines = ["Connection: Upgrade", "Upgrade: websocket"];
            send(to, &head.for_client(&lines), answered).await?;
            return Ok(Responded::Switched);
        }
        if head.status == 407 && by_parent {
            return Err(RespondError::Server(ExchangeError::Credentials));
        }
        let framing = head.framing(&request.method)?;
        let recode = match request.version {
            Version::Http11 => Recode::Chunked,
            Version::Http10 => Recode::Plain,
        };
        let delimited =
            framing != ResponseFraming::UntilEnd && !(framing == ResponseFraming::Chunked && recode == Recode::Plain);
        let after = match delimited && request.persists() {
            true => After::Keep,
            false => After::Close,
        };
        let mut lines = Vec::new();
        if framing == ResponseFraming::Chunked && recode == Recode::Chunked {
            lines.push("Transfer-Encoding: chunked");
        }
        if after == After::Close {
            lines.push("Connection: close");
        }
        send(to, &head.for_client(&lines), answered).await?;
        let passed = match framing {
            ResponseFraming::None => Ok(()),
            ResponseFraming::Length(length) => pass_length(from, to, length, pulse, pipes).await,
            ResponseFraming::Chunked => pass_chunked(from, to, recode, pulse).await,
            ResponseFraming::UntilEnd => pass_all(from, to, pulse, pipes).await,
        };
        return passed.map(|()| Responded::Whole(after)).map_err(|_| RespondError::Client);
    }
    Err(BadResponse::Interim.into())
}

async fn send(to: &mut OwnedWriteHalf, head: &[u8], answered: &Cell<bool>) -> Result<(), RespondError> {
    answered.set(true);
    to.write_all(head).await.map_err(|_| RespondError::Client)
}

async fn response_head(from: &mut Inflow<OwnedReadHalf>, pulse: &Pulse) -> Result<ResponseHead, RespondError> {
    loop {
        if let Some((head, length)) = ResponseHead::parse(from.unused())? {
            from.consume(length);
            pulse.beat();
            return Ok(head);
        }
        match from.more().await {
            Ok(0) => return Err(BadResponse::Closed.into()),
            Ok(_) => {}
            Err(cause) => return Err(RespondError::Server(ExchangeError::Read(cause))),
        }
    }
}
