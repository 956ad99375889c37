//! A tunnel whose client begins as TLS does: the handshake is looked at as it passes, and only a handshake with the
//! tunnel's host gets through.

use super::body::BodyError;
use super::hello::BadHello;
use super::inflow::Inflow;
use super::pulse::Pulse;
use super::records::{ClientRecords, Heard, ServerRecords, begins_handshake};
use super::tunnel::pass_on;
use super::wire::Wire;
use crate::policy::Host;
use std::cell::Cell;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::tcp::OwnedReadHalf;
use tokio::time::{Instant, timeout_at};

/// What the client may say in a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carried {
    /// TLS, and nothing else.
    Tls,
    /// Whatever it likes; TLS is looked at.
    Anything,
}

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// A ClientHello, from its first byte to its last.
    pub hello: Duration,
    /// The silence of both sides.
    pub idle: Duration,
}

/// What the client said that is not let through, and whether the server had said anything before.
#[derive(Debug)]
pub struct Stopped {
    /// Why.
    pub why: BadHello,
    /// Whether the client is past the point at which it would understand an alert.
    pub heard: bool,
}

enum Ended {
    /// One of the two connections.
    Failed,
    Stopped(BadHello),
}

impl From<io::Error> for Ended {
    fn from(_: io::Error) -> Ended {
        Ended::Failed
    }
}

impl From<BodyError> for Ended {
    fn from(_: BodyError) -> Ended {
        Ended::Failed
    }
}

/// Passes bytes both ways, as [`super::tunnel::tunnel`] does, while what the client says is let through.
///
/// When it isn't, the server's connection has been reset, and the client's comes back for the refusal to be recorded
/// before the client sees anything. Where `goes_on` says so, it is let through all the same.
pub async fn tls_tunnel(
    mut client: Wire,
    mut server: Wire,
    host: &Host,
    carried: Carried,
    deadlines: Deadlines,
    goes_on: impl AsyncFn(&BadHello) -> bool,
) -> Result<(), (Wire, Stopped)> {
    let pulse = Pulse::new();
    let heard = Cell::new(Heard::Nothing);
    let ended = {
        let up = async {
            let judged = judge(
                &mut client.inflow,
                &mut server.out,
                ClientRecords::of(host),
                carried,
                &heard,
                deadlines.hello,
                &pulse,
            )
            .await;
            match judged {
                Err(Ended::Stopped(why)) if goes_on(&why).await => {}
                judged => judged?,
            }
            pass_on(&mut client.inflow, &mut server.out, &pulse, &client.pipes).await.map_err(Ended::from)
        };
        let down = async {
            listen(&mut server.inflow, &mut client.out, &heard, &pulse).await?;
            pass_on(&mut server.inflow, &mut client.out, &pulse, &server.pipes).await.map_err(Ended::from)
        };
        let both = async { tokio::try_join!(up, down) };
        tokio::select! {
            ended = both => ended.map(|_| ()),
            () = pulse.stopped(deadlines.idle) => Err(Ended::Failed),
        }
    };
    match ended {
        Ok(()) => Ok(()),
        Err(Ended::Failed) => {
            client.reset();
            server.reset();
            Ok(())
        }
        Err(Ended::Stopped(why)) => {
            server.reset();
            Err((client, Stopped { why, heard: heard.get() != Heard::Nothing }))
        }
    }
}

/// Passes the client's bytes on until nothing that follows could open another session.
async fn judge<W: AsyncWrite + Unpin>(
    from: &mut Inflow<OwnedReadHalf>,
    to: &mut W,
    mut records: ClientRecords,
    carried: Carried,
    heard: &Cell<Heard>,
    limit: Duration,
    pulse: &Pulse,
) -> Result<(), Ended> {
    let Some(&first) = from.some().await?.first() else { return Ok(()) };
    if carried == Carried::Anything && !begins_handshake(first) {
        return Ok(());
    }
    let mut deadline = None;
    loop {
        let count = records.advance(from.unused(), heard).map_err(Ended::Stopped)?;
        if count > 0 {
            to.write_all(&from.unused()[..count]).await?;
            from.consume(count);
            pulse.beat();
        }
        if !records.is_reading() {
            deadline = None;
            if heard.get() == Heard::Encrypted {
                return Ok(());
            }
        }
        let more = match records.is_reading() {
            true => {
                let at = *deadline.get_or_insert_with(|| Instant::now() + limit);
                timeout_at(at, from.more()).await.map_err(|_| Ended::Stopped(BadHello::Late))?
            }
            false => from.more().await,
        };
        if more? == 0 {
            // The server has no use for a part of what is held back.
            from.consume(from.unused().len());
            return Ok(());
        }
    }
}

/// Passes the server's bytes on until they say no more of its handshake.
async fn listen<W: AsyncWrite + Unpin>(
    from: &mut Inflow<OwnedReadHalf>,
    to: &mut W,
    heard: &Cell<Heard>,
    pulse: &Pulse,
) -> Result<(), Ended> {
    let mut records = ServerRecords::default();
    loop {
        let bytes = from.some().await?;
        let over = bytes.is_empty() || records.advance(bytes, heard);
        if over {
            return Ok(());
        }
        let count = bytes.len();
        to.write_all(bytes).await?;
        from.consume(count);
        pulse.beat();
    }
}
