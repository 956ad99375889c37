//! Parse, call, print the error chain, exit code; nothing else.

use ringfence::cli::{self, Parsed};
use ringfence::commands;
use ringfence::confine::exec::SignalState;
use ringfence::error::{Error, call};
use ringfence::run;
use std::ffi::OsString;
use std::io::Write;

fn main() {
    #[expect(clippy::disallowed_methods, reason = "the one place where the process ends")]
    std::process::exit(outcome());
}

fn outcome() -> i32 {
    // First of all: what is sent to a run belongs to its command.
    let signals = SignalState::block_all().map_err(call("sigprocmask"));
    signals.and_then(obey).unwrap_or_else(|error| {
        run::complain(&error.to_string());
        error.status()
    })
}

fn obey(signals: SignalState) -> Result<i32, Error> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    match cli::parse(&arguments) {
        Ok(Parsed::Cli(cli)) => commands::execute(&cli.command, signals),
        Ok(Parsed::Text(text)) => print(&text),
        Err(usage) => {
            let error = usage.into();
            run::not_parsed(&arguments, &error);
            Err(error)
        }
    }
}

fn print(text: &str) -> Result<i32, Error> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).map_err(call("write"))?;
    Ok(0)
}
