//! Forbidden and allowed acts on the three axes, drawn at random and made through a shell, Python and a static program, by
//! threads, children and grandchildren: each forbidden one is one record of the same object and errno, no allowed one is, and
//! each gives the errno that it gives without the notifier (issue 3, "Shows"; the design's Evidence).
//!
//! `ACTS_SEED` draws the same script again, `ACTS_COUNT` a longer one, `ACTS_ONLY` keeps the acts of that name.

#[path = "acts/beside.rs"]
mod beside;
#[path = "acts/changes.rs"]
mod changes;
#[path = "acts/line.rs"]
mod line;
#[path = "acts/names.rs"]
mod names;
#[path = "acts/place.rs"]
mod place;
#[path = "acts/plain.rs"]
mod plain;
#[path = "acts/privileged.rs"]
mod privileged;
#[path = "acts/script.rs"]
mod script;
#[path = "acts/table.rs"]
mod table;

mod common;

use beside::{PROGRAM, program};
use common::{Ended, Fence, own_user};
use plain::PROGRAMS;
use ringfence::ledger::record::Denial;
use script::{Act, Setting, Wanted};
use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::{SystemTime, UNIX_EPOCH};
use table::Via;

const LIBRARY: &str = "/usr/local/lib/acts";

/// The tree of the run, and the one without the notifier.
const TREES: [char; 2] = ['a', 'b'];

/// How many acts a script has where nothing else is said.
const COUNT: usize = 500;

fn seed() -> u64 {
    match env::var("ACTS_SEED") {
        Ok(seed) => seed.parse().expect("ACTS_SEED is a number"),
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64,
    }
}

fn count() -> usize {
    env::var("ACTS_COUNT").map_or(COUNT, |count| count.parse().expect("ACTS_COUNT is a number"))
}

/// The box with the interpreters, and with what the acts are to meet.
fn furnished(fence: &Fence, acts: &[Act], user: u32) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/acts");
    let python = std::fs::read(source.join("acts.py")).expect("acts.py");
    fence.world.write(PROGRAM, program(), 0o755);
    fence.world.write(&format!("{LIBRARY}/acts.py"), python, 0o644);
    for (path, mode, _) in PROGRAMS {
        fence.world.write(path, program(), 0o755);
        let capable =
            if path.ends_with("capable") { format!("&& setcap cap_net_raw+ep {path}") } else { String::new() };
        common::as_root(fence, &format!("chmod a+r{}{mode} {path} {capable}", if mode.is_empty() { "" } else { "," }));
    }
    for tree in TREES {
        for (via, suffix) in [(Via::C, "c"), (Via::Python, "py"), (Via::Sh, "sh")] {
            let lines: Vec<&str> = acts.iter().filter(|act| act.via == via).map(|act| act.line(tree)).collect();
            fence.world.write(&format!("{LIBRARY}/{tree}.{suffix}"), lines.join("\n") + "\n", 0o644);
        }
        // All three at once, each in its own order.
        let driver = format!(
            "export LC_ALL=C; cd /; at={LIBRARY}/{tree}; out=/tmp/out-{tree}; mkdir $out
             {PROGRAM} run $at.c > $out/c & /usr/bin/python3 -IB {LIBRARY}/acts.py $at.py > $out/py & dash $at.sh > $out/sh &
             wait; cat $out/c $out/py $out/sh; echo end\n"
        );
        fence.world.write(&format!("{LIBRARY}/{tree}"), driver, 0o644);
    }
    let places: Vec<_> = acts.iter().map(Act::place).collect();
    fence.world.inside().run(move || {
        TREES.into_iter().for_each(place::found);
        for (zone, id) in places.into_iter().flatten() {
            TREES.into_iter().for_each(|tree| place::furnish(zone, tree, id, user));
        }
        TREES.into_iter().for_each(place::close);
    });
}

/// What was printed of each act, by its number: who did it, and the outcome.
type Outcomes = BTreeMap<usize, (u32, String)>;

/// What was printed of each act: by whom, and with which outcome.
fn outcomes(out: &str) -> Outcomes {
    let lines = out.lines().filter(|line| !line.is_empty());
    let parsed = lines.map(|line| {
        let fields: Vec<&str> = line.splitn(3, '\t').collect();
        let [id, pid, outcome] = fields[..] else { panic!("no outcome in {line:?}") };
        (id.parse().expect("a number"), (pid.parse().expect("a number"), errno_of(outcome).to_owned()))
    });
    parsed.collect()
}

