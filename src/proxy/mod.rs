//! The egress proxy: a process of its own that reads what hostile clients send, judges each request, and connects
//! only to what was judged.
//!
//! The way of one request: [`accept`](self) → the protocol (`client`) → a strict head (`head`, `target`) or SOCKS message
//! (`socks`) → the judgement (`judge`, `resolve`, called by `admission`) → a connection to a judged address, or to the
//! parent proxy (`dial`, `upstream`) → what a tunnel may carry (`carry`, `tls`, `tunnel`) or one exchange (`exchange`,
//! `body`, `response`), whose bytes are pumped (`pump`). Whatever is refused is on record (`record`, [`channel`]) before it
//! is answered (`answer`, `explain`). Tools that ask no proxy come by [`transparent`]. HTTP is read here by one strict parser
//! instead of a library's: the bytes that were judged are then the bytes that are sent, and nothing is answered before it is
//! recorded.

mod accept;
mod admission;
mod answer;
mod body;
mod cache;
mod carry;
pub mod channel;
mod client;
mod core;
pub mod descriptors;
mod dial;
mod exchange;
mod explain;
mod field;
pub mod head;
pub mod hello;
mod inflow;
mod judge;
pub mod malformed;
mod pulse;
mod pump;
pub mod record;
pub mod records;
mod requests;
mod resolve;
pub mod response;
pub mod socks;
pub mod target;
mod tls;
pub mod transparent;
mod tunnel;
pub mod upstream;
mod wire;

pub use explain::RefusalNonce;
pub use judge::{Judge, Judgement, Permit, Refusal, Step};
pub use record::{Recorder, Unrecorded};
pub use resolve::{Dns, Resolver, Unresolved};

use crate::policy::{AddressRules, Allowlist, ParentProxy};
use crate::sys;
use nix::sys::socket::{Backlog, listen};
use record::Connection;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::time::Duration;
use tokio::runtime::LocalOptions;
use transparent::Caught;

/// Everything that the proxy works by, as values: it opens no file.
#[derive(Debug, Clone)]
pub struct ProxySpec {
    /// The names, address literals and ports that are admitted.
    pub allowlist: Allowlist,
    /// The addresses that names may resolve to.
    pub address_rules: AddressRules,
    /// The host's resolvers and hosts file.
    pub dns: Dns,
    /// The parent proxy by which admitted egress leaves; `None` where it is connected to directly.
    pub upstream: Option<ParentProxy>,
    /// What refusals are known by where they are explained; `None` where they are bare.
    pub nonce: Option<RefusalNonce>,
    /// Whether what is refused is recorded and served all the same.
    pub shadow: bool,
    /// Deadlines and caps.
    pub limits: Limits,
}

/// Deadlines and caps. The defaults serve thousands of connections in a few dozen MiB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// How long a head may take from the moment that it is awaited, whatever arrives meanwhile. On a connection
    /// that has served a request it counts from the head's first byte. 10 s.
    pub head: Duration,
    /// How long the ClientHello of a tunnel may take from its first byte. 10 s.
    pub hello: Duration,
    /// How long a connection may stay silent between two requests. 60 s.
    pub keep_alive: Duration,
    /// How long the resolution of one name may take. 10 s.
    pub resolve: Duration,
    /// How long connecting to one name's addresses may take altogether. 10 s.
    pub connect: Duration,
    /// How long a tunnel or an exchange may pass no byte in either direction. 30 min: a model may think for long.
    pub idle: Duration,
    /// Most client connections at once, with two descriptors each. Fewer where the process's descriptors allow fewer (see
    /// [`descriptors`]). 16384.
    pub connections: usize,
    /// Most pipes at once for bulk, with two descriptors each; what is bulk beyond them is copied. Fewer where descriptors
    /// are few. 64.
    pub pipes: usize,
    /// Connections that the kernel queues before they are accepted (listen(2); the sysctl
    /// `net.core.somaxconn` bounds it). 4096.
    pub backlog: i32,
    /// Most addresses that one name may give. 64.
    pub addresses: usize,
    /// Most names whose addresses are kept; the one that ends soonest makes room. 1024.
    pub cached_names: usize,
    /// How long addresses are kept at most, whatever the TTL of their records. 1 h.
    pub cached_for: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head: Duration::from_secs(10),
            hello: Duration::from_secs(10),
            keep_alive: Duration::from_secs(60),
            resolve: Duration::from_secs(10),
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(30 * 60),
            connections: 16384,
            pipes: 64,
            backlog: 4096,
            addresses: 64,
            cached_names: 1024,
            cached_for: Duration::from_secs(60 * 60),
        }
    }
}

