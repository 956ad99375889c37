//! What serves tools that ignore the proxy settings: a resolver that answers for admitted names alone, by addresses that stand
//! for them, and the connections to those, which are judged as tunnels to the names.
//!
//! ```text
//! a question            (stub, question)   the name is judged and resolved as the proxy would; nothing of it is forwarded
//!   admitted            (stand_ins)        an address of a range that leads nowhere, one for each name
//!   anything else                          REFUSED, on record
//! a connection to such an address (caught) a CONNECT to the name and the port: judged anew, and carried as a tunnel is
//! ```
//!
//! The address that a client connects to says which name it means, and no more: what is dialled is what the name resolves to
//! and what was judged. Where a client speaks first it names its host, by TLS or by HTTP; where it does not, it is refused.

mod caught;
pub mod question;
pub mod stand_ins;
mod stub;

use super::ProxyError;
use super::accept::accept;
use super::core::Core;
use super::listening;
use super::record::Recorder;
use crate::policy::Name;
use stand_ins::StandIns;
use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use tokio::task::JoinSet;

/// How a caught connection tells where its client wanted to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// The kernel has translated its destination, and knows what that was (`SO_ORIGINAL_DST`).
    ByTranslation,
    /// By its own destination on loopback (see [`stand_ins::on_loopback`]).
    ByDestination,
}

/// The sockets at which clients arrive that were sent here, and what is known of the ways to them.
#[derive(Debug)]
pub struct Caught {
    /// Where questions come.
    pub resolvers: Vec<(UdpSocket, TcpListener)>,
    /// Where connections come, by the port that their clients have asked for.
    pub ports: Vec<(u16, TcpListener)>,
    /// How these tell their destination.
    pub told: Told,
    /// Addresses of the hosts file that stand for admitted names, in the order that all have of them.
    pub listed: Vec<(IpAddr, Name)>,
}

impl Caught {
    /// The numbers of all its sockets, for the process that closes everything else.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let resolvers = self.resolvers.iter().flat_map(|(udp, tcp)| [udp.as_raw_fd(), tcp.as_raw_fd()]);
        resolvers.chain(self.ports.iter().map(|(_, listener)| listener.as_raw_fd()))
    }
}

/// What all that is caught shares.
struct Serving {
    stand_ins: RefCell<StandIns>,
    told: Told,
    listed: Vec<IpAddr>,
}

/// Serves all that is caught, until accept(2) or recvfrom(2) fails for good.
pub(super) async fn serve<R: Recorder>(caught: Caught, core: Rc<Core<R>>) -> ProxyError {
    let serving = Rc::new(Serving {
        listed: caught.listed.iter().map(|(address, _)| *address).collect(),
        stand_ins: RefCell::new(StandIns::new(caught.listed)),
        told: caught.told,
    });
    let mut loops = JoinSet::new();
    for (udp, tcp) in caught.resolvers {
        let (serving, core) = (serving.clone(), core.clone());
        let datagrams = stub::Datagrams::new(udp);
        let tcp = listening(tcp, core.limits.backlog);
        let (datagrams, (tcp, local)) = match (datagrams, tcp) {
            (Ok(datagrams), Ok(tcp)) => (datagrams, tcp),
            (Err(error), _) | (_, Err(error)) => return error,
        };
        loops.spawn_local(datagrams.serve(serving.clone(), core.clone()));
        loops.spawn_local(accept(tcp, core, move |stream, client, core| {
            stub::conversation(stream, client, local, serving.clone(), core)
        }));
    }
    for (port, listener) in caught.ports {
        let (serving, core) = (serving.clone(), core.clone());
        let (listener, _) = match listening(listener, core.limits.backlog) {
            Ok(listener) => listener,
            Err(error) => return error,
        };
        loops.spawn_local(accept(listener, core, move |stream, client, core| {
            caught::serve(stream, client, port, serving.clone(), core)
        }));
    }
    match loops.join_next().await {
        Some(Ok(error)) => error,
        Some(Err(end)) => match end.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(end) => ProxyError::Accept(io::Error::other(end)),
        },
        // Nothing is caught.
        None => std::future::pending().await,
    }
}
