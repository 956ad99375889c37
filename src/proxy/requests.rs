//! A client's HTTP requests in their order, each judged on its own.

use super::admission::{Asked, Unadmitted, admit, admit_and_reach, reach_next_hop};
use super::answer::{self, After};
use super::carry::Opened;
use super::core::{Core, Late};
use super::exchange::{Exchanged, exchange};
use super::head::{self, Framing, Head, HeadScan};
use super::judge::{Permit, Refusal};
use super::malformed::Malformed;
use super::record::{self, Recorder, Unrecorded};
use super::target::Target;
use super::tunnel::tunnel;
use super::wire::Wire;
use crate::policy::Authority;
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

/// A tunnel whose client speaks HTTP to the tunnel's host instead of to the proxy.
#[derive(Debug)]
pub struct Within {
    authority: Authority,
    /// The connection that the tunnel was opened with, for its first request.
    ready: Option<(Permit, Wire)>,
    /// Whether the client has not named the host yet.
    unnamed: bool,
}

impl Within {
    /// For a tunnel that was permitted, and its connection; `unnamed` where an address alone has led the client to it.
    pub fn new(permit: Permit, server: Wire, unnamed: bool) -> Within {
        Within { authority: permit.authority().clone(), ready: Some((permit, server)), unnamed }
    }
}

/// How a request has come, and so how its server is asked.
enum Way {
    /// To the proxy.
    Asked,
    /// Within a tunnel, with the connection that is open, if it is still unused. The server is asked over a tunnel of its own.
    Within(Option<(Permit, Wire)>),
}

/// Serves a client's requests to the connection's end, or to the tunnel that it is given: those for a proxy, or those within
/// a tunnel. The first head must be whole at `by`.
///
/// Errors: a refusal could not be recorded; the client is left without an answer.
pub async fn requests<R: Recorder>(
    mut wire: Wire,
    core: &Core<R>,
    mut within: Option<Within>,
    by: Instant,
) -> Result<Option<Opened>, Unrecorded> {
    let mut by = Some(by);
    loop {
        let head = match next(&mut wire, core, by.take()).await {
            Next::Head(head) => head,
            Next::Malformed { text, why } => return refuse_malformed(wire, core, &text, &why).await.map(|()| None),
            Next::Late => {
                core.late.count(Late::Head);
                return Ok(None);
            }
            Next::Nothing => return Ok(None),
        };
        // A tunnel's bytes begin after its answer: what comes before would be a body or another request.
        let early = head.method == "CONNECT" && !wire.inflow.unused().is_empty();
        let target = match &within {
            Some(within) => Target::within(&head, &within.authority, within.unnamed),
            None => Target::of(&head),
        };
        let target = match target {
            Ok(_) if early => Err(Malformed::ConnectBody),
            other => other,
        };
        wire = match target {
            Ok(Target::Tunnel(authority)) => return connect(wire, core, authority).await,
            Ok(Target::Exchange { authority, path }) => {
                let way = within.as_mut().map_or(Way::Asked, |within| Way::Within(within.ready.take()));
                match forward(wire, core, &head, authority, &path, way).await? {
                    Some(wire) => wire,
                    None => return Ok(None),
                }
            }
            Ok(Target::Elsewhere { authority, named }) => {
                let text = format!("Host: {named}");
                let (rule, reason) = ("tunnel-host", "host_mismatch");
                let mut denial = record::carried(&head.method, &authority, rule, reason, Some(&text));
                denial.http_status = Some(403);
                core.recorder.denial(denial, wire.ends()).await?;
                let why = Refusal { rule: rule.to_owned(), reason: reason.to_owned(), addrs: Vec::new() };
                let why = Unadmitted::Refused(why);
                let bytes = answer::unadmitted(core, &head.method, &authority, &why, After::Close);
                wire.end_with(&bytes, core.limits.head).await;
                return Ok(None);
            }
            Err(why) => {
                let text = [head.method.as_bytes(), b" ", &head.target].concat();
                return refuse_malformed(wire, core, &text, &why).await.map(|()| None);
            }
        };
    }
}

