//! What means something only because it comes first in a file, and so stays before a comment that is put there.

use memchr::memmem;

/// The first line with its end.
pub(super) fn first_line(text: &[u8]) -> &[u8] {
    &text[..memchr::memchr(b'\n', text).map_or(text.len(), |at| at + 1)]
}

/// Where lines of comments that must come first end.
pub(super) fn after_first_lines(mark: &str, text: &[u8], dockerfile: bool) -> Option<usize> {
    let mut at = 0;
    for number in 0.. {
        let line = first_line(&text[at..]);
        let shown = String::from_utf8_lossy(line);
        let body = shown.strip_prefix(mark);
        let stays = match number {
            // An interpreter.
            0 if line.starts_with(b"#!") && !line.starts_with(b"#![") => true,
            0 | 1 => body.is_some_and(|body| is_of_first_two(mark, number, body)),
            _ => false,
        };
        let directive = body.is_some_and(|body| if dockerfile { is_parser_directive(body) } else { is_magic(body) });
        if line.is_empty() || !(stays || directive) {
            break;
        }
        at += line.len();
    }
    match mark {
        "//" => after_docblock(text, at),
        // A Haskell script's options stand right after its interpreter, in a comment of any length.
        "--" if at > 0 && text[at..].starts_with(b"{-") => None,
        _ => Some(at),
    }
}

/// Whether a comment must be in one of the first two lines, of which the first may be an interpreter's. `body` is what
/// follows the mark.
fn is_of_first_two(mark: &str, number: usize, body: &str) -> bool {
    let trimmed = body.trim();
    // PEP 263 and its like; Emacs' file variables.
    if trimmed.contains("coding:") || trimmed.contains("coding=") || trimmed.contains("-*-") {
        return true;
    }
    match mark {
        // cloud-init's kinds of user data, and the template of one.
        "#" if body.starts_with("cloud-") || body.starts_with("# template:") => true,
        // zsh's completions, sed's `-n`.
        "#" if number == 0 => body.starts_with("compdef") || body.starts_with("autoload") || body.trim_end() == "n",
        // TeX's formats.
        "%" if number == 0 => body.starts_with('&'),
        // Swift's packages.
        "//" if number == 0 => trimmed.starts_with("swift-tools-version"),
        // Haskell's stack.
        "--" => trimmed.starts_with("stack "),
        _ => false,
    }
}

/// Ruby's magic comments.
fn is_magic(body: &str) -> bool {
    body.trim().starts_with("frozen_string_literal:")
}

/// A parser directive of a Dockerfile: `name=value` in one comment, in any case and with blanks.
fn is_parser_directive(body: &str) -> bool {
    let name = body.split_once('=').map(|(name, _)| name.trim());
    name.is_some_and(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// After a first comment `/* */`, which test runners and checkers of JavaScript read settings from; none where code
/// follows it on its line.
fn after_docblock(text: &[u8], at: usize) -> Option<usize> {
    let blank = text[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let comment = &text[at + blank..];
    if !comment.starts_with(b"/*") {
        return Some(at);
    }
    let end = at + blank + 2 + memmem::find(&comment[2..], b"*/")? + 2;
    let rest = first_line(&text[end..]);
    rest.iter().all(u8::is_ascii_whitespace).then_some(end + rest.len())
}

/// After an XML declaration, a document type, or a front matter; none where that has no end, or its end is not sure.
pub(super) fn after_prolog(text: &[u8]) -> Option<usize> {
    if let Some(end) = front_matter(text) {
        return end;
    }
    let mut at = 0;
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

/// Where a front matter ends, if there is one: YAML between lines `---`, TOML between lines `+++`. That of JSON, and what
/// pandoc(1) reads as a title, is left alone.
pub(super) fn front_matter(text: &[u8]) -> Option<Option<usize>> {
    let fence = match first_line(text).trim_ascii_end() {
        fence @ (b"---" | b"+++") => fence,
        line if line.starts_with(b"{") || line.starts_with(b"% ") => return Some(None),
        _ => return None,
    };
    let mut at = first_line(text).len();
    loop {
        let line = first_line(&text[at..]);
        // `...` ends YAML for some and not for others.
        if line.is_empty() || line.trim_ascii_end() == b"..." {
            return Some(None);
        }
        at += line.len();
        if line.trim_ascii_end() == fence {
            return Some(Some(at));
        }
    }
}

/// Where text that patch(1) and git-apply(1) pass over may stand in a patch: before all, or, in a mail, below its `---`,
/// where what stands is the mailer's own (git-format-patch(1)).
pub(super) fn in_patch(text: &[u8]) -> Option<usize> {
    let line = first_line(text);
    // Mercurial's own headers.
    if line.starts_with(b"# HG changeset patch") {
        return None;
    }
    let header = memchr::memchr(b':', line).is_some_and(|colon| {
        let name = &line[..colon];
        !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-') && name != b"Index"
    });
    if !header && !line.starts_with(b"From ") {
        return Some(0);
    }
    let at = memmem::find(text, b"\n---\n")? + 5;
    let begun = [&b"\ndiff "[..], b"\n--- ", b"\n@@ ", b"\nIndex: "];
    begun.iter().all(|start| memmem::find(&text[..at], start).is_none()).then_some(at)
}
