//! What is measured, and what is aimed at.

use super::load::{self, Way};
use super::rounds::line::{By, Table};
use super::rounds::sample::{Measured, percentile};
use super::rounds::{Bench, table};
use super::side::{Side, descriptors};
use std::time::Duration;

/// The candidate that the goals are about.
pub const OURS: &str = "ringfence";
const RELAY: &[&str] = &["relay"];
const PEERS: &[&str] = &["squid", "tinyproxy"];
const GIB: u64 = 1 << 30;

/// Small requests, each on a connection of its own, so many at once.
pub struct Small {
    way: Way,
    many: usize,
    rate: Measured,
    cpu: Measured,
    median: Measured,
    slowest: Measured,
    errors: Measured,
}

impl Small {
    /// Nothing measured yet.
    pub fn new(way: Way, many: usize) -> Small {
        let (short, long) = match way {
            Way::Tunnel => ("connect", "A fresh CONNECT and 1 KiB each way"),
            Way::Plain => ("plain", "A fresh connection and a plain GET of 1 KiB"),
        };
        let make = |what: &str, title: &str, unit: &str, bases: &[&str]| {
            table(&format!("proxy-{short}-{many}-{what}"), &format!("{long}, {many} at once: {title}"), unit, bases)
        };
        let mut rate = make("rate", "requests a second", "requests/s", &["direct", "squid"]);
        let mut cpu = make("cpu", "processor time of the proxy's processes", "µs a request", &["relay", "squid"]);
        let median = make("p50", "median of the latencies", "ms", &["direct"]);
        let mut slowest = make("p99", "99th percentile of the latencies", "ms", &["direct"]);
        let mut errors = make("errors", "requests without the right answer", "requests", &[]);
        if way == Way::Tunnel && many == 32 {
            rate = rate
                .note(
                    "Load and server are one thread each, of the same program for all, on the same processors. The name is in the hosts \
                     file. Direct is without the CONNECT. The relay is one thread over tokio that judges and records nothing.",
                )
                .goal("CONNECT at 32: requests a second", OURS, PEERS, By::RatioAtLeast, 1.0)
                .goal("CONNECT at 32: requests a second", OURS, &["squid"], By::RatioAtLeast, 1.8);
            cpu = cpu.goal("CONNECT at 32: CPU a request", OURS, RELAY, By::RatioAtMost, 1.2).goal(
                "CONNECT at 32: CPU a request",
                OURS,
                PEERS,
                By::RatioAtMost,
                1.0,
            );
        }
        if way == Way::Tunnel && many == 256 {
            slowest = slowest.goal("CONNECT at 256: p99", OURS, PEERS, By::RatioAtMost, 1.0);
            errors = errors.goal("CONNECT at 256: errors", OURS, &[], By::AtMost, 0.0);
        }
        let [rate, cpu, median, slowest, errors] = [rate, cpu, median, slowest, errors].map(Measured::new);
        Small { way, many, rate, cpu, median, slowest, errors }
    }

    /// One candidate's turn.
    pub fn measure(&mut self, side: &Side, round: Option<usize>, lasting: Duration) {
        let (proxy, way, many) = (side.proxy, self.way, self.many);
        let before = side.cpu();
        let outcome = side.run(move || load::load(proxy, way, many, lasting));
        let spent = side.cpu() - before;
        assert!(!outcome.took.is_empty(), "{}: no request was answered", side.name);
        let Some(round) = round else { return };
        let count = outcome.took.len() as f64;
        let took: Vec<f64> = outcome.took.iter().map(|took| took.as_secs_f64() * 1e3).collect();
        self.rate.add(round, &side.name, count / outcome.lasted.as_secs_f64());
        if proxy.is_some() {
            self.cpu.add(round, &side.name, spent.as_secs_f64() * 1e6 / count);
        }
        self.median.add(round, &side.name, percentile(&took, 50));
        self.slowest.add(round, &side.name, percentile(&took, 99));
        self.errors.add(round, &side.name, outcome.errors as f64);
    }

    /// Prints and leaves what was measured. Ours makes no error, at any load.
    pub fn done(&self, bench: &mut Bench) {
        for measured in [&self.rate, &self.cpu, &self.median, &self.slowest] {
            bench.done(measured);
        }
        if self.many == 256 {
            bench.done(&self.errors);
        }
        let errors = self.errors.values(OURS).expect("ours is measured");
        assert!(errors.values().all(|count| *count == 0.0), "{}: {errors:?}", self.errors.table.title);
    }
}

