//! Reads a ledger back and says whether it is whole, lacks something, or was changed.

use super::chain::{ORIGIN, head_after, is_head};
use super::escape::printable;
use super::lines::{Line, Lines};
use super::open_folds::OpenFolds;
use super::record::{Body, Gap, Mechanism, Record, Seal, ShieldState, ShieldsEnd, Start, VERSION};
use super::run_id::RunId;
use super::tally::Tally;
use crate::policy::Posture;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// How many reasons of incompleteness are kept; the others are counted.
const REASONS_LIMIT: usize = 16;

/// What was found in a ledger.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verification {
    /// Every record from the start to the seal is there as it was written, and none was lost.
    Complete {
        /// Lines.
        records: u64,
        /// Denials, folded ones in full.
        denials: u64,
        /// SHA-256 of the last line.
        head: String,
        /// The policy that was held against the run and not enforced, where there was one.
        shadow: Option<Shadowed>,
    },
    /// What is there is as it was written, but it is not everything.
    Incomplete {
        /// Whole lines.
        records: u64,
        /// Denials among them, and those that stand in the file of counts beside them only.
        denials: u64,
        /// What is missing, one phrase each, at most 38.
        why: Vec<String>,
        /// As of a whole one.
        shadow: Option<Shadowed>,
    },
    /// A line is not as it was written, or lines were removed or put in.
    Altered {
        /// The first line, from 1, at which this shows.
        line: u64,
        /// What does not fit.
        why: String,
    },
}

/// What a run's shadow comes to. Its text is one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shadowed {
    /// The level of which nothing was enforced.
    pub level: String,
    /// The level that was.
    pub enforced: String,
    /// What would have been refused, folded records in full.
    pub would_deny: u64,
    /// How much of it was refused all the same, as what its proxy cannot serve.
    pub refused: u64,
}

impl fmt::Display for Shadowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shadowed { level, enforced, would_deny, refused } = self;
        let [level, enforced] = [level, enforced].map(|level| printable(level));
        write!(f, "a shadow of {level}, enforcing {enforced}: {would_deny} would be denied, and ")?;
        match refused {
            0 => f.write_str("none of it was refused"),
            _ => write!(f, "{refused} of it was refused, which its proxy could not serve"),
        }
    }
}

impl Verification {
    /// The policy that was held against the run and not enforced; none where there was none, or where nothing vouches for it.
    pub fn shadow(&self) -> Option<&Shadowed> {
        match self {
            Verification::Complete { shadow, .. } | Verification::Incomplete { shadow, .. } => shadow.as_ref(),
            Verification::Altered { .. } => None,
        }
    }

    /// 0 complete, 1 incomplete, 2 altered.
    pub fn exit_code(&self) -> u8 {
        match self {
            Verification::Complete { .. } => 0,
            Verification::Incomplete { .. } => 1,
            Verification::Altered { .. } => 2,
        }
    }
}

impl fmt::Display for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verification::Complete { records, denials, head, .. } => {
                write!(f, "complete: {records} records, {denials} denials, head {head}")
            }
            Verification::Incomplete { records, denials, why, .. } => {
                write!(f, "incomplete: {records} records, {denials} denials: {}", why.join("; "))
            }
            Verification::Altered { line, why } => write!(f, "altered: line {line}: {why}"),
        }
    }
}

/// A ledger that could not be read, which says nothing about it.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// open(2) or read(2) failed.
    #[error("ledger {path:?} cannot be read: {cause}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// The head that was given is none.
    #[error("head {text:?} is no head: 64 hexadecimal digits in lower case are expected")]
    Head {
        /// The text as given.
        text: String,
    },
}

/// [`verify`] of a file, and of the counts that lie beside one that has no seal.
pub fn verify_path(path: &Path, head: Option<&str>) -> Result<Verification, VerifyError> {
    let read = |cause| VerifyError::Read { path: path.to_owned(), cause };
    let folds = OpenFolds::beside(path);
    let file = File::open(path).map_err(read)?;
    verify_each(BufReader::with_capacity(1 << 16, file), head, folds, |_| {}).map_err(|error| match error {
        VerifyError::Read { cause, .. } => read(cause),
        other => other,
    })
}

/// Checks the form, the chain and the order of all records, the counts and the completeness that the seal claims, and,
/// where `head` is given, that the last line is the one whose hash that is. Reads once, keeping one line at a time.
///
/// The chain has no key. Without `head` a file that someone with write access computed anew from some line on passes;
/// so does one whose end was cut and sealed anew.
pub fn verify<R: BufRead>(reader: R, head: Option<&str>) -> Result<Verification, VerifyError> {
    verify_each(reader, head, OpenFolds::default(), |_| {})
}

