//! The command line, as clap types. What the flags say about a policy is one [`Layer`]; what they say about this run
//! alone (labels, the ledger's place, the status descriptor) is no part of a policy.

mod canary;
mod parse;
mod probe;
mod session;

use crate::plan::rung::{self, Rung};
use crate::policy::{BadValue, Layer, OnLedgerFailure, Policy, PolicyArg, PolicyError};
use crate::report::{By, Form, Request, Selection};
use clap::{Args, Parser, Subcommand};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::str::FromStr;

pub use canary::{CanaryCommand, PlantArgs, ScanArgs};
pub use parse::{Parsed, UsageError, parse};
pub use probe::{ProbeArgs, SuiteFlags};
pub use session::{ExecArgs, SessionFlag, UpArgs, Variable};

/// Puts a graded policy in force, proves that it holds, runs a command under it, and records every denial.
#[derive(Debug, Parser)]
#[command(name = "ringfence", version, disable_help_subcommand = true)]
pub struct Cli {
    /// What is to be done.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command under a policy
    Run(RunArgs),
    /// Try whether a policy holds here, without a command: 0 if every probe that applies passes, 1 if one fails
    Probe(Box<ProbeArgs>),
    /// Open a session: the policy is in force and proven, and commands come by `exec`
    Up(UpArgs),
    /// Run a command in a session
    Exec(ExecArgs),
    /// End a session and what is left in it, and seal its record
    Down(SessionFlag),
    /// Say whether a session is up, and what runs in it: 0 up, 1 not
    Status {
        /// The session
        #[command(flatten)]
        name: SessionFlag,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print what would carry each restriction on this host, and what is missing
    Plan(PlanArgs),
    /// Show or check policies
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Ask the allowlist
    #[command(subcommand)]
    Allowlist(AllowlistCommand),
    /// Judge a host as the proxy would now, step by step: 0 admitted, 1 refused, 2 without an address
    Why {
        /// What to judge; 443 without a port
        #[arg(value_name = "HOST[:PORT]")]
        target: String,
        /// The policy
        #[command(flatten)]
        policy: Box<PolicyFlags>,
    },
    /// Reach a host through the proxy of the environment, between stdin and stdout: a ProxyCommand for ssh
    Connect {
        /// A name or an address
        host: String,
        /// A port
        port: String,
    },
    /// Re-read a ledger's chain: 0 complete, 1 incomplete, 2 altered
    Verify(VerifyArgs),
    /// Count what ledgers hold
    Report(ReportArgs),
    /// Plant tokens in what must not be read, and look for them in what a run wrote
    #[command(subcommand)]
    Canary(CanaryCommand),
}

/// `ringfence policy`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Print the effective policy as TOML
    Show(Box<PolicyFlags>),
    /// Check a policy file
    Check {
        /// The file
        file: PathBuf,
    },
}

/// `ringfence allowlist`.
#[derive(Debug, Subcommand)]
pub enum AllowlistCommand {
    /// Judge hosts: 0 when all are admitted, 1 otherwise
    Check {
        /// What to judge; 443 without a port
        #[arg(value_name = "HOST[:PORT]", required = true)]
        targets: Vec<String>,
        /// The policy
        #[command(flatten)]
        policy: PolicyFlags,
    },
}

/// `ringfence run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The policy
    #[command(flatten)]
    pub policy: PolicyFlags,
    /// This run
    #[command(flatten)]
    pub run: RunFlags,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// `ringfence plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// The policy
    #[command(flatten)]
    pub policy: PolicyFlags,
    /// This run
    #[command(flatten)]
    pub run: RunFlags,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// `ringfence verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The ledger
    pub ledger: PathBuf,
    /// The head that the status descriptor gave; the file is held against it
    #[arg(long, value_name = "SHA256")]
    pub head: Option<Head>,
}

/// `ringfence report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Ledgers, and directories that are searched for .jsonl and .jsonl.zst; one ledger alone has its records shown
    #[arg(required = true, value_name = "LOG")]
    pub logs: Vec<PathBuf>,
    /// Only runs with this label; values of one key stand for one another
    #[arg(long, value_name = "KEY=VALUE")]
    pub label: Vec<Label>,
    /// Only runs of this level; may be given more than once
    #[arg(long, value_name = "LEVEL")]
    pub level: Vec<String>,
    /// Group runs by a label, or by `level`
    #[arg(long, value_name = "KEY")]
    pub by: Option<By>,
    /// Print JSON
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print comma-separated values: a row for each run, or for each group
    #[arg(long)]
    pub csv: bool,
    /// Add what this transcript shows and no ledger does; it belongs to the one LOG, or to the ledger it lies beside
    #[arg(long, value_name = "FILE")]
    pub transcript: Vec<PathBuf>,
}

impl ReportArgs {
    /// What is asked of the report.
    pub fn request(&self) -> Request {
        let mut selection = Selection { levels: self.level.iter().cloned().collect(), ..Selection::default() };
        for label in &self.label {
            selection.labels.entry(label.key.clone()).or_default().insert(label.value.clone());
        }
        let form = match (self.json, self.csv) {
            (true, _) => Form::Json,
            (_, true) => Form::Csv,
            _ => Form::Text,
        };
        let (logs, transcripts) = (self.logs.clone(), self.transcript.clone());
        Request { logs, selection, by: self.by.clone(), form, transcripts }
    }
}

