//! `ringfence probe --external`: what others have built is judged. Nothing is put in force; the suite is tried by a child of
//! this process, which is confined as this process is.

use super::Surroundings;
use super::apart::{self, REPORT};
use super::operation::Operation;
use super::outcome::{Outcome, Report, Row};
use super::proxies;
use super::selection::Selection;
use super::spec::{Class, Spec};
use super::standing::{self, Shown, Standing};
use crate::host::sockets;
use crate::install::account::{AccountError, Databases};
use crate::plan::means::Means;
use crate::plan::rung::wanted;
use crate::policy::{Loopback, Policy, Posture, Trees};
use crate::sys;
use crate::sys::capability::SYS_ADMIN;
use nix::errno::Errno;
use nix::unistd::{getgid, getpid, getuid};
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
    /// The accounts cannot be read, and so whose homes there are.
    #[error("probe --external: {0}")]
    Accounts(#[from] AccountError),
    /// It took too long.
    #[error("probe --external: {id} was under way when the {patience:?} of --timeout were over")]
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
    /// Something that a probe has started goes on.
    #[error("probe --external: a process of the probes' is left and could not be ended")]
    Left,
}

/// What stands where a run's rung does.
pub const EXTERNAL: &str = "external";

/// Tries what `selection` has of the policy's restrictions, within `patience`.
///
/// # Errors
/// Whatever keeps the suite from being tried to its end in time, or the accounts from being read.
pub fn probe(policy: &Policy, selection: Selection, patience: Duration) -> Result<Report, ExternalError> {
    let mut run = surroundings(policy)?;
    let hosts = std::fs::read("/etc/hosts").unwrap_or_default();
    let proxies::Environment { named, not_asked } = proxies::in_environment(|name| std::env::var_os(name), &hosts);
    run.named_proxies = named;
    let chosen = selection.tried.into_iter().filter(|spec| selection.chosen.contains(&spec.id));
    let asked: Vec<(Spec, Option<String>)> = chosen.map(|spec| (spec.clone(), left_out(&spec, &run))).collect();
    let tried: Vec<&Spec> = asked.iter().filter(|(_, cause)| cause.is_none()).map(|(spec, _)| spec).collect();
    let mut made = apart::try_all(&tried, |spec, stray| spec.judge(seen(spec, &run, stray)), patience)?.into_iter();
    let outcomes = asked.into_iter().filter_map(|(spec, cause)| {
        let outcome = match cause {
            Some(cause) => Outcome::Skipped { cause },
            None => Outcome::from(&made.next()?),
        };
        Some((spec, outcome))
    });
    let outcomes: Vec<(Spec, Outcome)> = outcomes.collect();
    let restrictions = standing::of(&run, &outcomes, &not_asked);
    let rows = outcomes.into_iter().map(|(spec, outcome)| Row::of(&spec, in_light_of(&restrictions, &spec, outcome)));
    Ok(Report {
        rows: rows.collect(),
        restrictions,
        run: "none".into(),
        level: policy.level_name().to_string(),
        digest: policy.digest(),
        rung: EXTERNAL.into(),
        ledger: "none".into(),
    })
}

/// An outcome, where nothing is known of a restriction that the probe would show: what is left out then is no matter of
/// course, and what passed has not been enough.
fn in_light_of(restrictions: &[Shown], spec: &Spec, outcome: Outcome) -> Outcome {
    let mut of = restrictions.iter().filter(|shown| spec.restrictions.contains(&shown.restriction));
    let unknown = of.clone().find(|shown| shown.standing == Standing::NotJudged);
    match (outcome, unknown) {
        (Outcome::Skipped { cause }, Some(_)) => Outcome::NotJudged { cause },
        (Outcome::Passed { .. }, Some(unknown))
            if spec.class != Class::Enablement && of.all(|shown| shown.standing == Standing::NotJudged) =>
        {
            Outcome::NotJudged { cause: unknown.because.clone() }
        }
        (outcome, _) => outcome,
    }
}

/// What can be said without a plan: what the policy asks for, and who this process is.
fn surroundings(policy: &Policy) -> Result<Surroundings, ExternalError> {
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
    Ok(Surroundings {
        external: true,
        masked: present(to_be_masked(policy, &home)?),
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
    })
}

/// What a run would mask of what is here, less what is its own: homes of others and sockets of daemons that act for whoever
/// asks, and of those that ask name servers.
fn to_be_masked(policy: &Policy, home: &Path) -> Result<Vec<PathBuf>, ExternalError> {
    let postures = policy.postures();
    let mut masked = Vec::new();
    if postures.filesystem == Posture::Locked {
        let homes = Databases::read()?.homes();
        masked.extend(homes.into_iter().filter(|other| !home.starts_with(other)));
        masked.extend(sockets::control());
    }
    if postures.filesystem > Posture::Open && postures.network > Posture::Open {
        masked.extend(sockets::resolvers());
    }
    Ok(masked)
}

/// Why a probe is not tried.
fn left_out(spec: &Spec, run: &Surroundings) -> Option<String> {
    let of_a_run = spec.operation.takes_a_run().then(|| "not here: it takes a run of ringfence".to_owned());
    let of_a_proxy = spec.operation.asks_a_proxy() && run.named_proxies.iter().all(|proxy| proxy.http.is_none());
    let of_a_proxy = of_a_proxy.then(|| "not here: no HTTP proxy is named in the environment".to_owned());
    spec.unmet(run).or(of_a_run).or(of_a_proxy)
}

/// What a probe sees. A mount that can be made would stay: it is enough to know that it could.
fn seen(spec: &Spec, run: &Surroundings, stray: bool) -> Vec<String> {
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
        (false, _) => super::child::in_fork(make),
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
