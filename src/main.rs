//! Parse, call, print the error chain, exit code; nothing else.

use ringfence::cli::{self, Parsed};
use ringfence::commands;
use ringfence::error::{Error, OURS};
use std::io::Write;

fn main() {
    #[expect(clippy::disallowed_methods, reason = "the one place where the process ends")]
    std::process::exit(outcome());
}

fn outcome() -> i32 {
    let done = match cli::parse(std::env::args_os()) {
        Ok(Parsed::Cli(cli)) => commands::execute(&cli.command),
        Ok(Parsed::Text(text)) => print(&text),
        Err(usage) => Err(usage.into()),
    };
    done.unwrap_or_else(|error| {
        // Nobody may be there to read it.
        if writeln!(std::io::stderr(), "ringfence: {error}").is_err() {
            return OURS;
        }
        error.status()
    })
}

fn print(text: &str) -> Result<i32, Error> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).map_err(ringfence::error::call("write"))?;
    Ok(0)
}