/// The errno of a message of a shell's or a program's; the other interpreters say its name.
fn errno_of(outcome: &str) -> &str {
    match outcome.rsplit(": ").next().unwrap_or_default() {
        "" => "ok",
        "Read-only file system" => "EROFS",
        "Permission denied" => "EACCES",
        "Operation not permitted" => "EPERM",
        "File exists" => "EEXIST",
        "No such file or directory" => "ENOENT",
        "Directory not empty" => "ENOTEMPTY",
        name => name,
    }
}

/// What a record says, in the table's terms.
fn said(denial: &Denial) -> Wanted {
    let object = &denial.object;
    let object = match (&object.path, &object.text, &object.host, object.addrs.first()) {
        (Some(path), ..) => object.to.iter().fold(path.clone(), |path, to| format!("{path} -> {to}")),
        (None, Some(text), ..) => text.clone(),
        (None, None, Some(host), _) => host.clone(),
        (None, None, None, Some(address)) => format!("{address} {}", object.port.unwrap_or_default()),
        _ => String::new(),
    };
    let status = denial.http_status.map(|status| status.to_string());
    Wanted {
        axis: denial.axis.name(),
        mechanism: denial.mechanism.name(),
        operation: denial.operation.clone(),
        object,
        errno: denial.errno.clone().or(status).unwrap_or_default(),
        rule: if denial.mechanism.name() == "notifier" { denial.rule.clone() } else { String::new() },
    }
}

