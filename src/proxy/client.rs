//! One client's connection: its requests in their order, each judged on its own.

use super::answer::{self, After};
use super::core::{Core, Late};
use super::dial::dial;
use super::exchange::{Exchanged, exchange};
use super::head::{self, Framing, Head, HeadScan};
use super::judge::{Judgement, Permit};
use super::malformed::Malformed;
use super::record::{self, Connection, Recorder, Unrecorded};
use super::target::Target;
use super::tunnel::tunnel;
use super::wire::Wire;
use crate::policy::Authority;
use std::net::IpAddr;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

/// What a client sent next.
enum Next {
    /// A request head.
    Head(Head),
    /// Bytes that are none, and why.
    Malformed { text: Vec<u8>, why: Malformed },
    /// Part of a head, and no more of it in time.
    Late,
    /// Nothing: the connection has ended, or was silent for too long.
    Nothing,
}

/// Serves a connection to its end. Errors: a refusal could not be recorded; the client is left without an answer.
pub async fn serve<R: Recorder>(stream: TcpStream, core: &Core<R>) -> Result<(), Unrecorded> {
    let Ok(mut wire) = Wire::new(stream, &core.pipes) else {
        return Ok(());
    };
    let mut wait = core.limits.head;
    loop {
        let head = match next(&mut wire, core, wait).await {
            Next::Head(head) => head,
            Next::Malformed { text, why } => return refuse_malformed(wire, core, &text, &why).await,
            Next::Late => {
                core.late.count(Late::Head);
                return Ok(());
            }
            Next::Nothing => return Ok(()),
        };
        // A tunnel's bytes begin after its answer: what comes before would be a body or another request.
        let early = head.method == "CONNECT" && !wire.inflow.unused().is_empty();
        let target = match Target::of(&head) {
            Ok(_) if early => Err(Malformed::ConnectBody),
            other => other,
        };
        wire = match target {
            Ok(Target::Tunnel(authority)) => return connect(wire, core, authority).await,
            Ok(Target::Exchange { authority, path }) => match forward(wire, core, &head, authority, &path).await? {
                Some(wire) => wire,
                None => return Ok(()),
            },
            Err(why) => {
                let text = [head.method.as_bytes(), b" ", &head.target].concat();
                return refuse_malformed(wire, core, &text, &why).await;
            }
        };
        wait = core.limits.keep_alive;
    }
}

/// Reads the next head: the first byte within `wait`, the whole of it within the head deadline from then on.
async fn next<R: Recorder>(wire: &mut Wire, core: &Core<R>, wait: std::time::Duration) -> Next {
    let mut scan = HeadScan::default();
    let mut deadline = Instant::now() + wait.max(core.limits.head);
    if wire.inflow.unused().is_empty() {
        match timeout_at(Instant::now() + wait, wire.inflow.more()).await {
            Ok(Ok(count)) if count > 0 => {}
            _ => return Next::Nothing,
        }
    }
    deadline = deadline.min(Instant::now() + core.limits.head);
    loop {
        let bytes = wire.inflow.unused();
        let found =
            scan.advance(bytes).and_then(|range| range.map(|r| Ok((r.end, head::parse(&bytes[r])?))).transpose());
        match found {
            Ok(Some((length, head))) => {
                wire.inflow.consume(length);
                return Next::Head(head);
            }
            Ok(None) => {}
            Err(why) => {
                let text = bytes[..bytes.len().min(record::TEXT_LIMIT)].to_vec();
                return Next::Malformed { text, why };
            }
        }
        match timeout_at(deadline, wire.inflow.more()).await {
            Ok(Ok(count)) if count > 0 => {}
            Ok(_) => return Next::Nothing,
            Err(_) => return Next::Late,
        }
    }
}

/// Serves a CONNECT.
async fn connect<R: Recorder>(mut wire: Wire, core: &Core<R>, authority: Authority) -> Result<(), Unrecorded> {
    let permit = match admit(core, &wire, "CONNECT", authority).await? {
        Ok(permit) => permit,
        Err(status) => return answer_and_end(wire, core, status).await,
    };
    let server = match reach(core, &permit).await? {
        Ok(server) => server,
        Err(status) => return answer_and_end(wire, core, status).await,
    };
    if wire.send(answer::CONNECTED, core.limits.head).await.is_ok() {
        tunnel(wire, server, core.limits.idle).await;
    }
    Ok(())
}

