//! Where a file of a given format takes a comment that changes nothing about it.
//!
//! The comment is a line of its own, as near to the beginning as the format lets it be: after what must come first, such
//! as an interpreter's name, an encoding, a prolog. What has no comments, or is not known, is left alone.

use memchr::memmem;
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
    let at = place(comment, content)?;
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
    if BY_NAME.contains(&name) || name.starts_with("Dockerfile.") {
        return Some(Comment::Line("#"));
    }
    let extension = path.extension().and_then(|extension| extension.to_str()).map(str::to_ascii_lowercase);
    let by_extension = extension.and_then(|extension| {
        BY_EXTENSION.iter().find(|(known, _)| known.contains(&extension.as_str())).map(|(_, comment)| *comment)
    });
    by_extension.or_else(|| by_interpreter(content))
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
fn place(comment: Comment, content: &[u8]) -> Option<usize> {
    let start = if content.starts_with(BOM) { BOM.len() } else { 0 };
    let text = &content[start..];
    let within = match comment {
        Comment::Line(mark) => after_first_lines(mark, text),
        Comment::Style => {
            if text.starts_with(b"@charset") {
                first_line(text).len()
            } else {
                0
            }
        }
        Comment::Markup => after_prolog(text)?,
        // A mail as git-format-patch(1) writes it: the part below `---` is the mailer's own.
        Comment::Patch if text.starts_with(b"From ") => memmem::find(text, b"\n---\n")? + 5,
        Comment::Patch => 0,
    };
    Some(start + within)
}

/// After the lines that mean something only because they come first.
fn after_first_lines(mark: &str, text: &[u8]) -> usize {
    let mut at = 0;
    for number in 0.. {
        let line = first_line(&text[at..]);
        let shown = String::from_utf8_lossy(line);
        let body = shown.strip_prefix(mark).map(str::trim);
        let stays = match number {
            // An interpreter; cloud-init's own first line.
            0 if line.starts_with(b"#!") && !line.starts_with(b"#![") || body == Some("cloud-config") => true,
            // PEP 263 and its like: in the first two lines.
            0 | 1 if body.is_some_and(|body| body.contains("coding:") || body.contains("coding=")) => true,
            // Parser directives of a Dockerfile, Ruby's magic comments: `name=value` or `name: value` in one comment.
            _ => body.is_some_and(|body| {
                ["syntax=", "escape=", "check=", "frozen_string_literal:"].iter().any(|name| body.starts_with(name))
            }),
        };
        if line.is_empty() || !stays {
            break;
        }
        at += line.len();
    }
    at
}

/// After an XML declaration, a document type, or a front matter between two lines `---`.
fn after_prolog(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    if text.starts_with(b"---\n") || text.starts_with(b"---\r\n") {
        let closing =
            memmem::find_iter(text, b"\n---").find(|at| matches!(text.get(at + 4), Some(b'\n' | b'\r') | None))?;
        let line = closing + 1;
        return Some(line + first_line(&text[line..]).len());
    }
    if text.starts_with(b"<?xml") {
        at = memmem::find(text, b"?>")? + 2;
    }
    let blank = text[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let rest = &text[at + blank..];
    if rest.len() > 9 && rest[..9].eq_ignore_ascii_case(b"<!doctype") {
        let end = memchr::memchr(b'>', rest)?;
        // An internal subset has `>` of its own.
        if rest[..end].contains(&b'[') {
            return None;
        }
        at += blank + end + 1;
    }
    Some(at)
}

/// The first line with its end.
fn first_line(text: &[u8]) -> &[u8] {
    &text[..memchr::memchr(b'\n', text).map_or(text.len(), |at| at + 1)]
}

#[cfg(test)]
#[path = "syntax_tests.rs"]
mod tests;
