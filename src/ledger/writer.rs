//! The one writer of a run's ledger.

mod folding;
mod lines;
mod presence;

use super::attempts::Attempts;
use super::chain::{ORIGIN, head_after};
use super::counted::key;
use super::counts::Counts;
use super::error::LedgerError;
use super::escape::printable;
use super::fold::Folds;
use super::record::{Body, Denial, Evidence, GitEnd, Infrastructure, Mechanism, Object, Outcome, Seal, ShieldsEnd};
use super::run_id::RunId;
use super::sink::Sink;
use super::tally::Tally;
use super::target::{LedgerTarget, Made, OWNERS, adopt, create};
use nix::sys::stat::{Mode, fchmod};
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Instant;

pub use presence::Tampering;

/// What a record that cannot be written means for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LedgerMode {
    /// [`Ledger::append`] gives the error, and the run is to end.
    #[default]
    Required,
    /// The loss is counted and [`Ledger::append`] gives [`Appended::NotStored`]; while [`Ledger::is_losing`], no new
    /// egress is to be allowed.
    Degrade,
}

/// What became of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Appended {
    /// It is in the file.
    Stored {
        /// Its number.
        seq: u64,
        /// The chain's head after it.
        head: String,
    },
    /// It is counted, in a file that outlives this process, and its record will follow ([`Ledger::next_flush`]).
    Counted,
    /// It could not be stored now ([`LedgerMode::Degrade`] only): it is counted for the next `gap`, or, where a part of
    /// its line is out, its rest comes before the next record.
    NotStored,
}

/// How the run ended, for its last record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealInput {
    /// Whether the command was started.
    pub started: bool,
    /// How it ended.
    pub outcome: Outcome,
    /// The status passed on.
    pub exit_code: Option<i32>,
}

/// A ledger that holds its last record.
#[derive(Debug, Clone, PartialEq)]
pub struct Sealed {
    /// SHA-256 of the seal's own line: what the status descriptor says and what `verify --head` asks for.
    pub head: String,
    /// Whether no gap was recorded.
    pub complete: bool,
    /// The same by axis.
    pub complete_by_axis: BTreeMap<String, bool>,
    /// The last record's fields.
    pub seal: Seal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Empty,
    Open,
    Sealed,
}

/// An open ledger.
///
/// It may cross one fork(2), on either side, but only one of the two processes may use it from then on: the sequence
/// and the chain live in memory, and two writers would give two records the same place. The other drops it, which
/// closes its descriptor and changes nothing. The descriptor is close-on-exec.
#[derive(Debug)]
pub struct Ledger {
    sink: Sink,
    made: Made,
    target: String,
    run: String,
    level: String,
    mode: LedgerMode,
    /// Whether nothing is refused, so that what sources tell of would have been.
    shadow: bool,
    stage: Stage,
    seq: u64,
    head: String,
    /// The last line, whose memory the next one takes.
    line: Vec<u8>,
    attempts: Attempts,
    tally: Tally,
    folds: Folds,
    counts: Counts,
    /// Slots whose fold stands in the ledger, or will once the rest of a line is out.
    leaving: Vec<usize>,
    /// What the seal is to say of the shields.
    shields: Option<ShieldsEnd>,
    /// What it is to say of repositories.
    git: Vec<GitEnd>,
    /// Whether counted denials were due and could not be written.
    stuck: bool,
    /// Whether the file's name does not mean it any more.
    nameless: bool,
}

impl Ledger {
    /// Makes the ledger of a run: a new file of mode 0600 that only grows, in a directory that is made, 0700, if it is
    /// missing; or a descriptor of the caller's.
    ///
    /// Every directory above must belong to root or the caller and not be writable by everyone; what the command's own
    /// ids could do is asked beforehand with [`super::control_path_is_safe`]. On an error nothing stays behind.
    pub fn open(target: LedgerTarget, run: &RunId, level: &str) -> Result<Ledger, LedgerError> {
        let (file, made, target) = match target {
            LedgerTarget::Path(path) => {
                let (file, made) = create(&path)?;
                (file, made, path.display().to_string())
            }
            LedgerTarget::Fd(file) => {
                adopt(&file)?;
                let name = format!("fd:{}", file.as_raw_fd());
                (file, Made::default(), name)
            }
        };
        let fd = file.as_raw_fd();
        Ok(Ledger {
            sink: Sink::new(file).map_err(|cause| LedgerError::Descriptor { fd, cause })?,
            made,
            target,
            run: run.to_string(),
            level: level.to_owned(),
            mode: LedgerMode::default(),
            shadow: false,
            stage: Stage::Empty,
            seq: 0,
            head: ORIGIN.to_owned(),
            line: Vec::new(),
            attempts: Attempts::default(),
            tally: Tally::default(),
            folds: Folds::default(),
            counts: Counts::of(run.as_str()),
            leaving: Vec::new(),
            shields: None,
            git: Vec::new(),
            stuck: false,
            nameless: false,
        })
    }

