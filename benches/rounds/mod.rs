//! What the benches have in common: rounds in which every candidate has its turn, so that whatever else the machine does
//! meets all of them alike, and the lines in which they leave what they measured.
//!
//! `RINGFENCE_BENCH_LINES` names a file to which the lines are appended (`make bench` makes docs/benchmarks.md of them).
//! With `RINGFENCE_BENCH_SHORT` a bench runs once and is there to check its counts: CI's form.

pub mod line;
pub mod sample;

use line::{Goal, Line, Peer, Table, Value};
use sample::{Measured, percentile};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// One bench: its arguments, and where its lines go.
#[derive(Debug)]
pub struct Bench {
    /// The binary that is measured.
    pub binary: PathBuf,
    /// How many rounds are counted.
    pub rounds: usize,
    /// Only counts are checked.
    pub short: bool,
    lines: Option<File>,
}

impl Bench {
    /// `BENCH [BINARY] [ROUNDS]`, by default dist/ringfence and so many rounds.
    pub fn new(rounds: usize) -> Bench {
        let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
        let binary = PathBuf::from(arguments.next().unwrap_or_else(|| "dist/ringfence".to_owned()));
        let given = arguments.next().map(|text| text.parse().expect("ROUNDS is a number"));
        let short = std::env::var_os("RINGFENCE_BENCH_SHORT").is_some();
        let lines = std::env::var_os("RINGFENCE_BENCH_LINES")
            .map(|path| OpenOptions::new().create(true).append(true).open(path).expect("RINGFENCE_BENCH_LINES"));
        Bench { binary, rounds: given.unwrap_or(if short { 1 } else { rounds }), short, lines }
    }

    /// So much where times count, so much where only counts do.
    pub fn size<T>(&self, full: T, short: T) -> T {
        if self.short { short } else { full }
    }

    /// `one(candidate, round)` for each candidate in each round, after so many rounds that are not counted (`None`). Who
    /// begins changes from round to round.
    pub fn interleave<C>(&self, warm_up: usize, candidates: &[C], mut one: impl FnMut(&C, Option<usize>)) {
        let warm_up = self.size(warm_up, 0);
        for turn in 0..warm_up + self.rounds {
            let round = turn.checked_sub(warm_up);
            for place in 0..candidates.len() {
                one(&candidates[(place + round.unwrap_or(0)) % candidates.len()], round);
            }
        }
    }

    /// Whether the program is here; if so its version, the first line that it prints for `version`, is left too.
    pub fn peer(&mut self, program: &str, version: &[&str]) -> bool {
        let Ok(output) = Command::new(program).args(version).stdin(Stdio::null()).output() else {
            println!("{program}: not here, so not measured");
            return false;
        };
        let text = String::from_utf8_lossy(if output.stdout.is_empty() { &output.stderr } else { &output.stdout });
        let version = text.lines().find(|line| line.contains(|c: char| c.is_ascii_digit())).unwrap_or("?").trim();
        self.leave(&Line::Peer(Peer { peer: program.to_owned(), version: version.to_owned() }));
        true
    }

    /// Prints the table and leaves its lines.
    pub fn done(&mut self, measured: &Measured) {
        let table = &measured.table;
        println!("\n{} [{}]", table.title, table.unit);
        for (name, values) in &measured.candidates {
            let all: Vec<f64> = values.values().copied().collect();
            let [low, median, high] = [10, 50, 90].map(|percent| percentile(&all, percent));
            print!("  {name:<48} {median:>12.3} ({low:.3} to {high:.3})");
            for base in &table.bases {
                if let Some(ratios) = measured.paired(name, base, |own, other| own / other) {
                    print!("  {:.2} x {base}", percentile(&ratios, 50));
                }
            }
            println!();
        }
        for goal in &table.goals {
            match measured.reached(goal) {
                Some(reached) => {
                    let met = if reached.met { "met" } else { "NOT met" };
                    println!("  goal: {}: {:.3}, {met} ({:?} {})", goal.what, reached.value, goal.by, goal.bound);
                }
                None => println!("  goal: {}: not measured", goal.what),
            }
        }
        self.leave(&Line::Table(table.clone()));
        for (candidate, values) in &measured.candidates {
            for (round, value) in values {
                let (table, candidate) = (table.table.clone(), candidate.clone());
                self.leave(&Line::Value(Value { table, round: *round, candidate, value: *value }));
            }
        }
    }

    fn leave(&mut self, line: &Line) {
        if let Some(lines) = &mut self.lines {
            let text = serde_json::to_string(line).expect("JSON");
            writeln!(lines, "{text}").expect("RINGFENCE_BENCH_LINES takes it");
        }
    }
}

/// A table with neither note nor goals.
pub fn table(name: &str, title: &str, unit: &str, bases: &[&str]) -> Table {
    Table {
        table: name.to_owned(),
        title: title.to_owned(),
        unit: unit.to_owned(),
        bases: bases.iter().map(|base| (*base).to_owned()).collect(),
        note: String::new(),
        goals: Vec::new(),
    }
}

impl Table {
    /// With a note.
    pub fn note(mut self, note: &str) -> Table {
        note.clone_into(&mut self.note);
        self
    }

    /// With a goal: `candidate`, set by `by` against each of `over`, keeps to `bound`.
    pub fn goal(mut self, what: &str, candidate: &str, over: &[&str], by: line::By, bound: f64) -> Table {
        self.goals.push(Goal {
            what: what.to_owned(),
            candidate: candidate.to_owned(),
            over: over.iter().map(|base| (*base).to_owned()).collect(),
            by,
            bound,
        });
        self
    }
}
