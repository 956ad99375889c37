//! One client's connection: which protocol it speaks to the proxy, by its first byte.

use super::carry::carry;
use super::core::Core;
use super::record::{Connection, Recorder, Unrecorded};
use super::requests::requests;
use super::socks;
use super::wire::Wire;
use std::rc::Rc;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

/// Serves a connection to its end. Errors: a refusal could not be recorded; the client is left without an answer.
pub async fn serve<R: Recorder>(stream: TcpStream, ends: Connection, core: Rc<Core<R>>) -> Result<(), Unrecorded> {
    let core = &*core;
    let Ok(wire) = Wire::new(stream, &core.pipes) else {
        return Ok(());
    };
    let mut wire = wire.with_ends(ends);
    // Counted from here, the wait for the first byte included.
    let by = Instant::now() + core.limits.head;
    // Each stage in a box of its own, which goes with it: a tunnel may stay for hours, and its size is its own.
    let opened = match timeout_at(by, wire.inflow.some()).await {
        Ok(Ok([socks::VERSION, ..])) => Box::pin(socks::serve(wire, core, by)).await?,
        Ok(Ok([_, ..])) => Box::pin(requests(wire, core, None, by)).await?,
        _ => None,
    };
    match opened {
        Some(opened) => Box::pin(carry(opened, core)).await,
        None => Ok(()),
    }
}
