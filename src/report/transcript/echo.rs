//! Whether an inferred denial is one that enforcement observed.

use super::act::Act;
use super::signature::Answer;
use crate::ledger::DenialView;
use crate::policy::Axis;
use std::collections::HashSet;

/// How many names are kept by axis. Beyond them any act on the axis counts as observed.
const CAPACITY: usize = 65_536;

/// What the ledger of a run holds, as far as a transcript's text can name it.
#[derive(Debug, Default)]
pub struct Observed {
    axes: [Seen; Axis::ALL.len()],
    /// Whether a question to a resolver was refused, whatever the name.
    dns: bool,
}

#[derive(Debug, Default)]
struct Seen {
    any: bool,
    full: bool,
    names: HashSet<String>,
}

impl Observed {
    /// Takes note of a denial.
    pub fn denial<'a>(&mut self, denial: impl Into<DenialView<'a>>) {
        let denial = denial.into();
        self.dns |= denial.rule == "dns";
        let seen = &mut self.axes[denial.axis as usize];
        seen.any = true;
        let object = &denial.object;
        let addrs = object.addrs.iter().map(|addr| addr.to_string());
        let paths = object.path.iter().chain(&object.to).map(|path| path.clone().into_owned());
        let names = object.host.iter().map(|host| host.to_ascii_lowercase()).chain(paths).chain(addrs);
        for name in names {
            seen.full |= seen.names.len() >= CAPACITY;
            if !seen.full {
                // What is tried with a relative path is printed so; the last part tells them together.
                if let Some((_, last)) = name.rsplit_once('/') {
                    seen.names.insert(last.to_owned());
                }
                seen.names.insert(name);
            }
        }
    }

    /// Whether an observed denial accounts for what the text tells. Where the text names objects, one of them must have
    /// been denied; where it names none, any denial on the axis accounts for it: counts stay lower bounds.
    pub fn accounts_for(&self, act: &Act) -> bool {
        if act.answer == Answer::Unresolved && self.dns {
            return true;
        }
        act.answer.axes().iter().map(|axis| &self.axes[*axis as usize]).any(|seen| {
            seen.full
                || (seen.any && act.objects.is_empty())
                || act.objects.iter().any(|name| {
                    let name = name.trim_start_matches("./");
                    seen.names.contains(name) || (!name.starts_with('/') && seen.names.contains(last(name)))
                })
        })
    }
}

fn last(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, last)| last)
}
