//! Landlock's file rules: their version by asking, and whether they hold by being refused something.

use super::finding::Finding;
use crate::sys::call::{Argument, call};
use ::landlock::{
    AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::sys::stat::Mode;

/// What there is of Landlock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Landlock {
    /// The version of its interface, which says which accesses it knows (landlock(7)); 0 where there is none.
    pub abi: u32,
    /// Whether a ruleset of file accesses could be put in force, and refused one.
    pub usable: Finding,
}

/// The version, or why there is none.
pub(super) fn abi() -> Result<u32, String> {
    /// landlock_create_ruleset(2), `LANDLOCK_CREATE_RULESET_VERSION`.
    const VERSION: u64 = 1;
    let [no_attributes, no_size] = [Argument::Number(0), Argument::Number(0)];
    let version = call(libc::SYS_landlock_create_ruleset, [no_attributes, no_size, Argument::Number(VERSION)])
        .map_err(|errno| format!("landlock_create_ruleset: {errno}"))?;
    u32::try_from(version).map_err(|error| format!("landlock_create_ruleset: {error}"))
}

/// Puts the calling process, which has no_new_privs, under a ruleset that allows it no write to a file and no reading of a
/// directory, and sees both refused that could be made before.
pub(super) fn restrict_files() -> Finding {
    let before = witnesses();
    if before.iter().all(Result::is_err) {
        return Err("there is nothing here whose refusal could be seen".into());
    }
    let fail = |error: RulesetError| format!("Landlock: {error}");
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::WriteFile | AccessFs::ReadDir)
        .and_then(|ruleset| ruleset.create())
        .and_then(|created| created.no_new_privs(false).restrict_self())
        .map_err(fail)?;
    if status.ruleset != RulesetStatus::FullyEnforced {
        return Err(format!("Landlock: the ruleset is {:?}", status.ruleset));
    }
    let refused =
        |(before, after): (Result<(), Errno>, Result<(), Errno>)| before.is_err() || after == Err(Errno::EACCES);
    if before.into_iter().zip(witnesses()).all(refused) {
        return Ok(());
    }
    Err("Landlock: the ruleset is in force and refuses nothing".into())
}

/// Accesses that the ruleset refuses and that little else does.
fn witnesses() -> [Result<(), Errno>; 2] {
    let open = |path: &str, flags: OFlag| open(path, flags | OFlag::O_CLOEXEC, Mode::empty()).map(drop);
    [open("/dev/null", OFlag::O_WRONLY), open("/", OFlag::O_RDONLY | OFlag::O_DIRECTORY)]
}
