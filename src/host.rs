//! What this kernel and container offer: facts, found by trying, and no decisions.

mod finding;
mod kernel;
mod landlock;
mod namespaces;
mod paths;
pub mod session;
pub mod sockets;
mod stopped;
pub mod survey;
mod trial;

pub use finding::{Finding, NOT_TRIED};
pub use landlock::Landlock;
pub use paths::{Home, OwnProgram, PathFact, real_path};

use crate::install::account::{AccountError, Databases, ESCALATION_DIRECTORIES, ESCALATION_FILES, Identity};
use crate::install::firewall;
use crate::install::reserve::has_ended;
use crate::install::workspace::{IdMapping, WorkspaceError};
use crate::observe::fanotify;
use crate::observe::landlock_audit::AuditError;
use crate::policy::upstream::{self, NoParent};
use crate::policy::{ParentProxy, Policy, Posture, Trees, Upstream};
use crate::procfs;
use crate::proxy::Dns;
use crate::sys;
use nix::errno::Errno;
use nix::unistd::{geteuid, getpid};
use paths::{look_at, look_at_home, look_at_program};
use session::Session;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use trial::Trial;

/// The facts that a plan is made from.
#[derive(Debug)]
pub struct Facts {
    /// The effective uid.
    pub uid: u32,
    /// The effective capabilities, a bit each.
    pub capabilities: u64,
    /// Whether this process is PID 1 of its namespace.
    pub is_init: bool,
    /// The account databases.
    pub databases: Databases,
    /// Whom the command would run as; `None` where the privilege axis is open.
    pub identity: Option<Identity>,
    /// What is at the identity's HOME.
    pub home: Option<Home>,
    /// Which of [`ESCALATION_FILES`] and [`ESCALATION_DIRECTORIES`] there are.
    pub escalation: Vec<PathBuf>,
    /// A process that the identity's uid already has.
    pub identity_process: Option<i32>,
    /// What of the wall this kernel can hold; `None` where it was not tried to the end.
    pub firewall: Option<Result<firewall::Support, String>>,
    /// Whether a group of the kernel's log of packets can be bound and read.
    pub nflog: Finding,
    /// Whether a mount namespace can be made and its mounts changed; `None` where none is wanted.
    pub mounts: Option<Result<(), String>>,
    /// Whether Landlock's scopes could be put in force, tried in the same child.
    pub scopes: bool,
    /// Whether the kernel's audit has told of a refusal of theirs, or why not; `None` where it was not tried.
    pub audit: Option<Result<(), String>>,
    /// Landlock's file rules.
    pub landlock: Landlock,
    /// Whether a process without privilege can be notified of another's calls and answer them.
    pub notification: Finding,
    /// Whether it can give a descriptor in answer (`SECCOMP_ADDFD_FLAG_SEND`, Linux 5.14).
    pub addfd: Finding,
    /// Whether it can read the memory of a caller, its descendant, without SYS_PTRACE.
    pub reads_callers: Finding,
    /// Whether a user namespace can be made that has capabilities in it: for mounts, a network and its `lo`.
    pub user_namespaces: Finding,
    /// Whether all of the wall can be put up in the network of such a namespace.
    pub firewall_inside: Finding,
    /// Whether mount_setattr(2) changes mounts: this process's, or else those of a user namespace's.
    pub mount_setattr: Finding,
    /// Whether a file system here can be mounted with exchanged ids.
    pub idmapped_mounts: Finding,
    /// Whether a capability can be dropped from the bounding set.
    pub setpcap: Finding,
    /// Whether no_new_privs can be set.
    pub no_new_privs: Finding,
    /// Whether pidfd_open(2) refers to a process.
    pub pidfd: Finding,
    /// Whether pidfd_getfd(2) is there: tried on this process itself, of which no privilege is asked.
    pub pidfd_getfd: Finding,
    /// Whether a socket can be bound to `lo`, and not be freed again, by who has no capability.
    pub bind_to_lo: Finding,
    /// Whether a seccomp filter is in force already, as a container's is: what it refuses, it refuses before ours sees it
    /// (seccomp(2), the order of return values).
    pub outer_filter: bool,
    /// Yama's ptrace_scope (admin-guide/LSM/Yama.rst): at 1 a process is read by its ancestors only, above by nobody without
    /// SYS_PTRACE. `None` without Yama.
    pub yama: Option<u32>,
    /// Whether /proc is there to be read.
    pub proc: Finding,
    /// The resolvers and the hosts file.
    pub dns: Dns,
    /// The parent proxy by which admitted egress is to leave, where the policy asks for one and restricts egress.
    pub upstream: Option<ParentProxy>,
    /// The variable of the caller's that names a proxy, if one does.
    pub proxy_variable: Option<&'static str>,
    /// The addresses of this machine's interfaces.
    pub own_addresses: Vec<IpAddr>,
    /// Whether packets to addresses that stand for names are routed anywhere; tried where the policy has some.
    pub stand_ins: Finding,
    /// What is at each path that the policy speaks of.
    pub paths: BTreeMap<PathBuf, PathFact>,
    /// Whether the kernel asks this process before files are opened (fanotify(7), permission events).
    pub fanotify: Finding,
    /// Directories with a `.git` in them, at and above the work trees that the policy speaks of.
    pub repositories: BTreeSet<PathBuf>,
    /// The id mapping for workspaces, where one was needed and could be made.
    pub id_mapping: Option<IdMapping>,
    /// Other users' homes and the sockets of daemons that act for whoever reaches them, as far as they exist.
    pub private: Vec<PathBuf>,
    /// The sockets of daemons that resolve names for whoever reaches them, as far as they exist.
    pub resolvers: Vec<PathBuf>,
    /// What the caller's own session offers; empty for root.
    pub session: Session,
    /// This program's own file, if it has one here.
    pub program: Option<OwnProgram>,
}

