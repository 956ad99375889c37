//! Where a file of a given format takes a comment that changes nothing about it.
//!
//! The comment is a line of its own, as near to the beginning as the format lets it be: after what must come first, such
//! as an interpreter's name, an encoding, a prolog. What has no comments, or is not known, is left alone.

use super::first_lines::{after_first_lines, after_prolog, first_line, front_matter, in_patch};
use std::path::Path;

/// How a format writes a comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comment {
    /// From a mark to the end of the line.
    Line(&'static str),
    /// `/* */`, after a stylesheet's `@charset`.
    Style,
    /// `<!-- -->`, after prolog, document type or front matter.
    Markup,
    /// Text that patch(1) and git-apply(1) pass over before the first header.
    Patch,
}

/// Formats by the end of a name.
const BY_EXTENSION: [(&[&str], Comment); 8] = [
    (
        &[
            "py",
            "pyi",
            "sh",
            "bash",
            "zsh",
            "fish",
            "rb",
            "pm",
            "yaml",
            "yml",
            "toml",
            "conf",
            "cfg",
            "r",
            "jl",
            "tf",
            "ex",
            "exs",
            "nix",
            "mk",
            "cmake",
            "awk",
            "sed",
            "tcl",
            "properties",
            "bzl",
            "graphql",
        ],
        Comment::Line("#"),
    ),
    (
        &[
            "c", "h", "cc", "cpp", "cxx", "hh", "hpp", "rs", "js", "mjs", "cjs", "jsx", "ts", "mts", "cts", "tsx",
            "go", "java", "kt", "kts", "swift", "scala", "cs", "dart", "zig", "proto", "groovy", "cu", "sol", "sv",
        ],
        Comment::Line("//"),
    ),
    (&["sql", "lua", "hs", "elm", "adb", "ads"], Comment::Line("--")),
    (&["ini", "lisp", "el", "scm", "clj", "cljs", "rkt", "asm"], Comment::Line(";")),
    (&["tex", "sty", "bib", "erl", "hrl"], Comment::Line("%")),
    (&["css", "scss", "less"], Comment::Style),
    (&["html", "htm", "xml", "xhtml", "svg", "xsd", "xsl", "md", "markdown"], Comment::Markup),
    (&["patch", "diff"], Comment::Patch),
];

/// Formats by a whole name.
const BY_NAME: [&str; 8] =
    ["Makefile", "makefile", "GNUmakefile", "Dockerfile", "Containerfile", ".gitignore", ".dockerignore", "Gemfile"];

/// Formats by the interpreter that a first line names, its version left out.
const BY_INTERPRETER: [(&[&str], Comment); 3] = [
    (
        &[
            "sh", "bash", "dash", "ksh", "zsh", "fish", "python", "perl", "ruby", "awk", "gawk", "tclsh", "Rscript",
            "make",
        ],
        Comment::Line("#"),
    ),
    (&["node", "deno", "bun", "ts-node"], Comment::Line("//")),
    (&["lua"], Comment::Line("--")),
];

/// A file's content with `token` in a comment; none where the format has no place for one.
pub(super) fn with_comment(path: &Path, content: &[u8], token: &str) -> Option<Vec<u8>> {
    // An empty file says nothing of its format, and may have to stay empty (`__init__.py` need not, a marker may).
    if content.is_empty()
        || content.contains(&0)
        || content.starts_with(b"\xff\xfe")
        || content.starts_with(b"\xfe\xff")
    {
        return None;
    }
    let comment = format(path, content)?;
    let at = place(path, comment, content)?;
    let (before, after) = content.split_at(at);
    let end: &str = if first_line(content).ends_with(b"\r\n") { "\r\n" } else { "\n" };
    let mut planted = before.to_vec();
    if !before.is_empty() && !before.ends_with(b"\n") && before != BOM {
        planted.extend_from_slice(end.as_bytes());
    }
    let line = match comment {
        Comment::Line(mark) => format!("{mark} {token}"),
        Comment::Style => format!("/* {token} */"),
        Comment::Markup => format!("<!-- {token} -->"),
        Comment::Patch => token.to_owned(),
    };
    planted.extend_from_slice(line.as_bytes());
    // What follows a prolog on its line goes on there.
    if !(comment == Comment::Markup && after.starts_with(end.as_bytes())) {
        planted.extend_from_slice(end.as_bytes());
    }
    planted.extend_from_slice(after);
    Some(planted)
}

fn format(path: &Path, content: &[u8]) -> Option<Comment> {
    let name = path.file_name()?.to_str()?;
    if BY_NAME.contains(&name) || is_dockerfile(path) {
        return Some(Comment::Line("#"));
    }
    let extension = path.extension().and_then(|extension| extension.to_str()).map(str::to_ascii_lowercase);
    let by_extension = extension.and_then(|extension| {
        BY_EXTENSION.iter().find(|(known, _)| known.contains(&extension.as_str())).map(|(_, comment)| *comment)
    });
    by_extension.or_else(|| by_interpreter(content)).and_then(|named| by_content(named, content))
}

fn by_interpreter(content: &[u8]) -> Option<Comment> {
    let line = std::str::from_utf8(first_line(content)).ok()?.strip_prefix("#!")?;
    let mut words = line.split_whitespace().map(|word| word.rsplit('/').next().unwrap_or(word));
    let program = words.find(|word| *word != "env" && !word.starts_with('-') && !word.contains('='))?;
    let program = program.trim_end_matches(|character: char| character.is_ascii_digit() || character == '.');
    BY_INTERPRETER.iter().find(|(known, _)| known.contains(&program)).map(|(_, comment)| *comment)
}

const BOM: &[u8] = b"\xef\xbb\xbf";

/// The offset where the comment goes.
fn place(path: &Path, comment: Comment, content: &[u8]) -> Option<usize> {
    let start = if content.starts_with(BOM) { BOM.len() } else { 0 };
    let text = &content[start..];
    let within = match comment {
        Comment::Line(mark) => after_first_lines(mark, text, is_dockerfile(path))?,
        Comment::Style => match front_matter(text) {
            Some(end) => end?,
            None if text.starts_with(b"@charset") => first_line(text).len(),
            None => 0,
        },
        Comment::Markup => after_prolog(text)?,
        Comment::Patch => in_patch(text)?,
    };
    Some(start + within)
}

fn is_dockerfile(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    matches!(name, "Dockerfile" | "Containerfile") || name.starts_with("Dockerfile.")
}

/// What a file is whose name is also that of another format; none where that has no comments.
fn by_content(named: Comment, content: &[u8]) -> Option<Comment> {
    let text = content.strip_prefix(BOM).unwrap_or(content).trim_ascii_start();
    let begins = |mark: &str| text.get(..mark.len()).is_some_and(|text| text.eq_ignore_ascii_case(mark.as_bytes()));
    match named {
        // Qt's translations are `.ts`, fontconfig's settings `.conf`.
        Comment::Line(_) | Comment::Style if begins("<?xml") || begins("<!doctype") => Some(Comment::Markup),
        // Ansible's vaults are YAML by name; settings may be JSON.
        Comment::Line("#") if begins("$ANSIBLE_VAULT") || begins("{") => None,
        // Front matter of a generator of sites.
        Comment::Line("//") if begins("---") => None,
        _ => Some(named),
    }
}

#[cfg(test)]
#[path = "syntax_tests.rs"]
mod tests;
