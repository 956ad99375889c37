//! The refusals that one tool's output tells of.

use super::place::{is_loopback, objects};
pub use super::screen::Screens;
use super::screen::is_prompt;
use super::signature::{Answer, find};
use crate::ledger::escape::{TEXT_LIMIT, escape};

/// The longest part of a line that is looked at, in bytes: error texts stand in short lines.
const LINE_LIMIT: usize = 16_384;

/// How many refusals of one output are told apart.
const ACTS_LIMIT: usize = 1024;

/// One refused act, as its error text tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Act {
    /// What it was answered.
    pub answer: Answer,
    /// What it may have been tried on, the likeliest first; empty where the text does not say.
    pub objects: Vec<String>,
    /// The line that says so, printable and cut.
    pub line: String,
}

/// The acts in one output, each once: the same answer about the same object is one act that printed more than one
/// line, and a line that names no object belongs to one that does.
pub fn acts(text: &str, screens: &mut Screens) -> Vec<Act> {
    let lines: Vec<&str> = text.lines().collect();
    let shown = screens.shown_before(&lines);
    let mut acts: Vec<Act> = Vec::new();
    // On a screen each prompt begins another act.
    let mut begin = 0;
    for line in &lines[shown.min(lines.len())..] {
        if is_prompt(line) {
            settle(&mut acts, begin);
            begin = acts.len();
            continue;
        }
        if let Some(act) = act(line).filter(|_| acts.len() < ACTS_LIMIT)
            && !acts[begin..].iter().any(|known| same(known, &act))
        {
            acts.push(act);
        }
    }
    settle(&mut acts, begin);
    acts
}

fn act(line: &str) -> Option<Act> {
    let mut end = line.len().min(LINE_LIMIT);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    let line = &line[..end];
    // ASCII case only, so that places in the one are places in the other.
    let (answer, at) = find(&line.to_ascii_lowercase())?;
    let objects = objects(answer, line, at);
    let own = answer == Answer::Refused && !objects.is_empty() && objects.iter().all(|host| is_loopback(host));
    (!own).then(|| Act { answer, objects, line: escape(line.trim().as_bytes(), TEXT_LIMIT.min(512)) })
}

fn same(known: &Act, act: &Act) -> bool {
    known.answer == act.answer && (known.objects.first() == act.objects.first() || known.line == act.line)
}

/// Drops the acts from `begin` on that name no object where another with the same answer does.
fn settle(acts: &mut Vec<Act>, begin: usize) {
    let tail = acts.split_off(begin);
    for act in &tail {
        if !act.objects.is_empty() || !tail.iter().any(|other| other.answer == act.answer && !other.objects.is_empty())
        {
            acts.push(act.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<(&'static str, String)> {
        let object = |act: &Act| act.objects.first().cloned().unwrap_or_default();
        acts(text, &mut Screens::default()).iter().map(|act| (act.answer.name(), object(act))).collect()
    }

    #[test]
    fn an_error_printed_in_many_lines_is_one_act() {
        let npm = "npm error code EACCES\nnpm error syscall mkdir\nnpm error path /usr/lib/x\nnpm error errno -13\n\
                   npm error Error: EACCES: permission denied, mkdir '/usr/lib/x'\n\
                   npm error   code: 'EACCES',\n";
        assert_eq!(of(npm), [("EACCES", "/usr/lib/x".to_owned())]);
        let pip = "WARNING: Retrying after connection broken by 'ProxyError(OSError('Tunnel connection failed: 403 Forbidden'))': /simple/x/\n";
        assert_eq!(of(&pip.repeat(5)).len(), 1);
        assert_eq!(of("touch: cannot touch '/usr/a': Read-only file system\ntouch: cannot touch '/usr/b': Read-only file system").len(), 2);
    }

    #[test]
    fn on_a_screen_each_command_has_its_own_and_what_was_typed_is_not_read() {
        let screen = "$ touch /usr/a\ntouch: cannot touch '/usr/a': Read-only file system\n\
                      $ echo 'x: Permission denied'; touch /usr/a\ntouch: cannot touch '/usr/a': Read-only file system\n$ ";
        assert_eq!(of(screen).len(), 2);
    }

    #[test]
    fn a_server_of_the_commands_own_that_is_not_there_is_no_denial() {
        assert!(of("curl: (7) Failed to connect to localhost port 80: Connection refused").is_empty());
        assert_eq!(of("curl: (7) Failed to connect to 10.0.0.9 port 80: Connection refused").len(), 1);
    }
}
