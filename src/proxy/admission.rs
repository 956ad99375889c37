//! From an authority to a connection with it: judged, recorded where it is refused, and dialled. Every way in goes through here.

use super::core::Core;
use super::dial::dial;
use super::judge::{Judgement, Permit, Refusal};
use super::record::{self, Connection, Recorder, Unrecorded};
use super::resolve::Unresolved;
use super::upstream::open_tunnel;
use super::wire::Wire;
use crate::policy::Authority;

/// Who asks, and how: what a record says of it.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The request's method, or what stands for it.
    pub operation: &'a str,
    /// The client's connection.
    pub on: Option<Connection>,
    /// Whether the answer is one of HTTP, with a status.
    pub by_http: bool,
}

/// Why there is no connection. It is on record.
#[derive(Debug)]
pub enum Unadmitted {
    /// The policy says no.
    Refused(Refusal),
    /// Outside of the policy something failed; the status that says so.
    Failed(u16),
}

impl Unadmitted {
    /// The status that an HTTP client is given.
    pub fn status(&self) -> u16 {
        match self {
            Unadmitted::Refused(_) => 403,
            Unadmitted::Failed(status) => *status,
        }
    }
}

/// Judges an authority. What is not permitted is on record when this returns; a shadow permits it then.
pub async fn admit<R: Recorder>(
    core: &Core<R>,
    asked: Asked<'_>,
    authority: &Authority,
) -> Result<Result<Permit, Unadmitted>, Unrecorded> {
    match core.judge.judge(authority).await {
        Judgement::Permitted(permit) => {
            core.recorder.free_to_admit().await;
            Ok(Ok(permit))
        }
        Judgement::Refused(refusal) => {
            let mut denial = record::refused(asked.operation, authority, &refusal);
            denial.http_status = asked.by_http.then_some(403);
            if !core.judge.is_shadow() {
                core.recorder.denial(denial, asked.on).await?;
                return Ok(Err(Unadmitted::Refused(refusal)));
            }
            core.recorder.denial(denial.let_through(), asked.on).await?;
            match core.judge.let_through(authority).await {
                Ok(permit) => Ok(Ok(permit)),
                Err(cause) => unresolved(core, asked, authority, &cause).await,
            }
        }
        Judgement::Unresolved(cause) => unresolved(core, asked, authority, &cause).await,
    }
}

async fn unresolved<R: Recorder>(
    core: &Core<R>,
    asked: Asked<'_>,
    authority: &Authority,
    cause: &Unresolved,
) -> Result<Result<Permit, Unadmitted>, Unrecorded> {
    let status = cause.status();
    let told = asked.by_http.then_some(status);
    let failure = record::failed("resolve", authority, &[], cause.to_string(), told);
    core.recorder.infrastructure(failure).await?;
    Ok(Err(Unadmitted::Failed(status)))
}

/// Connects to what is permitted, for a tunnel: over a parent proxy, it is open. A failure is on record when this returns.
pub async fn reach<R: Recorder>(
    core: &Core<R>,
    asked: Asked<'_>,
    permit: &Permit,
) -> Result<Result<Wire, Unadmitted>, Unrecorded> {
    let mut reached = connect(core, permit).await;
    if let (Ok(wire), Some(parent)) = (&mut reached, permit.parent()) {
        let opened = open_tunnel(wire, permit.authority(), parent, core.limits.connect).await;
        if let Err(cause) = opened {
            reached = Err((cause.to_string(), cause.status()));
        }
    }
    recorded(core, asked, permit, reached).await
}

/// Connects to the next hop of what is permitted: the server, or the parent proxy, which is to be asked for it yet. A failure
/// is on record when this returns.
pub async fn reach_next_hop<R: Recorder>(
    core: &Core<R>,
    asked: Asked<'_>,
    permit: &Permit,
) -> Result<Result<Wire, Unadmitted>, Unrecorded> {
    let reached = connect(core, permit).await;
    recorded(core, asked, permit, reached).await
}

/// A connection, or why there is none and the status that says so.
async fn connect<R: Recorder>(core: &Core<R>, permit: &Permit) -> Result<Wire, (String, u16)> {
    let stream = dial(permit, core.limits.connect).await.map_err(|e| (e.to_string(), e.status()))?;
    Wire::new(stream, &core.pipes).map_err(|e| (e.to_string(), 502))
}

async fn recorded<R: Recorder>(
    core: &Core<R>,
    asked: Asked<'_>,
    permit: &Permit,
    reached: Result<Wire, (String, u16)>,
) -> Result<Result<Wire, Unadmitted>, Unrecorded> {
    let (cause, status) = match reached {
        Ok(wire) => return Ok(Ok(wire)),
        Err(failed) => failed,
    };
    let cause = match permit.parent() {
        Some(parent) => format!("the upstream proxy {parent}: {cause}"),
        None => cause,
    };
    let told = asked.by_http.then_some(status);
    let failure = record::failed("connect", permit.authority(), &permit.known_addresses(), cause, told);
    core.recorder.infrastructure(failure).await?;
    Ok(Err(Unadmitted::Failed(status)))
}

/// A connection with what was refused and recorded by who calls, in a shadow.
pub async fn reach_all_the_same<R: Recorder>(
    core: &Core<R>,
    asked: Asked<'_>,
    authority: &Authority,
) -> Result<Result<(Permit, Wire), Unadmitted>, Unrecorded> {
    let permit = match core.judge.let_through(authority).await {
        Ok(permit) => Ok(permit),
        Err(cause) => unresolved(core, asked, authority, &cause).await?,
    };
    match permit {
        Ok(permit) => Ok(reach(core, asked, &permit).await?.map(|server| (permit, server))),
        Err(why) => Ok(Err(why)),
    }
}

/// Both, for a tunnel: a connection with what is permitted.
pub async fn admit_and_reach<R: Recorder>(
    core: &Core<R>,
    asked: Asked<'_>,
    authority: &Authority,
) -> Result<Result<(Permit, Wire), Unadmitted>, Unrecorded> {
    match admit(core, asked, authority).await? {
        Ok(permit) => Ok(reach(core, asked, &permit).await?.map(|server| (permit, server))),
        Err(why) => Ok(Err(why)),
    }
}
