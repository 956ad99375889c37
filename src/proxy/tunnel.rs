//! Bytes both ways between two connections, each direction closed on its own.

use super::body::BodyError;
use super::inflow::Inflow;
use super::pulse::Pulse;
use super::pump::{Pipes, pass_all};
use super::wire::Wire;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// Passes bytes both ways until both directions have ended, one of them has failed, or nothing has got through
/// for `idle`.
///
/// An end of one direction is passed on as an end of that direction only. A failure, the idle deadline included, is
/// passed on as a reset to both, since what is missing would otherwise look like a whole stream.
pub async fn tunnel(mut client: Wire, mut upstream: Wire, idle: Duration) {
    let pulse = Pulse::new();
    let ended = {
        let up = pass_on(&mut client.inflow, &mut upstream.out, &pulse, &client.pipes);
        let down = pass_on(&mut upstream.inflow, &mut client.out, &pulse, &upstream.pipes);
        let both = async { tokio::try_join!(up, down) };
        tokio::select! {
            ended = both => ended.is_ok(),
            () = pulse.stopped(idle) => false,
        }
    };
    if !ended {
        client.reset();
        upstream.reset();
    }
}

/// Passes everything of one direction, and its end.
pub async fn pass_on(
    from: &mut Inflow<OwnedReadHalf>,
    to: &mut OwnedWriteHalf,
    pulse: &Pulse,
    pipes: &Rc<Pipes>,
) -> Result<(), BodyError> {
    pass_all(from, to, pulse, pipes).await?;
    to.shutdown().await.map_err(BodyError::Write)
}
