//! The resolver is asked about admitted names only (case N13), in every test: each world is held to it when it ends.
//!
//! What is asked while a script runs without ringfence, or under a policy that leaves the network alone, is a live vector
//! and does not count.

use ringfence::policy::{Allowlist, Authority, Entry, Host, Name, Verdict};
use std::process::Command;
use std::sync::Mutex;
use world::Question;

/// What the strictest level that has names at all admits.
const LEVEL: &str = include_str!("../../allowlists/nist-high.txt");

/// The levels, and the posture, that leave the network alone.
const OPEN: [&str; 3] = ["control", "non-root", "open"];

/// What may be asked, and what did not come from ringfence.
#[derive(Default)]
pub struct Asked(Mutex<Noted>);

#[derive(Default)]
struct Noted {
    /// The entries of every run so far, beside the level's own list.
    admitted: Vec<Entry>,
    /// Questions of live vectors, as the first's place and the place after the last.
    free: Vec<(usize, usize)>,
    /// Where the questions begin of a live vector after which no run has started: they may still be under way.
    live: Option<usize>,
    /// A run that may ask for any name has been started.
    open: bool,
}

impl Asked {
    /// Takes note of what a run admits that starts after so many questions. A run whose network is left alone may ask for
    /// any name.
    pub fn run(&self, command: &Command, questions: usize) {
        let arguments: Vec<String> = command.get_args().map(|one| one.to_string_lossy().into_owned()).collect();
        let own = arguments.split(|one| one == "--").next().unwrap_or_default();
        let mut noted = self.0.lock().expect("no panic while held");
        let live = noted.live.take();
        noted.free.extend(live.map(|first| (first, questions)));
        let value = |one: &String| one.rsplit_once('=').map_or(one.clone(), |(_, value)| value.to_owned());
        noted.open |= own.iter().any(|one| OPEN.contains(&value(one).as_str()));
        for (at, one) in own.iter().enumerate() {
            let entry = match one.strip_prefix("--allow-host=") {
                Some(entry) => Some(entry),
                None if at > 0 && own[at - 1] == "--allow-host" => Some(one.as_str()),
                None => None,
            };
            noted.admitted.extend(entry.and_then(|entry| Entry::parse(entry).ok()));
        }
    }

    /// Takes note of names that are admitted by a policy in a file.
    pub fn admit(&self, names: &[&str]) {
        let entries = names.iter().map(|name| Entry::parse(name).expect("an entry"));
        self.0.lock().expect("no panic while held").admitted.extend(entries);
    }

    /// Takes note that the questions from this one on are a live vector's, until a run starts.
    pub fn live(&self, first: usize) {
        self.0.lock().expect("no panic while held").live.get_or_insert(first);
    }

    /// The names that ringfence let be asked, and that no run admits.
    pub fn strays(&self, questions: &[Question]) -> Vec<String> {
        let Ok(noted) = self.0.lock() else { return Vec::new() };
        if noted.open {
            return Vec::new();
        }
        let level = Allowlist::from_file_text("the level's list", LEVEL).expect("it parses");
        let list = Allowlist::from_entries(level.entries().into_iter().chain(&noted.admitted).cloned());
        let is_free = |at: &usize| {
            noted.live.is_some_and(|first| *at >= first)
                || noted.free.iter().any(|(first, end)| (first..end).contains(&at))
        };
        let counted = questions.iter().enumerate().filter(|(at, _)| !is_free(at));
        counted.map(|(_, question)| question.name.clone()).filter(|name| !names(&list, name)).collect()
    }
}

/// Whether a list admits a name, at whatever port.
fn names(list: &Allowlist, name: &str) -> bool {
    let Ok(name) = Name::parse(name.as_bytes()) else { return false };
    match list.judge(&Authority { host: Host::Name(name), port: 443 }) {
        Verdict::Admitted { .. } => true,
        Verdict::Refused { rule, .. } => rule == "port",
    }
}
