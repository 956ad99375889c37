//! The process's descriptors, shared out among connections, pipes and the rest.

use super::Limits;
use nix::sys::resource::{Resource, getrlimit};
use std::io;

/// Descriptors kept for the listener, the record, the runtime and questions to resolvers.
const RESERVED: u64 = 32;

/// Each connection may need a second one for its server, and a pipe has two ends.
const EACH: u64 = 2;

/// At most so many-th of the descriptors are ends of pipes.
const PIPES_PART: u64 = 16;

/// The limits with no more connections and pipes than the soft limit on descriptors (RLIMIT_NOFILE, getrlimit(2)) allows,
/// and one connection at least.
///
/// # Errors
/// getrlimit(2) fails.
pub fn fit(limits: Limits) -> io::Result<Limits> {
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(fit_into(limits, soft))
}

fn fit_into(limits: Limits, descriptors: u64) -> Limits {
    let at_most = |limit: usize, room: u64| usize::try_from(room / EACH).map_or(limit, |room| limit.min(room));
    let pipes = at_most(limits.pipes, descriptors / PIPES_PART);
    let rest = descriptors.saturating_sub(RESERVED).saturating_sub(EACH * pipes as u64);
    let connections = at_most(limits.connections, rest).max(1);
    Limits { connections, pipes, ..limits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_descriptors_are_shared_and_many_leave_the_limits_as_they_are() {
        let shares = |descriptors| {
            let limits = fit_into(Limits::default(), descriptors);
            (limits.connections, limits.pipes)
        };
        assert_eq!(shares(0), (1, 0));
        assert_eq!(shares(33), (1, 1));
        assert_eq!(shares(256), (104, 8));
        assert_eq!(shares(1024), (464, 32));
        assert_eq!(shares(20_000), (9920, 64));
        assert_eq!(shares(2 * (16384 + 64) + 32), (16384, 64));
        assert_eq!(shares(u64::MAX), (16384, 64));
    }
}
