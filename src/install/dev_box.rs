//! What a run on an ordinary user's machine does to disk, and undoes: see [`super::protect`] and [`super::placeholders`].

use super::mounts::MountPlan;
use super::placeholders::{Placeholders, Wanted, sweep};
use super::protect::Found;
use super::{InstallError, Installation, protect};
use crate::host::real_path;
use crate::host::session::Session;
use crate::ledger::{LedgerTarget, RunId};
use crate::plan::Plan;
use crate::policy::Posture;
use nix::unistd::{AccessFlags, access, geteuid};
use std::path::{Path, PathBuf};

impl Installation {
    /// Makes read-only in the view what the host would run later, with placeholders for what is missing of it.
    pub(super) fn protect_from_later(
        &mut self,
        run: &str,
        plan: &Plan,
        session: &Session,
        view: Option<&mut MountPlan>,
    ) -> Result<(), InstallError> {
        let (Some(view), Some(identity), true) = (view, &plan.identity, plan.rung.means().own_namespaces) else {
            return Ok(());
        };
        let home = real_path(&identity.home);
        let workspace = plan.policy.filesystem.workspace.as_ref().map(|path| real_path(&path.resolve(&identity.home)));
        let mut found = match plan.policy.filesystem.posture {
            Posture::Open => Found::default(),
            _ => protect::find(&plan.policy, workspace.as_deref(), &home, view)?,
        };
        // What is covered is not reached, and nothing of what covers it is carried back.
        let covered = |path: &Path| view.git.iter().any(|git| path.starts_with(&git.directory));
        found.present.retain(|path| !covered(path));
        found.missing.retain(|wanted| !covered(&wanted.path));
        // Where the caller may not make one, no program of the caller's will.
        let makeable = |path: &&PathBuf| path.parent().is_some_and(|above| access(above, AccessFlags::W_OK).is_ok());
        let awaited: Vec<PathBuf> = session.awaited.iter().filter(makeable).map(|path| real_path(path)).collect();
        let missing: Vec<Wanted> = awaited
            .iter()
            .map(|path| Wanted { path: path.clone(), content: None })
            .chain(found.missing.clone())
            .collect();
        if !missing.is_empty() || !found.present.is_empty() {
            // Another run's may be among those that are there.
            let present: Vec<PathBuf> = found.present.iter().chain(&session.sockets).cloned().collect();
            let placeholders = Placeholders::put_up(&state_directory()?, run, &missing, &present)?;
            awaited.iter().for_each(|path| view.mask(path));
            view.mask(&real_path(placeholders.place()));
            self.placeholders = Some(placeholders);
        }
        view.files.extend(workspace.and_then(|workspace| protect::excluded(&workspace, &found.missing)));
        view.read_only_within.extend(found.present);
        view.read_only_within.extend(found.missing.into_iter().map(|wanted| wanted.path));
        Ok(())
    }

    /// Removes the placeholders.
    pub(super) fn remove_placeholders(&mut self) -> Result<(), String> {
        self.placeholders.take().map_or(Ok(()), |placeholders| placeholders.remove().map_err(|e| e.to_string()))
    }
}

/// Where an ordinary user's runs keep what outlives them.
fn state_directory() -> Result<PathBuf, InstallError> {
    // The name is of no account: it is the directory that is asked for.
    let run = RunId::random()?;
    match LedgerTarget::default_for(geteuid().as_raw(), &run)? {
        LedgerTarget::Path(path) => Ok(path.parent().map_or_else(PathBuf::new, PathBuf::from)),
        LedgerTarget::Fd(_) => Ok(PathBuf::new()),
    }
}

/// Removes what an ordinary user's runs have left that were killed.
pub fn put_back_for_the_dead() -> Result<(), InstallError> {
    match state_directory() {
        Ok(directory) => Ok(sweep(&directory)?),
        // Who has no such directory has left nothing in it.
        Err(InstallError::State(_)) => Ok(()),
        Err(error) => Err(error),
    }
}
