//! Taking connections: up to a cap, and never in a busy loop when descriptors run out.

use super::ProxyError;
use super::core::{Core, Late};
use super::record::{Recorder, Unrecorded};
use nix::errno::Errno;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// Connections taken before those that are served have their turn. A turn of tokio's runtime runs 61 tasks: who takes more at
/// a time lets a flood of new connections grow in front of it.
const BATCH: u32 = 16;

/// Accepts connections and serves each in a task of its own, until accept(2) fails for good.
///
/// Over the cap a connection is taken and closed, and counted; all listeners of a proxy share the cap. Where descriptors or
/// memory run out the loop waits, 50 ms at first and a second at most.
pub async fn accept<R, Served>(
    listener: TcpListener,
    core: Rc<Core<R>>,
    serve: impl Fn(TcpStream, SocketAddr, Rc<Core<R>>) -> Served,
) -> ProxyError
where
    R: Recorder,
    Served: Future<Output = Result<(), Unrecorded>> + 'static,
{
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
        if core.connections() > cap {
            core.late.count(Late::Connection);
            drop(stream);
            continue;
        }
        let (served, core, open) = (serve(stream, client, core.clone()), core.clone(), core.open());
        tokio::task::spawn_local(async move {
            if let Err(cause) = served.await {
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
