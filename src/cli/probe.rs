//! The arguments of `ringfence probe`.

use super::{PolicyFlags, RunFlags};
use crate::probe::render::Form;
use crate::probe::selection::Selection;
use crate::probe::spec::Spec;
use crate::probe::suite_file::{self, SuiteError};
use clap::Args;
use std::path::PathBuf;

/// `ringfence probe`.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// The policy
    #[command(flatten)]
    pub policy: PolicyFlags,
    /// This run
    #[command(flatten)]
    pub run: RunFlags,
    /// The suite
    #[command(flatten)]
    pub suite: SuiteFlags,
}

/// The flags that concern the suite.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Suite")]
pub struct SuiteFlags {
    /// How the outcome is printed: table, json, tap or junit
    #[arg(long, value_name = "FORM", default_value = "table")]
    pub format: Form,
    /// Only these probes; * stands for any part of an id
    #[arg(long, value_name = "ID|GLOB", num_args = 1..)]
    pub only: Vec<String>,
    /// Add the probes of every .toml file in a directory
    #[arg(long, value_name = "DIR")]
    pub probes: Option<PathBuf>,
    /// How long all probes together may take
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// Put nothing in force and keep no record: try the policy on this very process, whoever has confined it
    #[arg(long, conflicts_with_all = ["ledger", "rung", "json_status_fd", "label", "list", "explain"])]
    pub external: bool,
    /// Print the suite, as a table or as JSON, and try nothing
    #[arg(long, conflicts_with = "explain")]
    pub list: bool,
    /// Print all that is known of a probe, and try nothing
    #[arg(long, value_name = "ID")]
    pub explain: Option<String>,
}

impl SuiteFlags {
    /// Whether the suite is only printed.
    pub fn only_prints(&self) -> bool {
        self.list || self.explain.is_some()
    }

    /// Every probe, those of the caller's directory among them.
    pub fn all(&self) -> Result<Vec<Spec>, SuiteError> {
        match &self.probes {
            Some(directory) => suite_file::with_directory(directory),
            None => suite_file::built_in(),
        }
    }

    /// Those that are asked for.
    pub fn selection(&self) -> Result<Selection, SuiteError> {
        Selection::of(self.all()?, &self.only)
    }
}
