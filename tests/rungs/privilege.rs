//! Acts that take privilege: those of the table of issue 3, and what reaches for ringfence's own processes.

use crate::acts::line::without_names;
use crate::acts::privileged::{ORDINARY, PRIVILEGED, Privileged, SOCKETS};
use crate::acts::script::Setting;
use crate::case::{ByRung, Case, OF_ROOT, Program, Recorded};

/// The acts, with numbers from `first` on.
pub fn cases(first: usize, setting: &Setting) -> Vec<Case> {
    let privileged = PRIVILEGED.iter().map(|one| (one, "privilege"));
    let refused = privileged.chain(SOCKETS.iter().map(|one| (one, "network"))).map(|(one, axis)| {
        let Privileged(call, layout, errno, object, rule) = one;
        let operation = if matches!(*call, "i386" | "x32") { "abi" } else { *call };
        let recorded = Recorded::call(axis, operation, object.unwrap_or(""), errno, rule);
        (*call, *layout, *errno, Some(if axis == "network" { recorded } else { recorded.only_on(OF_ROOT) }))
    });
    let allowed = ORDINARY.iter().map(|(call, layout, errno)| (*call, *layout, *errno, None));
    let all = refused.chain(allowed).enumerate().map(|(index, (call, layout, errno, recorded))| {
        let id = first + index;
        let [line, _] = without_names(id, "child", call, layout, setting);
        Case {
            id,
            what: format!("{call} {layout}"),
            program: Program::Acts,
            line,
            outcome: ByRung::Same(errno),
            recorded: recorded.iter().map(|recorded| recorded.about(&[])).collect(),
        }
    });
    all.collect()
}