/// A fact could not be had at all.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The account databases.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// A call.
    #[error("{call}: {errno}")]
    Call {
        /// The call.
        call: &'static str,
        /// Its errno.
        errno: Errno,
    },
    /// Audit's log, where looking for it left this process unfit to go on.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The parent proxy that the policy leaves to the environment.
    #[error(transparent)]
    Upstream(#[from] NoParent),
    /// The id mapping.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
}

/// How far facts are looked for. What is not tried is `Err` with [`NOT_TRIED`], so that nothing is built upon it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// What the strongest rung needs; where that one cannot be had, what the others need as well. The firewall is asked no
    /// more than whether it is there: putting up the wall is the same trial, and it is not cheap.
    Strongest,
    /// What all rungs need.
    EveryRung,
    /// The firewall and all that is only told, too.
    Everything,
}

fn failed(call: &'static str) -> impl FnOnce(Errno) -> HostError {
    move |errno| HostError::Call { call, errno }
}

impl Facts {
    /// Finds what the plan for `policy` needs to know.
    pub fn gather(
        policy: &Policy,
        databases: Databases,
        identity: Option<Identity>,
        depth: Depth,
    ) -> Result<Facts, HostError> {
        let postures = policy.postures();
        let wall = postures.network > Posture::Open
            || (identity.is_some() && !policy.privilege.control_plane_ports.is_empty());
        let asked = identity.is_some() || depth > Depth::Strongest;
        let audited = identity.is_some() && postures.privilege == Posture::Locked;
        let upstream = parent_proxy(policy)?;
        let trial = asked.then(|| Trial::begin(audited)).transpose()?;
        // A dedicated uid was chosen among those without a process.
        let named = identity.as_ref().filter(|i| !i.dedicated);
        let identity_process = named.and_then(|i| process_of(i.uid.as_raw()));
        let uid = geteuid().as_raw();
        let capabilities = sys::capget().map_err(failed("capget"))?.effective;
        let mut facts = Facts {
            uid,
            capabilities,
            is_init: getpid().as_raw() == 1,
            home: identity.as_ref().map(|i| look_at_home(&i.home)),
            escalation: escalation_paths(),
            databases,
            identity_process,
            firewall: wall.then(|| kernel::firewall(depth)).flatten(),
            nflog: Err(NOT_TRIED.into()),
            mounts: None,
            scopes: false,
            audit: None,
            landlock: Landlock::version(),
            notification: Err(NOT_TRIED.into()),
            addfd: Err(NOT_TRIED.into()),
            reads_callers: Err(NOT_TRIED.into()),
            user_namespaces: Err(NOT_TRIED.into()),
            firewall_inside: Err(NOT_TRIED.into()),
            mount_setattr: Err(NOT_TRIED.into()),
            idmapped_mounts: Err(NOT_TRIED.into()),
            setpcap: Err(NOT_TRIED.into()),
            no_new_privs: Err(NOT_TRIED.into()),
            fanotify: Err(NOT_TRIED.into()),
            pidfd: kernel::pidfd(),
            pidfd_getfd: kernel::pidfd_getfd(),
            bind_to_lo: Err(NOT_TRIED.into()),
            outer_filter: sys::seccomp_mode().map_err(failed("prctl"))? != 0,
            yama: kernel::yama(),
            proc: finding::proc(),
            dns: Dns::from_files(&file("/etc/resolv.conf"), &file("/etc/hosts")),
            upstream,
            proxy_variable: upstream::set_in(|name| std::env::var_os(name)).map(|(name, _)| name),
            own_addresses: own_addresses()?,
            stand_ins: if policy.network.transparent { kernel::stand_ins() } else { Err(NOT_TRIED.into()) },
            paths: BTreeMap::new(),
            repositories: BTreeSet::new(),
            id_mapping: None,
            private: Vec::new(),
            resolvers: Vec::new(),
            session: Session::default(),
            program: look_at_program(identity.as_ref()),
            identity,
        };
        facts.look_at_paths(policy);
        if let Some(tried) = trial.map(Trial::end).transpose()? {
            facts.mounts = Some(tried.mounts);
            facts.scopes = tried.scopes;
            facts.audit = tried.audit;
            facts.mount_setattr = tried.mount_setattr.unwrap_or_else(|| Err(NOT_TRIED.into()));
        }
        if depth > Depth::Strongest || (facts.identity.is_some() && !facts.strongest_in_reach()) {
            facts.try_for_other_rungs();
        }
        if depth == Depth::Everything || !policy.filesystem.watch_read.is_empty() {
            facts.fanotify = finding::proc().and_then(|()| fanotify::try_it());
        }
        if depth == Depth::Everything {
            facts.nflog = kernel::nflog();
            facts.idmapped_mounts = kernel::idmapped_mounts();
        }
        facts.try_id_mapping(policy);
        if let Some(identity) = &facts.identity {
            facts.private = private_paths(&facts.databases, identity);
            facts.resolvers = sockets::resolvers();
            if facts.uid != 0 {
                facts.session = session::look(policy, identity, std::env::vars_os());
            }
        }
        Ok(facts)
    }

