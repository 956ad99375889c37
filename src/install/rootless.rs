//! Rung `rootless`: user, network and IPC namespaces for the sandbox, made by a child that ends as soon as it has handed out
//! what leads into them. The stage joins them; the mount namespace is its own affair, as on rung `full`.
//!
//! The caller owns the user namespace and so has every capability over it from outside (user_namespaces(7)), which is how
//! the supervisor puts up and reads the wall by netlink sockets that were opened inside.

use super::caught;
use super::firewall::{self, FirewallError};
use super::netns::{self, NetnsError};
use crate::channel::{Channel, ChannelError};
use crate::plan::transparent::CatchPlan;
use crate::proxy::transparent::Told;
use crate::sys::{self, Fork};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl::set_dumpable;
use nix::sys::wait::waitpid;
use nix::unistd::{Gid, Uid, getegid, geteuid};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// What leads into the sandbox's namespaces.
#[derive(Debug)]
pub struct Namespaces {
    user: OwnedFd,
    ipc: OwnedFd,
    network: Option<Network>,
}

/// What leads into the network namespace, and what was opened there.
#[derive(Debug)]
struct Network {
    namespace: OwnedFd,
    /// On the proxies' address.
    listener: Option<TcpListener>,
    /// Of the kernel's socket monitor (sock_diag(7)).
    monitor: Option<OwnedFd>,
    /// Of the firewall, for whoever needs one.
    netfilter: Vec<OwnedFd>,
    own_addresses: Vec<IpAddr>,
    /// For what is caught, in the order that `install::caught` has.
    caught: Vec<OwnedFd>,
}

