//! From a policy and the facts of a host to what will carry each restriction, or a refusal that names what is missing.
//! Pure: nothing is looked up and nothing is changed here.

pub mod by_mode;
pub mod describe;
pub mod dev_box;
pub mod keep_out;
pub mod means;
pub mod rung;
pub mod shadow;
pub mod shields;
mod ssh;
pub mod transparent;
mod unobserved;
pub mod upstream;
mod view;

use crate::confine::abi;
use crate::host::{Facts, PathFact};
use crate::install::account::Identity;
use crate::install::firewall;
use crate::install::mounts::MountPlan;
use crate::install::workspace::Ownership;
use crate::policy::{AddressRules, Allowlist, Loopback, ParentProxy, Policy, Posture, Unholdable};
use crate::proxy::{Dns, RefusalNonce};
use means::{EgressBarrier, FileBarrier, Means, SeenBy};
use rung::{Carried, Rung};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use transparent::{CatchPlan, NotCaught};
use unobserved::unobserved;
use view::{escalation_directories, mount_plan, named_writable, unusable};

/// What one run will put in force.
#[derive(Debug)]
pub struct Plan {
    /// The policy.
    pub policy: Policy,
    /// The rung that carries it.
    pub rung: &'static dyn Rung,
    /// Each restriction and its mechanism.
    pub restrictions: Vec<Carried>,
    /// Whom the command runs as; `None` where the privilege axis is open.
    pub identity: Option<Identity>,
    /// The command's view of the file system; `None` where it is the caller's.
    pub mounts: Option<MountPlan>,
    /// What is shielded, outermost and free of symbolic links.
    pub shields: Vec<PathBuf>,
    /// Work trees of whose repositories the command sees what HEAD reaches.
    pub git_trees: Vec<PathBuf>,
    /// What is watched for reads, likewise.
    pub tripwires: Vec<PathBuf>,
    /// By what their reads are seen; `None` where nothing is watched.
    pub reads_seen_by: Option<SeenBy>,
    /// How each workspace becomes writable to the command.
    pub workspaces: BTreeMap<PathBuf, Ownership>,
    /// HOME and what of it is made if it is missing; `None` where HOME is the image's affair.
    pub home: Option<HomePlan>,
    /// The wall; `None` where there is none.
    pub wall: Option<WallPlan>,
    /// The proxy; `None` where egress is open.
    pub proxy: Option<ProxyPlan>,
    /// What is caught of tools that ask no proxy; `None` where they are refused.
    pub caught: Option<CatchPlan>,
    /// This program's file, where the command may start it for ssh.
    pub connector: Option<PathBuf>,
    /// Whether Landlock's scopes are in force.
    pub scopes: bool,
    /// Whether what they refuse is read from the kernel's audit.
    pub audited: bool,
    /// The plan of the stricter policy whose refusals are recorded and not made.
    pub shadow: Option<Box<Plan>>,
    /// What cannot be observed on this rung: one sentence each.
    pub unobserved: Vec<String>,
    /// What an operator should know: one sentence each.
    pub notes: Vec<String>,
}

/// The command's HOME, where it is its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HomePlan {
    /// Its path, free of symbolic links.
    pub path: PathBuf,
    /// Directories beneath it that are made if they are missing.
    pub state: Vec<PathBuf>,
}

/// What of the wall is settled before the run has its numbers.
#[derive(Debug, Clone)]
pub struct WallPlan {
    /// Whether anything but the control-plane ports is refused.
    pub egress: firewall::Egress,
    /// What of this machine may be reached.
    pub loopback: firewall::Loopback,
    /// The host's resolvers.
    pub resolvers: Vec<IpAddr>,
    /// The control plane's ports.
    pub control_plane_ports: Vec<u16>,
}

