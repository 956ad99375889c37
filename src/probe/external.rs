//! `ringfence probe --external`: what others have built is judged. Nothing is put in force; the suite is tried by a child of
//! this process, which is confined as this process is.

use super::Surroundings;
use super::operation::Operation;
use super::outcome::{Outcome, Report, Row};
use super::selection::Selection;
use super::spec::Spec;
use crate::ledger::record::Probe;
use crate::plan::means::Means;
use crate::plan::rung::wanted;
use crate::policy::{Loopback, Policy, Trees};
use crate::sys::capability::SYS_ADMIN;
use crate::sys::{self, Fork};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{getgid, getpid, getuid, pipe2};
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The suite could not be tried to its end. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum ExternalError {
    /// A call.
    #[error("probe --external: {call}: {errno}")]
    Call {
        /// The call.
        call: &'static str,
        /// Its errno.
        errno: Errno,
    },
    /// It took too long.
    #[error("probe --external: {id} was under way when {patience:?} were over")]
    Late {
        /// The probe.
        id: String,
        /// How long all of them may take.
        patience: Duration,
    },
    /// The child ended early.
    #[error("probe --external: the probing process ended during {id}")]
    Ended {
        /// The probe.
        id: String,
    },
}

fn failed(call: &'static str) -> impl FnOnce(Errno) -> ExternalError {
    move |errno| ExternalError::Call { call, errno }
}

/// Where a confined child reports, as in a run: what lies above it is looked for as stray.
const REPORT: i32 = 3;

/// Tries what `selection` has of the policy's restrictions, within `patience`.
pub fn probe(policy: &Policy, selection: Selection, patience: Duration) -> Result<Report, ExternalError> {
    let run = surroundings(policy);
    let chosen = selection.tried.into_iter().filter(|spec| selection.chosen.contains(&spec.id));
    let asked: Vec<(Spec, Option<String>)> = chosen.map(|spec| (spec.clone(), left_out(&spec, &run))).collect();
    let tried: Vec<&Spec> = asked.iter().filter(|(_, cause)| cause.is_none()).map(|(spec, _)| spec).collect();
    let mut made = try_all(&tried, &run, patience)?.into_iter();
    let rows = asked.iter().filter_map(|(spec, cause)| {
        let outcome = match cause {
            Some(cause) => Outcome::Skipped { cause: cause.clone() },
            None => Outcome::from(&made.next()?),
        };
        Some(Row::of(spec, outcome))
    });
    Ok(Report {
        rows: rows.collect(),
        run: "none".into(),
        level: policy.level_name().to_string(),
        digest: policy.digest(),
        rung: "external".into(),
        ledger: "none".into(),
    })
}

/// What can be said without a plan: what the policy asks for, and who this process is.
fn surroundings(policy: &Policy) -> Surroundings {
    let variables: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from);
    let trees = Trees::of(policy, &home);
    let present = |paths: Vec<PathBuf>| {
        let mut found: Vec<PathBuf> = paths.into_iter().filter_map(|path| path.canonicalize().ok()).collect();
        found.sort();
        found.dedup();
        found
    };
    let joined = variables.iter().map(|(name, value)| [name.as_bytes(), value.as_bytes()].join(&b'='));
    let (uid, gid) = (getuid(), getgid());
    Surroundings {
        restrictions: wanted(policy).into_iter().collect(),
        // Root is no account of an agent's.
        ids: (!uid.is_root() && gid.as_raw() != 0).then_some((uid.as_raw(), gid.as_raw())),
        home: Some(home.clone()).filter(|home| home.is_dir()),
        protected: present(trees.read_only.into_iter().chain(trees.read_only_within).collect()),
        writable: present(trees.writable),
        loopback_open: policy.network.loopback == Loopback::All,
        control_plane_ports: policy.privilege.control_plane_ports.iter().map(|port| port.get()).collect(),
        supervisor: getpid().as_raw(),
        environment: joined.filter_map(|variable| CString::new(variable).ok()).collect(),
        callers_environment: variables,
        passed_variables: policy.environment.pass.iter().map(|name| name.as_str().to_owned()).collect(),
        means: Some(Means::FULL),
        ..Surroundings::default()
    }
}