    fn look_at_paths(&mut self, policy: &Policy) {
        let Some(identity) = self.identity.clone() else { return };
        let trees = Trees::of(policy, &identity.home);
        let asked = workspaces(policy, &identity.home);
        let (shields, known) = crate::plan::shields::asked(policy, &identity.home);
        let kept = shields.into_iter().chain(known).chain(crate::plan::shields::watched(policy, &identity.home));
        let trees_of_git = crate::plan::shields::git_trees(policy, &identity.home);
        self.repositories = trees_of_git
            .iter()
            .filter_map(|tree| tree.canonicalize().ok())
            .flat_map(|tree| tree.ancestors().map(Path::to_owned).collect::<Vec<_>>())
            .filter(|above| above.join(".git").symlink_metadata().is_ok())
            .collect();
        let kept: Vec<PathBuf> = kept.chain(trees_of_git).collect();
        let of_trees = trees.read_only.iter().chain(&trees.writable).chain(&trees.read_only_within);
        for path in of_trees.chain(&asked).chain(&kept) {
            let fact = look_at(path, &identity);
            self.paths.insert(path.clone(), fact);
        }
    }

    /// Tries the id mapping of the writable trees that are root's and outside of the home.
    fn try_id_mapping(&mut self, policy: &Policy) {
        let Some(identity) = self.identity.clone() else { return };
        let trees = Trees::of(policy, &identity.home);
        let asked = workspaces(policy, &identity.home);
        let in_home = |path: &Path| path.starts_with(&identity.home);
        let root_owned = |fact: &PathFact| match fact {
            PathFact::Present { real, directory: true, writable: false, .. } => {
                std::fs::symlink_metadata(real).is_ok_and(|m| m.uid() == 0)
            }
            _ => false,
        };
        let wanted: Vec<PathBuf> = trees
            .writable
            .iter()
            .chain(&asked)
            .filter(|p| !in_home(p) && self.paths.get(*p).is_some_and(root_owned))
            .cloned()
            .collect();
        if wanted.is_empty() || !matches!(self.mounts, Some(Ok(()))) {
            return;
        }
        // Without user namespaces there is no mapping: the workspace's ownership is changed instead.
        let mapping = IdMapping::new(identity.uid, identity.gid);
        for path in wanted {
            if let Some(PathFact::Present { real, idmap, .. }) = self.paths.get_mut(&path) {
                *idmap = Some(match &mapping {
                    Ok(mapping) => {
                        mapping.fits(real).map_or_else(|errno| format!("mount_setattr: {errno}"), |()| String::new())
                    }
                    Err(error) => error.to_string(),
                });
            }
        }
        self.id_mapping = mapping.ok();
    }

