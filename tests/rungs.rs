//! One table of acts, done on every rung by the same programs with the same arguments in boxes alike: the same verdict and the
//! same errno on all four, and the same records but for the mechanism's name. Where they may differ is the design's table of
//! differences, to which the suite holds them.

#[allow(dead_code, reason = "acts are drawn at random there, and done each here")]
mod acts {
    #[path = "../acts/changes.rs"]
    pub mod changes;
    #[path = "../acts/line.rs"]
    pub mod line;
    #[path = "../acts/names.rs"]
    pub mod names;
    #[path = "../acts/place.rs"]
    pub mod place;
    #[path = "../acts/plain.rs"]
    pub mod plain;
    #[path = "../acts/privileged.rs"]
    pub mod privileged;
    #[path = "../acts/script.rs"]
    pub mod script;
    #[path = "../acts/table.rs"]
    pub mod table;
}
mod attempts;
#[path = "rungs/case.rs"]
mod case;
mod common;
#[path = "rungs/files.rs"]
mod files;
#[path = "rungs/network.rs"]
mod network;
#[path = "rungs/places.rs"]
mod places;
#[path = "rungs/privilege.rs"]
mod privilege;
#[path = "rungs/programs.rs"]
mod programs;
#[path = "rungs/rung.rs"]
mod rung;

use acts::script::{Act, Setting};
use case::{ByRung, Case, Program, ROWS, Told};
use common::{Ended, Fence, own_user};
use programs::{Outside, outcomes};
use ringfence::ledger::record::Denial;
use rung::Rung;
use std::collections::{BTreeMap, BTreeSet};

const LIBRARY: &str = "/usr/local/lib/acts";

