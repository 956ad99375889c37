//! Medians, spreads, and ratios that are paired round by round, since a machine's speed drifts.

use super::line::{By, Goal, Line, Table};
use std::collections::BTreeMap;

/// A table and what was measured for it.
#[derive(Debug)]
pub struct Measured {
    /// What is compared.
    pub table: Table,
    /// The candidates in the order in which they were first measured, each with its value in each round.
    pub candidates: Vec<(String, BTreeMap<usize, f64>)>,
}

impl Measured {
    /// Nothing yet.
    pub fn new(table: Table) -> Measured {
        Measured { table, candidates: Vec::new() }
    }

    /// The tables of these lines, in order.
    pub fn of(lines: &[Line]) -> Vec<Measured> {
        let mut tables: Vec<Measured> = Vec::new();
        for line in lines {
            match line {
                Line::Table(table) => tables.push(Measured::new(table.clone())),
                Line::Value(value) => tables
                    .iter_mut()
                    .find(|one| one.table.table == value.table)
                    .expect("a value comes after its table")
                    .add(value.round, &value.candidate, value.value),
                Line::Peer(_) => {}
            }
        }
        tables
    }

    /// Adds what one took in one round.
    pub fn add(&mut self, round: usize, candidate: &str, value: f64) {
        let place = self.candidates.iter().position(|(name, _)| name == candidate).unwrap_or_else(|| {
            self.candidates.push((candidate.to_owned(), BTreeMap::new()));
            self.candidates.len() - 1
        });
        let before = self.candidates[place].1.insert(round, value);
        assert!(before.is_none(), "{}: {candidate} has two values in round {round}", self.table.table);
    }

    /// The values of one, round by round.
    pub fn values(&self, candidate: &str) -> Option<&BTreeMap<usize, f64>> {
        self.candidates.iter().find(|(name, _)| name == candidate).map(|(_, values)| values)
    }

    /// What `by` makes of the two, in each round that has both.
    pub fn paired(&self, candidate: &str, base: &str, by: impl Fn(f64, f64) -> f64) -> Option<Vec<f64>> {
        let (own, other) = (self.values(candidate)?, self.values(base)?);
        Some(own.iter().filter_map(|(round, value)| Some(by(*value, *other.get(round)?))).collect())
    }

    /// What the goal's candidate reached: set against the base that was hardest on it, and whether that is enough. Nothing if
    /// the candidate or every base was left out.
    pub fn reached(&self, goal: &Goal) -> Option<Reached> {
        let against = |by: fn(f64, f64) -> f64| {
            let each = goal.over.iter().filter_map(|base| {
                let pairs = self.paired(&goal.candidate, base, by)?;
                (!pairs.is_empty()).then(|| (percentile(&pairs, 50), Some(base.clone())))
            });
            each.collect::<Vec<_>>()
        };
        let alone = || {
            let values: Vec<f64> = self.values(&goal.candidate)?.values().copied().collect();
            Some((percentile(&values, 50), None))
        };
        let reached = match goal.by {
            By::RatioAtMost => against(|own, other| own / other),
            By::RatioAtLeast => against(|own, other| own / other),
            By::ExcessAtMost => against(|own, other| own - other),
            By::AtMost | By::AtLeast => alone().into_iter().collect(),
        };
        let least = matches!(goal.by, By::RatioAtLeast | By::AtLeast);
        let (value, over) = match least {
            true => reached.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)),
            false => reached.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)),
        }?;
        Some(Reached { value, over, met: if least { value >= goal.bound } else { value <= goal.bound } })
    }
}

/// What was reached of a goal.
#[derive(Debug)]
pub struct Reached {
    /// The ratio, the excess or the value.
    pub value: f64,
    /// Beside whom.
    pub over: Option<String>,
    /// Whether that is enough.
    pub met: bool,
}

/// The value below which so many of a hundred lie.
pub fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() - 1) * percent / 100]
}