/// Why there are none. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum RootlessError {
    /// A call failed.
    #[error("namespaces: {call}: {errno}")]
    Call {
        /// The call, and its object where it has one.
        call: &'static str,
        /// Its errno.
        errno: Errno,
    },
    /// The child could not make them.
    #[error("{0}")]
    Made(String),
    /// The way to the child.
    #[error("namespaces: {0}")]
    Channel(#[from] ChannelError),
    /// The kernel shows another mapping than was written.
    #[error("namespaces: {file} reads {seen:?}, wanted {wanted:?}")]
    Mapping {
        /// The file.
        file: &'static str,
        /// What it says.
        seen: String,
        /// What it should.
        wanted: String,
    },
    /// The network.
    #[error(transparent)]
    Network(#[from] NetnsError),
    /// A netlink socket.
    #[error(transparent)]
    Firewall(#[from] FirewallError),
}

fn failed<E: Into<std::io::Error>>(call: &'static str) -> impl FnOnce(E) -> RootlessError {
    move |e| RootlessError::Call { call, errno: Errno::from_raw(e.into().raw_os_error().unwrap_or(libc::EIO)) }
}

/// Sockets of the firewall's: its own, its watch's, and its log's.
const NETFILTER: usize = 3;

/// What the child says beside the descriptors.
#[derive(Serialize, Deserialize)]
enum Said {
    Made(Vec<IpAddr>),
    Failed(String),
}

impl Namespaces {
    /// Makes them, from a single-threaded process. With `network` there is one for the network too, without a way out, and
    /// that is where the proxy will be reached in it, with sockets for what is caught there.
    pub fn make(network: Option<Ipv4Addr>, caught: Option<&CatchPlan>) -> Result<Namespaces, RootlessError> {
        let (ours, theirs) = Channel::pair()?;
        let child = match sys::fork_single_threaded().map_err(failed("fork"))? {
            Fork::Child => {
                let told = match Inside::make(network, caught) {
                    Ok(inside) => {
                        let all: Vec<BorrowedFd<'_>> = inside.descriptors.iter().map(AsFd::as_fd).collect();
                        theirs.send_with(&Said::Made(inside.own_addresses), &all)
                    }
                    Err(error) => theirs.send_with(&Said::Failed(error.to_string()), &[]),
                };
                sys::exit_now(i32::from(told.is_err()));
            }
            Fork::Parent(child) => child,
        };
        drop(theirs);
        let received = ours.receive_with();
        waitpid(child, None).map_err(failed("waitpid"))?;
        match received? {
            (Said::Made(own_addresses), descriptors) => Namespaces::of(descriptors, network.is_some(), own_addresses),
            // It names the part itself.
            (Said::Failed(cause), _) => Err(RootlessError::Made(cause)),
        }
    }

    fn of(descriptors: Vec<OwnedFd>, network: bool, own_addresses: Vec<IpAddr>) -> Result<Namespaces, RootlessError> {
        let mut rest = descriptors.into_iter();
        let mut next = || rest.next().ok_or_else(|| failed("recvmsg SCM_RIGHTS")(Errno::EMFILE));
        let (user, ipc) = (next()?, next()?);
        let network = if network {
            let (namespace, listener, monitor) = (next()?, TcpListener::from(next()?), next()?);
            let netfilter = (0..NETFILTER).map(|_| next()).collect::<Result<_, _>>()?;
            let caught = rest.collect();
            Some(Network {
                namespace,
                listener: Some(listener),
                monitor: Some(monitor),
                netfilter,
                own_addresses,
                caught,
            })
        } else {
            None
        };
        Ok(Namespaces { user, ipc, network })
    }

    /// The socket that the proxy listens on; `None` the second time, and where the network is the caller's.
    pub fn take_listener(&mut self) -> Option<TcpListener> {
        self.network.as_mut()?.listener.take()
    }

    /// The socket of the kernel's socket monitor; `None` the second time, and where the network is the caller's.
    pub fn take_monitor(&mut self) -> Option<OwnedFd> {
        self.network.as_mut()?.monitor.take()
    }

    /// The sockets for what is caught; none the second time.
    pub(super) fn take_caught(&mut self) -> Vec<OwnedFd> {
        self.network.as_mut().map(|network| std::mem::take(&mut network.caught)).unwrap_or_default()
    }

    /// A socket of the firewall's in the network namespace.
    pub(super) fn take_netfilter(&mut self) -> Result<firewall::Channel, RootlessError> {
        let socket = self.network.as_mut().and_then(|network| network.netfilter.pop());
        socket.map(firewall::Channel::of).ok_or_else(|| failed("netlink socket")(Errno::EBADF))
    }

    /// The addresses of the network namespace.
    pub fn own_addresses(&self) -> &[IpAddr] {
        self.network.as_ref().map_or(&[], |network| &network.own_addresses)
    }

    /// The descriptors by which a child joins.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let network = self.network.as_ref().map(|network| &network.namespace);
        [&self.user, &self.ipc].into_iter().chain(network).map(|fd| fd.as_raw_fd())
    }

    /// Moves the calling, single-threaded process into them; it has every capability there.
    pub fn join(&self) -> Result<(), RootlessError> {
        // The user namespace first: it is what gives the right to join the others.
        setns(&self.user, CloneFlags::CLONE_NEWUSER).map_err(failed("setns user namespace"))?;
        setns(&self.ipc, CloneFlags::CLONE_NEWIPC).map_err(failed("setns IPC namespace"))?;
        let Some(network) = &self.network else { return Ok(()) };
        setns(&network.namespace, CloneFlags::CLONE_NEWNET).map_err(failed("setns network namespace"))
    }
}

/// What the child has made: descriptors in the order in which [`Namespaces::of`] takes them.
struct Inside {
    descriptors: Vec<OwnedFd>,
    own_addresses: Vec<IpAddr>,
}

impl Inside {
    fn make(network: Option<Ipv4Addr>, caught: Option<&CatchPlan>) -> Result<Inside, RootlessError> {
        // One that is not dumpable does not own its files in /proc, the mappings among them (proc(5)).
        set_dumpable(true).map_err(failed("prctl PR_SET_DUMPABLE"))?;
        let left = netns::Left::to(getegid().as_raw());
        enter_user_namespace(geteuid(), getegid())?;
        unshare(CloneFlags::CLONE_NEWIPC).map_err(failed("unshare IPC"))?;
        let mut descriptors = vec![open("/proc/self/ns/user")?, open("/proc/self/ns/ipc")?];
        let Some(proxies) = network else { return Ok(Inside { descriptors, own_addresses: Vec::new() }) };
        unshare(CloneFlags::CLONE_NEWNET).map_err(failed("unshare network"))?;
        netns::furnish()?;
        left.leave();
        descriptors.push(open("/proc/self/ns/net")?);
        descriptors.push(TcpListener::bind((proxies, 0)).map_err(failed("bind the proxy's address"))?.into());
        let mut monitor = Socket::new(NETLINK_SOCK_DIAG).map_err(failed("socket NETLINK_SOCK_DIAG"))?;
        monitor.bind_auto().map_err(failed("bind NETLINK_SOCK_DIAG"))?;
        descriptors.push(monitor.as_fd().try_clone_to_owned().map_err(failed("fcntl F_DUPFD_CLOEXEC"))?);
        for _ in 0..NETFILTER {
            descriptors.push(firewall::Channel::open()?.into_descriptor()?);
        }
        if let Some(plan) = caught {
            let sockets = caught::sockets(plan, &Told::ByTranslation);
            descriptors.extend(sockets.map_err(failed("bind what is caught"))?);
        }
        Ok(Inside { descriptors, own_addresses: firewall::own_addresses()? })
    }
}

fn open(path: &'static str) -> Result<OwnedFd, RootlessError> {
    File::open(path).map(OwnedFd::from).map_err(failed(path))
}

/// Moves the calling, single-threaded process into a user namespace of its own in which its ids are what they were and no
/// others are known, and reads the mapping back.
pub fn enter_user_namespace(uid: Uid, gid: Gid) -> Result<(), RootlessError> {
    unshare(CloneFlags::CLONE_NEWUSER).map_err(failed("unshare user"))?;
    // Without it an unprivileged process may map no group (user_namespaces(7)).
    write_whole("/proc/self/setgroups", "deny")?;
    for (file, id) in [("/proc/self/uid_map", uid.as_raw()), ("/proc/self/gid_map", gid.as_raw())] {
        write_whole(file, &format!("{id} {id} 1"))?;
        let seen = std::fs::read_to_string(file).map_err(failed(file))?;
        let wanted = [id, id, 1].map(|number| number.to_string());
        if seen.split_whitespace().ne(wanted.iter().map(String::as_str)) {
            return Err(RootlessError::Mapping { file, seen, wanted: wanted.join(" ") });
        }
    }
    Ok(())
}

fn write_whole(file: &'static str, text: &str) -> Result<(), RootlessError> {
    std::fs::write(file, text).map_err(failed(file))
}
