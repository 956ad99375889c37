//! From a thread id, as notifications have it, to the process and to its names in /proc.

use crate::procfs::{self, field};
use nix::unistd::Pid;

/// The process that a thread belongs to; `None` where it has ended.
pub fn process_of(tid: Pid) -> Option<Pid> {
    let status = procfs::read(&format!("/proc/{tid}/status")).ok()?;
    field(&status, "Tgid:")?.parse().ok().map(Pid::from_raw)
}

/// What /proc/self or /proc/thread-self means to that thread, relative to /proc.
pub fn proc_name(tid: Pid, link: &[u8]) -> Vec<u8> {
    // A thread that is gone has no name either: the look-up fails as it then must.
    let process = process_of(tid).unwrap_or(tid);
    match link {
        b"thread-self" => format!("{process}/task/{tid}"),
        _ => process.to_string(),
    }
    .into_bytes()
}
