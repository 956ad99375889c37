//! Acts that take privilege: those of the table of issue 3, programs with set-id bits, and what reaches for ringfence's own
//! processes.

use crate::acts::line::{bare, fields, without_names};
use crate::acts::plain::PROGRAMS;
use crate::acts::privileged::{ORDINARY, PRIVILEGED, Privileged, SOCKETS};
use crate::acts::script::Setting;
use crate::case::{ByRung, Case, EVERYWHERE, OF_ROOT, OF_USERS, OF_WHOLE_ROOT, Program, Recorded, Row};
use crate::common::{Fence, as_root};

/// What a default container leaves to its root, by capability.
const OF_CONTAINERS_ROOT: [&str; 10] =
    ["setuid", "setreuid", "setresuid", "setgid", "setregid", "setresgid", "setgroups", "capset", "chroot", "bind"];
/// Calls that Docker's profile refuses whatever they are about, of those that any user may make.
const OF_PROFILE: [&str; 3] = ["keyctl", "add_key", "request_key"];

/// On which rungs a refused call is a denial.
fn on(call: &str, layout: &str) -> [bool; 4] {
    match (call, layout) {
        ("i386" | "x32" | "ioctl", _) | ("socket", "2 1 262") => EVERYWHERE,
        ("socket", "40 1 0" | "38 5 0") => OF_USERS,
        ("socket", _) => OF_ROOT,
        // Where user namespaces can be made.
        ("unshare", "0x10000000") | ("clone", "0x10000011 0 0 0 0") => [true, false, true, false],
        _ if OF_CONTAINERS_ROOT.contains(&call) => OF_ROOT,
        _ if OF_PROFILE.contains(&call) => OF_USERS,
        _ => OF_WHOLE_ROOT,
    }
}

fn outcome(call: &str, layout: &str, errno: &'static str) -> ByRung {
    let in_container = match (call, layout) {
        ("perf_event_open", _) | ("unshare", "0x200") => true,
        _ => OF_PROFILE.contains(&call),
    };
    if in_container { ByRung::Differs(Row::Container, [errno, "EPERM", errno, errno]) } else { ByRung::Same(errno) }
}

/// What is tried on each of ringfence's processes.
const REACHING: [(&str, &str); 9] = [
    ("kill WHO 9", "EPERM"),
    ("kill WHO 0", "EPERM"),
    ("kill-by-descriptor WHO", "EPERM"),
    ("trace WHO attach", "EPERM"),
    ("trace WHO seize", "EPERM"),
    ("open-of WHO mem read", "EACCES"),
    ("open-of WHO environ read", "EACCES"),
    ("vm WHO", "EPERM"),
    ("descriptor WHO", "EPERM"),
];
const PROCESSES: [&str; 4] = ["stage", "observer", "supervisor", "proxy"];

/// Tracing, where the caller had the capability for it. A signal is the kernel's to judge, and it tells nobody. Of the observer,
/// which has the command's ids and is a process of the sandbox's, nothing is said.
fn tracing(verb: &str, who: &str) -> Option<Recorded> {
    let call = match verb {
        "trace" => "ptrace",
        "vm" => "process_vm_readv",
        _ => return None,
    };
    (who != "observer").then(|| Recorded::call("privilege", call, "pid N", "EPERM", "trace").only_on(OF_WHOLE_ROOT))
}

/// The acts, with numbers from `first` on.
pub fn cases(first: usize, setting: &Setting) -> Vec<Case> {
    let mut cases = Vec::new();
    let privileged = PRIVILEGED.iter().map(|one| (one, "privilege"));
    for (one, axis) in privileged.chain(SOCKETS.iter().map(|one| (one, "network"))) {
        let Privileged(call, layout, errno, object, rule) = one;
        let operation = if matches!(*call, "i386" | "x32") { "abi" } else { *call };
        let recorded = Recorded::call(axis, operation, object.unwrap_or(""), errno, rule).only_on(on(call, layout));
        cases.push(case(first + cases.len(), (call, layout), errno, Some(recorded), setting));
    }
    for (call, layout, errno) in ORDINARY {
        cases.push(case(first + cases.len(), (call, layout), errno, None, setting));
    }
    for (path, _, gives) in PROGRAMS {
        let id = first + cases.len();
        let recorded = |errno| Recorded::call("privilege", "execve", path, errno, "set-id");
        // A file's capabilities that the bounding set does not have are no programs' (capabilities(7)).
        let all = match path {
            path if path.ends_with("capable") => {
                vec![
                    recorded("").only_on([true, false, true, true]),
                    recorded("EPERM").only_on([false, true, false, false]),
                ]
            }
            _ => vec![recorded("")],
        };
        cases.push(Case {
            id,
            what: format!("execve {path}"),
            program: Program::Acts,
            line: fields(id, "child", &bare("-"), "execve", &[path.to_owned()]),
            outcome: match path {
                path if path.ends_with("closed") => ByRung::Same("EACCES"),
                path if path.ends_with("capable") => {
                    ByRung::Differs(Row::FileCapabilities, ["ok", "EPERM", "ok", "ok"])
                }
                _ => ByRung::Same("ok"),
            },
            recorded: all.iter().filter(|_| gives).map(|recorded| recorded.about(&[])).collect(),
        });
    }
    for who in PROCESSES {
        for (line, errno) in REACHING {
            let (id, line) = (first + cases.len(), line.replace("WHO", who));
            let call = line.split(' ').next().unwrap_or_default().to_owned();
            cases.push(Case {
                id,
                line: format!("{id}\t{}", line.replace(' ', "\t")),
                what: line,
                program: Program::Network,
                outcome: ByRung::Same(errno),
                recorded: tracing(&call, who).iter().map(|recorded| recorded.about(&[])).collect(),
            });
        }
    }
    cases
}

fn case(
    id: usize,
    (call, layout): (&'static str, &'static str),
    errno: &'static str,
    recorded: Option<Recorded>,
    setting: &Setting,
) -> Case {
    let [line, _] = without_names(id, "child", call, layout, setting);
    Case {
        id,
        what: format!("{call} {layout}"),
        program: Program::Acts,
        line,
        outcome: outcome(call, layout, errno),
        recorded: recorded.iter().map(|recorded| recorded.about(&[])).collect(),
    }
}

/// Puts the programs into the box.
pub fn furnish(fence: &Fence) {
    let program = crate::attempts::compile("tests/acts/acts.c");
    for (path, mode, _) in PROGRAMS {
        fence.world.write(path, program.as_slice(), 0o755);
        let capable =
            if path.ends_with("capable") { format!("&& setcap cap_net_raw+ep {path}") } else { String::new() };
        as_root(fence, &format!("chmod a+r{}{mode} {path} {capable}", if mode.is_empty() { "" } else { "," }));
    }
}
