//! What probes show of each restriction of a policy, where there is no plan that says what carries it.

use super::Surroundings;
use super::outcome::Outcome;
use super::spec::{Class, Spec};
use crate::plan::rung::Restriction;
use serde::Serialize;
use std::fmt;

/// What is known of a restriction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// All that was tried of it was refused.
    Held,
    /// Something was not.
    Missing,
    /// Nothing that would show it could be tried.
    NotJudged,
    /// There is nothing here that it would close.
    NothingHere,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Standing::Held => "held",
            Standing::Missing => "MISSING",
            Standing::NotJudged => "NOT JUDGED",
            Standing::NothingHere => "nothing here",
        })
    }
}

/// A restriction of the policy, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shown {
    /// The restriction, by its name in a suite.
    pub restriction: Restriction,
    /// What is known.
    pub standing: Standing,
    /// By what, or why not.
    pub because: String,
}

/// What `made`, the outcomes of the probes that were asked for, show of each restriction of `run`. A restriction of which
/// no probe of the classes that try it was asked for is left out. `not_asked` says which proxies of the environment could
/// not be tried.
pub fn of(run: &Surroundings, made: &[(Spec, Outcome)], not_asked: &[String]) -> Vec<Shown> {
    let mut shown: Vec<Shown> = run.restrictions.iter().filter_map(|one| shown_of(*one, run, made)).collect();
    let direct = shown.iter().find(|one| one.restriction == Restriction::DirectEgress).map(|one| one.standing);
    if let Some(allowlist) = shown.iter_mut().find(|one| one.restriction == Restriction::EgressAllowlist) {
        allow(allowlist, run, direct, not_asked);
    }
    shown
}

fn shown_of(restriction: Restriction, run: &Surroundings, made: &[(Spec, Outcome)]) -> Option<Shown> {
    // That what is permitted works shows nothing of what is refused.
    let tries = |spec: &Spec| spec.class != Class::Enablement && spec.restrictions.contains(&restriction);
    let of: Vec<&(Spec, Outcome)> = made.iter().filter(|(spec, _)| tries(spec)).collect();
    let (first, _) = of.first()?;
    let failed: Vec<&str> = of
        .iter()
        .filter(|(_, outcome)| matches!(outcome, Outcome::Failed { .. }))
        .map(|(s, _)| s.id.as_str())
        .collect();
    let passed = of.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Passed { .. })).count();
    let (standing, because) = if let Some(cause) = nothing_here(restriction, run) {
        (Standing::NothingHere, cause.to_owned())
    } else if !failed.is_empty() {
        (Standing::Missing, failed.join(", "))
    } else if passed > 0 {
        (Standing::Held, format!("{passed} probes"))
    } else {
        let cause = of.iter().find_map(|(_, outcome)| match outcome {
            Outcome::Skipped { cause } | Outcome::NotJudged { cause } => Some(cause.clone()),
            _ => None,
        });
        (Standing::NotJudged, format!("{}: {}", first.id, cause.unwrap_or_default()))
    };
    Some(Shown { restriction, standing, because })
}

/// Why there is nothing that a restriction would close.
fn nothing_here(restriction: Restriction, run: &Surroundings) -> Option<&'static str> {
    match restriction {
        Restriction::OwnFiles => Some("only a run of ringfence has a record and files of its own"),
        Restriction::PrivatePaths if run.masked.is_empty() => {
            Some("there is no home of another user and no control socket")
        }
        _ => None,
    }
}

/// Without a proxy there is no allowlist to ask: that nothing gets out at all is what holds it then.
fn allow(allowlist: &mut Shown, run: &Surroundings, direct: Option<Standing>, not_asked: &[String]) {
    if allowlist.standing != Standing::Held {
        return;
    }
    if !not_asked.is_empty() {
        (allowlist.standing, allowlist.because) = (Standing::NotJudged, not_asked.join("; "));
    } else if run.named_proxies.is_empty() {
        const NONE: &str = "no proxy is named in the environment and none was found";
        (allowlist.standing, allowlist.because) = match direct {
            Some(Standing::Held) => (Standing::Held, format!("{NONE}: nothing gets out at all")),
            Some(Standing::Missing) => (Standing::Missing, format!("{NONE}, and direct egress is open")),
            Some(_) => (Standing::NotJudged, format!("{NONE}, and direct egress is not judged")),
            None => (Standing::Held, format!("{NONE}; whether anything gets out directly was not asked")),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::suite_file::built_in;
    use super::*;

    fn run() -> Surroundings {
        let restrictions = [Restriction::EgressAllowlist, Restriction::DirectEgress, Restriction::OwnFiles];
        Surroundings { restrictions: restrictions.into(), external: true, ..Surroundings::default() }
    }

    /// The standing of the restrictions where these probes were asked for.
    fn stand(run: &Surroundings, outcomes: &[(&str, bool)], not_asked: &[String]) -> Vec<(Restriction, Standing)> {
        let all = built_in().unwrap();
        let made: Vec<(Spec, Outcome)> = outcomes
            .iter()
            .map(|(id, passed)| {
                let spec = all.iter().find(|spec| spec.id == *id).unwrap().clone();
                let (expected, seen) = (String::new(), String::new());
                let outcome =
                    if *passed { Outcome::Passed { expected, seen } } else { Outcome::Failed { expected, seen } };
                (spec, outcome)
            })
            .collect();
        of(run, &made, not_asked).into_iter().map(|one| (one.restriction, one.standing)).collect()
    }

    const REACH: &str = "network.adversarial.proxies-in-reach";
    const DIRECT: &str = "network.direct.tcp";

    #[test]
    fn without_a_proxy_the_allowlist_stands_with_direct_egress() {
        let of = |outcomes: &[(&str, bool)], not_asked: &[String]| stand(&run(), outcomes, not_asked)[0].1;
        assert_eq!(of(&[(REACH, true), (DIRECT, true)], &[]), Standing::Held);
        assert_eq!(of(&[(REACH, true), (DIRECT, false)], &[]), Standing::Missing);
        assert_eq!(of(&[(REACH, false), (DIRECT, true)], &[]), Standing::Missing);
        assert_eq!(of(&[(REACH, true)], &[]), Standing::Held);
        assert_eq!(of(&[(REACH, true), (DIRECT, true)], &["all_proxy: …".into()]), Standing::NotJudged);
    }

    #[test]
    fn what_is_permitted_shows_nothing_of_what_is_refused() {
        assert!(stand(&run(), &[("network.enablement.proxy", true)], &[]).is_empty());
        let spec = built_in().unwrap().into_iter().find(|spec| spec.id == DIRECT).unwrap();
        let shown = of(&run(), &[(spec, Outcome::Skipped { cause: "not here: x".into() })], &[]);
        assert_eq!(shown[0].standing, Standing::NotJudged);
        assert_eq!(shown[0].because, "network.direct.tcp: not here: x");
    }

    #[test]
    fn what_is_not_there_needs_no_closing() {
        let run = Surroundings { restrictions: [Restriction::PrivatePaths].into(), ..run() };
        let spec = |id: &str| built_in().unwrap().into_iter().find(|spec| spec.id == id).unwrap();
        let skipped = Outcome::Skipped { cause: "not here: masks".into() };
        let made = [(spec("filesystem.adversarial.open-masked"), skipped)];
        assert_eq!(of(&run, &made, &[])[0].standing, Standing::NothingHere);
        let masked = Surroundings { masked: vec!["/run/docker.sock".into()], ..run };
        assert_eq!(of(&masked, &made, &[])[0].standing, Standing::NotJudged);
    }
}
