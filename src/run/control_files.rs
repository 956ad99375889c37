//! The files that steer or record a run: none of them may be in the command's reach (case F06).

use crate::cli::{LedgerPlace, RunArgs};
use crate::error::{Error, call};
use crate::host::{Facts, real_path};
use crate::install::undo;
use crate::ledger::{Ledger, LedgerTarget, RunId, control_path_is_safe};
use crate::plan::Plan;
use crate::plan::keep_out::keep_out;
use crate::plan::means::{FileBarrier, Means};
use crate::policy::Policy;
use crate::session::place::Place;
use crate::supervise::ledger_mode;
use crate::sys;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What is masked from the command beside the ledger: the policy's file and this program's own, unless the plan has the
/// command start it.
pub fn masks(policy: &Policy, facts: &Facts) -> Result<Vec<PathBuf>, Error> {
    let mut masks = Vec::new();
    if facts.identity.is_some() {
        masks.extend(facts.program.iter().map(|program| program.path.clone()));
        if let Some(file) = &policy.file {
            masks.push(file.canonicalize().map_err(call("open the policy file"))?);
        }
    }
    Ok(masks)
}

/// Refuses a policy, a program or a ledger that the command could write or replace.
pub fn check(plan: &Plan, facts: &Facts, args: &RunArgs) -> Result<(), Error> {
    let Some(identity) = &plan.identity else { return Ok(()) };
    let ledger = match args.policy.ledger_place() {
        Some(LedgerPlace::Path(path)) => Some(std::path::absolute(path).map_err(call("getcwd"))?),
        Some(LedgerPlace::Descriptor(_)) => None,
        // Whatever the run's name will be; for others than root the place lies in their own home.
        None => (facts.uid == 0).then(|| Path::new(undo::DIRECTORY).join("RUN.jsonl")),
    };
    let files = [
        ("policy file", plan.policy.file.clone()),
        ("program", facts.program.as_ref().map(|program| program.path.clone())),
        ("ledger", ledger),
    ];
    for (what, path) in files.into_iter().filter_map(|(what, path)| Some((what, path?))) {
        let real = real_path(&path);
        // Where no mount covers the record it is kept out of what may be written, whatever the policy says.
        let means = plan.rung.means();
        // Where the command is the caller, who owns such files and has them in the home or the project, a mount covers each,
        // and the directories on the way to it cannot be moved.
        let covered = means == Means::ROOTLESS;
        let kept_out = covered || what == "ledger" && means == Means::BARE;
        let reached = !kept_out
            && plan
                .mounts
                .as_ref()
                .is_some_and(|m| m.writable.iter().any(|w| real.starts_with(&w.path) && !m.protects(&real)));
        if reached {
            return Err(Error::ControlFileWritable { what, path });
        }
        // What the caller's own group may write is the caller's.
        let gid = if covered { u32::MAX } else { identity.gid.as_raw() };
        control_path_is_safe(&path, identity.uid.as_raw(), gid).map_err(|fault| Error::ControlFile { what, fault })?;
    }
    credentials_are_kept(plan)
}

/// Refuses credentials in a policy file that the command could read, where no mask is mounted over it.
fn credentials_are_kept(plan: &Plan) -> Result<(), Error> {
    let means = plan.rung.means();
    let (Some(file), true, FileBarrier::Landlock) =
        (&plan.policy.file, plan.policy.network.upstream.has_credentials(), means.files)
    else {
        return Ok(());
    };
    let mode = std::fs::metadata(file).map_err(call("open the policy file"))?.mode() & 0o777;
    if means.one_uid || mode & 0o077 != 0 {
        return Err(Error::CredentialsReadable { file: file.clone(), mode, rung: plan.rung.name() });
    }
    Ok(())
}

/// Keeps the session's socket, and those of the user's other sessions, from the command. On rung `container` the
/// directory's mode does; what is more, nobody from the sandbox is answered ([`crate::session::place`]).
pub fn keep_session_out(plan: &mut Plan, place: &Place) {
    let means = plan.rung.means();
    let view = match &mut plan.shadow {
        Some(stricter) => &mut stricter.mounts,
        None => &mut plan.mounts,
    };
    let Some(view) = view else { return };
    match means.files {
        FileBarrier::Mounts => view.mask(&real_path(place.directory())),
        FileBarrier::Landlock if means.one_uid => {
            keep_out(view, &real_path(place.directory()));
            // The observer, which makes the command's connections, makes none to what is masked.
            view.mask(&real_path(&place.socket()));
        }
        FileBarrier::Landlock => {}
    }
}

/// Opens the ledger; with it, what of it is to be masked.
pub fn open_ledger(args: &RunArgs, run: &RunId, plan: &Plan) -> Result<(Ledger, Option<PathBuf>), Error> {
    let (target, mask) = match args.policy.ledger_place() {
        None => {
            let target = LedgerTarget::default_for(nix::unistd::geteuid().as_raw(), run)?;
            let directory = match &target {
                LedgerTarget::Path(path) => path.parent().map(Path::to_owned),
                LedgerTarget::Fd(_) => None,
            };
            (target, directory)
        }
        Some(LedgerPlace::Path(path)) => {
            let path = std::path::absolute(path).map_err(call("getcwd"))?;
            (LedgerTarget::Path(path.clone()), Some(path))
        }
        Some(LedgerPlace::Descriptor(fd)) => {
            (LedgerTarget::named(&OsString::from(format!("fd:{fd}")), sys::adopt_inherited)?, None)
        }
    };
    let mut ledger = Ledger::open(target, run, plan.policy.level_name())?.with_mode(ledger_mode(plan.policy.ledger));
    if plan.shadow.is_some() {
        ledger = ledger.of_shadow();
    }
    let means = plan.rung.means();
    if means.one_uid && means.files == FileBarrier::Landlock && plan.identity.is_some() {
        ledger.shut()?;
    }
    Ok((ledger, mask.map(|path| real_path(&path))))
}
