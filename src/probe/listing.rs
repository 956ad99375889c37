//! The suite itself, for those who want to know what is tried: `--list` and `--explain`.

use super::external::EXTERNAL;
use super::render::columns;
use super::spec::{Needs, Spec, word};
use super::suite_file::SuiteError;
use crate::plan::means::Means;
use crate::plan::rung::{RUNGS, Restriction, wanted};
use crate::policy::{Axis, Layer, Level, Policy, PolicyArg, Posture};
use serde_json::{Value, json};
use std::num::NonZeroU16;

/// The postures that bring a restriction, and those of its axis above open.
fn postures(restriction: Restriction) -> Vec<String> {
    let axis = restriction.axis();
    let brings = |posture: &Posture| {
        let set = |of: Axis| Some(if of == axis { *posture } else { Posture::Open });
        let layer = Layer {
            network: set(Axis::Network),
            filesystem: set(Axis::Filesystem),
            privilege: set(Axis::Privilege),
            shield: "/srv".parse().into_iter().collect(),
            watch_read: "/srv".parse().into_iter().collect(),
            shield_git: "workspace".parse().into_iter().collect(),
            control_plane_port: NonZeroU16::new(1).into_iter().collect(),
            ..Layer::default()
        };
        let policy = Policy::load(&PolicyArg::Level(Level::Control), &layer);
        policy.is_ok_and(|policy| wanted(&policy).contains(&restriction))
    };
    [Posture::Restricted, Posture::Locked]
        .iter()
        .filter(|posture| brings(posture))
        .map(|p| format!("{axis} {p}"))
        .collect()
}

/// The postures under which a probe applies.
fn all_postures(spec: &Spec) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for posture in spec.restrictions.iter().flat_map(|restriction| postures(*restriction)) {
        if !all.contains(&posture) {
            all.push(posture);
        }
    }
    all
}

/// The rungs on which it applies; what stands in their place where others have built.
fn rungs(spec: &Spec) -> Vec<&'static str> {
    if spec.needs.contains(&Needs::External) {
        return vec![EXTERNAL];
    }
    let possible = |means: &Means| spec.needs.iter().all(|need| need.is_possible_by(means));
    RUNGS.iter().filter(|rung| possible(&rung.means())).map(|rung| rung.name()).collect()
}

fn words<T: serde::Serialize>(values: &[T]) -> Vec<String> {
    values.iter().map(word).collect()
}

fn object(spec: &Spec) -> Value {
    json!({
        "id": spec.id,
        "title": spec.title,
        "axis": spec.axis(),
        "nist": spec.nist(),
        "class": spec.class.to_string(),
        "preflight": spec.preflight,
        "restrictions": spec.restrictions,
        "postures": all_postures(spec),
        "rungs": rungs(spec),
        "needs": spec.needs,
        "operation": spec.operation,
        "expect": spec.expect,
        "why": spec.why,
    })
}

/// Every probe as JSON.
pub fn json(specs: &[&Spec]) -> String {
    let all: Vec<Value> = specs.iter().map(|spec| object(spec)).collect();
    format!("{:#}\n", json!(all))
}

/// Every probe as a table.
pub fn table(specs: &[&Spec]) -> String {
    let heading = ["PROBE", "TITLE", "NIST", "PREFLIGHT", "RUNGS", "RESTRICTIONS"].map(str::to_owned);
    let row = |spec: &&Spec| {
        let preflight = if spec.preflight { "yes" } else { "no" };
        let rungs = match rungs(spec) {
            all if all.len() == RUNGS.len() => "all".to_owned(),
            some => some.join(" "),
        };
        let restrictions = words(&spec.restrictions).join(" ");
        [spec.id.clone(), spec.title.clone(), spec.nist().join(" "), preflight.into(), rungs, restrictions]
    };
    let mut out = String::new();
    columns(&mut out, &std::iter::once(heading).chain(specs.iter().map(row)).collect::<Vec<_>>());
    out
}

/// All that is known of one probe.
///
/// # Errors
/// [`SuiteError::NoProbe`] when there is none of that id.
pub fn explain(specs: &[Spec], id: &str) -> Result<String, SuiteError> {
    let none = || SuiteError::NoProbe { what: "--explain", text: id.to_owned(), glob: "" };
    let spec = specs.iter().find(|spec| spec.id == id).ok_or_else(none)?;
    let or_none = |words: Vec<String>| if words.is_empty() { "nothing more".to_owned() } else { words.join(", ") };
    let rows = [
        ("probe", spec.id.clone()),
        ("title", spec.title.clone()),
        ("why", spec.why.clone()),
        ("axis", format!("{} ({})", spec.axis(), spec.nist().join(", "))),
        ("class", spec.class.to_string()),
        ("tried", if spec.preflight { "before every command" } else { "by `ringfence probe` only" }.to_owned()),
        ("restrictions", words(&spec.restrictions).join(", ")),
        ("postures", all_postures(spec).join(", ")),
        ("rungs", rungs(spec).join(", ")),
        ("needs", or_none(words(&spec.needs))),
        ("operation", json!(spec.operation).to_string()),
        ("expected", spec.expect.join(" or ")),
    ];
    let mut out = String::new();
    columns(&mut out, &rows.map(|(name, value)| [format!("{name}:"), value]));
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::super::suite_file::built_in;
    use super::*;

    #[test]
    fn a_restriction_comes_with_its_postures() {
        assert_eq!(postures(Restriction::ReadOnlyTrees), ["filesystem restricted"]);
        assert_eq!(postures(Restriction::Account), ["privilege restricted", "privilege locked"]);
        assert_eq!(postures(Restriction::ControlPlane).len(), 2);
        assert!(Restriction::ALL.iter().all(|restriction| !postures(*restriction).is_empty()));
    }

    #[test]
    fn each_probe_applies_somewhere_and_is_explained() {
        let all = built_in().unwrap();
        for spec in &all {
            assert!(!rungs(spec).is_empty() && !all_postures(spec).is_empty(), "{}", spec.id);
            let text = explain(&all, &spec.id).unwrap();
            assert!(text.contains(&spec.why) && text.contains(&spec.title) && text.lines().count() == 12, "{text}");
        }
        let rungs_of = |id: &str| rungs(all.iter().find(|spec| spec.id == id).unwrap());
        assert_eq!(rungs_of("network.direct.socket-device"), ["container", "bare"]);
        assert_eq!(rungs_of("privilege.direct.nosuid"), ["full", "rootless"]);
        assert_eq!(rungs_of("privilege.direct.bounding-set"), ["full", "rootless", "container"]);
        let fault = explain(&all, "nothing").unwrap_err().to_string();
        assert_eq!(fault, "--explain \"nothing\" names no probe; accepted: an id of `ringfence probe --list`");
    }

    #[test]
    fn the_list_has_a_row_a_probe() {
        let all = built_in().unwrap();
        let some: Vec<&Spec> = all.iter().collect();
        assert_eq!(table(&some).lines().count(), all.len() + 1);
        let read: Value = serde_json::from_str(&json(&some)).unwrap();
        assert_eq!(read.as_array().unwrap().len(), all.len());
    }
}
