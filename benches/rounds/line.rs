//! The lines in which a bench leaves what it measured: JSON, one object a line. First the table, then its values.

use serde::{Deserialize, Serialize};

/// One line.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "lowercase")]
pub enum Line {
    /// What is compared, and by what.
    Table(Table),
    /// What one candidate took in one round.
    Value(Value),
    /// A program that was measured beside ours.
    Peer(Peer),
}

/// What is compared, and by what.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Table {
    /// Its name, the same in each of its lines.
    pub table: String,
    /// What was measured, as a heading.
    pub title: String,
    /// The unit of the values.
    pub unit: String,
    /// The candidates to which each other one's ratio is told, in this order.
    pub bases: Vec<String>,
    /// How it was measured, and what the values do not say.
    pub note: String,
    /// What is aimed at.
    pub goals: Vec<Goal>,
}

/// What is aimed at for one candidate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Goal {
    /// What is measured.
    pub what: String,
    /// Whose values are judged.
    pub candidate: String,
    /// Beside whose: it must hold beside each that was measured.
    pub over: Vec<String>,
    /// How both are set against each other.
    pub by: By,
    /// The bound.
    pub bound: f64,
}

/// How a value is set against a bound. Against others it is round by round, and the median of the rounds counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// The ratio is at most the bound.
    RatioAtMost,
    /// The ratio is at least the bound.
    RatioAtLeast,
    /// It exceeds the other by at most the bound, in the table's unit.
    ExcessAtMost,
    /// It is at most the bound, beside nobody.
    AtMost,
    /// It is at least the bound, beside nobody.
    AtLeast,
}

/// What one candidate took in one round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Value {
    /// Of which table.
    pub table: String,
    /// In which round, from 0.
    pub round: usize,
    /// Which candidate.
    pub candidate: String,
    /// What it took, in the table's unit.
    pub value: f64,
}

/// A program that was measured beside ours.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Peer {
    /// Its name.
    pub peer: String,
    /// The version, in the words of the program.
    pub version: String,
}
