//! What the parts of a run are told, made from its plan.

use super::InstallError;
use super::firewall::{self, WallSpec, Ways};
use crate::confine::{Confinement, seccomp};
use crate::mutation;
use crate::observe::calls::Calls;
use crate::observe::process::{Kept, Unnoted};
use crate::observe::sockets::rules::SocketRules;
use crate::observe::watched::Ids;
use crate::plan::means::{EgressBarrier, FileBarrier, Means, Reads, SeenBy, Terms};
use crate::plan::{Plan, WallPlan};
use crate::policy::ranges::{METADATA, RULE_PRIVATE, denied_v4, denied_v6};
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddrV4};
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

pub(super) fn unnoted(plan: &Plan, proxy: Option<SocketAddrV4>) -> Unnoted {
    let Some(wall) = &plan.wall else { return Unnoted { loopback: true, ..Unnoted::default() } };
    let proxy = proxy.map(|address| IpAddr::V4(*address.ip()));
    Unnoted {
        loopback: wall.loopback == firewall::Loopback::All,
        but_addresses: wall.resolvers.iter().copied().chain(proxy).collect(),
        but_ports: wall.control_plane_ports.clone(),
    }
}

/// What the command's sockets are held to, where they are made for it.
pub(super) fn sockets(
    run: &str,
    plan: &Plan,
    proxy: Option<SocketAddrV4>,
    caught: Option<Ways>,
) -> Option<SocketRules> {
    let (wall, identity) = plan.wall.as_ref().zip(plan.identity.as_ref())?;
    let made = plan.rung.means().egress == EgressBarrier::MadeSockets && wall.egress == firewall::Egress::Restricted;
    // What else is masked is closed by its mode there, or the plan was refused (plan::by_mode).
    let is_socket = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let sockets = plan.mounts.iter().flat_map(|view| &view.masks).filter(|path| is_socket(path));
    let masked = sockets.chain(plan.mounts.iter().flat_map(|view| &view.shields)).cloned().collect();
    let wall = WallSpec { caught, ..wall_spec(run, identity.uid.as_raw(), proxy, wall, 0) };
    made.then(|| SocketRules { masked, ..SocketRules::from(&wall) })
}

/// Paths whose reads are the notifier's to tell of.
fn notified(plan: &Plan) -> &[PathBuf] {
    if plan.reads_seen_by == Some(SeenBy::Notifier) { &plan.tripwires } else { &[] }
}

/// What is kept from being read, or watched; `None` where nothing is.
pub(super) fn kept(plan: &Plan) -> Option<Kept> {
    let shields = plan.mounts.as_ref().map(|view| view.shields.clone()).unwrap_or_default();
    let by_mounts = plan.rung.means().files == FileBarrier::Mounts;
    // Where there are no mounts the observer opens some files for the command, which fanotify takes for its own.
    let told_by_kernel = plan.reads_seen_by == Some(SeenBy::Fanotify);
    let tripwires = if told_by_kernel && !by_mounts { plan.tripwires.clone() } else { notified(plan).to_vec() };
    let kept = Kept { shields, tripwires, told_by_kernel, by_mounts };
    (!kept.shields.is_empty() || !kept.tripwires.is_empty()).then_some(kept)
}

/// How the command is confined, and which of its calls are looked at; with `shadow`, how the observer is, and the command not
/// at all.
pub(super) fn confinement(plan: &Plan, shadow: bool) -> Result<(Confinement, Calls), InstallError> {
    let postures = plan.policy.postures();
    let own = plan.identity.as_ref().map_or(Ids { uid: 0, gid: 0 }, Ids::from);
    let means = plan.rung.means();
    let shielded = plan.mounts.iter().any(|view| !view.shields.is_empty());
    let reads = match (!shielded, notified(plan).is_empty()) {
        _ if mutation::left_out("watched-reads") => Reads::Unseen,
        (false, _) => Reads::Names,
        (true, false) => Reads::Opens,
        (true, true) => Reads::Unseen,
    };
    let caught = plan.caught.is_some();
    let terms = Terms { privilege: postures.privilege, network: postures.network, means, reads, caught };
    let abi = &plan.policy.privilege.abi;
    let calls = match shadow {
        true => Calls::of_shadow(&terms, own, abi, plan.wall.is_some()),
        false => Calls::new(&terms, own, abi),
    };
    let filter = seccomp::program(&calls.rules, &calls.watched, &calls.tables)?;
    // Where the command makes its own sockets the observer is held as it is.
    let observers = match means.egress {
        EgressBarrier::Firewall if !shadow => filter.clone(),
        _ => {
            let plain = Terms { means: Means { egress: EgressBarrier::Firewall, ..means }, ..terms };
            let own_calls = Calls::new(&plain, own, &plan.policy.privilege.abi);
            seccomp::program(&own_calls.rules, &own_calls.watched, &own_calls.tables)?
        }
    };
    let confinement = Confinement {
        privilege: postures.privilege,
        means,
        identity: plan.identity.clone(),
        filter,
        observers,
        notifying: match shadow {
            true => seccomp::program_of_shadow(&calls.rules, &calls.watched, &calls.tables)?,
            false => seccomp::program_with_listener(&calls.rules, &calls.watched, &calls.tables)?,
        },
        scopes: plan.scopes,
        shared: None,
        audited: plan.audited,
        shadow,
        groups: None,
    };
    Ok((confinement, calls))
}

/// The wall's specification of a run, under these numbers of its own.
pub(crate) fn wall_spec(
    run: &str,
    uid: u32,
    proxy: Option<SocketAddrV4>,
    plan: &WallPlan,
    nflog_group: u16,
) -> WallSpec {
    let private = |rule: &str| rule == RULE_PRIVATE;
    let v4 = denied_v4().iter().filter(|(_, rule)| private(rule)).map(|(net, _)| IpNet::V4(*net));
    let v6 = denied_v6().iter().filter(|(_, rule)| private(rule)).map(|(net, _)| IpNet::V6(*net));
    WallSpec {
        run: run.to_owned(),
        uid,
        shadow: false,
        proxy,
        egress: plan.egress,
        loopback: match &plan.loopback {
            firewall::Loopback::All if mutation::left_out("loopback") => firewall::Loopback::ProxyOnly,
            _ if mutation::left_out("loopback") => firewall::Loopback::All,
            asked => asked.clone(),
        },
        resolvers: plan.resolvers.clone(),
        control_plane_ports: if mutation::left_out("control-plane") {
            Vec::new()
        } else {
            plan.control_plane_ports.clone()
        },
        nflog_group,
        metadata: METADATA.iter().map(|address| IpNet::from(*address)).collect(),
        private: v4.chain(v6).collect(),
        caught: None,
    }
}
