//! Ledgers like real ones: the records of a real run, its denials varied, written by the library's own writer.

use crate::RINGFENCE;
use ringfence::ledger::line::decode;
use ringfence::ledger::record::{Body, Denial, Outcome};
use ringfence::ledger::{Appended, Ledger, LedgerTarget, RunId, SealInput};
use std::path::Path;
use world::World;

const LEDGER: &str = "/var/log/sample.jsonl";

/// What an agent's shell is refused within a minute or so.
const SESSION: &str = "for n in 1 2 3; do
    touch /usr/bin/tool /etc/profile.d/tool.sh
    curl -s -m 5 http://files.example.net/
    curl -s -m 5 https://index.example.net/simple/
    curl -s -m 5 --noproxy '*' http://11.22.33.44/
done
mkdir -p /usr/share/tool/doc; ln -s /usr/bin/env /usr/bin/tool; chmod 4755 /usr/bin/env; mv /usr/bin/env /usr/bin/e
setpriv --reuid 0 id -u; mount -t tmpfs none /tmp; su -c id root; python3 -c 'import os\nos.setuid(0)'; true";

pub const EXITED: SealInput = SealInput { started: true, outcome: Outcome::Exited, exit_code: Some(0) };

/// The records of one run, by what they are.
pub struct Sample {
    pub start: Body,
    pub probes: Vec<Body>,
    pub denials: Vec<Denial>,
}

/// Makes the run.
pub fn sample(world: &World) -> Sample {
    let mut command = world.command(RINGFENCE);
    command.args(["run", "--policy", "nist-high", "--ledger", LEDGER, "--", "sh", "-c", SESSION]);
    let output = world.output(command);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = world.read(LEDGER).expect("the ledger");
    let mut bodies = text
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| decode(line).expect("a record").body);
    let start = bodies.next().expect("a start");
    let (mut probes, mut denials) = (Vec::new(), Vec::new());
    for body in bodies {
        match body {
            Body::Probe(_) => probes.push(body),
            Body::Denial(denial) => denials.push(denial),
            _ => {}
        }
    }
    assert!(probes.len() > 20 && denials.len() > 10, "{} probes, {} denials", probes.len(), denials.len());
    Sample { start, probes, denials }
}

/// The sample's denials over and over, each on an object of its own by this number.
pub fn varied(denials: &[Denial], number: usize) -> Denial {
    let mut denial = denials[number % denials.len()].clone();
    for text in [&mut denial.object.host, &mut denial.object.path].into_iter().flatten() {
        text.push_str(&(number / denials.len()).to_string());
    }
    denial
}

/// Denials of one ledger.
pub const DENIALS: usize = 40;

/// Writes the ledger of the run with this number; gives its size in bytes.
///
/// What is refused varies by run: one in eight of the objects is its own, the others are refused in many runs.
pub fn write(path: &Path, sample: &Sample, number: usize) -> u64 {
    let id = RunId::random().expect("random bytes");
    let mut ledger = Ledger::open(LedgerTarget::Path(path.to_owned()), &id, "nist-high").expect("a new file");
    ledger.append(sample.start.clone()).expect("a start");
    for probe in &sample.probes {
        ledger.append(probe.clone()).expect("a probe");
    }
    for place in 0..DENIALS {
        let which = if place % 8 == 0 { number * DENIALS + place } else { number % 8 * DENIALS + place };
        let appended = ledger.append(Body::Denial(varied(&sample.denials, which))).expect("a denial");
        assert!(matches!(appended, Appended::Stored { .. }), "{appended:?}");
    }
    assert!(ledger.seal(EXITED).expect("a seal").complete);
    path.metadata().expect("the ledger").len()
}