/// The programs, compiled from the suite's sources.
fn programs() -> [(Program, &'static str, Vec<u8>); 2] {
    [
        (Program::Acts, "acts", attempts::compile("tests/acts/acts.c")),
        (Program::Network, "network", programs::network()),
    ]
}

/// Everything that is done.
struct Table {
    user: u32,
    home: String,
    files: Vec<Act>,
    cases: Vec<Case>,
}

impl Table {
    fn new() -> Table {
        let user = own_user();
        let setting = Setting::of_this_kernel(user, false);
        let files = files::all(&setting);
        let mut cases = files::cases(&files);
        cases.extend(privilege::cases(cases.len(), &setting));
        cases.extend(network::cases(cases.len()));
        let home = format!("/home/dev{user}");
        cases.extend(places::cases(cases.len(), &home));
        Table { user, home, files, cases }
    }

    /// Does it all on one rung, in a box of its own; and the acts for which this kernel has no call.
    fn run(&self, rung: Rung) -> (Ended, BTreeSet<usize>) {
        let fence = Fence::new();
        rung::prepare(&fence, self.user, &self.home);
        let mut driver = format!("cd {}\n", rung::WORKSPACE);
        for (program, name, bytes) in programs() {
            let lines: Vec<&str> =
                self.cases.iter().filter(|case| case.program == program).map(|case| case.line.as_str()).collect();
            fence.world.write(&format!("{LIBRARY}/{name}"), bytes, 0o755);
            fence.world.write(&format!("{LIBRARY}/{name}.script"), lines.join("\n") + "\n", 0o644);
            let run = if program == Program::Acts { "run " } else { "" };
            driver += &format!("{LIBRARY}/{name} {run}{LIBRARY}/{name}.script\n");
        }
        files::furnish(&fence, &self.files, self.user);
        privilege::furnish(&fence);
        places::furnish(&fence, &self.home, self.user);
        // Any user may send echo requests (icmp(7)).
        common::as_root(&fence, "echo 0 2147483647 > /proc/sys/net/ipv4/ping_group_range");
        let _outside = Outside::start(&fence);
        let missing = self.missing(&fence);
        let ended = rung.run(&fence, self.user, &self.home, &[], &["bash", "-c", &driver]);
        (ended, missing)
    }

    /// The calls without an object that are ENOSYS to a user whom nothing holds.
    fn missing(&self, fence: &Fence) -> BTreeSet<usize> {
        let places: BTreeSet<usize> = self.files.iter().map(|act| act.id).collect();
        let others = self.cases.iter().filter(|case| case.program == Program::Acts && !places.contains(&case.id));
        let lines: Vec<&str> = others.map(|case| case.line.as_str()).collect();
        fence.world.write(&format!("{LIBRARY}/alone.script"), lines.join("\n") + "\n", 0o644);
        let said = fence.as_nobody(&format!("exec {LIBRARY}/acts run {LIBRARY}/alone.script"));
        assert_eq!(said.code, Some(0), "{said}");
        let absent = |id: &usize| !self.cases[*id].outcome.on(Rung::Full).contains("ENOSYS");
        let outcomes = outcomes(&said.out).into_iter().filter(|(_, outcome)| *outcome == "ENOSYS");
        outcomes.map(|(id, _)| id).filter(absent).collect()
    }
}

/// What a record says, in the table's terms.
fn told(denial: &Denial) -> Told {
    let object = &denial.object;
    let object = match (&object.path, &object.text, &object.host, object.addrs.first()) {
        (Some(path), ..) => object.to.iter().fold(path.clone(), |path, to| format!("{path} -> {to}")),
        // The numbers of ringfence's own processes differ from run to run.
        (None, Some(text), ..) if denial.rule == "trace" && text != "pid 1" => "pid N".to_owned(),
        (None, Some(text), ..) => text.clone(),
        (None, None, Some(host), _) => host.clone(),
        (None, None, None, Some(address)) => format!("{address} {}", object.port.unwrap_or_default()),
        _ => String::new(),
    };
    let status = denial.http_status.map(|status| status.to_string());
    Told {
        axis: denial.axis.name().to_owned(),
        mechanism: denial.mechanism.name().to_owned(),
        operation: denial.operation.clone(),
        object,
        errno: denial.errno.clone().or(status).unwrap_or_default(),
        rule: denial.rule.clone(),
    }
}

/// Holds a run to the table; what is not as it says.
fn faults(table: &Table, rung: Rung, ended: &Ended, missing: &BTreeSet<usize>) -> Vec<String> {
    let outcomes = outcomes(&ended.said.out);
    let mut recorded: BTreeMap<Told, Vec<&Denial>> = BTreeMap::new();
    for denial in ended.denials() {
        let all = recorded.entry(told(denial)).or_default();
        (0..denial.count).for_each(|_| all.push(denial));
    }
    let mut faults = Vec::new();
    for case in &table.cases {
        let mut fault = |what: String| faults.push(format!("{rung:?} {} {}: {what}", case.id, case.what));
        if missing.contains(&case.id) && matches!(outcomes.get(&case.id), Some(&"ENOSYS" | &"EPERM")) {
            continue;
        }
        let (outcome, expected) = (outcomes.get(&case.id).copied().unwrap_or("nothing"), case.outcome.on(rung));
        if outcome != expected {
            fault(format!("{outcome}, expected {expected}"));
        }
        let name = format!("act{}", case.id);
        let is_by = |denial: &&Denial| {
            denial
                .subject
                .comm
                .as_deref()
                .is_none_or(|said| said == name || said.strip_prefix(name.as_str()) == Some("\\xff"))
        };
        for expected in case.recorded.iter().filter_map(|one| one.by_rung[rung as usize].as_ref()) {
            let found = recorded.get_mut(expected).and_then(|all| all.iter().position(is_by).map(|at| all.remove(at)));
            if found.is_none() {
                fault(format!("no record of {expected:?}"));
            }
        }
    }
    for (told, denials) in recorded {
        for denial in denials {
            let number = denial.subject.comm.as_deref().and_then(|comm| comm.strip_prefix("act"));
            let number = number.map(|number| number.trim_end_matches("\\xff"));
            let by = number.and_then(|number| table.cases.iter().find(|case| case.id.to_string() == number));
            faults.push(format!(
                "{rung:?} recorded and not expected: {told:?} of {:?}",
                by.map(|case| (case.id, &case.what))
            ));
        }
    }
    faults
}

/// Does all acts on one rung and holds what came of it to the table, which is the same for all of them.
fn hold(rung: Rung) {
    let table = Table::new();
    let (ended, missing) = table.run(rung);
    assert_eq!((ended.said.code, ended.said.err.as_str()), (Some(0), ""), "{rung:?} {}", ended.said.err);
    assert_eq!(ended.start().rung, rung.name());
    assert!(ended.seal().complete, "{rung:?} {:?}", ended.seal());
    let faults = faults(&table, rung, &ended, &missing);
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
    // Every row of the table of differences is met.
    let is_by = |case: &Case, row| matches!(case.outcome, ByRung::Differs(by, _) if by == row);
    for row in ROWS {
        assert!(table.cases.iter().any(|case| is_by(case, row)), "no act is by {row:?}");
    }
    eprintln!("{rung:?}: {} acts, {} denials, without {missing:?}", table.cases.len(), ended.denials().len());
}

#[test]
fn on_full_each_act_is_answered_and_recorded_as_the_table_says() {
    hold(Rung::Full);
}

#[test]
fn on_container_each_act_is_answered_and_recorded_as_the_table_says() {
    hold(Rung::Container);
}

#[test]
fn on_rootless_each_act_is_answered_and_recorded_as_the_table_says() {
    hold(Rung::Rootless);
}

#[test]
fn on_bare_each_act_is_answered_and_recorded_as_the_table_says() {
    hold(Rung::Bare);
}