    /// The same ledger in another mode.
    pub fn with_mode(self, mode: LedgerMode) -> Ledger {
        Ledger { mode, ..self }
    }

    /// The same ledger for a run that enforces nothing beside its shadow: each denial that is appended is one that would
    /// have been, and stands there as `would_deny`, so that none can be taken for an enforced one. Of what its proxy tells it is the
    /// proxy that says whether it was let through: there is a request that no proxy can serve.
    pub fn of_shadow(self) -> Ledger {
        Ledger { shadow: true, ..self }
    }

    /// What becomes of a denial in this ledger.
    fn body_of(&self, denial: Denial) -> Body {
        if self.shadow { Body::WouldDeny(denial) } else { Body::Denial(denial) }
    }

    /// Closes the ledger's files to their own owner too until the seal, for a command that has the same uid. A descriptor of
    /// the caller's is left as it is.
    pub fn shut(&mut self) -> Result<(), LedgerError> {
        if self.made.is_ours() {
            self.set_mode(Mode::empty())?;
            self.made.shut = true;
        }
        Ok(())
    }

    fn set_mode(&self, mode: Mode) -> Result<(), LedgerError> {
        let failed = |cause| LedgerError::Path { call: "fchmod", path: PathBuf::from(&self.target), cause };
        fchmod(self.sink.file(), mode).map_err(failed)
    }

    /// The path, or `fd:N`.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The chain's head after the last record.
    pub fn head(&self) -> &str {
        &self.head
    }

    /// Denials stored so far, by axis, folded ones in full; those that are still being counted are not among them.
    pub fn denials(&self) -> BTreeMap<String, u64> {
        self.tally.denials()
    }

    /// Whether something still waits that could not be written: the rest of a line, a count of lost records, or denials
    /// that were counted; or what is written has no name to be read by.
    pub fn is_losing(&self) -> bool {
        self.sink.owes() || self.tally.is_losing() || self.stuck || self.nameless
    }

    /// Adds a record as one line, in one write(2) where the file takes it whole. A denial's `attempt` is set here, and
    /// of many identical denials or reads those above a rate are counted instead of being written (`ledger::fold`).
    ///
    /// The first record is a `start`, whose failure is an error in either mode; the last is made by [`Ledger::seal`].
    /// Losses of before are recorded first, as one `gap` an axis, source `writer`. In [`LedgerMode::Required`] too
    /// a record that gives an error is counted as lost, so that an abort or a seal that still gets through does not
    /// claim a complete record.
    pub fn append(&mut self, body: Body) -> Result<Appended, LedgerError> {
        self.append_at(body, Instant::now())
    }

    fn append_at(&mut self, body: Body, now: Instant) -> Result<Appended, LedgerError> {
        self.check_place(&body)?;
        match body {
            Body::Denial(mut denial) => {
                denial.evidence = match denial.evidence {
                    _ if self.shadow && denial.mechanism != Mechanism::Proxy => Evidence::ShadowObserved,
                    Evidence::ShadowObserved if !self.shadow => Evidence::EnforcementObserved,
                    told => told,
                };
                denial.attempt = self.attempts.number(&denial);
                self.alike(self.body_of(denial), now)
            }
            Body::Read(_) => self.alike(body, now),
            Body::Abort(_) => match (self.flush_all(), self.mode) {
                (Err(error), LedgerMode::Required) => Err(error),
                _ => self.write_now(&body),
            },
            body => self.write_now(&body),
        }
    }

    fn alike(&mut self, body: Body, now: Instant) -> Result<Appended, LedgerError> {
        match key(&body) {
            Some(key) => self.write_or_count(key, body, now),
            None => self.write_now(&body),
        }
    }

