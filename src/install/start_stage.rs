//! The fork of the stage, with all that it and the observer are told.

use super::mounts::MountPlan;
use super::placeholders::Placeholders;
use super::rootless::Namespaces;
use super::specs::{confinement, kept, sockets, unnoted};
use super::surroundings::{command_environment, surroundings};
use super::view::enter_view;
use super::{InstallError, Installation, Invocation, StageProcess, covers, git, tool_files};
use crate::channel::Channel;
use crate::confine::Confinement;
use crate::host::{Facts, real_path};
use crate::observe::process::{Mounted, ObserverSpec};
use crate::plan::Plan;
use crate::plan::means::{FileBarrier, SeenBy};
use crate::probe::Suite;
use crate::stage::Stage;
use crate::supervise::terminal::Terminal;
use crate::supervise::watch_mounts;
use crate::sys::{self, Fork};
use nix::unistd::Pid;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

impl Installation {
    /// Forks the stage, and the observer where there is one.
    pub(super) fn start_stage(
        &mut self,
        run: &str,
        plan: &Plan,
        facts: &Facts,
        own_uid: Option<u32>,
        invocation: &Invocation,
    ) -> Result<(), InstallError> {
        let proxy = self.proxy.map(|p| p.1);
        let shadow = plan.shadow.is_some();
        let held = plan.shadow.as_deref().unwrap_or(plan);
        let mut mounts = held.mounts.clone();
        for cover in mounts.iter_mut().flat_map(|mounts| &mut mounts.git) {
            cover.store = git::store(&cover.directory, run);
        }
        self.protect_from_later(run, plan, &facts.session, mounts.as_mut())?;
        // An image may have links for its account files. What is covered, and whose mode the cover has, is what they lead to.
        for file in mounts.iter_mut().flat_map(|mounts| &mut mounts.files) {
            file.target = real_path(&file.target);
        }
        if let (Some(mounts), Some(undo)) = (&mut mounts, &self.undo_file) {
            mounts.mask(&undo.path);
        }
        if let (Some(mounts), true) = (&mut mounts, shadow) {
            spare_files(mounts);
        }
        let by_landlock = held.rung.means().files == FileBarrier::Landlock;
        if let (Some(mounts), Some(proxy), false) = (&mut mounts, proxy, by_landlock) {
            mounts.files.extend(tool_files::overlays(SocketAddr::V4(proxy))?);
        }
        let environment = command_environment(plan, invocation, proxy)?;
        // A shadow's probes try what is enforced, which none of it is.
        let (seen, by) = if shadow { (None, None) } else { (mounts.as_ref(), self.proxy) };
        let surroundings = surroundings(plan, seen, by, invocation, &environment);
        let (confinement, calls) = confinement(held, shadow)?;
        let observer = held.identity.as_ref().zip(own_uid).map(|(identity, own_uid)| ObserverSpec {
            confinement: confinement.clone(),
            own_uid,
            calls,
            ids: identity.into(),
            unnoted: unnoted(held, proxy),
            mounted: mounts.as_ref().filter(|_| !by_landlock).and_then(Mounted::of),
            view: mounts.clone().filter(|view| by_landlock && !view.protected_trees().is_empty()),
            kept: kept(held),
            sockets: sockets(run, held, proxy, self.ways.clone()),
            shadow: shadow
                .then(|| held.workspaces.keys().chain(held.home.as_ref().map(|home| &home.path)).cloned().collect()),
        });
        let confinement = match shadow {
            true => Confinement { identity: None, groups: Some(invocation.groups.clone()), ..confinement },
            false => confinement,
        };
        let stage = Stage {
            confinement,
            observer,
            suite: Suite::for_run(surroundings, std::mem::take(&mut self.probes)).map_err(InstallError::Stage)?,
            terminal: Terminal::of_caller(),
        };
        self.bait = stage.suite.bait_of_outside().map_err(InstallError::Stage)?;
        let (ours, theirs) = Channel::pair()?;
        let (hears, tells) = Channel::pair()?;
        let (takes_table, gives_table) = Channel::pair()?;
        let id_mapping = facts.id_mapping.as_ref().map(AsFd::as_fd);
        let (means, scopes) = (held.rung.means(), held.scopes);
        match sys::fork_single_threaded().map_err(|errno| InstallError::Call { call: "fork", errno })? {
            Fork::Child => {
                // Of the supervisor's descriptors the stage keeps none: not the ledger, not the evidence, not the status;
                // and the supervisor's end of the channel would never close.
                let kept = [
                    Some(theirs.as_fd().as_raw_fd()),
                    Some(tells.as_fd().as_raw_fd()),
                    Some(gives_table.as_fd().as_raw_fd()),
                    id_mapping.map(|fd| fd.as_raw_fd()),
                    stage.terminal.as_ref().map(Terminal::number),
                ];
                let inside = self.namespaces.as_ref();
                let placeholders = self.placeholders.as_ref();
                let undone = placeholders.into_iter().flat_map(Placeholders::descriptors);
                let ways_in = inside.into_iter().flat_map(Namespaces::descriptors);
                let kept: Vec<RawFd> = kept.into_iter().flatten().chain(ways_in).chain(undone).collect();
                if sys::close_all_but(&kept).is_err() {
                    sys::exit_now(1);
                }
                // What lies further up the stack owns descriptors that are closed now, and must not run here.
                let lived = catch_unwind(AssertUnwindSafe(|| {
                    let enter = || {
                        inside.map_or(Ok(()), |inside| inside.join().map_err(|e| e.to_string()))?;
                        let Some(plan) = &mounts else { return Ok(()) };
                        enter_view(plan, means, scopes, id_mapping)?;
                        match by_landlock {
                            true => Ok(()),
                            false => watch_mounts::give_table(gives_table).map_err(|e| e.to_string()),
                        }
                    };
                    let cover = |paths: &[PathBuf], view: Option<Pid>| {
                        let plan = mounts.as_ref().ok_or("no mounts carry this view")?;
                        covers::cover_again(plan, paths, view).map_err(|e| e.to_string())
                    };
                    let leave =
                        || placeholders.map_or(Ok(()), Placeholders::remove_from_inside).map_err(|e| e.to_string());
                    stage.live(theirs, tells, enter, cover, leave)
                }));
                sys::exit_now(lived.unwrap_or(1));
            }
            Fork::Parent(pid) => {
                self.identity = plan.identity.clone();
                self.shadow = shadow;
                if plan.reads_seen_by == Some(SeenBy::Fanotify) {
                    self.to_be_witnessed.clone_from(&plan.tripwires);
                }
                self.observer = stage.observer.as_ref().map(|_| pid);
                self.stage = Some(StageProcess { pid, channel: ours });
                self.view_to_come = mounts.filter(|_| !by_landlock).map(|plan| (takes_table, plan));
                self.observer_channel = Some(hears).filter(|_| stage.observer.is_some());
                self.suite = Some(stage.suite);
                Ok(())
            }
        }
    }
}

/// Takes out of a shadow's view the files that are mounted over others in a read-only tree: they are for a command to read, and the
/// tree answers for them. Root replaces such files in its ordinary work (passwd(5)), and takes away with them what is mounted there.
fn spare_files(mounts: &mut MountPlan) {
    let files = std::mem::take(&mut mounts.files);
    mounts.files = files.into_iter().filter(|file| !mounts.protects(&file.target)).collect();
}
