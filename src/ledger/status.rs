//! The status line of `--json-status-fd`: how a run ended, told to whoever started it.

use super::line::encode;
use super::record::{Outcome, ShieldState};
use super::writer::{SealInput, Sealed};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The fields of the last record, and the head that the file is later held against. What is not known is null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Whether the command was started.
    pub started: bool,
    /// How it ended.
    pub outcome: Outcome,
    /// The exit status passed on (128+n for a signal); null where the command never ended by itself.
    pub exit_code: Option<i32>,
    /// Denials stored, by axis.
    pub denials: BTreeMap<String, u64>,
    /// What the shadowed policy would have refused, by axis; nothing of it was. Not there where there is no shadow.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub would_deny: BTreeMap<String, u64>,
    /// What has become of what was shielded; left out where nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shields: Option<ShieldState>,
    /// Whether the record is complete; null where there is no sealed record.
    pub complete: Option<bool>,
    /// The same by axis; empty where there is no sealed record.
    pub complete_by_axis: BTreeMap<String, bool>,
    /// SHA-256 of the ledger's last line, for `ringfence verify --head`; null where there is no sealed record.
    pub head: Option<String>,
}

impl Status {
    /// The status of a run whose ledger could not be opened, or not sealed.
    pub fn unsealed(end: SealInput) -> Status {
        Status {
            started: end.started,
            outcome: end.outcome,
            exit_code: end.exit_code,
            denials: BTreeMap::new(),
            would_deny: BTreeMap::new(),
            shields: None,
            complete: None,
            complete_by_axis: BTreeMap::new(),
            head: None,
        }
    }

    /// The line as it is written, with its newline.
    pub fn to_line(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut line = encode(self)?;
        line.push(b'\n');
        Ok(line)
    }
}

impl From<&Sealed> for Status {
    fn from(sealed: &Sealed) -> Status {
        let seal = &sealed.seal;
        Status {
            started: seal.started,
            outcome: seal.outcome,
            exit_code: seal.exit_code,
            denials: seal.denials.clone(),
            would_deny: seal.would_deny.clone(),
            shields: seal.shields.as_ref().map(|shields| shields.state),
            complete: Some(sealed.complete),
            complete_by_axis: sealed.complete_by_axis.clone(),
            head: Some(sealed.head.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_a_record_says_so() {
        let end = SealInput { started: false, outcome: Outcome::NotStarted, exit_code: Some(125) };
        assert_eq!(
            String::from_utf8(Status::unsealed(end).to_line().unwrap()).unwrap(),
            concat!(
                r#"{"started":false,"outcome":"not_started","exit_code":125,"denials":{},"complete":null,"#,
                r#""complete_by_axis":{},"head":null}"#,
                "\n"
            )
        );
    }
}
