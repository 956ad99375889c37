//! Which probes are asked for, and which are tried for that.

use super::spec::Spec;
use super::suite_file::{self, SuiteError};
use std::collections::BTreeSet;

/// The probes that a run tries, and of which it shows the outcome.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// What is tried where it applies.
    pub tried: Vec<Spec>,
    /// The ids of those whose outcome counts.
    pub chosen: BTreeSet<String>,
}

impl Selection {
    /// What is tried before every command.
    pub fn preflight() -> Result<Selection, SuiteError> {
        let tried: Vec<Spec> = suite_file::built_in()?.into_iter().filter(|spec| spec.preflight).collect();
        let chosen = tried.iter().map(|spec| spec.id.clone()).collect();
        Ok(Selection { tried, chosen })
    }

    /// Those of `all` whose ids one of the patterns names; all of them without a pattern. What was told can only be held
    /// against everything that was refused: where a probe of that kind is chosen, all are tried.
    pub fn of(all: Vec<Spec>, patterns: &[String]) -> Result<Selection, SuiteError> {
        for pattern in patterns {
            if !all.iter().any(|spec| matches(pattern, &spec.id)) {
                let glob = ", or a text with * for any part of it";
                return Err(SuiteError::NoProbe { what: "--only", text: pattern.clone(), glob });
            }
        }
        let named = |spec: &Spec| patterns.is_empty() || patterns.iter().any(|pattern| matches(pattern, &spec.id));
        let chosen = all.iter().filter(|spec| named(spec)).map(|spec| spec.id.clone()).collect();
        let told = all.iter().any(|spec| named(spec) && spec.is_of_evidence());
        let tried = all.into_iter().filter(|spec| told || patterns.is_empty() || named(spec)).collect();
        Ok(Selection { tried, chosen })
    }
}

/// Whether a text is what the pattern says; `*` stands for any text, an empty one too.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut left) = text.strip_prefix(head) else { return false };
    let parts: Vec<&str> = rest.split('*').collect();
    let (last, between) = parts.split_last().unwrap_or((&"", &[]));
    for part in between {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_text() {
        for (pattern, text) in
            [("a.b", "a.b"), ("*", "a"), ("*", ""), ("a.*", "a."), ("*.b", "a.b"), ("a*c*e", "abcde")]
        {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("a.b", "a.bc"), ("a.*", "b.a."), ("*.b", "a.bc"), ("a*c*e", "aec"), ("ab*ba", "aba")] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn for_what_was_told_everything_is_tried() {
        let all = suite_file::built_in().unwrap();
        let of = |patterns: &[&str]| {
            Selection::of(all.clone(), &patterns.iter().map(|&p| p.to_owned()).collect::<Vec<_>>()).unwrap()
        };
        assert_eq!(of(&["network.direct.tcp"]).tried.len(), 1);
        let told = of(&["network.direct.firewall-log"]);
        assert_eq!((told.tried.len(), told.chosen.len()), (all.len(), 1));
        assert_eq!(of(&[]).chosen.len(), all.len());
        assert!(Selection::of(all, &["nothing*".into()]).unwrap_err().to_string().contains("--only \"nothing*\""));
    }
}