/// Reads the next head: whole at `by`, or the first byte within the deadline of a kept connection and the whole within the
/// head deadline from then on.
async fn next<R: Recorder>(wire: &mut Wire, core: &Core<R>, by: Option<Instant>) -> Next {
    let mut scan = HeadScan::default();
    if wire.inflow.unused().is_empty() {
        let awaited = by.unwrap_or_else(|| Instant::now() + core.limits.keep_alive);
        match timeout_at(awaited, wire.inflow.more()).await {
            Ok(Ok(count)) if count > 0 => {}
            _ => return Next::Nothing,
        }
    }
    let deadline = by.unwrap_or_else(|| Instant::now() + core.limits.head);
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
async fn connect<R: Recorder>(
    mut wire: Wire,
    core: &Core<R>,
    authority: Authority,
) -> Result<Option<Opened>, Unrecorded> {
    let asked = Asked { operation: "CONNECT", on: wire.ends(), by_http: true };
    let (permit, server) = match admit_and_reach(core, asked, &authority).await? {
        Ok(reached) => reached,
        Err(why) => {
            let bytes = answer::unadmitted(core, "CONNECT", &authority, &why, After::Close);
            wire.end_with(&bytes, core.limits.head).await;
            return Ok(None);
        }
    };
    let told = wire.send(answer::CONNECTED, core.limits.head).await;
    Ok(told.is_ok().then_some(Opened { client: wire, server, permit, caught: false }))
}

/// Serves one plain HTTP request; the connection comes back if another may follow on it.
async fn forward<R: Recorder>(
    mut wire: Wire,
    core: &Core<R>,
    head: &Head,
    authority: Authority,
    path: &[u8],
    way: Way,
) -> Result<Option<Wire>, Unrecorded> {
    let asked = Asked { operation: &head.method, on: wire.ends(), by_http: true };
    let tunnelled = matches!(way, Way::Within(_));
    let reached = match way {
        Way::Within(Some(ready)) => Ok(ready),
        Way::Within(None) => admit_and_reach(core, asked, &authority).await?,
        Way::Asked => match admit(core, asked, &authority).await? {
            Ok(permit) => reach_next_hop(core, asked, &permit).await?.map(|server| (permit, server)),
            Err(why) => Err(why),
        },
    };
    let (permit, mut server) = match reached {
        Ok(reached) => reached,
        Err(why) if head.framing == Framing::None && head.persists() => {
            let bytes = answer::unadmitted(core, &head.method, &authority, &why, After::Keep);
            let sent = wire.send(&bytes, core.limits.head).await;
            return Ok(sent.is_ok().then_some(wire));
        }
        // The body that follows is not read, so what comes after it can't be found.
        Err(why) => {
            let bytes = answer::unadmitted(core, &head.method, &authority, &why, After::Close);
            wire.end_with(&bytes, core.limits.head).await;
            return Ok(None);
        }
    };
    let idle = core.limits.idle;
    let parent = permit.parent().filter(|_| !tunnelled);
    let done = exchange(&mut wire, &mut server, head, permit.authority(), path, parent, idle).await;
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
                core.recorder.denial(record::malformed(&text, &why), wire.ends()).await?;
                wire.reset();
                return Ok(None);
            }
            refuse_malformed(wire, core, &text, &why).await.map(|()| None)
        }
        Exchanged::Failed(cause) => {
            let (status, addrs) = (cause.status(), permit.known_addresses());
            let cause = match parent {
                Some(parent) => format!("the upstream proxy {parent}: {cause}"),
                None => cause.to_string(),
            };
            let failure = record::failed("exchange", permit.authority(), &addrs, cause, Some(status));
            core.recorder.infrastructure(failure).await?;
            wire.end_with(&answer::bare(status, After::Close), core.limits.head).await;
            Ok(None)
        }
        Exchanged::Broken => {
            server.reset();
            wire.reset();
            Ok(None)
        }
    }
}

async fn refuse_malformed<R: Recorder>(
    wire: Wire,
    core: &Core<R>,
    text: &[u8],
    why: &Malformed,
) -> Result<(), Unrecorded> {
    core.recorder.denial(record::malformed(text, why), wire.ends()).await?;
    wire.end_with(&answer::malformed(core, text, why), core.limits.head).await;
    Ok(())
}
