//! Output that is a terminal's screen: the shell's prompt and what was typed stand in it, and the next screen shows its
//! last lines again.

/// How many lines of a screen are compared with the next.
const KEPT: usize = 2000;

/// Whether a line is a prompt with or without a command: `user@host:/dir# ls`, `$ ls`, `(venv) root@box:~# `, `bash-5.2$ `.
/// What follows the prompt was typed, so it is no output.
pub(super) fn is_prompt(line: &str) -> bool {
    let line = line.trim_start();
    let Some(at) = line.find(['$', '#', '%', '>']) else {
        return false;
    };
    let (before, after) = (&line[..at], &line[at + 1..]);
    if !(after.is_empty() || after.starts_with(' ')) {
        return false;
    }
    let sign = line.as_bytes()[at];
    // A lone mark: `$ ls`, and root's `# ls`, which is a comment's form too and costs nothing here.
    if before.is_empty() {
        return sign != b'%' && sign != b'>';
    }
    let last = before.trim_end().rsplit(char::is_whitespace).next().unwrap_or_default();
    let place = last.contains('@') && (last.contains(':') || last.contains('~') || last.ends_with(']'));
    let shell = ["bash-", "sh-", "zsh-"].iter().any(|name| last.starts_with(name))
        && last.ends_with(|c: char| c.is_ascii_digit());
    place || shell || (before.ends_with(']') && before.contains('@'))
}

/// The screens of one transcript.
#[derive(Debug, Default)]
pub struct Screens {
    last: Vec<u64>,
}

impl Screens {
    /// How many of the first lines of this output were on the screen before already. None of an output that is no screen:
    /// where nothing was typed into it, the same text again is the same error again.
    pub(super) fn shown_before(&mut self, lines: &[&str]) -> usize {
        if !lines.iter().any(|line| is_prompt(line)) {
            return 0;
        }
        let hashes: Vec<u64> = lines.iter().map(|line| hash(line.trim_end())).collect();
        // A harness puts a heading before a screen.
        let heading = lines.iter().take_while(|line| line.trim().is_empty() || line.trim_end().ends_with(':')).count();
        let shown = match lines.len() > heading {
            true => heading + overlap(&self.last, &hashes[heading..]),
            false => 0,
        };
        self.last = hashes[hashes.len().saturating_sub(KEPT)..].to_vec();
        // The last line of a screen is a prompt, and what is typed there next changes it.
        if lines.last().is_some_and(|line| is_prompt(line)) {
            self.last.pop();
        }
        if shown > heading { shown } else { 0 }
    }
}

/// The longest start of `new` that is an end of `old`, in lines (Knuth, Morris and Pratt's failure function).
fn overlap(old: &[u64], new: &[u64]) -> usize {
    let new = &new[..new.len().min(KEPT)];
    let Some(first) = new.first() else { return 0 };
    let mut failure = vec![0; new.len()];
    let mut matched = 0;
    for at in 1..new.len() {
        while matched > 0 && new[at] != new[matched] {
            matched = failure[matched - 1];
        }
        matched += usize::from(new[at] == new[matched]);
        failure[at] = matched;
    }
    matched = 0;
    for line in old {
        if matched == new.len() {
            matched = failure[matched - 1];
        }
        while matched > 0 && *line != new[matched] {
            matched = failure[matched - 1];
        }
        matched += usize::from(if matched == 0 { line == first } else { *line == new[matched] });
    }
    matched
}

fn hash(line: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    line.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_told_from_output() {
        for line in [
            "$ ls",
            "# ls",
            "root@box:/app# touch x",
            "(venv) root@box:~# ",
            "bash-5.2$ ls",
            "[root@box app]# ls",
            "u@h:~$",
        ] {
            assert!(is_prompt(line), "{line}");
        }
        for line in
            ["a > b", "100% done", "price: 5$ each", "touch: x: Permission denied", "a@b.test # mail", "#include <x>"]
        {
            assert!(!is_prompt(line), "{line}");
        }
    }

    #[test]
    fn the_next_screen_is_read_from_where_it_is_new() {
        let mut screens = Screens::default();
        let first = ["New Terminal Output:", "", "root@box:/# touch /usr/x", "touch: error", "root@box:/# "];
        assert_eq!(screens.shown_before(&first), 0);
        let second = ["Current Terminal Screen:", "root@box:/# touch /usr/x", "touch: error", "root@box:/# ls", "a"];
        assert_eq!(screens.shown_before(&second), 3);
        let again = ["root@box:/# touch /usr/x", "touch: error"];
        assert_eq!(screens.shown_before(&again), 0, "the screen was cleared and it was tried again");
        assert_eq!(Screens::default().shown_before(&["touch: error"]), 0);
        let mut plain = Screens::default();
        assert_eq!((plain.shown_before(&["a", "b"]), plain.shown_before(&["a", "b"])), (0, 0));
        assert_eq!(overlap(&[1, 2, 1, 2], &[1, 2, 3]), 2);
        assert_eq!(overlap(&[1, 1, 1], &[1, 1]), 2);
        assert_eq!(overlap(&[], &[1]), 0);
        assert_eq!(overlap(&[1], &[]), 0);
    }
}
