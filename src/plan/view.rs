//! The command's view of the file system, from the policy's trees and what is at their paths.

use super::means::Means;
use super::{HomePlan, Refusal};
use crate::host::{Facts, PathFact, workspaces};
use crate::install::account::{ESCALATION_DIRECTORIES, ESCALATION_FILES, Identity};
use crate::install::mounts::{MountPlan, Overlay, Writable};
use crate::install::workspace::Ownership;
use crate::policy::{Policy, Posture, Trees};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(super) fn named_writable(policy: &Policy, home: &Path) -> Vec<PathBuf> {
    let filesystem = &policy.filesystem;
    filesystem.writable.iter().chain(&filesystem.workspace).map(|path| path.resolve(home)).collect()
}

pub(super) fn mount_plan(
    policy: &Policy,
    facts: &Facts,
    identity: &Identity,
    home: Option<&HomePlan>,
    masks: &[PathBuf],
    means: &Means,
    ownerships: &mut BTreeMap<PathBuf, Ownership>,
) -> Result<MountPlan, Refusal> {
    let trees = Trees::of(policy, &identity.home);
    let named = named_writable(policy, &identity.home);
    let locked = policy.privilege.posture == Posture::Locked;
    let mut plan = MountPlan {
        whole_read_only: policy.filesystem.posture == Posture::Locked,
        nosuid: locked,
        files: overlays(facts, identity),
        masks: masks.iter().cloned().chain(escalation_directories(facts)).collect(),
        ..MountPlan::default()
    };
    if policy.filesystem.posture == Posture::Locked {
        plan.masks
            .extend(facts.private.iter().filter(|path| !trees.writable.iter().any(|w| w.starts_with(path))).cloned());
    }
    // Names leave the machine by whoever resolves them: an admitted one by the proxy, all others not at all.
    if policy.network.posture > Posture::Open {
        plan.masks.extend(facts.resolvers.iter().cloned());
    }
    // What lies in a masked directory is not to be seen anyway, and could not be mounted over any more.
    outermost(&mut plan.masks);
    for path in &trees.read_only {
        match facts.paths.get(path) {
            Some(PathFact::Present { real, directory: true, .. }) => plan.read_only.push(real.clone()),
            // It is missing now and made with HOME.
            Some(PathFact::Missing) if home.is_some_and(|home| home.path.starts_with(path)) => {
                plan.read_only.push(path.clone());
            }
            Some(PathFact::Present { .. } | PathFact::Missing) | None => {}
            Some(fault) => return Err(unusable(path, fault)),
        }
    }
    outermost(&mut plan.read_only);
    let mut candidates: Vec<&PathBuf> = trees.writable.iter().collect();
    let places = workspaces(policy, &identity.home);
    candidates.extend(places.iter().filter(|p| !trees.writable.contains(p)));
    for path in candidates {
        let made = home.and_then(|home| Some(home.path.join(path.strip_prefix(&identity.home).ok()?)));
        match facts.paths.get(path) {
            // In a HOME that is not the command's own nothing changes hands.
            Some(PathFact::Present { writable: false, .. })
                if home.is_none() && path.starts_with(&identity.home) && !places.contains(path) => {}
            // Only root could give it to the command. What the policy names must be writable; the rest is as it is.
            Some(PathFact::Present { writable: false, .. }) if means.one_uid => {
                if named.contains(path) {
                    let fault = "the caller may not write it, and only root could change that".into();
                    return Err(Refusal::Path { path: path.clone(), fault });
                }
            }
            // Its owner cannot be changed where nothing can.
            Some(PathFact::Present { writable: false, read_only: true, idmap, .. }) if idmap.as_deref() != Some("") => {
                if named.contains(path) {
                    let fault = "the command's user may not write it, and on a read-only file system its owner cannot \
                                 be changed; accepted: a writable mount there, or a directory of the command's own";
                    return Err(Refusal::Path { path: path.clone(), fault: fault.into() });
                }
            }
            Some(PathFact::Present { real, writable, idmap, directory, .. }) => {
                let ownership = match (writable, idmap.as_deref()) {
                    (true, _) => Ownership::Kept,
                    (false, Some("")) => Ownership::Idmapped,
                    (false, _) if *directory => Ownership::Changed,
                    (false, _) => return Err(Refusal::Path {
                        path: path.clone(),
                        fault:
                            "the command's user may not write this file; accepted: a directory, or a file of its own"
                                .into(),
                    }),
                };
                if ownership != Ownership::Kept {
                    ownerships.insert(real.clone(), ownership);
                }
                let idmapped = ownership == Ownership::Idmapped;
                if policy.filesystem.posture > Posture::Open || idmapped {
                    plan.writable.push(Writable { path: real.clone(), idmapped });
                }
            }
            Some(PathFact::Missing) if made.is_some() => {
                if policy.filesystem.posture > Posture::Open {
                    plan.writable.extend(made.map(|path| Writable { path, idmapped: false }));
                }
            }
            // What the policy names must be there; the default set is as the image has it.
            Some(PathFact::Missing) if named.contains(path) => {
                return Err(Refusal::Path {
                    path: path.clone(),
                    fault: "named writable, but it does not exist".into(),
                });
            }
            Some(PathFact::Missing) | None => {}
            Some(fault) => return Err(unusable(path, fault)),
        }
    }
    for path in &trees.read_only_within {
        match facts.paths.get(path) {
            Some(PathFact::Present { real, .. }) => plan.read_only_within.push(real.clone()),
            Some(fault) => return Err(unusable(path, fault)),
            None => {}
        }
    }
    if plan.whole_read_only {
        // What /proc takes in changes the writing process or needs privilege: it is no store.
        plan.writable.push(Writable { path: "/proc".into(), idmapped: false });
    }
    let writable = plan.writable.clone();
    plan.read_only.retain(|tree| !writable.iter().any(|w| w.path == *tree));
    // Outer ones first, so that an inner one is mounted over an outer one.
    plan.writable.sort_by_key(|w| w.path.components().count());
    Ok(plan)
}

pub(super) fn unusable(path: &Path, fact: &PathFact) -> Refusal {
    let fault = match fact {
        PathFact::Untrusted { link } => {
            format!(
                "{} is a symbolic link that does not belong to root, so its owner decides what it means",
                link.display()
            )
        }
        PathFact::Unreadable(cause) => cause.clone(),
        PathFact::Missing => "it does not exist".into(),
        PathFact::Present { .. } => "it is not a directory".into(),
    };
    Refusal::Path { path: path.into(), fault }
}

/// Leaves of some paths those that lie in no other one.
pub fn outermost(paths: &mut Vec<PathBuf>) {
    paths.sort();
    paths.dedup();
    let all = paths.clone();
    paths.retain(|path| !all.iter().any(|other| other != path && path.starts_with(other)));
}

fn overlays(facts: &Facts, identity: &Identity) -> Vec<Overlay> {
    let accounts = facts.databases.rewritten(identity).into_iter();
    let escalation = ESCALATION_FILES.iter().map(|(path, content)| (PathBuf::from(path), content.to_vec()));
    let there = escalation.filter(|(path, _)| facts.escalation.contains(path));
    accounts.chain(there).map(|(target, content)| Overlay { target, content }).collect()
}

pub(super) fn escalation_directories(facts: &Facts) -> impl Iterator<Item = PathBuf> {
    ESCALATION_DIRECTORIES.iter().map(PathBuf::from).filter(|path| facts.escalation.contains(path))
}
