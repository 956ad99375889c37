//! Taking connections: up to a cap, and never in a busy loop when descriptors run out.

use super::ProxyError;
use super::client;
use super::core::{Core, Late};
use super::record::{Connection, Recorder};
use nix::errno::Errno;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpListener;

/// Connections taken before those that are served have their turn. A turn of tokio's runtime runs 61 tasks: who takes more at
/// a time lets a flood of new connections grow in front of it.
const BATCH: u32 = 16;

/// Accepts connections and serves each in a task of its own, until accept(2) fails for good.
///
/// Over the cap a connection is taken and closed, and counted. Where descriptors or memory run out the loop waits,
/// 50 ms at first and a second at most. `local` is the listener's address, which each connection has for its own end.
pub async fn accept<R: Recorder>(listener: TcpListener, local: SocketAddr, core: Rc<Core<R>>) -> ProxyError {
    // Each task holds one reference, and so does this loop.
    let open = Rc::new(());
    let cap = core.limits.connections;
    let mut pause = Duration::from_millis(50);
    let mut taken = 0;
    loop {
        taken += 1;
        if taken >= BATCH {
            tokio::task::yield_now().await;
            taken = 0;
        }
        let (stream, client) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(cause) => match disposition(&cause) {
                Disposition::Next => continue,
                Disposition::Wait => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(1));
                    continue;
                }
                Disposition::Fail => return ProxyError::Accept(cause),
            },
        };
        pause = Duration::from_millis(50);
        if Rc::strong_count(&open) > cap {
            core.late.count(Late::Connection);
            drop(stream);
            continue;
        }
        let (core, open) = (core.clone(), open.clone());
        tokio::task::spawn_local(async move {
            if let Err(cause) = client::serve(stream, Connection { client, proxy: local }, &core).await {
                core.fail(cause);
            }
            drop(open);
        });
    }
}

enum Disposition {
    Next,
    Wait,
    Fail,
}

/// What an error of accept(2) means for the loop. Errors of the network that are already pending on the new
/// connection come out of accept as well (accept(2), Error handling).
fn disposition(cause: &io::Error) -> Disposition {
    match cause.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM) => Disposition::Wait,
        Some(
            Errno::ECONNABORTED
            | Errno::EINTR
            | Errno::EPROTO
            | Errno::ENETDOWN
            | Errno::ENOPROTOOPT
            | Errno::EHOSTDOWN
            | Errno::ENONET
            | Errno::EHOSTUNREACH
            | Errno::EOPNOTSUPP
            | Errno::ENETUNREACH
            | Errno::EPERM,
        ) => Disposition::Next,
        _ => Disposition::Fail,
    }
}
