//! What `up`, `exec`, `down` and `status` take.

use super::{PolicyFlags, RunArgs, RunFlags};
use crate::policy::BadValue;
use crate::session::Name;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

/// Which session.
#[derive(Debug, Clone, Args)]
pub struct SessionFlag {
    /// The session's name
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub name: Name,
}

/// `ringfence up`.
#[derive(Debug, Args)]
pub struct UpArgs {
    /// The policy
    #[command(flatten)]
    pub policy: PolicyFlags,
    /// This run
    #[command(flatten)]
    pub run: RunFlags,
    /// The session
    #[command(flatten)]
    pub name: SessionFlag,
}

impl UpArgs {
    /// The same as a run's, without a command.
    pub fn as_run(&self) -> RunArgs {
        RunArgs { policy: self.policy.clone(), run: self.run.clone(), command: Vec::new() }
    }
}

/// `ringfence exec`.
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// The session
    #[command(flatten)]
    pub name: SessionFlag,
    /// Give the command a terminal of its own, joined with this one
    #[arg(short = 't', long = "tty")]
    pub terminal: bool,
    /// Its working directory; as for `run` when left out
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Add a variable to the session's environment; may be given more than once
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<Variable>,
    /// Refused: the session settles whom its commands run as
    #[arg(long, value_name = "USER", hide = true)]
    pub user: Option<String>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// A variable of an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name: not empty, without `=`.
    pub name: String,
    /// Its value.
    pub value: String,
}

impl FromStr for Variable {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Variable, BadValue> {
        match text.split_once('=').filter(|(name, _)| !name.is_empty()) {
            Some((name, value)) => Ok(Variable { name: name.to_owned(), value: value.to_owned() }),
            None => Err(BadValue::new("variable", text, "NAME=VALUE")),
        }
    }
}
