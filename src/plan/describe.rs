//! A plan for people and for programs.

use super::Plan;
use crate::host::{Facts, PathFact, survey};
use crate::policy::Axis;
use serde_json::{Value, json};
use std::fmt::Write;

/// The plan as text.
pub fn text(plan: &Plan, facts: &Facts) -> String {
    let mut out = String::new();
    let postures = plan.policy.postures();
    // Writing to a String never fails.
    let mut line = |text: String| if writeln!(out, "{text}").is_err() {};
    line(format!("level {}  rung {}  digest {}", plan.policy.level_name(), plan.rung.name(), plan.policy.digest()));
    match &plan.identity {
        Some(who) => line(format!("user {} uid {} gid {} home {}", who.name, who.uid, who.gid, who.home.display())),
        None => line(format!("user the caller's, uid {}", facts.uid)),
    }
    if let Some(stricter) = &plan.shadow {
        let postures = stricter.policy.postures();
        let by_axis = Axis::ALL.map(|axis| format!("{axis} {}", postures.of(axis))).join(", ");
        let (level, digest) = (stricter.policy.level_name(), stricter.policy.digest());
        line(format!("shadow of {level}, not enforced: {by_axis}  digest {digest}"));
    }
    for axis in Axis::ALL {
        line(format!("{axis}: {}", postures.of(axis)));
        for carried in plan.restrictions.iter().filter(|c| c.restriction.axis() == axis) {
            line(format!("  {}: {}", carried.restriction, carried.mechanism));
        }
    }
    for (path, ownership) in &plan.workspaces {
        line(format!("workspace {}: {ownership}", path.display()));
    }
    for sentence in &plan.notes {
        line(format!("note: {sentence}"));
    }
    for sentence in &plan.unobserved {
        line(format!("unobserved: {sentence}"));
    }
    let found = survey::survey(plan);
    for listener in &found.loopback_listeners {
        line(format!("loopback listener of uid {}: {}", listener.uid, listener.address));
    }
    for path in &found.reachable_sockets {
        line(format!("reachable unix socket: {}", path.display()));
    }
    for path in &found.writable_outside {
        line(format!("writable outside the set: {}", path.display()));
    }
    out
}

/// The plan as JSON.
pub fn json(plan: &Plan, facts: &Facts) -> String {
    let found = survey::survey(plan);
    let restrictions: Vec<Value> = plan
        .restrictions
        .iter()
        .map(|c| json!({"axis": c.restriction.axis(), "restriction": c.restriction.to_string(), "mechanism": c.mechanism}))
        .collect();
    let missing: Vec<_> = facts.paths.iter().filter(|(_, f)| **f == PathFact::Missing).map(|(p, _)| p).collect();
    let value = json!({
        "level": plan.policy.level_name(),
        "digest": plan.policy.digest(),
        "rung": plan.rung.name(),
        "shadow": plan.shadow.as_ref().map(|stricter| json!({
            "level": stricter.policy.level_name(),
            "digest": stricter.policy.digest(),
        })),
        "user": plan.identity.as_ref().map(|i| json!({"name": i.name, "uid": i.uid.as_raw(), "gid": i.gid.as_raw(), "home": i.home})),
        "restrictions": restrictions,
        "workspaces": plan.workspaces,
        "missing_paths": missing,
        "notes": plan.notes,
        "unobserved": plan.unobserved,
        "host": facts.to_json(),
        "loopback_listeners": found.loopback_listeners,
        "reachable_sockets": found.reachable_sockets,
        "writable_outside": found.writable_outside,
    });
    format!("{value:#}\n")
}
