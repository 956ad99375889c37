//! What an admitted tunnel may carry. To port 443 that is TLS with the tunnel's host; to port 80 HTTP to the tunnel's host,
//! each request judged by itself, or TLS; to a port that an entry names anything, and TLS only with the tunnel's host.

use super::core::Core;
use super::hello::BadHello;
use super::judge::Permit;
use super::record::{self, Recorder, Unrecorded};
use super::records::begins_handshake;
use super::requests::{Within, requests};
use super::tls::{Carried, Deadlines, tls_tunnel};
use super::tunnel::tunnel;
use super::wire::Wire;
use tokio::time::{Instant, timeout};

/// A tunnel whose client has been told that it stands.
#[derive(Debug)]
pub struct Opened {
    /// The client's connection.
    pub client: Wire,
    /// The server's.
    pub server: Wire,
    /// What was permitted.
    pub permit: Permit,
    /// Whether nobody has asked for it by a name, and the address alone has led here: the client must name its host then.
    pub caught: bool,
}

/// Carries what the client says to the server that it was permitted to reach, and back, to the end.
pub async fn carry<R: Recorder>(opened: Opened, core: &Core<R>) -> Result<(), Unrecorded> {
    let Opened { mut client, mut server, permit, caught } = opened;
    if permit.is_let_through() {
        // What is in it no longer matters: there would have been no tunnel.
        tunnel(client, server, core.limits.idle).await;
        return Ok(());
    }
    let authority = permit.authority();
    let carried = match authority.port {
        443 => Carried::Tls,
        port if port == 80 || caught => match begins(&mut client, &mut server, core).await {
            Some(first) if begins_handshake(first) => Carried::Tls,
            Some(_) => {
                let within = Within::new(permit, server, caught);
                let by = Instant::now() + core.limits.head;
                // A tunnel within the tunnel is none that is opened.
                return Box::pin(requests(client, core, Some(within), by)).await.map(|_| ());
            }
            None if server.inflow.unused().is_empty() => return Ok(()),
            // Some HTTP servers tell a silent client that they give it up (408; RFC 9110, 15.5.9). It sees the end.
            None if server.inflow.unused().starts_with(b"HTTP/") => return Ok(()),
            None => {
                // No HTTP server says anything else first.
                let denial = record::carried("tunnel", authority, "tunnel-protocol", "not_http", None);
                if core.judge.is_shadow() {
                    core.recorder.denial(denial.let_through(), client.ends()).await?;
                    tunnel(client, server, core.limits.idle).await;
                    return Ok(());
                }
                core.recorder.denial(denial, client.ends()).await?;
                server.reset();
                client.reset();
                return Ok(());
            }
        },
        _ => Carried::Anything,
    };
    let deadlines = Deadlines { hello: core.limits.hello, idle: core.limits.idle };
    let on = client.ends();
    let refusal = |why: &BadHello| {
        let (rule, reason) = why.rule_and_reason();
        record::carried("TLS", authority, rule, reason, Some(&why.to_string()))
    };
    // In a shadow it goes on. Where it could not be recorded the proxy ends, and the tunnel with it.
    let goes_on = async |why: &BadHello| match core.judge.is_shadow() {
        true => {
            let recorded = core.recorder.denial(refusal(why).let_through(), on).await;
            recorded.map_err(|cause| core.fail(cause)).is_ok()
        }
        false => false,
    };
    let Err((mut client, stopped)) = tls_tunnel(client, server, &authority.host, carried, deadlines, goes_on).await
    else {
        return Ok(());
    };
    core.recorder.denial(refusal(&stopped.why), on).await?;
    let alert = stopped.why.alert().filter(|_| !stopped.heard);
    match alert {
        Some(alert) if client.send(&alert, core.limits.head).await.is_ok() => client.end().await,
        _ => client.reset(),
    }
    Ok(())
}

/// The client's first byte; nothing when the server speaks or ends before, the client ends, or neither does anything for
/// the idle deadline.
async fn begins<R: Recorder>(client: &mut Wire, server: &mut Wire, core: &Core<R>) -> Option<u8> {
    let first = async {
        tokio::select! {
            biased;
            said = client.inflow.some() => said.ok().and_then(|bytes| bytes.first().copied()),
            _ = server.inflow.some() => None,
        }
    };
    timeout(core.limits.idle, first).await.ok().flatten()
}
