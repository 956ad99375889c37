//! The end of what was put up, in reverse.
use super::{Installation, git, reserve};
use crate::ledger::Ledger;
use crate::ledger::record::GitEnd;
use crate::observe::evidence::EvidenceError;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

impl Installation {
    /// Takes everything down in reverse and says what could not be. The ledger takes in what the enforcing parts still
    /// have to say before they go.
    pub fn take_down(&mut self, ledger: &mut Ledger) -> Vec<String> {
        let mut faults = Vec::new();
        // It holds the namespace, and what is mounted there.
        self.view = None;
        let mut note = |outcome: Result<(), String>| faults.extend(outcome.err());
        self.bait = None;
        let stage = self.stage.as_ref().map(|stage| stage.pid);
        let emptied = match self.stage.take() {
            Some(stage) => self.end_sandbox(stage),
            None => Ok(()),
        };
        let mut collected = self.evidence.collect_all(ledger);
        // They stay until they are ended below; one that has not, took with it what it saw last.
        for _ in 0..2 {
            let lost = match &collected {
                Err(EvidenceError::Observer(cause)) => self.evidence.observer_was_lost(cause, ledger),
                Err(EvidenceError::Witness(cause)) => self.evidence.witness_was_lost(cause, ledger),
                _ => break,
            };
            collected = lost.map_err(EvidenceError::from).and_then(|()| self.evidence.collect_all(ledger));
        }
        match collected {
            Ok(()) => {}
            // It was taken for the reason of the abort already.
            Err(EvidenceError::ProxyEnded) => {}
            Err(error) => note(Err(error.to_string())),
        }
        note(self.evidence.collect_last_of_audit(ledger).map_err(|e| e.to_string()));
        self.evidence.observer_is_over();
        self.evidence.witness_is_over();
        note(self.witness.take().map_or(Ok(()), end_process));
        // Its end takes the sandbox's mounts with it, for which nothing but what is put back below has to wait.
        let mut struck: Vec<Pid> = Vec::new();
        let mut end = |pid: Option<Pid>| pid.map_or(Ok(()), |pid| strike(pid).map(|()| struck.push(pid)));
        let observer = self.observer.take();
        let observer_ends = end(observer);
        note(self.evidence.collect_last(ledger).map_err(|e| e.to_string()));
        let proxy_ends = end(self.proxy.take().map(|(pid, _)| pid));
        let forwarder_ends = end(self.forwarder.take().map(|forwarder| forwarder.pid));
        [observer_ends.clone(), proxy_ends, forwarder_ends].into_iter().for_each(&mut note);
        if self.shadow {
            // Its sockets are counted below.
            struck.drain(..).for_each(|pid| note(reap(pid)));
        }
        if let Some(wall) = self.wall.take() {
            self.watch = None;
            let held_against = match wall.counters() {
                Ok(counters) => self.evidence.reconcile(&counters, ledger),
                Err(cause) => self.evidence.uncounted(&cause, ledger),
            };
            note(held_against.map_err(|e| e.to_string()));
            // Of its sockets none is open when the table goes, but the one by which it goes.
            self.evidence.log_is_over();
            // It stays as long as there is anything to hold; the next run clears it.
            if emptied.is_ok() && !(self.shadow && reserve::has_socket(wall.uid())) {
                note(wall.remove_if_there().map_err(|e| e.to_string()));
            }
        }
        // The stage came to this process with the end of the observer, its parent.
        let stage = stage.filter(|_| observer.is_some() && observer_ends.is_ok());
        struck.into_iter().chain(stage).for_each(|pid| note(reap(pid)));
        self.git_is_still = emptied.is_ok();
        note(emptied);
        let undone = std::mem::take(&mut self.undo).put_back().map_err(|e| e.to_string());
        // With a copy of a repository it stays until what was committed there is carried back.
        if undone.is_err() {
            self.undo_file = None;
        } else if self.git.is_empty() {
            note(self.undo_file.take().map_or(Ok(()), |file| file.remove().map_err(|e| e.to_string())));
        }
        note(undone);
        self.trees.clear();
        note(self.remove_placeholders());
        note(self.home.remove_if_empty().map_err(|e| e.to_string()));
        faults
    }
}

impl Installation {
    /// Carries back what the command has committed in copies of repositories. All else is taken down, and what is in the real
    /// ones has been looked at.
    pub fn carry_back(&mut self) -> Vec<GitEnd> {
        let mut ends = Vec::new();
        let still = self.git_is_still;
        for (directory, copy) in std::mem::take(&mut self.git).into_iter().filter(|(_, copy)| copy.exists()) {
            let failed = |cause: &str| {
                let mut end = GitEnd::of(&directory);
                end.leave(cause);
                end.keep(&copy);
                end
            };
            ends.push(match still {
                true => git::carry_back(&directory, &copy).unwrap_or_else(|error| failed(&error.to_string())),
                false => failed("processes of the command are left"),
            });
        }
        if let Some(file) = self.undo_file.take().filter(|_| still)
            && let Err(error) = file.remove()
            && let Some(end) = ends.last_mut()
        {
            end.leave(&error.to_string());
        }
        ends
    }
}

fn end_process(pid: Pid) -> Result<(), String> {
    strike(pid)?;
    reap(pid)
}

/// The end of a process of ours, which is to be waited for.
fn strike(pid: Pid) -> Result<(), String> {
    match kill(pid, Signal::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(format!("kill of a process of ours: {errno}")),
    }
}

/// The end of a child of ours, waited for.
pub(super) fn reap(pid: Pid) -> Result<(), String> {
    match waitpid(pid, None) {
        // The stage is the observer's child, and after a handover none of ours is this process's.
        Ok(_) | Err(Errno::ECHILD) => Ok(()),
        Err(errno) => Err(format!("waitpid: {errno}")),
    }
}
