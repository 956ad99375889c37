//! The error texts by which a refusal is known, as common tools print them.

use crate::policy::Axis;

/// What a tool was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Answer {
    /// HTTP 403, of a proxy or of the far end.
    Forbidden,
    /// EROFS.
    ReadOnly,
    /// EPERM.
    NotPermitted,
    /// EACCES.
    Denied,
    /// sudo or su said no.
    Sudo,
    /// A name was not resolved.
    Unresolved,
    /// ECONNREFUSED.
    Refused,
}

impl Answer {
    /// The answer as reports spell it.
    pub fn name(self) -> &'static str {
        match self {
            Answer::Forbidden => "403",
            Answer::ReadOnly => "EROFS",
            Answer::NotPermitted => "EPERM",
            Answer::Denied => "EACCES",
            Answer::Sudo => "sudo",
            Answer::Unresolved => "DNS",
            Answer::Refused => "ECONNREFUSED",
        }
    }

    /// The axes that give this answer, the likeliest first. EACCES and EPERM come of a read-only tree as well as of
    /// ordinary permission, which the text doesn't tell apart.
    pub fn axes(self) -> &'static [Axis] {
        match self {
            Answer::Forbidden | Answer::Unresolved | Answer::Refused => &[Axis::Network],
            Answer::ReadOnly => &[Axis::Filesystem],
            Answer::NotPermitted | Answer::Denied => &[Axis::Privilege, Axis::Filesystem],
            Answer::Sudo => &[Axis::Privilege],
        }
    }
}

/// How a signature must stand in its line.
#[derive(Clone, Copy)]
enum Form {
    /// Anywhere.
    Within,
    /// strerror(3)'s text where an error message has it: after a separator or at the line's begin, and before
    /// punctuation or the line's end; in the middle of a sentence it is talk about errors.
    Strerror,
    /// The symbolic name where a program prints it as an error's: `EACCES: `, `code EACCES`, `'EACCES'`, `(EACCES)`,
    /// `connect ECONNREFUSED 192.0.2.1:443`; in source code it stands otherwise.
    Name,
}

/// All signatures, in lower case. The first that is found decides: what names its cause stands before what may follow
/// from several.
const SIGNATURES: &[(Answer, Form, &str)] = &[
    // curl, git, wget, python's urllib3, node's undici, go, apt, npm, cargo.
    (Answer::Forbidden, Form::Within, "tunnel failed, response 403"),
    (Answer::Forbidden, Form::Within, "http code 403 from proxy"),
    (Answer::Forbidden, Form::Within, "tunnel connection failed: 403"),
    (Answer::Forbidden, Form::Within, "proxy tunneling failed: forbidden"),
    (Answer::Forbidden, Form::Within, "proxy response (403)"),
    (Answer::Forbidden, Form::Within, "proxyconnect tcp: forbidden"),
    (Answer::Forbidden, Form::Within, "http/1.1 403"),
    (Answer::Forbidden, Form::Within, "http/1.0 403"),
    (Answer::Forbidden, Form::Within, "http/2 403"),
    (Answer::Forbidden, Form::Within, "returned error: 403"),
    (Answer::Forbidden, Form::Within, "http error 403"),
    (Answer::Forbidden, Form::Within, "error 403: forbidden"),
    (Answer::Forbidden, Form::Within, "403 client error"),
    (Answer::Forbidden, Form::Within, "403 forbidden"),
    (Answer::Forbidden, Form::Within, "403  forbidden"),
    (Answer::Forbidden, Form::Within, "code e403"),
    (Answer::Forbidden, Form::Within, "status code 403"),
    (Answer::Forbidden, Form::Within, "status code: 403"),
    (Answer::Forbidden, Form::Within, ", got 403"),
    (Answer::Sudo, Form::Within, "the \"no new privileges\" flag is set"),
    (Answer::Sudo, Form::Within, "is not in the sudoers file"),
    (Answer::Sudo, Form::Within, "sudo: a password is required"),
    (Answer::Sudo, Form::Within, "sudo: a terminal is required"),
    (Answer::Sudo, Form::Within, "sudo: effective uid is not 0"),
    (Answer::Sudo, Form::Within, "must be owned by uid 0 and have the setuid bit set"),
    (Answer::Sudo, Form::Within, "su: authentication failure"),
    (Answer::ReadOnly, Form::Strerror, "read-only file system"),
    (Answer::ReadOnly, Form::Name, "erofs"),
    (Answer::Denied, Form::Strerror, "permission denied"),
    (Answer::Denied, Form::Name, "eacces"),
    (Answer::NotPermitted, Form::Strerror, "operation not permitted"),
    (Answer::NotPermitted, Form::Name, "eperm"),
    // curl and git, glibc's gai_strerror, apt, wget, node, go, cargo, dig.
    (Answer::Unresolved, Form::Within, "could not resolve host"),
    (Answer::Unresolved, Form::Within, "couldn't resolve host"),
    (Answer::Unresolved, Form::Within, "could not resolve hostname"),
    (Answer::Unresolved, Form::Within, "temporary failure in name resolution"),
    (Answer::Unresolved, Form::Within, "temporary failure resolving"),
    (Answer::Unresolved, Form::Within, "name or service not known"),
    (Answer::Unresolved, Form::Within, "no address associated with hostname"),
    (Answer::Unresolved, Form::Within, "unable to resolve host address"),
    (Answer::Unresolved, Form::Within, "failed to lookup address information"),
    (Answer::Unresolved, Form::Within, "no such host"),
    (Answer::Unresolved, Form::Within, "no servers could be reached"),
    (Answer::Unresolved, Form::Within, ";; communications error to"),
    (Answer::Unresolved, Form::Name, "enotfound"),
    (Answer::Unresolved, Form::Name, "eai_again"),
    (Answer::Refused, Form::Strerror, "connection refused"),
    (Answer::Refused, Form::Within, "could not connect to server"),
    (Answer::Refused, Form::Within, "couldn't connect to server"),
    (Answer::Refused, Form::Name, "econnrefused"),
];