impl WallPlan {
    /// What the policy asks of the wall; `None` where it asks for none.
    pub fn of(policy: &Policy, facts: &Facts) -> Option<WallPlan> {
        let restricted = policy.network.posture > Posture::Open;
        let control_plane_ports: Vec<u16> = policy.privilege.control_plane_ports.iter().map(|p| p.get()).collect();
        let walled = restricted || (facts.identity.is_some() && !control_plane_ports.is_empty());
        walled.then(|| WallPlan {
            egress: if restricted { firewall::Egress::Restricted } else { firewall::Egress::Open },
            loopback: loopback(policy),
            resolvers: facts.dns.nameservers.iter().map(|n| n.ip()).collect(),
            control_plane_ports,
        })
    }
}

/// What the proxy works by.
#[derive(Debug, Clone)]
pub struct ProxyPlan {
    /// The names that are admitted.
    pub allowlist: Allowlist,
    /// The addresses that names may resolve to.
    pub address_rules: AddressRules,
    /// The resolvers and the hosts file.
    pub dns: Dns,
    /// The parent proxy by which admitted egress leaves; `None` where it is connected to directly.
    pub upstream: Option<ParentProxy>,
    /// What refusals are known by, where the policy has them explained; the run gives it.
    pub nonce: Option<RefusalNonce>,
}

impl ProxyPlan {
    /// What the policy and the host have the proxy work by; `None` where egress is open.
    pub fn of(policy: &Policy, facts: &Facts) -> Option<ProxyPlan> {
        policy.effective_allowlist().map(|allowlist| ProxyPlan {
            allowlist,
            address_rules: AddressRules {
                trusted_ranges: policy.network.trusted_ranges.iter().map(|range| range.0).collect(),
                own_addresses: facts.own_addresses.clone(),
            },
            dns: facts.dns.clone(),
            upstream: facts.upstream.clone(),
            nonce: None,
        })
    }
}

/// Why a policy cannot be put in force here. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The combination of postures can be held nowhere like here.
    #[error(transparent)]
    Unholdable(#[from] Unholdable),
    /// No rung carries it.
    #[error("no rung carries this policy here: {0}")]
    NoRung(String),
    /// The parent proxy is where the command may connect to.
    #[error(
        "upstream {parent}: the command could ask it for anything, since loopback leaves it {address}; accepted: loopback = \"proxy\", or ports without that one"
    )]
    UpstreamInReach {
        /// Its URL, without credentials.
        parent: String,
        /// Where the command would reach it.
        address: SocketAddr,
    },
    /// Tools that ask no proxy cannot be served.
    #[error(transparent)]
    Transparent(#[from] NotCaught),
    /// A shadow that cannot be held against the run.
    #[error(transparent)]
    Shadow(#[from] shadow::NoShadow),
    /// A path of the policy is not usable.
    #[error("{path}: {fault}", path = path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// What is wrong, and what is accepted.
        fault: String,
    },
    /// The command's user already runs something, which sees the file system as it was before (case F03).
    #[error(
        "uid {uid} already has a process (pid {pid}), which the policy would not hold; accepted: a user without processes"
    )]
    UserIsBusy {
        /// The uid.
        uid: u32,
        /// One of its processes.
        pid: i32,
    },
}

