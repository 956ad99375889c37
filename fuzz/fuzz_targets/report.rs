//! The proxy reads what hostile clients send. Should one take it over, the supervisor still takes nothing from it but
//! the fields of a report.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nix::sys::socket::{MsgFlags, send};
use ringfence::ledger::record::{Mechanism, Subject};
use ringfence::policy::Axis;
use ringfence::proxy::channel::{Report, Reported, pair};

fuzz_target!(|bytes: &[u8]| {
    let (proxy, mut supervisor) = pair().expect("a socket pair");
    let descriptor = proxy.descriptor().expect("no runtime watches it");
    if bytes.is_empty() || send(descriptor, bytes, MsgFlags::MSG_DONTWAIT).is_err() {
        return;
    }
    let received = supervisor.drain().expect("recv");
    assert_eq!(received.reports.len() as u64 + received.rejected, 1);
    for Reported { report, .. } in received.reports {
        let line = serde_json::to_string(&report).expect("a report is JSON");
        assert!(!line.chars().any(char::is_control), "{line:?}");
        if let Report::Denial(denial) = report {
            assert_eq!((denial.axis, denial.mechanism), (Axis::Network, Mechanism::Proxy));
            assert_eq!((denial.attempt, denial.subject), (0, Subject::default()));
            assert!(denial.count >= 1 && denial.object.path.is_none());
        }
    }
});
