//! Whose a file is: a transcript, by which the agent has read what stands there, or an artifact, by which something of the
//! harness's has republished it.

use memchr::memmem;
use serde::Serialize;
use std::path::Path;

/// What a hit in a file means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// The agent read it.
    Transcript,
    /// The harness republished it.
    Artifact,
}

impl Class {
    /// Its name in what `scan` says.
    pub fn name(self) -> &'static str {
        match self {
            Class::Transcript => "transcript",
            Class::Artifact => "artifact",
        }
    }
}

/// Directories of what is written about the run by others than the agent, whatever the files are called.
const ARTIFACTS: [&str; 5] = ["verifier", "judge", "grader", "grading", "criteria"];

/// Names of transcripts. Where there is no `/`, it is the file's own name.
const TRANSCRIPTS: [&str; 15] = [
    // What harnesses collect of an agent: Harbor's trials, and what other harnesses call the same.
    "*/agent/*",
    "*/agent-logs/*",
    "*/agent_logs/*",
    // The agents' own: Claude Code, Codex.
    "*/.claude/*",
    "*/.codex/*",
    "rollout-*.jsonl",
    // Words that say what a file is.
    "*transcript*",
    "*trajectory*",
    "*conversation*",
    "*.traj",
    // Recorded terminals: asciinema, script(1), tmux.
    "*.cast",
    "typescript",
    "*.typescript",
    "*.pane",
    "agent*.log",
];

/// What the beginning of a transcript has, whatever its name: roles of a conversation as the agents' and the model
/// vendors' formats have them; a run's ledger of ours, which has what the agent did.
const MARKS: [&str; 8] = [
    "\"type\":\"assistant\"",
    "\"type\": \"assistant\"",
    "\"type\":\"response_item\"",
    "\"role\":\"assistant\"",
    "\"role\": \"assistant\"",
    "\"schema_version\":\"ATIF-",
    "\"schema_version\": \"ATIF-",
    "\"mechanism\":\"notifier\"",
];

/// How much of a file's beginning is looked at, in bytes.
pub(super) const BEGINNING: usize = 1 << 16;

/// What decides about a file.
#[derive(Debug, Clone, Default)]
pub(super) struct Classes {
    /// The caller's own patterns, which stand in for all of the above.
    pub(super) transcripts: Vec<String>,
}

impl Classes {
    /// The class of a file. `path` begins with the name of the directory that was asked for; `beginning` gives the first
    /// bytes of the file.
    pub(super) fn of(&self, path: &Path, beginning: impl FnOnce() -> Vec<u8>) -> Class {
        if !self.transcripts.is_empty() {
            let named = self.transcripts.iter().any(|glob| matches(glob, path));
            return if named { Class::Transcript } else { Class::Artifact };
        }
        let directories = path.parent().into_iter().flat_map(Path::components);
        let of_others = |name: &std::ffi::OsStr| ARTIFACTS.iter().any(|known| name == *known);
        if directories.map(|component| component.as_os_str()).any(of_others) {
            return Class::Artifact;
        }
        if TRANSCRIPTS.iter().any(|glob| matches(glob, path)) {
            return Class::Transcript;
        }
        let beginning = beginning();
        match MARKS.iter().any(|mark| memmem::find(&beginning, mark.as_bytes()).is_some()) {
            true => Class::Transcript,
            false => Class::Artifact,
        }
    }
}

/// Whether a glob names a path: the whole of it below `/`, or the file's name where the glob has no `/`. `*` is any text.
pub(super) fn matches(glob: &str, path: &Path) -> bool {
    if glob.contains('/') {
        return fits(glob.as_bytes(), format!("/{}", path.to_string_lossy().trim_start_matches('/')).as_bytes())
            || fits(glob.as_bytes(), path.to_string_lossy().as_bytes());
    }
    path.file_name().is_some_and(|name| fits(glob.as_bytes(), name.as_encoded_bytes()))
}

fn fits(glob: &[u8], text: &[u8]) -> bool {
    // Where the last star stands, and how much of the text it has taken.
    let (mut at, mut read) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while read < text.len() {
        match glob.get(at) {
            Some(b'*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(byte) if *byte == text[read] => {
                at += 1;
                read += 1;
            }
            _ => {
                let Some((starred, taken)) = star else { return false };
                star = Some((starred, taken + 1));
                at = starred + 1;
                read = taken + 1;
            }
        }
    }
    glob[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(path: &str, beginning: &str) -> Class {
        Classes::default().of(Path::new(path), || beginning.into())
    }

    #[test]
    fn a_file_is_classed_by_its_place_its_name_and_its_beginning() {
        for path in [
            "agent/x.txt",
            "run/agent/sessions/a",
            "run/.claude/projects/p/1.jsonl",
            "run/rollout-1.jsonl",
            "run/trajectory.json",
            "run/my-transcript.md",
            "run/a.cast",
            "typescript",
            "run/agent.log",
        ] {
            assert_eq!(class(path, ""), Class::Transcript, "{path}");
        }
        for path in ["run/results.jsonl", "run/agents.txt", "run/verifier/transcript.txt", "run/agent/../verifier/x"] {
            assert_eq!(class(path, ""), Class::Artifact, "{path}");
        }
        assert_eq!(class("run/1.jsonl", "{\"type\":\"assistant\"}"), Class::Transcript);
        let own = Classes { transcripts: vec!["*.log".into(), "run/b/*".into()] };
        let class = |path: &str| own.of(Path::new(path), Vec::new);
        assert_eq!(class("run/x.log"), Class::Transcript);
        assert_eq!(class("run/b/c/d"), Class::Transcript);
        assert_eq!(class("run/agent/x"), Class::Artifact);
    }

    #[test]
    fn a_star_is_any_text() {
        for (glob, text, fit) in [
            ("*", "", true),
            ("a*b*c", "aXbXbc", true),
            ("a*b*c", "aXc", false),
            ("*aab", "aaab", true),
            ("a", "ab", false),
            ("a**", "a", true),
        ] {
            assert_eq!(fits(glob.as_bytes(), text.as_bytes()), fit, "{glob} {text}");
        }
    }
}