/// Makes the plan, on `demanded` if a rung is.
pub fn plan(
    policy: Policy,
    facts: &Facts,
    masks: &[PathBuf],
    demanded: Option<&'static dyn Rung>,
) -> Result<Plan, Refusal> {
    policy.check_holdable()?;
    shadow::check(&policy)?;
    let wanted = rung::wanted(&policy);
    let (rung, mut restrictions) =
        rung::first_that_carries(&wanted, &policy, facts, demanded).map_err(Refusal::NoRung)?;
    let means = rung.means();
    if let (Some(identity), Some(pid), false) = (&facts.identity, facts.identity_process, means.one_uid) {
        return Err(Refusal::UserIsBusy { uid: identity.uid.as_raw(), pid });
    }
    if let (Some(identity), true) = (&facts.identity, means.own_namespaces) {
        dev_box::check_workspace(&policy, facts, identity)?;
    }
    let mut notes = rung_notes(&policy, &means);
    let identity = facts.identity.clone();
    let mut workspaces = BTreeMap::new();
    let home = identity.as_ref().map(|identity| home_plan(&policy, facts, identity)).transpose()?.flatten();
    let mut mounts = match &identity {
        Some(identity) => {
            let masks = if means.files == FileBarrier::Mounts { masks } else { &[] };
            let mut view = mount_plan(&policy, facts, identity, home.as_ref(), masks, &means, &mut workspaces)?;
            if means.files == FileBarrier::Landlock || means.one_uid {
                // What is void under no_new_privs needs no cover, and the account is the caller's own.
                view.files.clear();
                view.masks.retain(|path| !escalation_directories(facts).any(|directory| directory == *path));
            }
            if means.own_namespaces {
                dev_box::close_session(&mut view, &policy, facts)?;
            }
            Some(view)
        }
        None if !policy.filesystem.read_only.is_empty() => {
            let path = policy.filesystem.read_only[0].resolve(Path::new("/"));
            let fault = "read-only paths need filesystem restricted or locked".to_owned();
            return Err(Refusal::Path { path, fault });
        }
        None => None,
    };
    let account = identity.as_ref().map_or(Path::new("/"), |identity| identity.home.as_path());
    let shields = shields::shields(&policy, facts, account)?;
    let tripwires = shields::tripwires(&policy, facts, account)?;
    let git_trees = shields::work_trees(&policy, facts, account)?;
    if let Some(view) = &mut mounts {
        shields::check(&shields, view, &policy, home.as_ref(), &means)?;
        view.shields.clone_from(&shields);
    }
    notes.extend(shields::notes(&policy, &shields, &means));
    let reads_seen_by = (!tripwires.is_empty()).then(|| shields::seen_by(facts, &means));
    notes.extend(reads_seen_by.map(|by| shields::note_of_reads(by, facts)));
    let way = mounts.as_mut().and_then(|view| ssh::connector(&policy, facts, view, &means));
    match &way {
        Some(Err(cause)) => notes.push(format!("ssh through the proxy will not work: {cause}")),
        Some(Ok(_)) if means.files == FileBarrier::Mounts => {
            notes.push("the command can read and start this program's file: it is ssh's ProxyCommand".into());
        }
        _ => {}
    }
    if policy.privilege.posture > Posture::Open && policy.privilege.control_plane_ports.is_empty() {
        notes.push("no control-plane port is named, so none is refused: --control-plane-port".into());
    }
    if !policy.privilege.abi.is_empty() {
        let open = policy.privilege.posture > Posture::Open && abi::tables(&policy.privilege.abi).len() > 1;
        let effect = if open { "the i386 entry is open, filtered as the machine's own" } else { "it has no effect" };
        notes.push(format!("abi i386: {effect}"));
    }
    if identity.is_some() && facts.databases.passwd.is_none() {
        notes.push("the image has no /etc/passwd: the command's account is a number only".into());
    }
    for (path, ownership) in &workspaces {
        let cause = facts.paths.values().find_map(|fact| match fact {
            PathFact::Present { real, idmap, .. } if real == path => idmap.as_ref(),
            _ => None,
        });
        if let (Ownership::Changed, Some(cause)) = (ownership, cause) {
            notes.push(format!("{}: its owner is changed for the run and put back ({cause})", path.display()));
        }
    }
    let wall = WallPlan::of(&policy, facts);
    let proxy = ProxyPlan::of(&policy, facts);
    let mut unobserved = unobserved(&policy, facts);
    if let (Some(proxy), Some(wall)) = (&proxy, &wall)
        && let Some(parent) = &proxy.upstream
    {
        upstream::check(proxy, wall, &means)?;
        upstream::by_names_alone(&mut restrictions);
        unobserved.push(upstream::unobserved(parent));
    }
    notes.extend(upstream::note(&policy, facts, proxy.as_ref()));
    let caught = proxy.as_ref().map(|proxy| CatchPlan::of(&policy, facts, proxy, &means)).transpose()?.flatten();
    notes.extend(transparent::note(&policy, caught.as_ref()));
    if caught.is_some() {
        transparent::catching(&mut restrictions);
    }
    Ok(Plan {
        unobserved,
        scopes: scoped(&policy, &means) && facts.scopes,
        audited: scoped(&policy, &means) && facts.scopes && facts.audit == Some(Ok(())),
        policy,
        rung,
        restrictions,
        identity,
        mounts,
        shields,
        git_trees,
        tripwires,
        reads_seen_by,
        workspaces,
        home,
        wall,
        proxy,
        caught,
        connector: way.and_then(Result::ok),
        shadow: None,
        notes,
    })
}