/// Serves one plain HTTP request; the connection comes back if another may follow on it.
async fn forward<R: Recorder>(
    mut wire: Wire,
    core: &Core<R>,
    head: &Head,
    authority: Authority,
    path: &[u8],
) -> Result<Option<Wire>, Unrecorded> {
    let admitted = match admit(core, &wire, &head.method, authority).await? {
        Ok(permit) => reach(core, &permit).await?.map(|server| (permit, server)),
        Err(status) => Err(status),
    };
    let (permit, mut server) = match admitted {
        Ok(reached) => reached,
        Err(status) if head.framing == Framing::None && head.persists() => {
            let bytes = answer::bare(status, After::Keep);
            let sent = wire.send(&bytes, core.limits.head).await;
            return Ok(sent.is_ok().then_some(wire));
        }
        // The body that follows is not read, so what comes after it can't be found.
        Err(status) => return answer_and_end(wire, core, status).await.map(|()| None),
    };
    let idle = core.limits.idle;
    let done = exchange(&mut wire, &mut server, head, permit.authority(), path, idle).await;
    match done {
        Exchanged::Answered(After::Keep) => Ok(Some(wire)),
        Exchanged::Answered(After::Close) => {
            wire.end().await;
            Ok(None)
        }
        Exchanged::Switched => {
            tunnel(wire, server, idle).await;
            Ok(None)
        }
        Exchanged::BadBody { why, answered } => {
            server.reset();
            let text = [head.method.as_bytes(), b" ", &head.target].concat();
            if answered {
                core.recorder.denial(record::malformed(&text, &why), ends(&wire)).await?;
                wire.reset();
                return Ok(None);
            }
            refuse_malformed(wire, core, &text, &why).await.map(|()| None)
        }
        Exchanged::Failed(cause) => {
            let addrs: Vec<IpAddr> = permit.addresses().iter().map(|a| a.ip()).collect();
            let status = cause.status();
            let failure = record::failed("exchange", permit.authority(), &addrs, cause.to_string(), Some(status));
            core.recorder.infrastructure(failure).await?;
            answer_and_end(wire, core, status).await.map(|()| None)
        }
        Exchanged::Broken => {
            server.reset();
            wire.reset();
            Ok(None)
        }
    }
}

/// Judges an authority. What is not permitted is on record when this returns, with the status to answer.
async fn admit<R: Recorder>(
    core: &Core<R>,
    client: &Wire,
    method: &str,
    authority: Authority,
) -> Result<Result<Permit, u16>, Unrecorded> {
    match core.judge.judge(&authority).await {
        Judgement::Permitted(permit) => {
            core.recorder.free_to_admit().await;
            Ok(Ok(permit))
        }
        Judgement::Refused(refusal) => {
            let denial = record::refused(method, &authority, &refusal);
            core.recorder.denial(denial, ends(client)).await?;
            Ok(Err(403))
        }
        Judgement::Unresolved(cause) => {
            let status = cause.status();
            let failure = record::failed("resolve", &authority, &[], cause.to_string(), Some(status));
            core.recorder.infrastructure(failure).await?;
            Ok(Err(status))
        }
    }
}

/// Connects to what is permitted. A failure is on record when this returns, with the status to answer.
async fn reach<R: Recorder>(core: &Core<R>, permit: &Permit) -> Result<Result<Wire, u16>, Unrecorded> {
    let reached = dial(permit, core.limits.connect).await;
    let (cause, status) = match reached {
        Ok(stream) => match Wire::new(stream, &core.pipes) {
            Ok(wire) => return Ok(Ok(wire)),
            Err(e) => (e.to_string(), 502),
        },
        Err(e) => (e.to_string(), e.status()),
    };
    let addrs: Vec<IpAddr> = permit.addresses().iter().map(|a| a.ip()).collect();
    let failure = record::failed("connect", permit.authority(), &addrs, cause, Some(status));
    core.recorder.infrastructure(failure).await?;
    Ok(Err(status))
}

async fn refuse_malformed<R: Recorder>(
    wire: Wire,
    core: &Core<R>,
    text: &[u8],
    why: &Malformed,
) -> Result<(), Unrecorded> {
    core.recorder.denial(record::malformed(text, why), ends(&wire)).await?;
    answer_and_end(wire, core, 400).await
}

/// A client's connection, for the record.
fn ends(client: &Wire) -> Option<Connection> {
    Connection::of(client.out.as_ref())
}

async fn answer_and_end<R: Recorder>(mut wire: Wire, core: &Core<R>, status: u16) -> Result<(), Unrecorded> {
    let bytes = answer::bare(status, After::Close);
    if wire.send(&bytes, core.limits.head).await.is_ok() {
        wire.end().await;
    }
    Ok(())
}
