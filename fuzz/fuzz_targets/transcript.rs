//! A transcript may be any text: reading it ends, and what it tells is bounded, printable, and never more than it says.
//! What enforcement observed is never counted again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence::ledger::record::{Denial, Mechanism, Object};
use ringfence::policy::Axis;
use ringfence::report::transcript::{Observed, act, outputs, signature};

fuzz_target!(|bytes: &[u8]| {
    let mut outputs = 0;
    let mut printed = 0;
    let mut acts = Vec::new();
    let mut screens = act::Screens::default();
    let read = outputs::each(bytes, |output| {
        outputs += 1;
        printed += output.text.len();
        acts.extend(act::acts(output.text, &mut screens));
    });
    // Bytes that are no text are three each when shown.
    assert!(printed <= bytes.len() * 3 + outputs);
    if read.is_err() {
        return;
    }
    for act in &acts {
        assert!(!act.line.chars().any(char::is_control), "{act:?}");
        assert!(act.line.len() <= 512 && act.objects.len() <= 4);
        let name = |object: &String| !object.is_empty() && object.len() <= 4096;
        assert!(act.objects.iter().all(name), "{act:?}");
        assert!(!Observed::default().accounts_for(act), "nothing was observed");
        // A record of the very object accounts for it.
        let Some(object) = act.objects.first() else { continue };
        let mut observed = Observed::default();
        for axis in Axis::ALL {
            let path = matches!(axis, Axis::Filesystem | Axis::Privilege).then(|| object.clone());
            let host = path.is_none().then(|| object.clone());
            let object = Object { path, host, ..Object::default() };
            observed.denial(&Denial::observed(axis, Mechanism::Proxy, "x", object, "x", "x"));
        }
        assert!(observed.accounts_for(act), "{act:?}");
    }
    let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    for line in text.lines() {
        if let Some((_, at)) = signature::find(line) {
            assert!(line.is_char_boundary(at));
        }
    }
});