/// Texts that hold a signature and are something else: keys that a server of ssh's did not take, and sudo's remark about
/// the machine's own name.
const EXCEPTIONS: &[&str] = &[
    "permission denied (publickey",
    "permission denied (password",
    "permission denied (keyboard-interactive",
    "permission denied, please try again",
    "sudo: unable to resolve host",
];

/// The refusal that a line of output tells of, and where in the line its text begins, in bytes. `lower` is the line in
/// ASCII lower case.
pub fn find(lower: &str) -> Option<(Answer, usize)> {
    if EXCEPTIONS.iter().any(|text| lower.contains(text)) {
        return None;
    }
    SIGNATURES.iter().find_map(|(answer, form, text)| {
        let mut places = lower.match_indices(text).map(|(at, _)| at);
        places.find(|at| stands(lower, *at, *at + text.len(), *form)).map(|at| (*answer, at))
    })
}

fn stands(line: &str, start: usize, end: usize, form: Form) -> bool {
    let (before, after) = (&line[..start], &line[end..]);
    match form {
        Form::Within => true,
        Form::Strerror => {
            let begins = before.trim_start().is_empty()
                || [": ", "] ", " - ", "(", "'", "\"", "error ", "errno "].iter().any(|sign| before.ends_with(sign))
                || before.ends_with(|c: char| c.is_ascii_digit());
            let ends = after.chars().next().is_none_or(|c| ".,:;)]'\"(\\".contains(c)) || after.trim().is_empty();
            let ends = ends || after.starts_with(" (os error") || after.starts_with(" [");
            begins && ends
        }
        Form::Name => {
            let called = ["code ", "code: ", "connect ", "getaddrinfo ", "errno ", "error: ", "= -1 ", "err! "];
            let called = called.iter().any(|sign| before.ends_with(sign)) || before.trim_start().is_empty();
            let ends_word = !after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
            let quoted = before.ends_with("code: '") && after.starts_with('\'');
            let bracketed = before.ends_with('(') && after.starts_with(')');
            ends_word && (called || quoted || bracketed || (after.starts_with(": ") && before.ends_with(' ')))
        }
    }
}

#[cfg(test)]
#[path = "signature_tests.rs"]
mod tests;
