//! Bytes both ways between two connections, each direction closed on its own.

use super::body::BodyError;
use super::pulse::Pulse;
use super::pump::pass_all;
use super::wire::Wire;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// Passes bytes both ways until both directions have ended, one of them has failed, or nothing has got through
/// for `idle`.
///
/// An end of one direction is passed on as an end of that direction only. A failure, the idle deadline included, is
/// passed on as a reset to both, since what is missing would otherwise look like a whole stream.
pub async fn tunnel(mut client: Wire, mut upstream: Wire, idle: Duration) {
    let pulse = Pulse::new();
    let ended = {
        let up = async {
            pass_all(&mut client.inflow, &mut upstream.out, &pulse, &client.pipes).await?;
            upstream.out.shutdown().await.map_err(BodyError::Write)
        };
        let down = async {
            pass_all(&mut upstream.inflow, &mut client.out, &pulse, &upstream.pipes).await?;
            client.out.shutdown().await.map_err(BodyError::Write)
        };
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
