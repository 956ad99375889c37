//! Audit records hold names that the command has chosen: its own, a socket's, a program's.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence::observe::landlock_audit::record::{LANDLOCK_ACCESS, LANDLOCK_DOMAIN, Record, Refused, SYSCALL, Tells};

fuzz_target!(|bytes: &[u8]| {
    for kind in [LANDLOCK_ACCESS, LANDLOCK_DOMAIN, SYSCALL] {
        Record::parse(kind, bytes);
    }
    // As the kernel writes a socket's name (`audit_log_n_hex`) it is read back whole, and as nothing else.
    let name: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
    let text = format!("audit(1.000:7): domain=1f blockers=scope.abstract_unix_socket path=00{name}");
    let tells = Record::parse(LANDLOCK_ACCESS, text.as_bytes()).map(|record| (record.serial, record.tells));
    let what = Refused::AbstractSocket { name: Some(bytes.to_vec()) };
    assert_eq!(tells, Some((7, Tells::Refused { domain: 0x1f, what })));
});
