//! Parse, call, print the error chain, exit code; nothing else.
fn main() {}
