//! What the enforcing parts report, taken in by the supervisor: the proxy's reports, which wait for an answer, and the
//! firewall's log, which has answered already and is held against the firewall's own counters at the end.

mod probes;
mod witness;

use crate::install::firewall::{FirewallError, RuleCounter};
use crate::ledger::record::{Body, Denial, Gap};
use crate::ledger::{Appended, Ledger, LedgerError};
use crate::observe::attribution::Attribution;
pub use crate::observe::hearing::{Hearing, Source};
use crate::observe::landlock_audit::{AuditError, LandlockAudit};
use crate::observe::nflog::{NfLog, Openings};
use crate::policy::Axis;
use crate::proxy::channel::{Report, ReportReceiver, Reported};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Evidence cannot be taken in any more, or not be kept.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    /// The proxy has ended: egress is closed, and what it refuses is not recorded.
    #[error("the proxy has ended")]
    ProxyEnded,
    /// The observer is not to be heard: calls that it would answer get ENOSYS.
    #[error("observer: {0}")]
    Observer(String),
    /// The witness is not to be heard: reads of watched paths would be on no record.
    #[error("witness: {0}")]
    Witness(String),
    /// The proxy sends what it never would.
    #[error("the proxy sent {0} messages that are no reports")]
    ProxyGarbled(u64),
    /// The proxy does not end when it is asked to.
    #[error("the proxy did not end within {0:?} of being asked to: it was killed")]
    ProxyLingers(Duration),
    /// The channel to the proxy.
    #[error("the proxy's reports: {0}")]
    Reports(#[from] io::Error),
    /// The firewall's log.
    #[error(transparent)]
    Firewall(#[from] FirewallError),
    /// The kernel's audit.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// Messages of the firewall's log, and records of the kernel's audit, that are taken in before anything else has its turn.
const AT_ONCE: usize = 256;
/// How long the proxy may take to report what it has left, and the observer what it has kept.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The sources and what has come from them.
#[derive(Debug, Default)]
pub struct Evidence {
    reports: Option<ReportReceiver>,
    log: Option<NfLog>,
    observer: Option<Hearing>,
    witness: Option<Hearing>,
    audit: Option<LandlockAudit>,
    /// Who it was that was refused.
    who: Attribution,
    /// Packets that the log has told of, by rule.
    logged: BTreeMap<String, u64>,
    /// Packets that are known to be missing from the log.
    lost: u64,
    /// Denials that the proxy has reported before the command runs.
    reported: u64,
    /// Where TCP packets were to go that the log has told of before the command runs.
    connects: BTreeSet<SocketAddr>,
    /// Whether the command runs: what is refused before that was tried by the probes.
    recording: bool,
    /// Whether a report of the proxy's could not be recorded, and so was not answered.
    unanswered: bool,
    /// Whether the proxy was told to admit nothing new.
    holding: bool,
    /// Where refusals are not made: what was let through, so that the kernel sends it again.
    let_through: Option<Openings>,
    /// The counters when recording began.
    baseline: BTreeMap<String, u64>,
}

impl Evidence {
    /// The sources of a run.
    pub fn new(reports: Option<ReportReceiver>, log: Option<NfLog>) -> Evidence {
        Evidence { reports, log, ..Evidence::default() }
    }

    /// What the log tells of is let through: a shadow's.
    pub fn of_shadow(&mut self) {
        self.let_through = Some(Openings::default());
    }

    /// From here on the observer is heard too.
    pub fn hear_observer(&mut self, hearing: Hearing) {
        self.observer = Some(hearing);
    }

    /// The observer has been ended, with nobody left whose calls it could answer.
    pub fn observer_is_over(&mut self) {
        self.observer = None;
    }

    /// The observer has ended before it should: calls that waited for it were refused with ENOSYS, and are on no record.
    pub fn observer_was_lost(&mut self, cause: &str, ledger: &mut Ledger) -> Result<(), LedgerError> {
        self.observer = None;
        if self.recording {
            let cause = format!("observer: {cause}: what was refused last may be missing");
            ledger.append(Body::Gap(Gap { axis: None, source: "notifier".into(), lost: 0, cause }))?;
        }
        Ok(())
    }

    /// The observer, to be waited for.
    pub fn observer(&self) -> Option<&Hearing> {
        self.observer.as_ref()
    }

    /// The proxy's channel, to be waited for.
    pub fn reports(&self) -> Option<&ReportReceiver> {
        self.reports.as_ref()
    }

    /// The firewall's log, to be waited for.
    pub fn log(&self) -> Option<&NfLog> {
        self.log.as_ref()
    }

    /// From here on the kernel's audit is read too, once the command runs.
    pub fn read_audit(&mut self, audit: LandlockAudit) {
        self.audit = Some(audit);
    }

    /// The command's process, as this one numbers it, whose Landlock domain audit tells of.
    pub fn command_runs(&mut self, command: Pid, uid: u32) {
        self.audit.iter_mut().for_each(|audit| audit.of_command(command.as_raw().unsigned_abs(), uid));
    }

    /// The kernel's audit.
    pub fn audit(&self) -> Option<&LandlockAudit> {
        self.audit.as_ref()
    }

    /// The firewall's log has told all that it had.
    pub fn log_is_over(&mut self) {
        self.log = None;
    }

    /// Packets that the log has told of so far, by rule.
    pub fn logged(&self) -> &BTreeMap<String, u64> {
        &self.logged
    }

    /// Denials that the proxy has reported before the command ran.
    pub fn reported(&self) -> u64 {
        self.reported
    }

    /// Where TCP packets were to go that the log has told of before the command ran.
    pub fn connects(&self) -> &BTreeSet<SocketAddr> {
        &self.connects
    }

    /// Whose acts the records are of: the command's uid, and the process that all its processes descend from.
    pub fn of_command(&mut self, uid: u32, stage: Pid) {
        self.who.command(uid, stage);
    }

    /// Where the command's sockets are, if not here; see [`Attribution::sockets_of`].
    pub fn sockets_of(&mut self, monitor: OwnedFd) {
        self.who.sockets_of(monitor);
    }

    /// From here on what comes in is the command's, and recorded.
    pub fn begin(&mut self, counters: &[RuleCounter]) {
        self.logged.clear();
        self.lost = 0;
        self.who.begin();
        self.baseline = counters.iter().map(|c| (c.rule.clone(), c.packets)).collect();
        self.recording = true;
    }

    /// Takes in some of what is there: whoever is refused without end must not keep the supervisor from all else.
    pub fn collect(&mut self, ledger: &mut Ledger) -> Result<(), EvidenceError> {
        self.collect_observer(ledger)?;
        self.collect_witness(ledger)?;
        self.collect_log(ledger)?;
        self.collect_audit(ledger)?;
        self.hold_egress_while_losing(ledger)?;
        self.collect_reports(ledger)?;
        Ok(())
    }

    /// Takes in all that is there, when nothing of the sandbox is left that could add to it.
    pub fn collect_all(&mut self, ledger: &mut Ledger) -> Result<(), EvidenceError> {
        while self.collect_observer(ledger)? {}
        while self.collect_witness(ledger)? {}
        while self.collect_log(ledger)? {}
        while self.collect_audit(ledger)? {}
        self.hold_egress_while_losing(ledger)?;
        while self.collect_reports(ledger)? {}
        Ok(())
    }

    /// Lets the proxy admit new egress only while the ledger takes what there is to write.
    pub fn hold_egress_while_losing(&mut self, ledger: &Ledger) -> Result<(), EvidenceError> {
        match &self.reports {
            Some(reports) => Ok(hold_while_losing(reports, &mut self.holding, ledger)?),
            None => Ok(()),
        }
    }

    /// Whether there may be more.
    fn collect_observer(&mut self, ledger: &mut Ledger) -> Result<bool, EvidenceError> {
        let Some(observer) = &mut self.observer else { return Ok(false) };
        observer.collect(ledger, self.recording, |note| match note {
            Some(note) => self.who.note(note),
            None => self.who.missed_notes(),
        })
    }

    /// Whether there may be more.
    fn collect_reports(&mut self, ledger: &mut Ledger) -> Result<bool, EvidenceError> {
        let Some(reports) = &mut self.reports else { return Ok(false) };
        let received = reports.drain()?;
        if received.rejected > 0 {
            return Err(EvidenceError::ProxyGarbled(received.rejected));
        }
        let (none, mut ended) = (received.reports.is_empty(), received.closed);
        // Whoever asked the proxy was noted before it could. What has come from the proxy is recorded whatever comes of that.
        let noted = if none { Ok(()) } else { self.take_notes(ledger) };
        let Some(reports) = &mut self.reports else { return Ok(false) };
        for Reported { id, report, on } in received.reports {
            if !self.recording {
                self.reported += u64::from(matches!(report, Report::Denial(_)));
            } else {
                let body = match report {
                    // Its client waits for the answer, so its socket can still be asked for.
                    Report::Denial(denial) => Body::Denial(Denial { subject: self.who.of_client(on), ..denial }),
                    Report::Infrastructure(failure) => Body::Infrastructure(failure),
                };
                self.unanswered = true;
                record(ledger, body)?;
                self.unanswered = false;
                // Before the answer, which may be what lets the next request come.
                hold_while_losing(reports, &mut self.holding, ledger)?;
            }
            match reports.acknowledge(id) {
                // It has died with its reports under way: they are recorded all the same.
                Err(gone) if matches!(gone.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                    ended = true;
                }
                outcome => outcome?,
            }
        }
        if ended {
            return Err(EvidenceError::ProxyEnded);
        }
        noted.map(|()| !none)
    }

    /// Takes in all that the observer has told so far.
    fn take_notes(&mut self, ledger: &mut Ledger) -> Result<(), EvidenceError> {
        while self.collect_observer(ledger)? {}
        Ok(())
    }

    /// Has the proxy report what it has refused and not reported yet, and end. A proxy that has ended before may have
    /// taken such refusals with it: a gap says so.
    pub fn collect_last(&mut self, ledger: &mut Ledger) -> Result<(), EvidenceError> {
        let deadline = Instant::now() + LAST_WORDS;
        let mut outcome = match &self.reports {
            // A report that could not be recorded is not answered, and the proxy waits for that before it ends.
            Some(_) if self.unanswered => Err(EvidenceError::ProxyLingers(Duration::ZERO)),
            Some(reports) => reports.ask_to_end().map_err(EvidenceError::from),
            None => return Ok(()),
        };
        while outcome.is_ok() {
            outcome = self.await_reports(deadline).and_then(|()| self.collect_reports(ledger).map(|_| ()));
        }
        self.reports = None;
        match outcome {
            Err(EvidenceError::ProxyEnded) => return Ok(()),
            Err(EvidenceError::Ledger(error)) => return Err(error.into()),
            _ => {}
        }
        if self.recording {
            let cause = "the proxy did not end by being asked to: what it refused last may be missing".to_owned();
            ledger.append(Body::Gap(Gap { axis: Some(Axis::Network), source: "proxy".into(), lost: 0, cause }))?;
        }
        match outcome {
            // That it has ended was the reason why the run ends, and is said there.
            Err(EvidenceError::Reports(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            _ if self.unanswered => Ok(()),
            outcome => outcome,
        }
    }

    fn await_reports(&self, deadline: Instant) -> Result<(), EvidenceError> {
        let Some(reports) = &self.reports else { return Ok(()) };
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(reports.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) => Err(EvidenceError::ProxyLingers(LAST_WORDS)),
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(io::Error::from(errno).into()),
        }
    }

    /// Whether there may be more.
    fn collect_audit(&mut self, ledger: &mut Ledger) -> Result<bool, EvidenceError> {
        let Some(audit) = &mut self.audit else { return Ok(false) };
        let mut denials = Vec::new();
        let more = audit.collect(AT_ONCE, |denial| denials.push(denial))?;
        for denial in denials {
            record(ledger, Body::Denial(denial))?;
        }
        Ok(more)
    }

    /// Takes in what the kernel's audit still has to tell, when nothing of the sandbox is left; what it can't is a gap.
    pub fn collect_last_of_audit(&mut self, ledger: &mut Ledger) -> Result<(), EvidenceError> {
        let Some(audit) = self.audit.take() else { return Ok(()) };
        let mut bodies = Vec::new();
        let gap = audit.finish(|denial| bodies.push(Body::Denial(denial)));
        for body in bodies.into_iter().chain(gap.map(Body::Gap)) {
            record(ledger, body)?;
        }
        Ok(())
    }

    /// Whether there may be more.
    fn collect_log(&mut self, ledger: &mut Ledger) -> Result<bool, EvidenceError> {
        let Some(log) = &mut self.log else { return Ok(false) };
        let mut denials = Vec::new();
        let drained = log.drain_some(AT_ONCE, |logged| denials.push(logged))?;
        // The note of a packet that the log tells of has been on its way since before the packet was.
        let noted = if denials.is_empty() { Ok(()) } else { self.take_notes(ledger) };
        for logged in denials {
            *self.logged.entry(logged.rule.clone()).or_default() += 1;
            let again = self.let_through.as_mut().zip(logged.packet.as_ref());
            if again.is_some_and(|(openings, packet)| openings.has_seen(packet)) {
                continue;
            }
            if self.recording {
                let mut subject = self.who.of_packet(&logged);
                // A shadow's sockets are opened for a command that is another user.
                subject.uid = subject.uid.filter(|uid| self.let_through.is_none() || Some(*uid) != logged.uid);
                let body = Body::Denial(Denial { subject, ..logged.into_denial() });
                record(ledger, body)?;
            } else if let Some(packet) = logged.packet.filter(|packet| packet.operation() == "tcp") {
                self.connects.extend(packet.dport.map(|port| SocketAddr::new(packet.dst, port)));
            }
        }
        self.lost += drained.lost;
        noted.map(|()| drained.more)
    }

    /// The firewall's counters cannot be read any more: what its log may have missed is unknown.
    pub fn uncounted(&self, cause: &FirewallError, ledger: &mut Ledger) -> Result<(), EvidenceError> {
        let cause = format!("what the firewall refused cannot be held against its log: {cause}");
        for axis in [Axis::Network, Axis::Privilege] {
            let source = "firewall-counter".to_owned();
            ledger.append(Body::Gap(Gap { axis: Some(axis), source, lost: self.lost, cause: cause.clone() }))?;
        }
        Ok(())
    }

    /// Holds the firewall's own counters against what its log has told of; each difference is a gap.
    pub fn reconcile(&self, counters: &[RuleCounter], ledger: &mut Ledger) -> Result<(), EvidenceError> {
        for counter in counters {
            let before = self.baseline.get(&counter.rule).copied().unwrap_or(0);
            let logged = self.logged.get(&counter.rule).copied().unwrap_or(0);
            let lost = counter.packets.saturating_sub(before).saturating_sub(logged);
            if lost > 0 {
                let axis = if counter.rule == "control-plane" { Axis::Privilege } else { Axis::Network };
                let cause =
                    format!("rule {} refused more packets than its log told of ({} noticed)", counter.rule, self.lost);
                ledger.append(Body::Gap(Gap { axis: Some(axis), source: "nflog".into(), lost, cause }))?;
            }
        }
        Ok(())
    }
}

/// Records what a source has told. In the degrade mode a record that is not stored is counted for the gap, and that is enough.
pub(super) fn record(ledger: &mut Ledger, body: Body) -> Result<(), LedgerError> {
    match ledger.append(body)? {
        Appended::Stored { .. } | Appended::Counted | Appended::NotStored => Ok(()),
    }
}

fn hold_while_losing(reports: &ReportReceiver, holding: &mut bool, ledger: &Ledger) -> io::Result<()> {
    let losing = ledger.is_losing();
    if losing == *holding {
        return Ok(());
    }
    *holding = losing;
    match reports.hold(losing) {
        // It has ended, which is seen when its reports are read to their end.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}
