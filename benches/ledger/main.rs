//! What evidence costs: denials a second through the ledger, from its writer alone to a command that is refused in a tight
//! loop; and ten thousand ledgers read back, by `ringfence verify` and `ringfence report`, beside tools that read the same
//! bytes.
//!
//! `make bench` runs it over the stripped binary. `ledger BINARY [ROUNDS]`.
#![allow(missing_docs, reason = "a program")]

mod cohort;
mod flood;
mod read_back;
#[path = "../rounds/mod.rs"]
#[allow(dead_code, reason = "each user has its own part")]
mod rounds;
mod writing;

use rounds::Bench;
use world::World;

/// Where the binary lies in the closed world.
const RINGFENCE: &str = "/usr/local/bin/ringfence";

fn main() {
    let mut bench = Bench::new(5);
    let world = World::new().expect("a closed world");
    world.install(&bench.binary, RINGFENCE);
    let sample = cohort::sample(&world);
    writing::measure(&mut bench, &sample);
    flood::measure(&mut bench, &world);
    read_back::measure(&mut bench, &sample);
}

/// CPU time of all children that have been waited for, in seconds (getrusage(2)).
fn children_cpu() -> f64 {
    use nix::sys::resource::{UsageWho, getrusage};
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("getrusage");
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}
