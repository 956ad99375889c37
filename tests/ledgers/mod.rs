//! Ledgers of runs that were never made, written by the product's own writer.
#![allow(dead_code, reason = "each test file uses its part")]

#[path = "../tested/mod.rs"]
pub mod tested;

use ringfence::ledger::record::{Body, Denial, Gap, Mechanism, Object, Outcome, Start, Subject};
use ringfence::ledger::{Ledger, LedgerTarget, RunId, SealInput};
use ringfence::policy::Axis;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

/// How a ledger is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Sealed,
    Unsealed,
    Gap(Option<Axis>),
    NotStarted,
    Aborted,
}

pub struct Run<'a> {
    pub level: &'a str,
    pub labels: &'a [(&'a str, &'a str)],
    pub denials: Vec<Denial>,
    pub end: End,
}

/// A finished run of a level on a task.
pub fn run<'a>(level: &'a str, labels: &'a [(&'a str, &'a str)], denials: Vec<Denial>) -> Run<'a> {
    Run { level, labels, denials, end: End::Sealed }
}

fn postures(level: &str) -> BTreeMap<String, String> {
    let postures = match level {
        "control" => ["open", "open", "open"],
        "non-root" => ["open", "open", "restricted"],
        _ => ["restricted", "restricted", "locked"],
    };
    Axis::ALL.iter().zip(postures).map(|(axis, posture)| (axis.name().to_owned(), posture.to_owned())).collect()
}

/// Writes it; gives the run's identifier.
pub fn write(path: &Path, run: Run<'_>) -> String {
    std::fs::create_dir_all(path.parent().expect("a directory")).expect("create the directory");
    let id = RunId::random().expect("random bytes");
    let mut ledger = Ledger::open(LedgerTarget::Path(path.to_owned()), &id, run.level).expect("open");
    let start = Start {
        version: "0".into(),
        policy_digest: "0".repeat(64),
        postures: postures(run.level),
        rung: "full".into(),
        session: None,
        command: vec!["true".into()],
        uid: 10001,
        gid: 10001,
        host: BTreeMap::new(),
        restrictions: BTreeMap::new(),
        labels: run.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
        shadow: None,
        unobserved: Vec::new(),
        refusal_nonce: None,
        shields: Vec::new(),
        tripwires: Vec::new(),
        reads_seen_by: None,
        workspaces: BTreeMap::new(),
    };
    ledger.append(Body::Start(start)).expect("append");
    for denial in run.denials {
        ledger.append(Body::Denial(denial)).expect("append");
    }
    let (started, outcome, exit_code) = match run.end {
        End::Unsealed => return id.to_string(),
        End::NotStarted => (false, Outcome::NotStarted, Some(125)),
        End::Aborted => (true, Outcome::Aborted, None),
        End::Gap(axis) => {
            let gap = Gap { axis, source: "nflog".into(), lost: 3, cause: "ENOBUFS".into() };
            ledger.append(Body::Gap(gap)).expect("append");
            (true, Outcome::Exited, Some(0))
        }
        End::Sealed => (true, Outcome::Exited, Some(0)),
    };
    ledger.seal(SealInput { started, outcome, exit_code }).expect("seal");
    id.to_string()
}

/// A refused CONNECT.
pub fn host(name: &str) -> Denial {
    let object = Object { host: Some(name.into()), port: Some(443), ..Object::default() };
    let mut denial =
        Denial::observed(Axis::Network, Mechanism::Proxy, "CONNECT", object, "default-deny", "not_allowed");
    denial.http_status = Some(403);
    denial
}

/// A packet that the firewall rejected, by a program where one is named.
pub fn packet(addr: &str, port: u16, program: Option<(&str, &str)>) -> Denial {
    let object = Object { addrs: vec![addr.parse().expect("an address")], port: Some(port), ..Object::default() };
    let rule = if port == 53 { "dns" } else { "default-deny" };
    let mut denial = Denial::observed(Axis::Network, Mechanism::Firewall, "tcp", object, rule, "not_allowed");
    denial.errno = Some("ECONNREFUSED".into());
    if let Some((comm, exe)) = program {
        denial.subject = Subject { comm: Some(comm.into()), exe: Some(exe.into()), ..Subject::default() };
    }
    denial
}

/// A write that the kernel refused.
pub fn path(axis: Axis, path: &str, errno: &str) -> Denial {
    let object = Object { path: Some(path.into()), ..Object::default() };
    let mut denial = Denial::observed(axis, Mechanism::Notifier, "openat", object, "read-only", "not_allowed");
    denial.errno = Some(errno.into());
    denial
}

/// So many at once.
pub fn times(mut denial: Denial, count: u64) -> Denial {
    denial.count = count;
    denial
}

/// Runs `ringfence report`.
pub fn report(arguments: &[&str]) -> Output {
    Command::new(tested::binary()).arg("report").args(arguments).output().expect("run ringfence")
}

/// What it printed; it must succeed and say nothing on stderr.
pub fn printed(arguments: &[&str]) -> String {
    let output = report(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "report {arguments:?}: {}: {errors}", output.status);
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The report as JSON.
pub fn json(arguments: &[&str]) -> serde_json::Value {
    let mut all = vec!["--json"];
    all.extend(arguments);
    serde_json::from_str(&printed(&all)).expect("JSON")
}