    fn write_now(&mut self, body: &Body) -> Result<Appended, LedgerError> {
        let starting = self.stage == Stage::Empty;
        let result = self.settle().and_then(|()| self.put(body));
        let (begun, error) = match result {
            Ok(()) => (true, None),
            Err(failure) => (failure.begun, Some(failure.error)),
        };
        if begun {
            self.stage = Stage::Open;
            self.tally.stored(body);
        } else if let Some(error) = error.as_ref().filter(|_| !starting) {
            self.tally.lost(body, error.to_string());
        }
        match error {
            None => Ok(Appended::Stored { seq: self.seq - 1, head: self.head.clone() }),
            Some(error) if starting || self.mode == LedgerMode::Required => Err(error),
            Some(_) => Ok(Appended::NotStored),
        }
    }

    /// Tries to write what is owed; what is still owed after it is seen by [`Ledger::is_losing`].
    pub fn retry(&mut self) {
        if self.stage != Stage::Open {
            return;
        }
        let result = self.settle().map_err(|failure| failure.error);
        let result = if self.stuck { result.and_then(|()| self.flush_all()) } else { result };
        if let Err(error) = result {
            drop(error);
        }
    }

    /// Has the seal say what has become of the shields.
    pub fn tell_of_shields(&mut self, end: ShieldsEnd) {
        self.shields = Some(end);
    }

    /// Has the seal say what has become of what was committed.
    pub fn tell_of_git(&mut self, ends: Vec<GitEnd>) {
        self.git = ends;
    }

    /// Writes what is still counted and adds the last record. After an error with nothing of it written it may be tried
    /// again.
    pub fn seal(&mut self, end: SealInput) -> Result<Sealed, LedgerError> {
        let misplaced = |why| Err(LedgerError::Order { kind: "seal", why });
        match self.stage {
            Stage::Open => {}
            Stage::Empty => return misplaced("comes before the start"),
            Stage::Sealed => return misplaced("comes a second time"),
        }
        self.sink.be_patient();
        self.flush_all()?;
        self.remove_counts()?;
        self.settle().map_err(|failure| failure.error)?;
        let mut seal = Seal {
            started: end.started,
            outcome: end.outcome,
            exit_code: end.exit_code,
            denials: self.tally.denials(),
            would_deny: self.tally.would_deny(),
            reads: self.tally.reads(),
            shields: self.shields.take(),
            git: std::mem::take(&mut self.git),
            complete: self.tally.complete(),
            complete_by_axis: self.tally.complete_by_axis(),
            head: self.head.clone(),
            digest: ORIGIN.to_owned(),
        };
        let blank = Body::Seal(seal.clone());
        let mut record = self.record(&blank)?;
        seal.digest = head_after(&self.encode(&record)?);
        let body = Body::Seal(seal.clone());
        record.body = &body;
        let mut line = self.encode(&record)?;
        let written = self.write(&mut line);
        if written.as_ref().err().is_none_or(|failure| failure.begun) {
            self.stage = Stage::Sealed;
        }
        written.map_err(|failure| failure.error)?;
        if self.made.shut {
            self.set_mode(OWNERS)?;
        }
        Ok(Sealed {
            head: self.head.clone(),
            complete: seal.complete,
            complete_by_axis: seal.complete_by_axis.clone(),
            seal,
        })
    }

    /// What is left behind is said in the record, and read by no one: a sealed ledger holds all counts.
    fn remove_counts(&mut self) -> Result<(), LedgerError> {
        let Err(left) = self.counts.remove(&self.made) else { return Ok(()) };
        let body = Body::Infrastructure(Infrastructure {
            operation: "undo".to_owned(),
            object: Object::default(),
            cause: printable(&left.to_string()).into_owned(),
            http_status: None,
        });
        self.write_now(&body).map(drop)
    }

    /// Takes back what [`Ledger::open`] made, for a run whose command was never started: the file, if its name still
    /// means it, and the directories, if they are empty again. A descriptor of the caller's is left as it is.
    pub fn remove_if_unstarted(self) -> Result<(), LedgerError> {
        self.made.remove(self.sink.file())
    }

    fn check_place(&self, body: &Body) -> Result<(), LedgerError> {
        let why = match (self.stage, body) {
            (Stage::Sealed, _) => "comes after the seal",
            (_, Body::Seal(_)) => "is made by sealing only",
            (Stage::Empty, Body::Start(_)) => return Ok(()),
            (Stage::Empty, _) => "comes before the start",
            (Stage::Open, Body::Start(_)) => "comes a second time",
            (Stage::Open, _) => return Ok(()),
        };
        Err(LedgerError::Order { kind: body.kind(), why })
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