    /// Whether a capability is effective.
    pub fn has(&self, capability: u32) -> bool {
        self.capabilities >> capability & 1 == 1
    }
}

/// The paths that are the command's to work in, at every level that gives it an identity of its own: levels are nested,
/// so what the stricter one lets be written must be writable under the milder one too.
pub fn workspaces(policy: &Policy, home: &Path) -> Vec<PathBuf> {
    let named = policy.filesystem.writable.iter().chain(&policy.filesystem.workspace).map(|p| p.resolve(home));
    let read_only: Vec<PathBuf> = policy.filesystem.read_only.iter().map(|p| p.resolve(home)).collect();
    let all = ["/app", "/workspace"].into_iter().map(PathBuf::from).chain(named);
    all.filter(|path| !read_only.contains(path)).collect()
}

/// The parent proxy of a policy that restricts egress, which the caller's environment may name.
fn parent_proxy(policy: &Policy) -> Result<Option<ParentProxy>, NoParent> {
    match &policy.network.upstream {
        _ if policy.network.posture == Posture::Open => Ok(None),
        Upstream::None => Ok(None),
        Upstream::Environment => upstream::in_environment(|name| std::env::var_os(name)).map(Some),
        Upstream::Proxy(parent) => Ok(Some(parent.clone())),
    }
}

/// The homes of others and the sockets of daemons that act for their clients.
fn private_paths(databases: &Databases, identity: &Identity) -> Vec<PathBuf> {
    let others = databases.homes().into_iter().filter(|home| !identity.home.starts_with(home));
    let others = others.filter_map(|path| path.canonicalize().ok());
    let mut private: Vec<PathBuf> = others.chain(sockets::control()).collect();
    private.sort();
    private.dedup();
    private
}

fn file(path: &str) -> Vec<u8> {
    // A missing resolv.conf or hosts file means what an empty one means (resolv.conf(5), hosts(5)).
    std::fs::read(path).unwrap_or_default()
}

fn own_addresses() -> Result<Vec<IpAddr>, HostError> {
    let interfaces = nix::ifaddrs::getifaddrs().map_err(failed("getifaddrs"))?;
    let addresses = interfaces.filter_map(|i| {
        let address = i.address?;
        let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
    });
    Ok(addresses.collect())
}

/// A process of this uid, by any of its four uids.
fn process_of(uid: u32) -> Option<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    pids.find(|pid| {
        let status = procfs::read(&format!("/proc/{pid}/status")).unwrap_or_default();
        let uids = procfs::field(&status, "Uid:").unwrap_or_default();
        uids.split_whitespace().any(|u| u.parse() == Ok(uid)) && !has_ended(&status)
    })
}

fn escalation_paths() -> Vec<PathBuf> {
    let files = ESCALATION_FILES.iter().map(|(path, _)| Path::new(path)).filter(|path| path.is_file());
    let directories = ESCALATION_DIRECTORIES.iter().map(Path::new).filter(|path| path.is_dir());
    files.chain(directories).map(Path::to_owned).collect()
}
