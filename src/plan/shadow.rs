//! The plan of a policy that is shadowed: what its parts would be, and what a shadow of it cannot see.

use super::rung::{RUNGS, Rung};
use super::{Plan, Refusal};
use crate::install::workspace::Ownership;
use crate::policy::{Policy, Posture, Shadow};

/// Why a shadow cannot be held against a run here. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum NoShadow {
    /// Something is enforced beside it.
    #[error(
        "--shadow {shadow}: a shadow is held against a run that enforces nothing; accepted: --policy control, or a policy file whose three postures are open"
    )]
    Enforced {
        /// What is shadowed.
        shadow: String,
    },
    /// Another entry to the kernel, whose calls on sockets are made by who judges them.
    #[error("--shadow {shadow}: it has no shadow with abi i386; accepted: a policy without it")]
    Abi {
        /// What is shadowed.
        shadow: String,
    },
    /// What is kept from being read, or watched, is so by what is enforced.
    #[error(
        "--shadow {shadow}: nothing of it is enforced, so that it shields and watches nothing; accepted: a policy without shield, shield-harbor, shield-git and watch-read"
    )]
    Shielded {
        /// What is shadowed.
        shadow: String,
    },
    /// Nothing of it is in force that a probe could try.
    #[error(
        "--shadow {shadow}: probes try what is enforced, and nothing of a shadow is; accepted: ringfence probe --policy {shadow}"
    )]
    Probed {
        /// What is shadowed.
        shadow: String,
    },
    /// Another rung than the one that has a shadow is demanded.
    #[error(
        "--shadow {shadow}: rung {rung} has no shadow; accepted: rung full, which is root with CAP_SYS_ADMIN and CAP_NET_ADMIN"
    )]
    Rung {
        /// What is shadowed.
        shadow: String,
        /// The rung.
        rung: &'static str,
    },
    /// The one that has is not to be had here.
    #[error("--shadow {shadow}: {cause}; accepted: rung full, which is root with CAP_SYS_ADMIN and CAP_NET_ADMIN")]
    NotHere {
        /// What is shadowed.
        shadow: String,
        /// What is missing.
        cause: String,
    },
}

/// Refuses a shadow that nothing here would hold one to one, before anything is looked up.
///
/// # Errors
/// [`NoShadow::Enforced`], [`NoShadow::Abi`], [`NoShadow::Shielded`].
pub fn check(policy: &Policy) -> Result<(), Refusal> {
    let postures = policy.postures();
    match &policy.shadow {
        Some(shadow) if !shadow.policy.privilege.abi.is_empty() => {
            Err(NoShadow::Abi { shadow: shadow.named.to_string() }.into())
        }
        Some(shadow) if [postures.network, postures.filesystem, postures.privilege] != [Posture::Open; 3] => {
            Err(NoShadow::Enforced { shadow: shadow.named.to_string() }.into())
        }
        Some(shadow) if [policy, &shadow.policy].into_iter().any(keeps) => {
            Err(NoShadow::Shielded { shadow: shadow.named.to_string() }.into())
        }
        _ => Ok(()),
    }
}

/// Refuses a shadow where the policy is to be probed.
///
/// # Errors
/// [`NoShadow::Probed`].
pub fn check_not_probed(policy: &Policy) -> Result<(), Refusal> {
    match &policy.shadow {
        Some(shadow) => Err(NoShadow::Probed { shadow: shadow.named.to_string() }.into()),
        None => Ok(()),
    }
}

/// Whether a policy has something kept from being read, or watched.
fn keeps(policy: &Policy) -> bool {
    policy.asks_for_shields() || !policy.filesystem.watch_read.is_empty()
}

/// The one rung that has a shadow, which its plan is to be made on.
///
/// # Errors
/// [`NoShadow::Rung`] where another one is demanded.
pub fn rung(shadow: &Shadow, demanded: Option<&'static dyn Rung>) -> Result<&'static dyn Rung, Refusal> {
    let [full, ..] = RUNGS;
    match demanded.filter(|demanded| demanded.name() != full.name()) {
        Some(demanded) => Err(NoShadow::Rung { shadow: shadow.named.to_string(), rung: demanded.name() }.into()),
        None => Ok(full),
    }
}

/// Joins the plan of what is enforced and that of what is shadowed.
///
/// # Errors
/// [`NoShadow::NotHere`]; what keeps the stricter policy from being planned.
pub fn join(mut enforced: Plan, stricter: Result<Plan, Refusal>) -> Result<Plan, Refusal> {
    let shadow = || enforced.policy.shadow.as_ref().map_or_else(String::new, |shadow| shadow.named.to_string());
    let mut stricter = stricter.map_err(|refusal| match refusal {
        Refusal::NoRung(cause) => NoShadow::NotHere { shadow: shadow(), cause }.into(),
        other => other,
    })?;
    let level = stricter.policy.level_name();
    enforced.unobserved.append(&mut stricter.unobserved);
    enforced.unobserved.extend(unobserved(&stricter));
    enforced.notes.push(format!("nothing of {level} is enforced: what it would refuse is recorded as would_deny"));
    // Refusals are read from whom it makes; the domain that would make them is not there.
    stricter.audited = false;
    // What would change hands is the command's already: it is judged as if it had.
    stricter.workspaces.retain(|_, ownership| *ownership == Ownership::Changed);
    enforced.shadow = Some(Box::new(stricter));
    Ok(enforced)
}

/// What a shadow cannot see, one sentence each.
fn unobserved(stricter: &Plan) -> Vec<String> {
    let level = stricter.policy.level_name();
    let mut sentences = vec![
        format!("signals and abstract unix sockets to the outside, which {level} would refuse by Landlock's scopes"),
        format!(
            "what a process does as another user than root, or in a namespace or below a root of its own making, all of which \
             {level} would have refused"
        ),
        format!(
            "requests for the ids that root has, and root's files given to root: {level} would refuse them to a program that \
             means root, and not to one that means itself, and nothing tells which it is"
        ),
        format!(
            "what {level} answers with ENOSYS: the command may use it here, and what it does through io_uring and with the \
             flags of clone3 is not looked at"
        ),
        format!(
            "what becomes of an act by an earlier one that {level} would have refused: each is judged by itself, as things \
             are when it is made"
        ),
        "names by way of a descriptor or a working directory on a file system of FUSE that the command has mounted: its process \
         may wait for an answer here before it gives one"
            .to_owned(),
        "changes of a file that has several names in an image's layer, once it has been changed: it is then taken for the \
         command's own"
            .to_owned(),
    ];
    if stricter.wall.is_some() {
        sentences.extend([
            "packets of sockets that the command has not opened itself: inherited ones, and those of calls that are in the \
             record already"
                .to_owned(),
            "what another table's address translation makes of an admitted destination".to_owned(),
        ]);
    }
    if stricter.proxy.is_some() {
        sentences.push(
            "requests that the proxy cannot read or serve, or that name another host than their tunnel's: it refuses them \
             here too, with a record"
                .to_owned(),
        );
    }
    for path in stricter.workspaces.keys() {
        sentences.push(format!(
            "acts on what is another's than root's in {}, which would have changed hands: they may be recorded though {level} \
             would not refuse them",
            path.display()
        ));
    }
    sentences
}