/// Bulk through one tunnel.
pub struct Bulk {
    up: bool,
    speed: Measured,
    cpu: Measured,
}

impl Bulk {
    /// Nothing measured yet.
    pub fn new(up: bool) -> Bulk {
        let way = if up { "up" } else { "down" };
        let make = |what: &str, title: &str, unit: &str, bases: &[&str]| -> Table {
            table(&format!("proxy-bulk-{way}-{what}"), &format!("Bulk through a tunnel, {way}: {title}"), unit, bases)
        };
        let speed = make("speed", "speed", "GiB/s", &["direct", "relay"]).goal(
            &format!("bulk {way}: speed"),
            OURS,
            RELAY,
            By::RatioAtLeast,
            1.0,
        );
        let cpu = make("cpu", "processor time of the proxy's processes", "s a GiB", &["relay", "squid"]).goal(
            &format!("bulk {way}: CPU a GiB"),
            OURS,
            &["squid"],
            By::RatioAtMost,
            0.5,
        );
        Bulk { up, speed: Measured::new(speed), cpu: Measured::new(cpu) }
    }

    /// One candidate's turn.
    pub fn measure(&mut self, side: &Side, round: Option<usize>, size: u64) {
        let Some(round) = round else { return };
        let (proxy, up, gib) = (side.proxy, self.up, size as f64 / GIB as f64);
        let before = side.cpu();
        let took = side.run(move || load::bulk(proxy, size, up));
        let spent = side.cpu() - before;
        self.speed.add(round, &side.name, gib / took.as_secs_f64());
        if proxy.is_some() {
            self.cpu.add(round, &side.name, spent.as_secs_f64() / gib);
        }
    }

    /// Prints and leaves what was measured.
    pub fn done(&self, bench: &mut Bench) {
        bench.done(&self.speed);
        bench.done(&self.cpu);
    }
}

/// Memory at rest and with idle tunnels, once for each.
pub fn memory(bench: &mut Bench, sides: &[Side]) {
    let rest = table("proxy-memory", "Memory of all processes before the first connection", "MiB", &["squid"])
        .note(
            "RSS, which counts in each process what it shares with the others: ringfence is a supervisor, a proxy, an observer, a \
             stage and more of one static binary. `PSS` counts what is shared in parts.",
        )
        .goal("memory at rest", OURS, &[], By::AtMost, 8.0);
    let each = |many: usize| {
        table(&format!("proxy-memory-{many}"), &format!("Memory a tunnel, with {many} at rest"), "KiB", &["squid"])
    };
    // A tunnel is two connections of the proxy's, and two of this process: the client's and the server's.
    let most = usize::try_from((descriptors() - 1024) / 2).map_or(10_000, |most| most.min(10_000));
    let counts = bench.size([1_000, most], [50, 100]);
    let (mut rest, mut tunnels) = (Measured::new(rest), counts.map(|many| Measured::new(each(many))));
    let last = &mut tunnels[1].table;
    *last =
        last.clone().goal("memory a tunnel at 10,000, or as many as descriptors allow", OURS, &[], By::AtMost, 10.0);
    // What a start needed may be given back once it is over.
    std::thread::sleep(Duration::from_secs(2));
    for side in sides {
        let Some(proxy) = side.proxy else { continue };
        let (before, parts) = side.memory();
        rest.add(0, &side.name, before as f64 / 1024.0);
        rest.add(0, &format!("{}, PSS", side.name), parts as f64 / 1024.0);
        let mut open = Vec::new();
        for (measured, many) in tunnels.iter_mut().zip(counts) {
            let (opened, outcome) = side.run(move || {
                let outcome = load::stay(&mut open, proxy, many);
                (open, outcome)
            });
            open = opened;
            if let Err(cause) = outcome {
                println!("{}: {cause} after {} tunnels", side.name, open.len());
                assert_ne!(side.name, OURS);
                break;
            }
            let held = side.memory().0.saturating_sub(before);
            measured.add(0, &side.name, held as f64 / many as f64);
        }
    }
    bench.done(&rest);
    for measured in &tunnels {
        bench.done(measured);
    }
}
