//! Compiles `allowlists/*.txt` into constant slices, and fails the build where an entry is malformed or stands
//! twice, or where a list has not the number of entries it promises. The grammar is the program's own.

#[allow(dead_code, reason = "the build needs the grammar alone")]
#[path = "src/policy/authority.rs"]
mod authority;
#[allow(dead_code, reason = "the build needs the grammar alone")]
#[path = "src/policy/entry.rs"]
mod entry;

use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

/// The lists: file name without suffix, the constant's name, the number of entries promised.
const LISTS: [(&str, &str, usize); 1] = [("nist-high", "NIST_HIGH", 205)];

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=allowlists");
    println!("cargo::rerun-if-changed=src/policy/authority.rs");
    println!("cargo::rerun-if-changed=src/policy/entry.rs");
    match compile_lists() {
        Ok(source) => {
            let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
            std::fs::write(Path::new(&out).join("allowlists.rs"), source).expect("OUT_DIR is writable");
            ExitCode::SUCCESS
        }
        Err(fault) => {
            eprintln!("{fault}");
            ExitCode::FAILURE
        }
    }
}

fn compile_lists() -> Result<String, String> {
    let mut source = String::new();
    for (list, constant, promised) in LISTS {
        let file = format!("allowlists/{list}.txt");
        let text = std::fs::read_to_string(&file).map_err(|cause| format!("{file}: {cause}"))?;
        let entries = check(&file, &text, promised)?;
        writeln!(source, "/// The {promised} entries of `{file}`.").unwrap();
        writeln!(source, "pub const {constant}: [&str; {promised}] = {entries:#?};").unwrap();
    }
    Ok(source)
}

/// The entries in their canonical text, in the file's order.
fn check(file: &str, text: &str, promised: usize) -> Result<Vec<String>, String> {
    let mut lines: HashMap<String, usize> = HashMap::new();
    let mut entries = Vec::new();
    let mut last = 0;
    for (line, entry) in entry::entries_of_file(text) {
        let entry =
            entry.map_err(|(text, fault)| format!("{file}:{line}: \"{text}\" is no entry: {fault}"))?.to_string();
        if let Some(first) = lines.insert(entry.clone(), line) {
            return Err(format!("{file}:{line}: \"{entry}\" stands already in line {first}"));
        }
        last = line;
        entries.push(entry);
    }
    if entries.len() != promised {
        return Err(format!("{file}:{last}: the list has {} entries, not {promised}", entries.len()));
    }
    Ok(entries)
}
