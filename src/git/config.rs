//! A repository's configuration (git-config(1)), less what leads elsewhere: remotes, their addresses and credentials, and
//! whatever is not known to be harmless.

use super::{Algorithm, GitError, form};
use std::path::Path;

/// Most bytes of a configuration.
pub const LIMIT: u64 = 4 << 20;

/// Sections of which all keys are kept but those of [`LEFT_OUT`].
const KEPT: [&str; 15] = [
    "apply",
    "author",
    "commit",
    "committer",
    "core",
    "diff",
    "extensions",
    "filter",
    "i18n",
    "index",
    "init",
    "merge",
    "stash",
    "status",
    "user",
];

/// What of them reaches elsewhere, or would be missing here.
const LEFT_OUT: [(&str, &str); 15] = [
    ("commit", "gpgsign"),
    ("commit", "template"),
    ("core", "alternaterefscommand"),
    ("core", "alternaterefsprefixes"),
    ("core", "askpass"),
    ("core", "commitgraph"),
    ("core", "fsmonitor"),
    ("core", "gitproxy"),
    ("core", "splitindex"),
    ("core", "sshcommand"),
    ("extensions", "partialclone"),
    ("extensions", "relativeworktrees"),
    ("extensions", "worktreeconfig"),
    ("user", "signingkey"),
    ("extensions", "noop"),
];

/// What is kept of a configuration, and what it says of the repository's form.
#[derive(Debug, PartialEq, Eq)]
pub struct Filtered {
    /// The text of a configuration.
    pub text: String,
    /// The hash that names objects.
    pub algorithm: Algorithm,
}

/// Filters a configuration; `path` is named in errors.
///
/// # Errors
/// A text that is none, or a form of repository that is not known.
pub fn filter(path: &Path, text: &[u8]) -> Result<Filtered, GitError> {
    let text = std::str::from_utf8(text).map_err(|_| form(path, "it is not UTF-8"))?;
    let mut filtered = Filtered { text: String::new(), algorithm: Algorithm::Sha1 };
    let (mut section, mut header, mut written) = (String::new(), "", true);
    let mut lines = text.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        let mut rest = line.trim_start_matches([' ', '\t', '\u{feff}']);
        // Of heads there may be more than one in a line.
        while rest.starts_with('[') {
            let end = end_of_header(rest)
                .ok_or_else(|| form(path, format!("line {number} has no section's head where one begins")))?;
            header = &rest[..end];
            let name = header[1..end - 1].split([' ', '\t', '.', '"']).next().unwrap_or_default();
            section = name.to_ascii_lowercase();
            written = false;
            rest = rest[end..].trim_start();
        }
        if rest.is_empty() || rest.starts_with(['#', ';']) {
            continue;
        }
        // A value goes on behind a backslash at the end of its line.
        let mut whole = rest.to_owned();
        while goes_on(&whole) {
            let Some((more, _)) = lines.next() else { break };
            whole.push('\n');
            whole.push_str(more);
        }
        let key: String = whole.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        let key = key.to_ascii_lowercase();
        if !key.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Err(form(path, format!("line {number} is neither a section's head nor a variable")));
        }
        if section == "extensions" {
            filtered.note_extension(path, &key, value_of(&whole))?;
        }
        let submodule = section == "submodule" && key == "active";
        let kept = KEPT.contains(&section.as_str()) && !LEFT_OUT.contains(&(section.as_str(), key.as_str()));
        if kept || submodule {
            if !written {
                filtered.text += &format!("{header}\n");
                written = true;
            }
            filtered.text += &format!("\t{whole}\n");
        }
    }
    Ok(filtered)
}

