//! The plan of a policy that is shadowed: what its parts would be, and what a shadow of it cannot see.

use super::means::Means;
use super::{Plan, Refusal};
use crate::install::workspace::Ownership;
use crate::policy::{Policy, Posture};

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
    /// The rung that carries the stricter policy has no shadow.
    #[error(
        "--shadow {shadow}: rung {rung} has no shadow; accepted: rung full, which is root with CAP_SYS_ADMIN and CAP_NET_ADMIN"
    )]
    Rung {
        /// What is shadowed.
        shadow: String,
        /// The rung.
        rung: &'static str,
    },
}

/// Refuses a shadow that nothing here would hold one to one, before anything is looked up.
///
/// # Errors
/// [`NoShadow::Enforced`].
pub fn check(policy: &Policy) -> Result<(), Refusal> {
    let postures = policy.postures();
    match &policy.shadow {
        Some(shadow) if [postures.network, postures.filesystem, postures.privilege] != [Posture::Open; 3] => {
            Err(NoShadow::Enforced { shadow: shadow.named.to_string() }.into())
        }
        _ => Ok(()),
    }
}

/// Joins the plan of what is enforced and that of what is shadowed.
///
/// # Errors
/// [`NoShadow::Rung`].
pub fn join(mut enforced: Plan, mut stricter: Plan) -> Result<Plan, Refusal> {
    let shadow = enforced.policy.shadow.as_ref().map_or_else(String::new, |shadow| shadow.named.to_string());
    if stricter.rung.means() != Means::FULL {
        return Err(NoShadow::Rung { shadow, rung: stricter.rung.name() }.into());
    }
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
            "what {level} answers with ENOSYS: the command may use it here, and what it does through io_uring and with the \
             flags of clone3 is not looked at"
        ),
        format!(
            "what becomes of an act by an earlier one that {level} would have refused: each is judged by itself, as things \
             are when it is made"
        ),
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
