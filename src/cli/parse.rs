//! From a command line to what it asks for, or to one line that says what is wrong with it.

use super::Cli;
use crate::policy::layer::EXPLAIN;
use crate::policy::upstream;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches};
use std::ffi::OsString;

/// What a command line comes to.
#[derive(Debug)]
pub enum Parsed {
    /// Something to do. Boxed, because a layer is large and the other one is not.
    Cli(Box<Cli>),
    /// Text for standard output, after which the status is 0: `--help`, `--version`.
    Text(String),
}

/// A command line that can't be obeyed. Its message is one line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(String);

/// The grammar of the command line. `probe --explain ID` asks about a probe; what the policy's flag of that name says would
/// mean nothing there, as nothing but probes is refused.
fn grammar() -> clap::Command {
    Cli::command()
        .mut_subcommand("probe", |probe| probe.mut_arg(EXPLAIN, |flag| flag.long("explain-refusals").hide(true)))
}

/// Parses a command line, the program's own name first.
pub fn parse<I, T>(args: I) -> Result<Parsed, UsageError>
where
    I: IntoIterator<Item = T>,
    T: Into<OsString>,
{
    let args: Vec<OsString> = args.into_iter().map(Into::into).collect();
    let read = grammar().try_get_matches_from(&args).and_then(|matches| Cli::from_arg_matches(&matches));
    match read {
        Ok(cli) => Ok(Parsed::Cli(Box::new(cli))),
        Err(fault) => match fault.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(Parsed::Text(fault.render().to_string())),
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
                Err(UsageError(format!("no subcommand is given; accepted: {}", subcommands(&args))))
            }
            ErrorKind::InvalidSubcommand => {
                Err(UsageError(format!("{}; accepted: {}", one_line(&fault), subcommands(&args))))
            }
            _ => Err(UsageError(one_line(&fault))),
        },
    }
}

/// The names that may stand where a command line leaves the known subcommands.
fn subcommands(args: &[OsString]) -> String {
    let root = grammar();
    let mut at = &root;
    for arg in args.iter().skip(1) {
        match at.find_subcommand(arg) {
            Some(known) => at = known,
            None => break,
        }
    }
    at.get_subcommands().map(clap::Command::get_name).collect::<Vec<_>>().join(", ")
}

/// The first paragraph of clap's message in one line, with the argument that it takes the unknown one for.
fn one_line(fault: &clap::Error) -> String {
    let mut text = fault.render().to_string();
    // clap repeats the value, and what was meant for `--upstream` may hold a password.
    if let (Some(ContextValue::String(argument)), Some(ContextValue::String(value))) =
        (fault.get(ContextKind::InvalidArg), fault.get(ContextKind::InvalidValue))
        && argument.starts_with("--upstream")
    {
        text = text.replace(value.as_str(), &upstream::redacted(value));
    }
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    let line = words.join(" ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    match fault.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(suggested)) => format!("{line}; did you mean {suggested}?"),
        _ => line.to_owned(),
    }
}