/// The flags that make a policy.
#[derive(Debug, Clone, Args)]
pub struct PolicyFlags {
    /// A level (control, non-root, nist-high, locked) or a file (its path holds a / or ends in .toml)
    #[arg(long, value_name = "LEVEL|FILE", default_value = "nist-high", help_heading = "Policy")]
    pub policy: PolicyArg,
    /// What the flags lay over it
    #[command(flatten)]
    pub layer: Layer,
    /// Where the ledger is kept, or what happens when it can't be written (required, degrade); may be given once for each
    #[arg(long, value_name = "PATH|fd:N|required|degrade", help_heading = "Policy")]
    pub ledger: Vec<LedgerArg>,
}

/// The flags that concern one run and no policy.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Run")]
pub struct RunFlags {
    /// Put a label into the first record
    #[arg(long, value_name = "KEY=VALUE")]
    pub label: Vec<Label>,
    /// The rung to stand on (full, rootless, container, bare), or none; the strongest that carries the policy when left out
    #[arg(long, value_name = "NAME")]
    pub rung: Option<RungName>,
    /// Write how the run ended to this descriptor, as JSON
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(RawFd).range(0..))]
    pub json_status_fd: Option<RawFd>,
}

impl PolicyFlags {
    /// The policy that the flags ask for.
    pub fn load(&self) -> Result<Policy, PolicyError> {
        let on_failure = self.ledger.iter().rev().find_map(|arg| match arg {
            LedgerArg::OnFailure(answer) => Some(*answer),
            LedgerArg::Place(_) => None,
        });
        Policy::load(&self.policy, &Layer { ledger: on_failure, ..self.layer.clone() })
    }

    /// Where the ledger is to be kept, when the flags say so; the last one counts.
    pub fn ledger_place(&self) -> Option<&LedgerPlace> {
        self.ledger.iter().rev().find_map(|arg| match arg {
            LedgerArg::Place(place) => Some(place),
            LedgerArg::OnFailure(_) => None,
        })
    }
}

impl RunFlags {
    /// The rung that is demanded.
    pub fn demanded(&self) -> Option<&'static dyn Rung> {
        self.rung.map(|name| name.0)
    }

    /// The labels by key; the last value of a key counts.
    pub fn labels(&self) -> BTreeMap<String, String> {
        self.label.iter().map(|label| (label.key.clone(), label.value.clone())).collect()
    }
}

/// What `--rung` takes.
#[derive(Debug, Clone, Copy)]
pub struct RungName(pub &'static dyn Rung);

impl FromStr for RungName {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<RungName, BadValue> {
        rung::named(text).map(RungName).ok_or_else(|| BadValue::new("rung", text, "full, rootless, container, bare"))
    }
}

/// What `--ledger` takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerArg {
    /// A place.
    Place(LedgerPlace),
    /// What happens when it can't be written.
    OnFailure(OnLedgerFailure),
}

/// Where a ledger is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerPlace {
    /// A file.
    Path(PathBuf),
    /// A descriptor that the caller has opened.
    Descriptor(RawFd),
}

impl FromStr for LedgerArg {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<LedgerArg, BadValue> {
        if let Ok(answer) = text.parse() {
            return Ok(LedgerArg::OnFailure(answer));
        }
        let accepted = "a path, fd:N with an open descriptor's number, required, degrade";
        if let Some(number) = text.strip_prefix("fd:") {
            let canonical = number.bytes().all(|byte| byte.is_ascii_digit());
            let number = number.parse().ok().filter(|_| canonical);
            let place = number.map(|number| LedgerArg::Place(LedgerPlace::Descriptor(number)));
            return place.ok_or_else(|| BadValue::new("ledger", text, accepted));
        }
        if text.is_empty() {
            return Err(BadValue::new("ledger", text, accepted));
        }
        Ok(LedgerArg::Place(LedgerPlace::Path(PathBuf::from(text))))
    }
}

/// A label of the first record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Letters, digits, `_`, `-`, `.`.
    pub key: String,
    /// Any text.
    pub value: String,
}

impl FromStr for Label {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Label, BadValue> {
        let plain = |key: &str| key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
        match text.split_once('=') {
            Some((key, value)) if !key.is_empty() && plain(key) => {
                Ok(Label { key: key.to_owned(), value: value.to_owned() })
            }
            _ => Err(BadValue::new("label", text, "KEY=VALUE, the key of letters, digits, _, - and .")),
        }
    }
}

/// A chain's head: SHA-256 in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head(String);

impl Head {
    /// 64 lower-case hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Head {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Head, BadValue> {
        if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(Head(text.to_ascii_lowercase()));
        }
        Err(BadValue::new("chain head", text, "64 hexadecimal digits"))
    }
}

#[cfg(test)]
#[path = "cli_tests.rs"]
mod tests;
