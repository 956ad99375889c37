//! A text for what a call without a path was about, the same for the same thing.

use super::act::{Place, Value};
use crate::ledger::escape;

/// From registers.
pub fn registers(call: &str, arguments: &[u64; 6]) -> String {
    let word = |argument: usize| arguments[argument] as u32;
    match call {
        "socket" | "socketpair" => format!("family {} type {} protocol {}", word(0), word(1) & 0xf, word(2)),
        "setsockopt" => format!("level {} option {}", word(1), word(2)),
        "ioctl" => format!("request {:#x}", word(1)),
        "clone" => format!("flags {:#x}", arguments[0] & !0xff),
        "unshare" => format!("flags {:#x}", arguments[0]),
        "setns" => format!("type {:#x}", word(1)),
        "keyctl" => format!("operation {}", word(0)),
        _ => call.to_owned(),
    }
}

/// From what a call was made again with: its strings, or its numbers where it has none.
pub fn values(call: &str, values: &[Value]) -> String {
    let texts: Vec<String> = values
        .iter()
        .filter_map(|value| match value {
            Value::Text(text) | Value::Path(Place { given: text, .. }) => {
                Some(escape::escape(text, escape::TEXT_LIMIT))
            }
            Value::Number(_) | Value::Memory(_) => None,
        })
        .collect();
    if !texts.is_empty() {
        return texts.join(" ");
    }
    match (call, values) {
        ("socket", [Value::Number(family), Value::Number(kind), Value::Number(protocol)]) => {
            registers("socket", &[*family, *kind, *protocol, 0, 0, 0])
        }
        ("bpf", [Value::Number(command), ..]) => format!("command {}", *command as u32),
        ("clock_settime" | "clock_adjtime", [Value::Number(clock), ..]) => format!("clock {}", *clock as i32),
        _ => call.to_owned(),
    }
}
