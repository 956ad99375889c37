//! Whether processes are the sandbox's: those that descend from the stage, which takes in the orphans (prctl(2),
//! PR_SET_CHILD_SUBREAPER).

use crate::observe::act::Whom;
use crate::observe::threads::process_of;
use crate::supervise::processes;
use nix::unistd::Pid;

/// Whether all that are meant are inside. One that is not there is for the kernel to tell of.
pub(in crate::observe) fn is_inside(whom: Whom, stage: Pid) -> bool {
    let inside = || processes::descendants(&processes::all(), stage, &[]);
    match whom {
        Whom::Process(id) => match process_of(Pid::from_raw(id)) {
            Some(process) => inside().iter().any(|found| found.pid == process),
            None => true,
        },
        Whom::Group(group) => {
            let of_group = |process: &&processes::Process| process.group.as_raw() == group;
            let inside = inside();
            processes::all().iter().filter(of_group).all(|found| inside.iter().any(|one| one.pid == found.pid))
        }
        Whom::User => false,
    }
}

/// What is recorded of them.
pub(super) fn told(whom: Whom) -> String {
    match whom {
        Whom::Process(id) => format!("pid {id}"),
        Whom::Group(group) => format!("process group {group}"),
        Whom::User => "all processes of the user".into(),
    }
}
