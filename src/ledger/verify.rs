//! Reads a ledger back and says whether it is whole, lacks something, or was changed.

use super::chain::{ORIGIN, digest, head_after, hex, is_head, is_of};
use super::escape::printable;
use super::lines::{Line, Lines};
use super::open_folds::OpenFolds;
use super::record::{Body, Gap, Mechanism, Seal, ShieldState, ShieldsEnd, Start, VERSION};
use super::run_id::RunId;
use super::tally::Tally;
pub use super::verification::{Shadowed, Verification};
use super::view::{BodyView, View};
use crate::policy::Posture;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// How many reasons of incompleteness are kept; the others are counted.
const REASONS_LIMIT: usize = 16;

/// Digits after the point of a time in the writer's form.
const FRACTION: usize = 9;

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
    mut each: impl FnMut(&View<'_>),
) -> Result<Verification, VerifyError> {
    if let Some(text) = head.filter(|text| !is_head(text)) {
        return Err(VerifyError::Head { text: text.to_owned() });
    }
    let mut lines = Lines::new(reader);
    let mut check = Check { folds, ..Check::default() };
    while let Some(line) = lines.next().map_err(|cause| VerifyError::Read { path: PathBuf::new(), cause })? {
        match check.line(&line) {
            Ok(view) => view.iter().for_each(&mut each),
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
    /// SHA-256 of the last line.
    head: Option<[u8; 32]>,
    mono_ns: u64,
    /// The last record's time up to its seconds, which was one.
    second: String,
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
    fn line<'a>(&mut self, line: &Line<'a>) -> Result<Option<View<'a>>, String> {
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
        let view = View::of(line.bytes).map_err(|e| format!("is no record: {}", printable(&e.to_string())))?;
        self.frame(&view)?;
        self.body(&view)?;
        self.folds.note_view(&view);
        self.records += 1;
        self.head = Some(digest(line.bytes));
        Ok(Some(view))
    }

    /// What every record carries.
    fn frame(&mut self, view: &View<'_>) -> Result<(), String> {
        if view.v != VERSION {
            return Err(format!("has version {}, not {VERSION}", view.v));
        }
        if view.seq != self.records {
            return Err(format!("has number {} where {} is due", view.seq, self.records));
        }
        if !self.head.as_ref().map_or(view.prev == ORIGIN, |head| is_of(&view.prev, head)) {
            return Err("does not hold the hash of the line before it".to_owned());
        }
        if view.mono_ns < self.mono_ns {
            return Err("is earlier than the line before it".to_owned());
        }
        self.time(&view.time)?;
        if self.records == 0 {
            view.run.parse::<RunId>().map_err(|e| e.to_string())?;
            self.run = view.run.clone().into_owned();
            self.level = view.level.clone().into_owned();
        } else if view.run != self.run || view.level != self.level {
            return Err("belongs to another run".to_owned());
        }
        self.mono_ns = view.mono_ns;
        Ok(())
    }

    /// A time in UTC. Within one second of a time that was read they differ in the digits of the fraction alone.
    fn time(&mut self, time: &str) -> Result<(), String> {
        let fraction = time.strip_prefix(self.second.as_str()).and_then(|rest| rest.strip_suffix('Z'));
        let is_fraction = |digits: &str| digits.len() == FRACTION && digits.bytes().all(|digit| digit.is_ascii_digit());
        if !self.second.is_empty() && fraction.is_some_and(is_fraction) {
            return Ok(());
        }
        if time.parse::<jiff::Timestamp>().is_err() || !time.ends_with('Z') {
            return Err("has no time in UTC".to_owned());
        }
        self.second.clear();
        // Of another form than the writer's nothing is known but that it is one.
        if let Some((second, fraction)) = time.trim_end_matches('Z').split_once('.')
            && time.len() == second.len() + 1 + FRACTION + 1
            && is_fraction(fraction)
        {
            self.second.push_str(second);
            self.second.push('.');
        }
        Ok(())
    }

    /// The kind's place, and what the kind itself claims.
    fn body(&mut self, view: &View<'_>) -> Result<(), String> {
        let is_start = matches!(&view.body, BodyView::Other(body) if matches!(**body, Body::Start(_)));
        match self.records {
            0 if !is_start => return Err("comes before the start".to_owned()),
            0 => {}
            _ if is_start => return Err("is a second start".to_owned()),
            _ => {}
        }
        match &view.body {
            BodyView::Probe => {}
            BodyView::WouldDeny(denial) => {
                match &mut self.shadow {
                    Some(_) if !denial.is_let_through() && denial.mechanism != Mechanism::Proxy => {
                        return Err("is what would be denied, and says that it was".to_owned());
                    }
                    Some(shadow) => {
                        shadow.would_deny = shadow.would_deny.saturating_add(denial.count);
                        let refused = if denial.is_let_through() { 0 } else { denial.count };
                        shadow.refused = shadow.refused.saturating_add(refused);
                    }
                    None => return Err("is what would be denied, in a run that has no shadow".to_owned()),
                }
                self.tally.would_be_denied(denial.axis, denial.count);
            }
            BodyView::Denial(_) if self.open => return Err("is a denial, in a run that enforces nothing".to_owned()),
            BodyView::Denial(denial) if denial.is_let_through() => {
                return Err("is a denial, and says that it was let through".to_owned());
            }
            BodyView::Denial(denial) => {
                self.denials = self.denials.saturating_add(denial.count);
                self.tally.denied(denial.axis, denial.count);
            }
            BodyView::Other(body) => self.other(body, view)?,
        }
        Ok(())
    }

    /// The kinds of which there are few.
    fn other(&mut self, body: &Body, view: &View<'_>) -> Result<(), String> {
        match body {
            Body::Start(Start { shadow: Some(shadow), postures, .. }) => {
                let (level, enforced) = (shadow.level.clone(), view.level.clone().into_owned());
                self.shadow = Some(Shadowed { level, enforced, would_deny: 0, refused: 0 });
                self.open = postures.values().all(|posture| posture == Posture::Open.name());
            }
            Body::Seal(seal) => {
                self.seal(seal, view.line)?;
                self.sealed = true;
                let altered = seal.shields.iter().filter(|shields| shields.state == ShieldState::Altered);
                self.shields = altered.map(ShieldsEnd::told).next();
            }
            Body::Gap(gap) => self.gap(gap),
            _ => {}
        }
        self.tally.stored(body);
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
        if !self.head.as_ref().is_some_and(|head| is_of(&seal.head, head)) {
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
        let last = self.head.map(|digest| hex(&digest));
        if let Some(head) = head.filter(|head| Some(*head) != last.as_deref() || self.torn.is_some()) {
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
        match (why.is_empty(), last) {
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