/// [`verify`] with the counts beside a ledger, that gives each record once it is known to stand where it was written. When
/// the whole turns out altered, the last record given may be the changed one: only the line after it can tell.
pub fn verify_each<R: BufRead>(
    reader: R,
    head: Option<&str>,
    folds: OpenFolds,
    mut each: impl FnMut(&Record),
) -> Result<Verification, VerifyError> {
    if let Some(text) = head.filter(|text| !is_head(text)) {
        return Err(VerifyError::Head { text: text.to_owned() });
    }
    let mut lines = Lines::new(reader);
    let mut check = Check { folds, ..Check::default() };
    while let Some(line) = lines.next().map_err(|cause| VerifyError::Read { path: PathBuf::new(), cause })? {
        match check.line(&line) {
            Ok(record) => record.iter().for_each(&mut each),
            Err(why) => return Ok(Verification::Altered { line: line.number, why }),
        }
    }
    Ok(check.end(head))
}

/// What has been read so far.
#[derive(Default)]
struct Check {
    records: u64,
    denials: u64,
    shadow: Option<Shadowed>,
    /// Whether nothing was enforced beside the shadow.
    open: bool,
    head: Option<String>,
    mono_ns: u64,
    run: String,
    level: String,
    tally: Tally,
    sealed: bool,
    shields: Option<String>,
    torn: Option<u64>,
    gaps: Vec<String>,
    more_gaps: u64,
    folds: OpenFolds,
}

impl Check {
    /// The record in a line that fits; none in a torn one.
    fn line(&mut self, line: &Line<'_>) -> Result<Option<Record>, String> {
        if self.sealed {
            return Err("stands after the seal".to_owned());
        }
        if line.too_long {
            return Err("is longer than any record".to_owned());
        }
        if !line.ended {
            // The writer's death, or a disk that stayed full: the one way for a line to be torn.
            self.torn = Some(line.number);
            return Ok(None);
        }
        let record =
            super::line::decode(line.bytes).map_err(|e| format!("is no record: {}", printable(&e.to_string())))?;
        self.frame(&record)?;
        self.body(&record.body, line.bytes)?;
        if let (Body::Start(Start { shadow: Some(shadow), postures, .. }), 0) = (&record.body, self.records) {
            let (level, enforced) = (shadow.level.clone(), record.level.clone());
            self.shadow = Some(Shadowed { level, enforced, would_deny: 0, refused: 0 });
            self.open = postures.values().all(|posture| posture == Posture::Open.name());
        }
        self.folds.note(&record);
        self.records += 1;
        self.head = Some(head_after(line.bytes));
        self.tally.stored(&record.body);
        Ok(Some(record))
    }

    /// What every record carries.
    fn frame(&mut self, record: &Record) -> Result<(), String> {
        if record.v != VERSION {
            return Err(format!("has version {}, not {VERSION}", record.v));
        }
        if record.seq != self.records {
            return Err(format!("has number {} where {} is due", record.seq, self.records));
        }
        if record.prev != self.head.as_deref().unwrap_or(ORIGIN) {
            return Err("does not hold the hash of the line before it".to_owned());
        }
        if record.mono_ns < self.mono_ns {
            return Err("is earlier than the line before it".to_owned());
        }
        if record.time.parse::<jiff::Timestamp>().is_err() || !record.time.ends_with('Z') {
            return Err("has no time in UTC".to_owned());
        }
        if self.records == 0 {
            record.run.parse::<RunId>().map_err(|e| e.to_string())?;
            self.run.clone_from(&record.run);
            self.level.clone_from(&record.level);
        } else if record.run != self.run || record.level != self.level {
            return Err("belongs to another run".to_owned());
        }
        self.mono_ns = record.mono_ns;
        Ok(())
    }

