//! Writes what the benches measured as a page: `page LINES PAGE`. `make bench` runs it last.
#![allow(missing_docs, reason = "a program")]

#[allow(dead_code, reason = "each user has its own part")]
mod rounds;

use rounds::line::{By, Goal, Line};
use rounds::sample::{Measured, percentile};
use std::fmt::Write;

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let (Some(lines), Some(page)) = (arguments.next(), arguments.next()) else { panic!("page LINES PAGE") };
    let text = std::fs::read_to_string(&lines).unwrap_or_else(|cause| panic!("{lines}: {cause}"));
    let lines: Vec<Line> = text.lines().map(|line| serde_json::from_str(line).expect("a line of a bench")).collect();
    std::fs::write(&page, written(&lines)).unwrap_or_else(|cause| panic!("{page}: {cause}"));
}

fn written(lines: &[Line]) -> String {
    let tables = Measured::of(lines);
    let mut page = String::from(
        "# Benchmarks\n\nWritten by `make bench`, which overwrites it; the values of each round are in benchmarks.jsonl beside it. Every\n\
         candidate has its turn in every round, in an order that rotates. A value is the median of its rounds, with the 10th\n\
         and the 90th percentile; a ratio is taken round by round, and is the median of those. What was tried to reach the\n\
         goals, and what it gave: performance.md.\n\n",
    );
    writeln!(page, "{}\n", machine()).expect("a string");
    peers(&mut page, lines);
    goals(&mut page, &tables);
    for measured in &tables {
        table(&mut page, measured);
    }
    page
}

/// On what it was measured.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':')).map_or_else(|| "?".to_owned(), |(_, value)| value.trim().to_owned())
    };
    let (cpus, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
    let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let gib = field(&memory, "MemTotal").trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0) / (1 << 20) as f64;
    format!(
        "Machine: {count} x {}, {gib:.0} GiB, Linux {}.",
        field(&cpus, "model name"),
        // Without what a distribution adds.
        read("/proc/sys/kernel/osrelease").trim().split('-').next().unwrap_or_default()
    )
}

fn peers(page: &mut String, lines: &[Line]) {
    let mut told: Vec<String> = Vec::new();
    for line in lines {
        if let Line::Peer(peer) = line {
            let one = format!("{} ({})", peer.peer, peer.version);
            if !told.contains(&one) {
                told.push(one);
            }
        }
    }
    if !told.is_empty() {
        writeln!(page, "Beside: {}.\n", told.join(", ")).expect("a string");
    }
}

fn goals(page: &mut String, tables: &[Measured]) {
    page.push_str("## Goals\n\n| what | goal | reached | |\n|---|---|---|---|\n");
    for measured in tables {
        for goal in &measured.table.goals {
            let (aim, unit) = aim(goal, &measured.table.unit);
            let (value, met) = match measured.reached(goal) {
                Some(reached) => {
                    let over = reached.over.filter(|_| goal.over.len() > 1);
                    let over = over.map_or_else(String::new, |over| format!(" beside {over}"));
                    (format!("{}{unit}{over}", number(reached.value)), if reached.met { "met" } else { "not met" })
                }
                None => ("not measured".to_owned(), ""),
            };
            writeln!(page, "| {} | {aim} | {value} | {met} |", goal.what).expect("a string");
        }
    }
}

/// The goal in words, and what a value that is set against it ends with.
fn aim(goal: &Goal, unit: &str) -> (String, String) {
    let bound = number(goal.bound);
    let over = match goal.over.as_slice() {
        [one] => one.clone(),
        several => format!("each of {}", several.join(", ")),
    };
    match goal.by {
        By::RatioAtMost => (format!("≤ {bound} × {over}"), " ×".to_owned()),
        By::RatioAtLeast => (format!("≥ {bound} × {over}"), " ×".to_owned()),
        By::ExcessAtMost => (format!("≤ {over} + {bound} {unit}"), format!(" {unit} more")),
        By::AtMost => (format!("≤ {bound} {unit}"), format!(" {unit}")),
        By::AtLeast => (format!("≥ {bound} {unit}"), format!(" {unit}")),
    }
}

fn table(page: &mut String, measured: &Measured) {
    let table = &measured.table;
    write!(page, "\n## {}\n\n| {} | median | 10th | 90th |", table.title, table.unit).expect("a string");
    for base in &table.bases {
        write!(page, " × {base} |").expect("a string");
    }
    writeln!(page, "\n|---|---|---|---|{}", "---|".repeat(table.bases.len())).expect("a string");
    for (name, values) in &measured.candidates {
        let all: Vec<f64> = values.values().copied().collect();
        let [low, median, high] = [10, 50, 90].map(|percent| number(percentile(&all, percent)));
        write!(page, "| {name} | {median} | {low} | {high} |").expect("a string");
        for base in &table.bases {
            let ratios = measured.paired(name, base, |own, other| own / other).filter(|ratios| !ratios.is_empty());
            let ratio = ratios.map_or_else(String::new, |ratios| number(percentile(&ratios, 50)));
            write!(page, " {ratio} |").expect("a string");
        }
        page.push('\n');
    }
    let rounds = measured.candidates.iter().map(|(_, values)| values.len()).max().unwrap_or(0);
    write!(page, "\n{rounds} rounds. {}", table.note).expect("a string");
    page.truncate(page.trim_end().len());
    page.push('\n');
}

/// Three digits that count, or the whole number.
fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        small if small >= 1.0 || small == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