/// Why the proxy ended without being asked to. All its connections end with it.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The listener is reachable from other machines.
    #[error("the proxy's listener is on {0}; only 127.0.0.0/8 is accepted")]
    NotLoopback(SocketAddr),
    /// The listener, the runtime or the resolver could not be set up.
    #[error("{call}: {cause}")]
    Setup {
        /// The system call or step.
        call: &'static str,
        /// Its error.
        cause: io::Error,
    },
    /// accept(2) failed for good.
    #[error("accept: {0}")]
    Accept(io::Error),
    /// Something could not be recorded, or the supervisor is gone.
    #[error(transparent)]
    Unrecorded(Unrecorded),
}

/// By when a start is over, the probes of this proxy with it.
const STARTED: Duration = Duration::from_secs(1);

fn setup(call: &'static str) -> impl Fn(io::Error) -> ProxyError {
    move |cause| ProxyError::Setup { call, cause }
}

/// Where a proxy is asked.
#[derive(Debug)]
pub struct Listeners {
    /// By clients that know it for a proxy.
    pub proxy: TcpListener,
    /// By those that don't, where they are served.
    pub caught: Option<Caught>,
}

impl From<TcpListener> for Listeners {
    fn from(proxy: TcpListener) -> Listeners {
        Listeners { proxy, caught: None }
    }
}

/// Builds a runtime on the calling thread and serves. For a process that was forked for this and has no other thread.
/// How many descriptors it may open is settled by then (see [`descriptors::raise`]).
pub fn run<R: Recorder>(listeners: impl Into<Listeners>, spec: ProxySpec, recorder: R) -> Result<(), ProxyError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .map_err(setup("runtime"))?;
    // As a task of its own: to wake what a runtime blocks on takes a system call each time (eventfd(2)), a task none.
    let serving = runtime.spawn_local(serve(listeners.into(), spec, recorder));
    runtime.block_on(serving).unwrap_or_else(|end| std::panic::resume_unwind(end.into_panic()))
}

/// A listener, with its address, once it listens.
fn listening(listener: TcpListener, backlog: i32) -> Result<(tokio::net::TcpListener, SocketAddr), ProxyError> {
    let local = listener.local_addr().map_err(setup("getsockname"))?;
    listen(&listener, Backlog::new(backlog).unwrap_or(Backlog::MAXCONN)).map_err(|e| setup("listen")(e.into()))?;
    listener.set_nonblocking(true).map_err(setup("fcntl"))?;
    Ok((tokio::net::TcpListener::from_std(listener).map_err(setup("epoll_ctl"))?, local))
}

/// Gives back what only the start needed, once it is over.
async fn rest() -> std::convert::Infallible {
    tokio::time::sleep(STARTED).await;
    sys::release_start_pages();
    std::future::pending().await
}

/// Serves on a loopback listener, within a local runtime, until it is asked to end and everything that it has refused is on
/// record.
///
/// Errors: see [`ProxyError`]. The connections end with the runtime.
async fn serve<R: Recorder>(listeners: Listeners, spec: ProxySpec, recorder: R) -> Result<(), ProxyError> {
    let Listeners { proxy: listener, caught } = listeners;
    let local = listener.local_addr().map_err(setup("getsockname"))?;
    if !(local.is_ipv4() && local.ip().is_loopback()) {
        return Err(ProxyError::NotLoopback(local));
    }
    let (listener, local) = listening(listener, spec.limits.backlog)?;

    let resolver = resolve::Resolver::new(spec.dns, &spec.limits)
        .map_err(|e| setup("resolver")(io::Error::other(e.to_string())))?;
    let judge = judge::Judge::new(spec.allowlist, spec.address_rules, resolver, Some(local), spec.limits.addresses);
    let judge = judge.with_upstream(spec.upstream).of_shadow(spec.shadow);
    let limits = descriptors::fit(spec.limits).map_err(setup("getrlimit"))?;
    let core = Rc::new(core::Core::new(judge, recorder, limits, spec.nonce));
    let asked = accept::accept(listener, core.clone(), |stream, client, core| {
        client::serve(stream, Connection { client, proxy: local, datagram: false }, core)
    });
    let caught = async {
        match caught {
            Some(caught) => transparent::serve(caught, core.clone()).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        cause = core.recorder.attend() => Err(ProxyError::Unrecorded(cause)),
        cause = core.failed() => Err(cause),
        cause = core.write_folds() => Err(cause),
        cause = asked => Err(cause),
        cause = caught => Err(cause),
        outcome = core.finish() => outcome,
        never = rest() => match never {},
    }
}
