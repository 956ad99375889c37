//! What the rungs have in common on which the command keeps the caller's uid.

use crate::host::Facts;
use crate::policy::{Policy, User};

/// The mechanism of the account.
pub const ACCOUNT: &str = "the caller's own ids; no_new_privs; Landlock scopes keep signals and tracing inside";

/// What is missing for anything to be held under the caller's own uid.
pub fn stands(policy: &Policy, facts: &Facts) -> Result<(), String> {
    if facts.uid == 0 {
        return Err("it is for ordinary users; root has a uid to give up".into());
    }
    match &policy.privilege.user {
        Some(User::Ids { uid, .. }) if *uid != facts.uid => {
            return Err(format!("user {uid}: without root the command's user is the caller, uid {}", facts.uid));
        }
        Some(User::Name(name))
            if facts.identity.as_ref().is_some_and(|i| i.name != *name || i.uid.as_raw() != facts.uid) =>
        {
            return Err(format!("user {name}: without root the command's user is the caller, uid {}", facts.uid));
        }
        _ => {}
    }
    // Without it there is no Landlock either.
    facts.no_new_privs.as_ref().map_err(|cause| format!("no_new_privs: {cause}"))?;
    if !facts.scopes {
        return Err(
            "Landlock's scopes (ABI 6) are missing, without which the command could signal what confines it".into()
        );
    }
    Ok(())
}