/// Runs the script's tree `a` under ringfence, and then its tree `b` beside it without the notifier: the outcomes of both.
fn both(fence: &Fence, flags: &[&str], user: u32) -> (Ended, Outcomes, Outcomes) {
    let script = format!("echo $$; bash {LIBRARY}/a; read line");
    let id = format!("{user}:{user}");
    let flags: Vec<&str> = flags.iter().copied().chain(["--user", &id]).collect();
    let (mut command, ledger) = fence.command(&flags, &["bash", "-c", &script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = fence.world.spawn(command).expect("ringfence starts");
    let mut out = BufReader::new(child.stdout.take().expect("piped")).lines().map(|line| line.expect("a line"));
    let pid = out.next().unwrap_or_default();
    let lines: Vec<String> = out.by_ref().take_while(|line| line != "end").collect();
    let without = beside::bash(fence, &pid, user, &format!("{LIBRARY}/b"));
    let without = world::Said::from(fence.world.output(without));
    child.stdin.take().expect("piped").write_all(b"\n").expect("the command waits");
    let mut err = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut err).expect("stderr");
    let code = child.wait().expect("it ends").code();
    let ended = fence.ended(world::Said { code, out: String::new(), err }, ledger);
    assert_eq!(ended.said.code, Some(0), "{ended}");
    assert_eq!((ended.said.err.as_str(), without.err.as_str()), ("", ""), "{without}");
    let baseline = without.out.strip_suffix("end\n").unwrap_or_else(|| panic!("no end: {without}"));
    (ended, outcomes(&lines.join("\n")), outcomes(baseline))
}

#[test]
fn each_forbidden_act_is_one_record_and_no_errno_is_another_for_it() {
    let flags = ["--policy", "nist-high", "--read-only", "/app/kept-a", "--read-only", "/app/kept-b"];
    hold(&flags, false, count());
}

#[test]
fn where_only_privilege_is_restricted_the_same_holds() {
    hold(&["--policy", "non-root"], true, count() / 2);
}

/// Holds that under a policy each forbidden act of a script is recorded, no other is, and each gives the errno that is
/// written down, with and without the notifier.
fn hold(flags: &[&str], only_privilege: bool, count: usize) {
    let seed = seed();
    eprintln!("ACTS_SEED={seed}");
    let user = own_user();
    let mut acts = script::draw(seed, count, &Setting::of_this_kernel(user, only_privilege));
    if let Ok(only) = env::var("ACTS_ONLY") {
        acts.retain(|act| act.what.starts_with(&only));
    }
    let fence = Fence::new();
    furnished(&fence, &acts, user);
    let (ended, with, without) = both(&fence, flags, user);
    let mut recorded: BTreeMap<(Wanted, Option<u32>), Vec<&Denial>> = BTreeMap::new();
    for denial in ended.denials() {
        let wanted = said(denial);
        // Packets of the tree that is not watched are refused all the same, and logged.
        let other =
            wanted.object.split(' ').nth(1).and_then(|port| port.parse().ok()).is_some_and(|port: u16| port >= 40_000);
        if !other && !wanted.object.starts_with('b') {
            let pid = (wanted.mechanism == "notifier").then_some(denial.subject.pid).flatten();
            recorded.entry((wanted, pid)).or_default().push(denial);
        }
    }
    let mut faults = Vec::new();
    let nothing = (0, "nothing".to_owned());
    for act in &acts {
        let (pid, errno) = with.get(&act.id).unwrap_or(&nothing);
        let (_, before) = without.get(&act.id).unwrap_or(&nothing);
        let mut fault = |what: String| {
            faults.push(format!("{} {}: {what}\n    {}", act.id, act.what, act.line('a').replace('\t', " ")));
        };
        // The kernel is built without it.
        if act.denial.is_some() && before == "ENOSYS" && errno == "ENOSYS" && act.errno == "EPERM" {
            continue;
        }
        if *before != act.errno {
            fault(format!("without the notifier {before}, expected {}", act.errno));
        }
        if errno != before {
            fault(format!("{errno}, without the notifier {before}"));
        }
        if let Some(wanted) = &act.denial {
            let pid = (wanted.mechanism == "notifier").then_some(*pid);
            let key = (wanted.clone(), pid);
            // Threads of one process may have done the same.
            let comm = Some(format!("act{}", act.id)).filter(|_| act.via == Via::C && pid.is_some());
            let is_by = |denial: &&Denial| match (&denial.subject.comm, &comm) {
                (Some(said), Some(comm)) => said == comm || said.strip_prefix(comm.as_str()) == Some("\\xff"),
                _ => true,
            };
            let found = recorded.get_mut(&key);
            if found.and_then(|all| all.iter().position(is_by).map(|at| all.remove(at))).is_none() {
                fault(format!("no record of {wanted:?}"));
            }
        }
    }
    for ((wanted, pid), denials) in recorded {
        for _ in denials {
            let act = acts.iter().find(|act| with.get(&act.id).map(|(pid, _)| *pid) == pid);
            faults.push(format!("recorded and not expected: {wanted:?} of {pid:?}, {:?}", act.map(|act| &act.what)));
        }
    }
    let denied = acts.iter().filter(|act| act.denial.is_some()).count();
    eprintln!("{} acts, of which {denied} forbidden", acts.len());
    assert!(faults.is_empty(), "ACTS_SEED={seed}: {} faults\n{}", faults.len(), faults.join("\n"));
    // Some of each, whatever was drawn.
    assert!(env::var("ACTS_ONLY").is_ok() || denied * 8 > acts.len() && denied * 4 < acts.len() * 3, "{denied}");
    assert!(ended.seal().complete, "{:?}", ended.seal());
}

/// An open that makes a file where a link leads, by a process that has no room for another descriptor; and what comes after.
const WITHOUT_ROOM: &str = "import errno, os, resource
os.chdir('/tmp')
os.symlink('nowhere', 'link')
def outcome(path):
    try:
        return str(os.open(path, os.O_WRONLY | os.O_CREAT, 0o400))
    except OSError as error:
        return errno.errorcode[error.errno]
next = os.dup(1)
os.close(next)
resource.setrlimit(resource.RLIMIT_NOFILE, (next, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
print(outcome('link'))
resource.setrlimit(resource.RLIMIT_NOFILE, (next + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
print(outcome('/usr/new'), int(outcome('other')) == next, outcome('another'))
";

#[test]
fn a_process_without_room_for_a_descriptor_is_told_so_and_all_goes_on() {
    let fence = Fence::new();
    fence.world.write("/usr/local/lib/room.py", WITHOUT_ROOM, 0o644);
    let ended = fence.run(&["--policy", "nist-high"], "/usr/bin/python3 -IB /usr/local/lib/room.py");
    assert_eq!(ended.said.out, "EMFILE\nEROFS True EMFILE\n", "{ended}");
    let denials: Vec<Wanted> = ended.denials().into_iter().map(said).collect();
    assert_eq!(denials.iter().map(|denial| denial.object.as_str()).collect::<Vec<_>>(), ["/usr/new"], "{ended}");
}
