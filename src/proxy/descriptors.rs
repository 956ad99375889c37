//! The process's descriptors, shared out among connections, pipes and the rest.

use super::Limits;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::io;

/// Descriptors kept for the listener, the record, the runtime and questions to resolvers.
const RESERVED: u64 = 32;

/// Each connection may need a second one for its server, and a pipe has two ends.
const EACH: u64 = 2;

/// At most so many-th of the descriptors are ends of pipes.
const PIPES_PART: u64 = 16;

/// How many descriptors the limits need.
pub fn needed(limits: &Limits) -> u64 {
    EACH * (limits.connections as u64 + limits.pipes as u64) + RESERVED
}

/// Raises the soft limit on descriptors to the hard one, and both to `needed` where the hard one is lower and the process
/// may: with CAP_SYS_RESOURCE over the first user namespace, and up to `fs.nr_open` (getrlimit(2), proc_sys_fs(5)). Where it
/// may not, the hard limit stays as it is, and [`fit`] keeps within it.
///
/// # Errors
/// getrlimit(2) or setrlimit(2) fails otherwise.
pub fn raise(needed: u64) -> io::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if hard < needed {
        match setrlimit(Resource::RLIMIT_NOFILE, needed, needed) {
            Err(Errno::EPERM) => {}
            outcome => return outcome.map_err(io::Error::from),
        }
    }
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_err(io::Error::from)
}

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
    use crate::sys::{self, CapabilitySets};

    fn limits() -> (u64, u64) {
        getrlimit(Resource::RLIMIT_NOFILE).unwrap()
    }

    /// A machine may give its root everything but CAP_SYS_RESOURCE: then the limit stays for root too.
    #[test]
    fn with_the_privilege_the_hard_limit_is_raised_to_what_is_needed_and_never_lowered() {
        const SYS_RESOURCE: u64 = 1 << 24;
        let may = sys::capget().unwrap().effective & SYS_RESOURCE != 0;
        let raised = |to| if may { (to, to) } else { (300, 300) };
        setrlimit(Resource::RLIMIT_NOFILE, 100, 300).unwrap();
        raise(200).unwrap();
        assert_eq!(limits(), (300, 300));
        raise(1000).unwrap();
        assert_eq!(limits(), raised(1000));
        // More than the kernel has for anyone.
        raise(u64::MAX).unwrap();
        assert_eq!(limits(), raised(1000));
    }

    #[test]
    fn without_the_privilege_the_hard_limit_stays() {
        setrlimit(Resource::RLIMIT_NOFILE, 100, 300).unwrap();
        sys::capset(CapabilitySets::default()).unwrap();
        raise(1000).unwrap();
        assert_eq!(limits(), (300, 300));
    }

    #[test]
    fn what_is_needed_is_enough() {
        let needed = needed(&Limits::default());
        assert_eq!(fit_into(Limits::default(), needed), Limits::default());
        assert_ne!(fit_into(Limits::default(), needed - 1), Limits::default());
    }

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
