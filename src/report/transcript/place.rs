//! What an error text says it was about: paths or hosts, where they can be seen.

use super::signature::Answer;
use std::net::IpAddr;

/// How many names are taken from one line.
const LIMIT: usize = 4;

/// The longest name, in bytes; what is longer is no name.
const NAME_LIMIT: usize = 4096;

/// The objects that a line names, the likeliest first; none where it names none. `at` is where the error's own text
/// begins, in bytes.
pub(super) fn objects(answer: Answer, line: &str, at: usize) -> Vec<String> {
    let mut found = match answer {
        Answer::Refused => hosts(line),
        // A proxy's or a resolver's own address is not what was asked for.
        Answer::Forbidden | Answer::Unresolved => hosts(line).into_iter().filter(|host| !is_loopback(host)).collect(),
        Answer::ReadOnly | Answer::NotPermitted | Answer::Denied => paths(line, at),
        Answer::Sudo => Vec::new(),
    };
    found.retain(|name| !name.is_empty() && name.len() <= NAME_LIMIT);
    let mut distinct = Vec::new();
    for name in found {
        if !distinct.contains(&name) && distinct.len() < LIMIT {
            distinct.push(name);
        }
    }
    distinct
}

/// Quoted names with a slash first, then the absolute ones, then what stands before the error's text.
fn paths(line: &str, at: usize) -> Vec<String> {
    let mut found: Vec<String> = quoted(line).into_iter().filter(|name| name.contains('/')).collect();
    let ends = |c: char| c.is_whitespace() || "'\"`‘’“”(),;:<>[]{}=".contains(c);
    let words = line.split(ends).filter(|word| word.len() > 1 && word.starts_with('/') && !word.starts_with("//"));
    found.extend(words.map(|word| word.trim_end_matches('.').to_owned()));
    if found.is_empty() {
        let errno = |name: &String| ["erofs", "eacces", "eperm"].contains(&name.to_ascii_lowercase().as_str());
        found.extend(quoted(line).into_iter().filter(|name| !errno(name)));
    }
    if found.is_empty() {
        let before = line[..at].trim_end().trim_end_matches(':');
        let last = before.rsplit(": ").next().unwrap_or_default().trim();
        // A name of several words is more likely a sentence.
        let is_name = last.starts_with(|c: char| c.is_alphanumeric() || "._~-".contains(c));
        if is_name && last != before && !last.contains(char::is_whitespace) {
            found.push(last.to_owned());
        }
    }
    found
}

/// What stands in quotes of any of the kinds that tools use.
fn quoted(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (open, close) in [('\'', '\''), ('"', '"'), ('`', '`'), ('\u{2018}', '\u{2019}'), ('`', '\'')] {
        let mut rest = line;
        while let Some(start) = rest.find(open) {
            let after = &rest[start + open.len_utf8()..];
            let Some(end) = after.find(close) else { break };
            let name = &after[..end];
            if !name.is_empty() && !name.contains(['\'', '"', '`', ',']) && !name.starts_with(": ") {
                found.push(name.to_owned());
            }
            rest = &after[end + close.len_utf8()..];
            if found.len() >= LIMIT {
                return found;
            }
        }
    }
    found
}

/// What stands before a host in error texts, in lower case.
const MARKS: &[&str] = &[
    "://",
    "host='",
    "host=\"",
    "resolve host: ",
    "resolve host address ",
    "resolve hostname ",
    "resolving ",
    "lookup ",
    "enotfound ",
    "eai_again ",
    "econnrefused ",
    "connect to ",
    "connecting to ",
    "dial tcp ",
    "connect to host ",
    "ssh: ",
];

fn hosts(line: &str) -> Vec<String> {
    let lower = line.to_ascii_lowercase();
    let mut found: Vec<String> = Vec::new();
    for mark in MARKS {
        for (at, _) in lower.match_indices(mark) {
            let word: String = lower[at + mark.len()..]
                .trim_start_matches(['\'', '"', '`', '\u{2018}', '['])
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || ".-_:@".contains(*c))
                .collect();
            let word = word.rsplit('@').next().unwrap_or_default();
            found.extend(host(word));
        }
    }
    let ends = |c: char| !(c.is_ascii_alphanumeric() || ".:".contains(c));
    found.extend(lower.split(ends).filter_map(address));
    found
}

/// An address in the text, with or without a port.
fn address(word: &str) -> Option<String> {
    let word = word.trim_end_matches(['.', ':']);
    let v4 = word.split(':').next().unwrap_or_default();
    [word, v4].iter().find_map(|text| text.parse::<IpAddr>().ok()).map(|addr| addr.to_string())
}

/// A host's name without its port and its last dot; names without a dot are sentence words, but for localhost.
fn host(word: &str) -> Option<String> {
    if let Some(addr) = address(word) {
        return Some(addr);
    }
    let name = word.split(':').next().unwrap_or_default().trim_matches('.');
    let named = name == "localhost" || (name.contains('.') && name.split('.').all(|label| !label.is_empty()));
    named.then(|| name.to_owned())
}

/// Whether a name is this machine's own loopback, where a refusal is no one's policy.
pub(super) fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|addr| addr.is_loopback() || addr.is_unspecified())
}

#[cfg(test)]
#[path = "place_tests.rs"]
mod tests;
