//! What the command and the probes are given of the run: environment, working directory, what to try.

use super::mounts::{GitCover, MountPlan};
use super::{InstallError, Invocation, firewall, git};
use crate::host::session::names_socket;
use crate::mutation;
use crate::plan::Plan;
use crate::plan::means::FileBarrier;
use crate::plan::transparent::CatchPlan;
use crate::policy::{Posture, Trees, environment};
use crate::probe::{CaughtSeen, GitSeen, MountsSeen, Surroundings};
use crate::sys;
use nix::unistd::{Pid, getpid};
use std::ffi::{CString, OsString};
use std::net::{SocketAddr, SocketAddrV4};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The command's environment, `NAME=VALUE`.
pub(super) fn command_environment(
    plan: &Plan,
    invocation: &Invocation,
    proxy: Option<SocketAddrV4>,
) -> Result<Vec<CString>, InstallError> {
    let callers_home = invocation.added.iter().rev().chain(&invocation.environment).find(|(name, _)| name == "HOME");
    let callers_home = callers_home.map(|(_, home)| PathBuf::from(home));
    let home = plan.identity.as_ref().map(|i| i.home.clone()).or(callers_home).unwrap_or_else(|| "/".into());
    let trees = Trees::of(&plan.policy, &home);
    let composed = environment::compose(
        &plan.policy,
        &environment::Facts {
            caller: &invocation.environment,
            added: &invocation.added,
            home: &home,
            user: plan.identity.as_ref().map(|i| i.name.as_str()),
            proxy: proxy.map(SocketAddr::V4),
            connector: plan.shadow.as_deref().unwrap_or(plan).connector.as_deref(),
            writable: &|path| trees.admit_write(path),
        },
    );
    let variables = if mutation::left_out("environment") { invocation.environment.clone() } else { composed };
    c_strings(variables.into_iter().map(|(name, value)| [name.as_os_str(), value.as_os_str()].join("=".as_ref())))
}

/// Texts as execve(2) takes them.
pub(super) fn c_strings(texts: impl Iterator<Item = OsString>) -> Result<Vec<CString>, InstallError> {
    texts.map(|text| CString::new(text.as_bytes()).map_err(|_| InstallError::Nul)).collect()
}

/// The command's working directory.
pub(super) fn workdir(plan: &Plan, invocation: &Invocation) -> PathBuf {
    let home = plan.identity.as_ref().map_or(PathBuf::from("/"), |i| i.home.clone());
    let filesystem = &plan.policy.filesystem;
    if invocation.directory_first {
        return invocation.directory.clone();
    }
    let asked = filesystem.workdir.as_ref().or(filesystem.workspace.as_ref());
    asked.map_or_else(|| invocation.directory.clone(), |path| path.resolve(&home))
}

/// Variables of the caller's that are passed whatever they are: by their names, or for the sockets that they name.
fn passed_variables(plan: &Plan, invocation: &Invocation) -> Vec<String> {
    let home = plan.identity.as_ref().map_or(PathBuf::from("/"), |i| i.home.clone());
    let sockets: Vec<PathBuf> = plan.policy.filesystem.sockets.iter().map(|path| path.resolve(&home)).collect();
    let of_socket = |value: &OsString| sockets.iter().any(|socket| names_socket(value, socket));
    let by_socket = invocation.environment.iter().filter(|(_, value)| of_socket(value));
    let named = plan.policy.environment.pass.iter().map(|name| name.as_str().to_owned());
    named.chain(by_socket.map(|(name, _)| name.to_string_lossy().into_owned())).collect()
}

/// Less what lies in a shield, of which other probes tell.
fn unshielded(mut paths: Vec<PathBuf>, view: &MountPlan) -> Vec<PathBuf> {
    paths.retain(|path| !view.shields.iter().any(|shield| path.starts_with(shield)));
    paths
}

/// What the probes read to see whether it is told of.
fn watched(plan: &Plan, mounts: Option<&MountPlan>) -> Vec<PathBuf> {
    let all = plan.tripwires.clone();
    mounts.map_or_else(|| all.clone(), |view| unshielded(all.clone(), view))
}

/// What the probes need to know of a git directory that another one covers.
fn git_seen(cover: &GitCover, plan: &Plan) -> GitSeen {
    let owner = std::fs::metadata(&cover.store).map(|meta| meta.uid()).ok();
    let own = plan.identity.as_ref().map(|identity| identity.uid.as_raw());
    let owned = if cover.idmapped { owner == Some(0) } else { owner == own };
    GitSeen {
        directory: cover.directory.clone(),
        hidden: git::hidden(&cover.directory, &cover.store),
        writable: owned && !cover.read_only,
    }
}

fn caught_seen(caught: &CatchPlan) -> Option<CaughtSeen> {
    let by_v4 = caught.resolvers.iter().find(|one| one.is_ipv4()).or(caught.resolvers.first());
    Some(CaughtSeen { resolver: *by_v4?, port: *caught.ports.first()? })
}

/// What the probes need to know.
pub(super) fn surroundings(
    plan: &Plan,
    mounts: Option<&MountPlan>,
    proxy: Option<(Pid, SocketAddrV4)>,
    invocation: &Invocation,
    environment: &[CString],
) -> Surroundings {
    let held = mounts.filter(|_| plan.policy.postures().filesystem > Posture::Open);
    let mounted = plan.rung.means().files == FileBarrier::Mounts;
    Surroundings {
        restrictions: plan.restrictions.iter().map(|carried| carried.restriction).collect(),
        ids: plan.identity.as_ref().map(|i| (i.uid.as_raw(), i.gid.as_raw())),
        protected: held.map(|m| unshielded(m.protected_trees(), m)).unwrap_or_default(),
        shielded: mounts.map(|m| m.shields.clone()).unwrap_or_default(),
        watched: watched(plan, mounts),
        git: mounts.iter().flat_map(|m| &m.git).map(|cover| git_seen(cover, plan)).collect(),
        writable: mounts.map(|m| m.writable_set()).unwrap_or_default(),
        masked: mounts.filter(|_| mounted).map(|m| unshielded(m.masks.clone(), m)).unwrap_or_default(),
        home: plan.home.as_ref().map(|h| h.path.clone()),
        overlays: mounts
            .map(|m| m.files.iter().map(|f| (f.target.clone(), f.content.clone())).collect())
            .unwrap_or_default(),
        proxy: proxy.map(|p| p.1),
        names_resolved: plan.proxy.as_ref().is_some_and(|p| p.upstream.is_none()),
        caught: plan.caught.as_ref().and_then(caught_seen),
        named_proxies: Vec::new(),
        external: false,
        proxy_process: proxy.map(|p| p.0.as_raw()),
        loopback_open: plan.wall.as_ref().is_some_and(|w| w.loopback == firewall::Loopback::All),
        control_plane_ports: plan.wall.as_ref().map(|w| w.control_plane_ports.clone()).unwrap_or_default(),
        supervisor: getpid().as_raw(),
        keyring: sys::session_keyring().unwrap_or(0),
        environment: environment.to_vec(),
        callers_environment: invocation.environment.clone(),
        passed_variables: passed_variables(plan, invocation),
        scopes: plan.scopes,
        means: Some(plan.rung.means()),
        mounts: MountsSeen::new(),
        programs: None,
        outside_socket: String::new(),
    }
}
