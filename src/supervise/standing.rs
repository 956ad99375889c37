//! Whether what was installed still stands while the command runs, and what is done where it does not.

use super::watch_mounts::{MountWatch, MountWatchError, Seen};
use super::{AbortCause, send};
use crate::install::Installation;
use crate::install::firewall::Integrity;
use crate::ledger::record::{Body, Gap};
use crate::ledger::{Ledger, escape};
use crate::observe::evidence::EvidenceError;
use crate::policy::Axis;
use crate::stage::Order;
use std::os::unix::ffi::OsStrExt;

/// Has the wall looked at, where it has been changed.
pub(super) fn check_wall(installation: &mut Installation, ledger: &mut Ledger) -> Result<(), AbortCause> {
    let (Some(watch), Some(wall)) = (&mut installation.watch, &installation.wall) else { return Ok(()) };
    if !watch.drain()? {
        return Ok(());
    }
    match wall.is_intact()? {
        Integrity::Intact => Ok(()),
        // A shadow holds nobody: who changes its table leaves a hole in the record, and the run goes on.
        Integrity::Altered(difference) if installation.is_shadow() => {
            Ok(installation.lose_wall(&difference, ledger).map_err(EvidenceError::from)?)
        }
        Integrity::Altered(difference) => {
            installation.strike();
            Err(AbortCause::WallAltered(difference))
        }
    }
}

/// Has the mounts looked at, where they are watched, and acts on what is seen.
pub fn check_mounts(
    installation: &mut Installation,
    ledger: &mut Ledger,
    look: impl FnOnce(&mut MountWatch) -> Result<Seen, MountWatchError>,
) -> Result<(), AbortCause> {
    let shadow = installation.is_shadow();
    let Some(view) = &mut installation.view else { return Ok(()) };
    match look(view)? {
        Seen::AsBefore => Ok(()),
        Seen::Cover(paths) => send(installation, &Order::Cover(paths)),
        Seen::Restored(paths) => paths.into_iter().try_for_each(|path| {
            let path = escape::escape(path.as_os_str().as_bytes(), escape::TEXT_LIMIT);
            let was = if shadow { "as if nothing were mounted there" } else { "open" };
            was_open(ledger, format!("{path} was replaced from outside, and was {was} until it was covered again"))
        }),
        // A shadow holds nobody: what it sees by is worse, and the run goes on.
        Seen::Altered(difference) if shadow => {
            Ok(installation.lose_view(&difference, ledger).map_err(EvidenceError::from)?)
        }
        Seen::Altered(difference) => {
            installation.strike();
            was_open(ledger, difference.clone())?;
            Err(AbortCause::ViewAltered(difference))
        }
    }
}

/// For a moment, what the mounts were to keep was not kept, and what the command did then was neither refused nor recorded.
fn was_open(ledger: &mut Ledger, cause: String) -> Result<(), AbortCause> {
    let gap = Gap { axis: Some(Axis::Filesystem), source: "mounts".into(), lost: 0, cause };
    Ok(ledger.append(Body::Gap(gap)).map(drop).map_err(EvidenceError::from)?)
}
