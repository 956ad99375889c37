//! An act's line, as its interpreter reads it.

use super::place::{self, Spelled, Spelling, Zone};
use super::script::{Draw, Setting};
use super::table::{Form, Via};
use std::fmt::Write;

/// What a word asks to be opened before: by the letter of acts.c, or a socket.
pub fn descriptor_of(word: &str) -> Option<&'static str> {
    Some(match word {
        "F" => "r",
        "O" => "p",
        "S" => "s:unix:stream",
        "G" => "s:unix:dgram",
        "N" => "s:inet:stream",
        "M" => "s:inet6:stream",
        "U" => "s:inet:dgram",
        _ => return None,
    })
}

/// Whether an open would make the file.
pub fn makes(line: &str, form: Form) -> bool {
    let (via, operation, layout) = form;
    match via {
        Via::C => operation == "creat" || layout.contains("CREAT") && line.split(['\t', ':']).any(has_creat),
        Via::Python => layout.ends_with(" w") || layout.ends_with(" a"),
        Via::Sh => layout.starts_with(": >"),
    }
}

fn has_creat(word: &str) -> bool {
    word.parse::<u64>().is_ok_and(|flags| flags & libc::O_CREAT as u64 != 0)
}

/// The system call that comes of it.
pub fn actual(operation: &'static str, via: Via, at: bool) -> &'static str {
    match (via, operation, at) {
        (_, "fssetxattr", _) => "ioctl",
        (Via::Python, "mkdir", true) => "mkdirat",
        (Via::Python, "unlink", true) => "unlinkat",
        (Via::Python, "symlink", true) => "symlinkat",
        (Via::Python, "link", true) => "linkat",
        (Via::Python, "rename", true) => "renameat",
        (Via::Python, "chmod", true) => "fchmodat",
        (_, operation, _) => operation,
    }
}

/// The line for an interpreter.
#[expect(clippy::too_many_arguments, reason = "all that makes a line")]
pub fn line(
    id: usize,
    how: &str,
    via: Via,
    call: &str,
    spelled: &Spelled,
    words: &[&str],
    names: [&str; 2],
    draw: &mut Draw,
    setting: &Setting,
) -> String {
    let words: Vec<String> = words
        .iter()
        .filter(|word| !word.is_empty())
        .map(|word| match *word {
            "P" | "LONG" => named(spelled, names[0]),
            "Q" if names[1].starts_with('/') => names[1].to_owned(),
            "Q" => spelled.name(names[1]),
            "D" => spelled.base.to_owned(),
            "A" => format!("unix:{}", spelled.name(names[0])),
            "UID" | "GID" => setting.user.to_string(),
            ":GID" => format!(":{}", setting.user),
            word if descriptor_of(word).is_some() => "@".to_owned(),
            word if word.starts_with('%') => spelled.name(&word[1..]),
            word if word.starts_with("how:") => {
                let parts: Vec<String> = word[4..].split(':').map(|part| numeral(choose(part, draw))).collect();
                parts.join(":")
            }
            word if word.starts_with('/') => word.to_owned(),
            word => numeral(choose(word, draw)),
        })
        .collect();
    match via {
        Via::Sh => shell_line(id, how, &spelled.cwd, &words),
        Via::C => fields(id, how, spelled, call, &words),
        Via::Python => fields(id, how, spelled, &words[0], &words[1..]),
    }
}

fn named(spelled: &Spelled, name: &str) -> String {
    if name == "LONG" { spelled.name(&"n".repeat(256)) } else { spelled.name(name) }
}

pub fn fields(id: usize, how: &str, spelled: &Spelled, call: &str, words: &[String]) -> String {
    let mut line = format!("{id}\t{how}\t{}\t{}\t{call}", spelled.cwd, spelled.descriptor);
    words.iter().for_each(|word| write!(line, "\t{word}").expect("a String takes all"));
    line
}

/// The shell says who it is, then is the program, whose message tells the errno.
fn shell_line(id: usize, how: &str, cwd: &str, words: &[String]) -> String {
    let command = match words {
        [colon, redirection, path] if colon == ":" => format!(": {redirection} '{path}'"),
        words => format!("exec {}", words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ")),
    };
    let cwd = if cwd == "-" { "/" } else { cwd };
    let starts = match how {
        "direct" => "sh -c",
        "child" => "sh -c '\"$@\"; true' - sh -c",
        _ => "setsid -w sh -c '\"$@\"; true' - sh -c",
    };
    let quoted = format!("printf \"%s\\t%s\\t\" {id} $$; exec 2>&1; {command}").replace('\'', "'\\''");
    format!("(cd '{cwd}' && exec {starts} '{quoted}'); echo")
}

fn choose<'a>(word: &'a str, draw: &mut Draw) -> &'a str {
    let all: Vec<&str> = word.split('/').collect();
    all[draw.below(all.len())]
}

/// Names of flags, joined by `+`, as a number; what is none stays as it is.
fn numeral(word: &str) -> String {
    let flags: Option<Vec<u64>> = word.split('+').map(flag).collect();
    flags.map_or_else(|| word.to_owned(), |flags| flags.into_iter().fold(0, |all, flag| all | flag).to_string())
}

fn flag(name: &str) -> Option<u64> {
    let flag = match name {
        "RDONLY" => libc::O_RDONLY,
        "WRONLY" => libc::O_WRONLY,
        "RDWR" => libc::O_RDWR,
        "CREAT" => libc::O_CREAT,
        "EXCL" => libc::O_EXCL,
        "TRUNC" => libc::O_TRUNC,
        "APPEND" => libc::O_APPEND,
        "NONBLOCK" => libc::O_NONBLOCK,
        "DSYNC" => libc::O_DSYNC,
        "DIRECTORY" => libc::O_DIRECTORY,
        "NOFOLLOW" => libc::O_NOFOLLOW,
        "NOATIME" => libc::O_NOATIME,
        "NOCTTY" => libc::O_NOCTTY,
        "CLOEXEC" => libc::O_CLOEXEC,
        "PATH" => libc::O_PATH,
        "TMPFILE" => libc::O_TMPFILE,
        // RESOLVE_* of openat2(2).
        "NO_MAGICLINKS" => 0x02,
        "NO_SYMLINKS" => 0x04,
        "BENEATH" => 0x08,
        "IN_ROOT" => 0x10,
        _ => return None,
    };
    Some(flag as u64)
}

/// What stands around an act without names.
pub fn bare(descriptor: &str) -> Spelled {
    let mut spelled = place::spell(Spelling::Absolute, Zone::Own, 'a', 0, "");
    spelled.descriptor = descriptor.to_owned();
    spelled
}

pub fn without_names(id: usize, how: &'static str, call: &str, layout: &str, setting: &Setting) -> [String; 2] {
    let words: Vec<&str> = layout.split(' ').collect();
    let descriptor = words.iter().find_map(|word| descriptor_of(word));
    let descriptor = descriptor.unwrap_or(if words.contains(&"@") { "D:/tmp" } else { "-" });
    let line = line(id, how, Via::C, call, &bare(descriptor), &words, ["", ""], &mut Draw(0), setting);
    [line.clone(), line]
}
