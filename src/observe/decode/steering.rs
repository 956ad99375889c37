//! Calls that change how another process is scheduled or limited.

use super::{Call, Decoded};
use crate::observe::act::{Act, Whom};

/// prlimit(2), sched_setaffinity(2) and their kin, whose first argument is a process id, 0 being the caller.
pub fn of_first(call: &Call<'_>) -> Decoded {
    Ok(Act::Steer(Whom::Process(call.int(0))))
}

/// setpriority(2): PRIO_PROCESS is 0, PRIO_PGRP 1, PRIO_USER 2.
pub fn setpriority(call: &Call<'_>) -> Decoded {
    Ok(whom(call.int(0), call.int(1)))
}

/// ioprio_set(2): IOPRIO_WHO_PROCESS is 1, IOPRIO_WHO_PGRP 2, IOPRIO_WHO_USER 3.
pub fn ioprio_set(call: &Call<'_>) -> Decoded {
    Ok(whom(call.int(0) - 1, call.int(1)))
}

fn whom(kind: i32, who: i32) -> Act {
    match (kind, who) {
        // The caller's own.
        (0 | 1, 0) => Act::Plain,
        (0, pid) => Act::Steer(Whom::Process(pid)),
        (1, group) => Act::Steer(Whom::Group(group)),
        (2, _) => Act::Steer(Whom::User),
        _ => Act::Plain,
    }
}
