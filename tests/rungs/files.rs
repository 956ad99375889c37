//! Acts on files: each deed of the table of issue 3 in each of its forms, in each kind of directory.

use crate::acts::changes::CHANGES;
use crate::acts::names::NAMES;
use crate::acts::place::{self, SPELLINGS, Spelling, ZONES, Zone};
use crate::acts::script::{Act, HOWS, Manner, Setting, Wanted, done};
use crate::acts::table::Via;
use crate::case::{ByRung, Case, EVERYWHERE, Expected, OF_ROOT, Program, Told};
use crate::common::Fence;
use Spelling::{Above, Absolute, FromProc, Here, LinkedCwd, Long, OwnCwd};

/// The tree of the acts.
pub const TREE: char = 'a';

/// Every form that the static program has, once in each kind of directory; ways to name the object and processes to do it take
/// turns.
pub fn all(setting: &Setting) -> Vec<Act> {
    let mut acts = Vec::new();
    let mut turn = 0;
    for deed in NAMES.iter().chain(CHANGES) {
        for form in deed.forms.iter().filter(|form| form.0 == Via::C) {
            // Nothing within what may be written can be kept read-only without mounts.
            for zone in ZONES.into_iter().filter(|zone| *zone != Zone::Kept) {
                turn += 1;
                let spellings = (0..SPELLINGS.len()).map(|n| SPELLINGS[(turn * 5 + n) % SPELLINGS.len()]);
                let done_by = |spelling| {
                    // A thread needs unshare(2) for a working directory of its own, which a container does not have.
                    let needs_own = matches!(spelling, Here | Above | OwnCwd | LinkedCwd | FromProc | Long);
                    let how = if needs_own { HOWS[[0, 2, 3][turn % 3]] } else { HOWS[turn % HOWS.len()] };
                    let manner =
                        Manner { form: *form, zone, spelling, how, by_link: turn % 4 == 0, alternatives: turn as u64 };
                    done(deed, manner, acts.len(), setting)
                };
                let first = spellings.chain([Absolute]).find_map(done_by);
                acts.extend(first);
            }
        }
    }
    acts
}

/// What the acts are to meet.
pub fn furnish(fence: &Fence, acts: &[Act], user: u32) {
    let places: Vec<_> = acts.iter().filter_map(Act::place).collect();
    fence.world.inside().run(move || {
        place::found(TREE);
        places.into_iter().for_each(|(zone, id)| place::furnish(zone, TREE, id, user));
        place::close(TREE);
    });
}

/// The acts as cases.
pub fn cases(acts: &[Act]) -> Vec<Case> {
    acts.iter().map(case).collect()
}

fn case(act: &Act) -> Case {
    let by_user = act.zone == Some(Zone::TreeOwn) && act.errno == "EROFS";
    let on = if by_user { EVERYWHERE } else { OF_ROOT };
    let told = |wanted: &Wanted| Told {
        axis: wanted.axis.to_owned(),
        mechanism: wanted.mechanism.to_owned(),
        operation: wanted.operation.clone(),
        object: wanted.object.clone(),
        errno: wanted.errno.clone(),
        rule: wanted.rule.clone(),
    };
    let expected = |wanted: &Wanted| Expected { by_rung: on.map(|on| on.then(|| told(wanted))) };
    Case {
        id: act.id,
        what: act.what.clone(),
        program: Program::Acts,
        line: act.line(TREE).to_owned(),
        outcome: ByRung::Same(leaked(&act.errno)),
        recorded: act.denial.iter().map(expected).collect(),
    }
}

fn leaked(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}