/// What of loopback is open. A port that is published is the command's own server's, and is reached over it.
fn loopback(policy: &Policy) -> firewall::Loopback {
    let published = policy.network.publish.iter().map(|publish| publish.0.port());
    let ports = match &policy.network.loopback {
        Loopback::All => return firewall::Loopback::All,
        Loopback::Proxy => published.collect(),
        Loopback::Ports(ports) => ports.iter().map(|port| port.get()).chain(published).collect::<Vec<_>>(),
    };
    if ports.is_empty() { firewall::Loopback::ProxyOnly } else { firewall::Loopback::Ports(ports) }
}

/// Whether Landlock's scopes are in force where the kernel has them.
fn scoped(policy: &Policy, means: &Means) -> bool {
    let privilege = policy.privilege.posture;
    privilege == Posture::Locked || privilege > Posture::Open && means.one_uid
}

/// What the rung itself has an operator know.
fn rung_notes(policy: &Policy, means: &Means) -> Vec<String> {
    let mut notes = Vec::new();
    if policy.privilege.posture == Posture::Open {
        return notes;
    }
    if means.implies_no_new_privs() && policy.privilege.posture == Posture::Restricted {
        notes.push(
            "no_new_privs is in force at privilege restricted too: this rung has no filter without it".to_owned(),
        );
    }
    if means.files == FileBarrier::Landlock {
        notes.push(
            "the account files are the image's own, and this program's file can be read: masks need mounts".into(),
        );
    }
    if policy.network.posture > Posture::Open && means.egress == EgressBarrier::MadeSockets {
        notes.push(
            "the command's servers are reached over loopback only, and this machine's other addresses not at all"
                .into(),
        );
    }
    if policy.network.posture > Posture::Open && means.own_namespaces {
        notes
            .push("the command's servers are reached from outside by --publish only, and the host's not at all".into());
    }
    if means.own_namespaces {
        let text = "unix sockets that the caller's other programs make during the run are reached unless they lie in a \
                    directory that is masked, as $XDG_RUNTIME_DIR is";
        notes.push(text.into());
    }
    if means.one_uid {
        notes.push("the caller's supplementary groups are kept: giving them up needs root".into());
    }
    notes
}

/// HOME, if it is the command's own, with the directories that must exist in it: its writable set, and what tools expect.
/// An account of the image may have anything as its HOME (/, /usr/sbin, /nonexistent): then nothing is made there.
fn home_plan(policy: &Policy, facts: &Facts, identity: &Identity) -> Result<Option<HomePlan>, Refusal> {
    let Some(home) = &facts.home else { return Ok(None) };
    if let Some(link) = &home.untrusted {
        return Err(unusable(&identity.home, &PathFact::Untrusted { link: link.clone() }));
    }
    let own = home.owner == Some(identity.uid.as_raw());
    match home.owner {
        _ if own => {}
        None if !identity.of_image => {}
        Some(owner) if !identity.of_image => {
            let fault =
                format!("it belongs to uid {owner}; accepted as HOME: the command's own directory, or a missing one");
            return Err(Refusal::Path { path: identity.home.clone(), fault });
        }
        _ => return Ok(None),
    }
    let mut state = crate::policy::environment::home_directories(&identity.home);
    state.extend(policy.harness().state.iter().map(|s| s.path.resolve(&identity.home)));
    let named = named_writable(policy, &identity.home);
    state.extend(named.into_iter().filter(|path| facts.paths.get(path) == Some(&PathFact::Missing)));
    let mut state: Vec<PathBuf> =
        state.iter().filter_map(|path| Some(home.real.join(path.strip_prefix(&identity.home).ok()?))).collect();
    state.sort();
    state.dedup();
    Ok(Some(HomePlan { path: home.real.clone(), state }))
}
