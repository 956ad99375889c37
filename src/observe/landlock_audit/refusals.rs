//! From the machine's audit records to the refusals of one domain, each with its caller, and the count of what is missing.

use super::record::{Caller, Record, Refused, Tells};
use crate::ledger::escape::{TEXT_LIMIT, escape};
use crate::ledger::record::{Denial, Mechanism, Object, Subject};
use crate::policy::Axis;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long a refusal waits for the record of its call, which the kernel makes when the call returns, if at all.
const CALLER: Duration = Duration::from_millis(50);
/// How many refusals wait at most; one more makes the oldest go on without a caller.
const WAITING: usize = 1024;

/// The refusals of one command's domain.
#[derive(Debug)]
pub(super) struct Refusals {
    /// The process that makes the domain, and its uid.
    maker: (u32, u32),
    domain: Option<Domain>,
    waiting: VecDeque<Waiting>,
    /// Why records may be missing.
    doubt: Option<String>,
    /// Who made the domain that was told of last.
    last_maker: Option<(u32, u32)>,
}

#[derive(Debug)]
struct Domain {
    id: u64,
    /// How many of its refusals were told of. Its first one, which was the confinement's own look, is one of them.
    heard: u64,
    /// How many there were, once it has ended.
    denials: Option<u64>,
}

#[derive(Debug)]
struct Waiting {
    serial: u64,
    until: Instant,
    denial: Denial,
}

impl Refusals {
    /// Those of the domain that this process of this uid makes first.
    pub fn of(pid: u32, uid: u32) -> Refusals {
        Refusals { maker: (pid, uid), domain: None, waiting: VecDeque::new(), doubt: None, last_maker: None }
    }

    /// Takes in a record; returns a refusal that is complete now.
    pub fn hear(&mut self, record: Record) -> Option<Denial> {
        match record.tells {
            Tells::Allocated { domain, pid, uid } => {
                self.last_maker = Some((pid, uid));
                // A later one of the same number is another process's, or was made within the first.
                if self.domain.is_none() && self.maker == (pid, uid) {
                    self.domain = Some(Domain { id: domain, heard: 1, denials: None });
                }
                None
            }
            Tells::Refused { domain, what } => {
                let ours = self.domain.as_mut().filter(|ours| ours.id == domain)?;
                ours.heard += 1;
                let until = Instant::now() + CALLER;
                self.waiting.push_back(Waiting { serial: record.serial, until, denial: denial(what) });
                if self.waiting.len() <= WAITING {
                    return None;
                }
                self.waiting.pop_front().map(|oldest| oldest.denial)
            }
            Tells::Caller(caller) => {
                let denial = self.called(record.serial)?;
                Some(Denial { subject: subject(caller), ..denial })
            }
            Tells::End => self.called(record.serial),
            Tells::Deallocated { domain, denials } => {
                if let Some(ours) = self.domain.as_mut().filter(|ours| ours.id == domain) {
                    ours.denials = Some(denials);
                }
                None
            }
            Tells::ConfigChange => {
                self.doubt("audit's settings or rules were changed in mid-run");
                None
            }
        }
    }

    fn called(&mut self, serial: u64) -> Option<Denial> {
        let place = self.waiting.iter().position(|waiting| waiting.serial == serial)?;
        self.waiting.remove(place).map(|waiting| waiting.denial)
    }

    /// When the oldest refusal has waited long enough.
    pub fn due(&self) -> Option<Instant> {
        self.waiting.front().map(|oldest| oldest.until)
    }

    /// The refusals that have waited long enough by then, or all of them.
    pub fn overdue(&mut self, now: Option<Instant>) -> Vec<Denial> {
        let over = self.waiting.iter().take_while(|waiting| now.is_none_or(|now| waiting.until <= now)).count();
        self.waiting.drain(..over).map(|waiting| waiting.denial).collect()
    }

    /// Records may be missing, for this reason.
    pub fn doubt(&mut self, cause: &str) {
        self.doubt.get_or_insert_with(|| cause.to_owned());
    }

    /// Whether records may be missing: those of the one domain of which at least one was made among them.
    pub fn in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    /// Whether the domain has ended, so that its own count is known.
    pub fn is_over(&self) -> bool {
        self.domain.as_ref().is_some_and(|domain| domain.denials.is_some())
    }

    /// Whether the domain that was told of last was made by this process of this uid.
    pub fn marked(&self, maker: (u32, u32)) -> bool {
        self.last_maker == Some(maker)
    }

    /// How many refusals are missing at least, and why; `None` where none is.
    pub fn missing(&self) -> Option<(u64, String)> {
        match (&self.domain, &self.doubt) {
            (Some(Domain { denials: Some(denials), heard, .. }), doubt) => {
                let lost = denials.saturating_sub(*heard);
                let cause = doubt.as_deref().unwrap_or("the kernel counted more refusals than it told of");
                (lost > 0).then(|| (lost, cause.to_owned()))
            }
            (Some(_), None) => None,
            (_, Some(doubt)) => Some((0, doubt.clone())),
            (None, None) => Some((0, "audit did not tell of the command's Landlock domain".to_owned())),
        }
    }
}

fn denial(what: Refused) -> Denial {
    let (operation, text) = match what {
        Refused::Signal { pid, comm } => {
            let pid = pid.map(|pid| format!("pid {pid}"));
            let comm = comm.map(|comm| format!("({})", escape(&comm, TEXT_LIMIT)));
            let known: Vec<String> = pid.into_iter().chain(comm).collect();
            ("signal".to_owned(), Some(known.join(" ")).filter(|text| !text.is_empty()))
        }
        Refused::AbstractSocket { name } => ("connect".to_owned(), name.map(|name| escape(&name, TEXT_LIMIT))),
        Refused::Other(blockers) => (escape(&blockers, TEXT_LIMIT), None),
    };
    let object = Object { text, ..Object::default() };
    let denial = Denial::observed(Axis::Privilege, Mechanism::Landlock, &operation, object, "scope", "outside_domain");
    Denial { errno: Some("EPERM".into()), ..denial }
}

fn subject(caller: Caller) -> Subject {
    let text = |bytes: Option<Vec<u8>>| bytes.map(|bytes| escape(&bytes, TEXT_LIMIT));
    Subject { pid: caller.pid, uid: caller.uid, comm: text(caller.comm), exe: text(caller.exe), ..Subject::default() }
}

#[cfg(test)]
#[path = "refusals_tests.rs"]
mod tests;