    /// The kind's place, and what the kind itself claims.
    fn body(&mut self, body: &Body, line: &[u8]) -> Result<(), String> {
        match (body, self.records) {
            (Body::Start(_), 0) => {}
            (Body::Start(_), _) => return Err("is a second start".to_owned()),
            (_, 0) => return Err("comes before the start".to_owned()),
            (Body::Seal(seal), _) => {
                self.seal(seal, line)?;
                self.sealed = true;
                let altered = seal.shields.iter().filter(|shields| shields.state == ShieldState::Altered);
                self.shields = altered.map(ShieldsEnd::told).next();
            }
            (Body::WouldDeny(denial), _) => match &mut self.shadow {
                Some(_) if !denial.is_let_through() && denial.mechanism != Mechanism::Proxy => {
                    return Err("is what would be denied, and says that it was".to_owned());
                }
                Some(shadow) => {
                    shadow.would_deny = shadow.would_deny.saturating_add(denial.count);
                    let refused = if denial.is_let_through() { 0 } else { denial.count };
                    shadow.refused = shadow.refused.saturating_add(refused);
                }
                None => return Err("is what would be denied, in a run that has no shadow".to_owned()),
            },
            (Body::Denial(_), _) if self.open => return Err("is a denial, in a run that enforces nothing".to_owned()),
            (Body::Denial(denial), _) if denial.is_let_through() => {
                return Err("is a denial, and says that it was let through".to_owned());
            }
            (Body::Denial(denial), _) => self.denials = self.denials.saturating_add(denial.count),
            (Body::Gap(gap), _) => self.gap(gap),
            _ => {}
        }
        Ok(())
    }

    fn gap(&mut self, gap: &Gap) {
        if self.gaps.len() == REASONS_LIMIT {
            self.more_gaps += 1;
            return;
        }
        let axis = gap.axis.map_or("any axis", |axis| axis.name());
        let text = format!("{} of {axis} lost by {}: {}", gap.lost, gap.source, gap.cause);
        self.gaps.push(printable(&text).into_owned());
    }

    fn seal(&self, seal: &Seal, line: &[u8]) -> Result<(), String> {
        if Some(&seal.head) != self.head.as_ref() {
            return Err("seals another head than the line before it has".to_owned());
        }
        if Some(&seal.digest) != seal_digest(line, &seal.digest).as_ref() {
            return Err("is a seal that was changed: its digest does not fit".to_owned());
        }
        if seal.denials != self.tally.denials() {
            return Err(format!("seals denials {:?} where {:?} are recorded", seal.denials, self.tally.denials()));
        }
        if seal.would_deny != self.tally.would_deny() {
            let recorded = self.tally.would_deny();
            return Err(format!("seals {:?} as what would be denied where {recorded:?} are recorded", seal.would_deny));
        }
        if seal.reads != self.tally.reads() {
            return Err(format!("seals {} reads where {} are recorded", seal.reads, self.tally.reads()));
        }
        if seal.complete != self.tally.complete() || seal.complete_by_axis != self.tally.complete_by_axis() {
            return Err("seals a completeness that the recorded gaps do not bear out".to_owned());
        }
        Ok(())
    }

    fn end(self, head: Option<&str>) -> Verification {
        if let Some(head) = head.filter(|head| Some(*head) != self.head.as_deref() || self.torn.is_some()) {
            let line = self.torn.unwrap_or(self.records);
            return Verification::Altered {
                line,
                why: format!("is not the last line of the run whose head is {head}"),
            };
        }
        let mut why = self.gaps;
        if self.more_gaps > 0 {
            why.push(format!("{} gaps more", self.more_gaps));
        }
        why.extend(self.shields.map(|told| printable(&format!("shields altered: {told}")).into_owned()));
        if let Some(line) = self.torn {
            why.push(format!("line {line} is cut short"));
        }
        if self.records == 0 {
            why.push("there is no start".to_owned());
        }
        let (records, mut denials, mut shadow) = (self.records, self.denials, self.shadow);
        if !self.sealed {
            why.push("there is no seal".to_owned());
            let name = self.folds.name().to_owned();
            let left = self.folds.end();
            if let Some((line, why)) = left.misfit {
                return Verification::Altered { line, why };
            }
            if left.count() > 0 {
                let counted = shadow.as_mut().map_or(&mut denials, |shadow| &mut shadow.would_deny);
                *counted = counted.saturating_add(left.count());
                why.push(format!("{} of the denials are counted in {name} and stand in no record", left.count()));
            }
            if left.reads > 0 {
                why.push(format!("{} of the watched reads are counted in {name} and stand in no record", left.reads));
            }
            why.extend(left.faults.into_iter().take(REASONS_LIMIT));
        }
        match (why.is_empty(), self.head) {
            (true, Some(head)) => Verification::Complete { records, denials, head, shadow },
            _ => Verification::Incomplete { records, denials, why, shadow },
        }
    }
}

/// What the digest in a seal's line is due to be, from the line itself.
fn seal_digest(line: &[u8], digest: &str) -> Option<String> {
    let field = format!("\"digest\":\"{digest}\"");
    let text = std::str::from_utf8(line).ok()?;
    let at = text.rfind(&field)?;
    let blank = format!("{}\"digest\":\"{ORIGIN}\"{}", &text[..at], &text[at + field.len()..]);
    Some(head_after(blank.as_bytes()))
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