impl Filtered {
    fn note_extension(&mut self, path: &Path, key: &str, value: &str) -> Result<(), GitError> {
        let refused = |accepted: &str| {
            Err(form(
                path,
                format!("extensions.{key} = {value}: such a repository cannot be filtered; accepted: {accepted}"),
            ))
        };
        match (key, value) {
            ("objectformat", "sha1") => self.algorithm = Algorithm::Sha1,
            ("objectformat", "sha256") => self.algorithm = Algorithm::Sha256,
            ("objectformat", _) => return refused("sha1, sha256"),
            ("refstorage", "files") | ("noop" | "preciousobjects" | "relativeworktrees" | "worktreeconfig", _) => {}
            ("refstorage", _) => return refused("files"),
            ("partialclone", _) => return refused("a whole clone"),
            _ => return refused("objectformat, preciousobjects, relativeworktrees, worktreeconfig"),
        }
        Ok(())
    }
}

/// Whether a line ends in a backslash that is none of a comment's.
fn goes_on(text: &str) -> bool {
    let (mut quoted, mut escaped) = (false, false);
    for c in text.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            '#' | ';' if !quoted => return false,
            _ => {}
        }
    }
    escaped
}

/// The byte behind a section's closing bracket.
fn end_of_header(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ']' if !quoted => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// A plain value: what extensions have.
fn value_of(line: &str) -> &str {
    let value = line.split_once('=').map_or("true", |(_, value)| value);
    let end = value.find(['#', ';']).unwrap_or(value.len());
    value[..end].trim().trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(config: &str) -> String {
        filter(Path::new("config"), config.as_bytes()).unwrap().text
    }

    #[test]
    fn remotes_and_credentials_are_left_out() {
        let config = "# made by hand\n[core]\n\tbare = false\n\tsshCommand = ssh -i key\n[remote \"origin\"]\n\turl = https://me:secret@x.test/y\n\
            [Core] filemode = true\n[user]\n\tname = A \\\n  B\n\temail = a@b.test ; c\n[branch \"main\"]\n\tremote = origin\n\
            [credential]\n\thelper = store\n[submodule \"s]\\\"x\"]\n\tactive = true\n\turl = https://secret.test\n[include]\n\tpath = /etc/secret\n";
        let expected = "[core]\n\tbare = false\n[Core]\n\tfilemode = true\n[user]\n\tname = A \\\n  B\n\temail = a@b.test ; c\n\
            [submodule \"s]\\\"x\"]\n\tactive = true\n";
        assert_eq!(text(config), expected);
        let behind_a_comment = "[core]\na = b # c \\\n[remote \"o\"]\n\turl = secret\n";
        assert_eq!(text(behind_a_comment), "[core]\n\ta = b # c \\\n");
        assert_eq!(
            text("[core] [remote \"o\"] url = secret\n\tpush = x\n[core][user] name = a\n"),
            "[user]\n\tname = a\n"
        );
        assert_eq!(text("[remote.x]\nurl=secret\\\n[core]\\\nbare\n"), "", "a line that goes on is no section's head");
    }

    #[test]
    fn the_form_of_the_repository_is_known_or_refused() {
        let of = |config: &str| filter(Path::new("config"), config.as_bytes());
        assert_eq!(of("[extensions]\nobjectFormat = sha256\n").unwrap().algorithm, Algorithm::Sha256);
        assert!(of("[extensions]\nrefStorage = reftable\n").unwrap_err().to_string().contains("reftable"));
        assert!(of("[extensions]\npartialClone = origin\n").is_err());
        assert!(of("[extensions]\ncompatObjectFormat = sha1\n").is_err());
        for bad in
            ["[core\n", "[core]\n\r[remote \"o\"] url = x\n", "[core]\n= x\n", "[core]\n\u{b}[remote \"o\"] url = x\n"]
        {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_url_is_never_kept(before in "[\\[\\]a-z\"\\\\ =\r\n]{0,40}") {
            let config = format!("{before}\n[core] [remote \"o\"]\n\turl = SECRET\n");
            if let Ok(filtered) = filter(Path::new("config"), config.as_bytes()) {
                // A line before that goes on takes the section's head for its own.
                proptest::prop_assert!(!filtered.text.contains("SECRET") || before.ends_with('\\'));
            }
        }
    }
}
