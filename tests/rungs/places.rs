//! Acts where the policy draws its lines: the command's home, its state directories, the workspace and what is for everyone.

use crate::acts::line::{bare, fields};
use crate::case::{ByRung, Case, EVERYWHERE, OF_ROOT, Program, Recorded};
use crate::common::{Fence, as_root};

/// Call and words of each, where `HOME` is the command's home; its outcome.
const ACTS: &[(&str, &str, &str)] = &[
    ("open", "HOME/mine 1 0", "EROFS"),
    ("open", "HOME/mine 0 0", "ok"),
    ("open", "HOME/new 65 0600", "EROFS"),
    ("mkdir", "HOME/new 0700", "EROFS"),
    ("mkdir", "HOME/kept 0700", "EEXIST"),
    ("chmod", "HOME/mine 0600", "EROFS"),
    ("truncate", "HOME/mine 0", "EROFS"),
    ("utimensat", "cwd HOME/mine set 0", "EROFS"),
    ("setxattr", "HOME/mine user.x y 0", "EROFS"),
    ("unlink", "HOME/mine", "EROFS"),
    ("unlink", "HOME/missing", "EROFS"),
    ("rmdir", "HOME/kept", "EROFS"),
    ("rename", "HOME/mine HOME/other", "EROFS"),
    ("chmod", "HOME/missing 0600", "ENOENT"),
    ("access", "HOME/mine 2", "EROFS"),
    ("access", "HOME/mine 4", "ok"),
    ("access", "HOME/missing 2", "ENOENT"),
    ("access", "/usr 2", "EACCES"),
    ("access", "/workspace 2", "ok"),
    ("access", "/dev/null 2", "ok"),
    ("open", "HOME/.cache/new 65 0600", "ok"),
    ("mkdir", "HOME/.config/new 0700", "ok"),
    ("mkdir", "HOME/.local/new 0700", "ok"),
    ("open", "/workspace/new 65 0600", "ok"),
    ("chmod", "/workspace/new 0644", "ok"),
    ("rename", "/workspace/new /workspace/renamed", "ok"),
    ("unlink", "/workspace/renamed", "ok"),
    ("open", "/tmp/new 65 0600", "ok"),
    ("unlink", "/tmp/new", "ok"),
    ("open", "/dev/shm/new 65 0600", "ok"),
    ("unlink", "/dev/shm/new", "ok"),
    ("open", "/dev/null 2 0", "ok"),
    ("open", "/etc/passwd 1 0", "EACCES"),
    ("open", "/etc/passwd 0 0", "ok"),
    ("open", "/usr/new 65 0600", "EROFS"),
    ("open", "/etc/new 65 0600", "EROFS"),
];

/// The acts, with numbers from `first` on.
pub fn cases(first: usize, home: &str) -> Vec<Case> {
    let case = |(index, (call, words, outcome)): (usize, &(&'static str, &str, &'static str))| {
        let (id, words) = (first + index, words.replace("HOME", home));
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let paths: Vec<&str> = words.iter().map(String::as_str).filter(|word| word.starts_with('/')).collect();
        let by_user = paths.iter().any(|path| path.starts_with(home));
        // Who only asks is refused nothing.
        let denied = matches!(*outcome, "EROFS" | "EACCES") && *call != "access";
        let on = if by_user { EVERYWHERE } else { OF_ROOT };
        let recorded = Recorded::call("filesystem", call, "", outcome, "read-only").only_on(on).about(&[]);
        Case {
            id,
            what: format!("{call} {}", words.join(" ")),
            program: Program::Acts,
            line: fields(id, "child", &bare("-"), call, &words),
            outcome: ByRung::Same(outcome),
            recorded: denied.then(|| recorded.with_object(&paths.join(" -> "))).into_iter().collect(),
        }
    };
    ACTS.iter().enumerate().map(case).collect()
}

/// What is in the home of the user.
pub fn furnish(fence: &Fence, home: &str, user: u32) {
    as_root(fence, &format!("echo mine > {home}/mine; mkdir {home}/kept; chown {user}:{user} {home}/mine {home}/kept"));
}
