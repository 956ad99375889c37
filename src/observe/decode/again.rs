//! Calls that are made again as they are.

use super::{Call, Decoded};
use crate::observe::act::{Act, Value};
use crate::observe::caller::Unread;
use crate::observe::calls::Structures;

/// What an argument of a call that is made again is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// A number.
    Number,
    /// A string.
    Text,
    /// A string or no string.
    MaybeText,
    /// A path.
    Path,
    /// The head of a `struct file_handle`, with room for the rest.
    Handle,
    /// Memory of this size.
    Memory(usize),
    /// Memory whose size another argument gives.
    Sized(usize),
    /// `struct perf_event_attr`, which holds its own size.
    PerfEvent,
    /// `struct timeval` or `struct timespec`.
    Time,
    /// `time_t`, for the call that takes a `struct timeval`.
    Seconds,
    /// `struct timex`.
    Timex,
    /// Nothing of it matters before the kernel has looked at the capability.
    Null,
}

/// The largest memory that is copied for a call that is made again: bpf(2)'s and perf_event_open(2)'s are a page at most.
pub const AGAIN_MAX: usize = 4096;

/// The sizes of `struct timex` (linux/timex.h) and of a 32-bit program's.
const TIMEX: usize = 208;
const TIMEX_NARROW: usize = 128;

/// The largest handle of a file, beside its head (name_to_handle_at(2)).
const HANDLE_MAX: usize = 128;

/// A call as it can be made again.
pub fn again(call: &Call<'_>, shape: &[Again]) -> Decoded {
    let memory = |argument: usize, size: usize| {
        let address = call.arguments[argument];
        match size {
            0 => Ok(Value::Number(0)),
            _ if address == 0 => Ok(Value::Number(0)),
            // More than the kernel takes, which it says itself.
            _ if size > AGAIN_MAX => Err(Unread::Form),
            _ => call.caller.bytes(address, size).map(Value::Memory),
        }
    };
    let longs = |longs: &[i64]| Value::Memory(longs.iter().copied().flat_map(i64::to_ne_bytes).collect());
    let values: Result<Vec<Value>, Unread> = shape
        .iter()
        .enumerate()
        .map(|(argument, kind)| match *kind {
            Again::Number => Ok(Value::Number(call.arguments[argument])),
            Again::Null => Ok(Value::Number(0)),
            Again::Text => call.text(argument).map(Value::Text),
            Again::MaybeText if call.arguments[argument] == 0 => Ok(Value::Number(0)),
            Again::MaybeText => call.text(argument).map(Value::Text),
            Again::Memory(size) => memory(argument, size),
            Again::Path => call.path(argument, true).map(Value::Path),
            Again::Handle => {
                let mut handle = call.caller.bytes(call.arguments[argument], 8)?;
                handle.resize(8 + HANDLE_MAX, 0);
                Ok(Value::Memory(handle))
            }
            Again::Sized(by) => memory(argument, call.arguments[by] as usize),
            Again::Time | Again::Seconds | Again::Timex if call.arguments[argument] == 0 => Ok(Value::Number(0)),
            Again::Time => call.longs(argument).map(|[seconds, fraction]| {
                let (seconds, fraction) = call.time(seconds, fraction);
                longs(&[seconds, fraction])
            }),
            Again::Seconds => call.longs(argument).map(|[seconds]| longs(&[seconds, 0])),
            // What is to be changed comes first and in one size, and is all that matters before the capability.
            Again::Timex if call.structures == Structures::Narrow => {
                let narrow = call.caller.bytes(call.arguments[argument], TIMEX_NARROW)?;
                let mut native = vec![0; TIMEX];
                native[..4].copy_from_slice(&narrow[..4]);
                Ok(Value::Memory(native))
            }
            Again::Timex => memory(argument, TIMEX),
            Again::PerfEvent => {
                let head = call.caller.bytes(call.arguments[argument], 8)?;
                let size = head[4..].try_into().map_or(0, u32::from_ne_bytes) as usize;
                memory(argument, size.max(64))
            }
        })
        .collect();
    Ok(Act::Privileged(values?))
}