/// Why a probe is not tried.
fn left_out(spec: &Spec, run: &Surroundings) -> Option<String> {
    let of_a_run = spec.operation.takes_a_run().then(|| "not here: it takes a run of ringfence".to_owned());
    spec.unmet(run).or(of_a_run)
}

fn try_all(specs: &[&Spec], run: &Surroundings, patience: Duration) -> Result<Vec<Probe>, ExternalError> {
    // The number is taken for the report, so that a stray descriptor there would go unseen.
    let stray = sys::is_open(REPORT);
    let (report, write) = pipe2(OFlag::O_CLOEXEC).map_err(failed("pipe2"))?;
    match sys::fork_single_threaded().map_err(failed("fork"))? {
        Fork::Child => {
            drop(report);
            let Ok(write) = sys::move_to(write, REPORT) else { sys::exit_now(1) };
            let mut report = File::from(write);
            for spec in specs {
                let probe = spec.judge(tried(spec, run, stray));
                let line = serde_json::to_vec(&probe).unwrap_or_default();
                if report.write_all(&line).and_then(|()| report.write_all(b"\n")).is_err() {
                    sys::exit_now(1);
                }
            }
            sys::exit_now(0);
        }
        Fork::Parent(child) => {
            drop(write);
            let deadline = Instant::now() + patience;
            let heard = hear(&File::from(report), deadline);
            if heard.is_err() {
                match kill(child, Signal::SIGKILL) {
                    Ok(()) | Err(Errno::ESRCH) => {}
                    Err(errno) => return Err(failed("kill")(errno)),
                }
            }
            waitpid(child, None).map_err(failed("waitpid"))?;
            let (text, late) = match heard {
                Ok(text) => (text, false),
                Err(Unheard::Late(text)) => (text, true),
                Err(Unheard::Call(call, errno)) => return Err(failed(call)(errno)),
            };
            let made: Vec<Probe> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            match specs.get(made.len()).map(|spec| spec.id.clone()) {
                None => Ok(made),
                Some(id) if late => Err(ExternalError::Late { id, patience }),
                Some(id) => Err(ExternalError::Ended { id }),
            }
        }
    }
}

/// What a probe sees. A mount that can be made would stay: it is enough to know that it could.
fn tried(spec: &Spec, run: &Surroundings, stray: bool) -> Vec<String> {
    let mounts = || sys::capget().is_ok_and(|sets| sets.effective >> SYS_ADMIN & 1 == 1);
    if spec.operation.may_mount() && mounts() {
        return vec!["CAP_SYS_ADMIN is held".into()];
    }
    let make = || spec.operation.make(run).unwrap_or_default();
    let of_descriptors = spec.operation == Operation::Identity(super::identity::Operation::Descriptors);
    // What opens where nothing refuses it goes with a process of its own, and is not taken for a stray descriptor.
    let mut seen = match (of_descriptors, stray) {
        (true, true) => vec![format!("descriptor {REPORT}")],
        (true, false) => make(),
        (false, _) => super::child::in_child(make),
    };
    // A reset looks the same from whomever it comes, the next hop included, and no log of a wall's can be asked. A wall
    // that refuses the one refuses the other too.
    let let_out = spec.connects().into_iter().find(|address| super::network::udp(*address) == "ok");
    if let Some(address) = let_out {
        for one in seen.iter_mut().filter(|one| *one == RESET) {
            *one = format!("{RESET} by whoever it was, for a datagram to {address} got out");
        }
    }
    seen
}

const RESET: &str = "ECONNREFUSED";

/// Why a report was not heard to its end.
enum Unheard {
    /// Time is up; what was said until then.
    Late(String),
    /// A call failed.
    Call(&'static str, Errno),
}

fn hear(mut report: &File, deadline: Instant) -> Result<String, Unheard> {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let time = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(report.as_fd(), PollFlags::POLLIN)], time) {
            Ok(0) => return Err(Unheard::Late(String::from_utf8_lossy(&text).into_owned())),
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(Unheard::Call("poll", errno)),
        }
        match report.read(&mut buffer) {
            Ok(0) => return Ok(String::from_utf8_lossy(&text).into_owned()),
            Ok(length) => text.extend_from_slice(&buffer[..length]),
            Err(cause) => return Err(Unheard::Call("read", super::child::of_io(&cause))),
        }
    }
}
