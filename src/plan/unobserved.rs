//! What a run does not see of what the kernel refuses.

use crate::host::Facts;
use crate::policy::{Policy, Posture};

/// One sentence for each.
pub(super) fn unobserved(policy: &Policy, facts: &Facts) -> Vec<String> {
    let privilege = policy.privilege.posture;
    let mut sentences: Vec<&str> = Vec::new();
    if privilege > Posture::Open {
        sentences.extend([
            "refused reads, searches and executions of files: the kernel refuses them by mode and nothing sees them",
            "privileged requests within ioctl(2), prctl(2), setsockopt(2), shmctl(2) and netlink messages, and refused \
             priorities, resource limits and signals",
            "what a call does whose path, address or descriptor another thread changes while it is looked at: the kernel \
             refuses by what it then finds",
            "messages of sendmsg(2) to unix sockets",
        ]);
        if facts.outer_filter {
            sentences.push(
                "what the seccomp filter refuses that was in force already, a container's say: it answers first, with or \
                 without this run",
            );
        }
    }
    match privilege {
        Posture::Open => {}
        Posture::Restricted => sentences.extend([
            "calls of set-id programs and of processes in user namespaces that the command makes: they are not the \
             command's user, or have capabilities there",
        ]),
        Posture::Locked => {
            sentences.push("io_uring and clone3: they give ENOSYS, as on a kernel without them, and are not recorded");
            sentences.extend(match (facts.scopes, &facts.audit) {
                (false, _) => {
                    Some("abstract unix sockets of the outside are reachable: this kernel has no Landlock scopes")
                }
                (true, Some(Ok(()))) => None,
                (true, _) => Some("signals and abstract unix sockets to the outside, which Landlock's scopes refuse"),
            });
        }
    }
    sentences.into_iter().map(str::to_owned).collect()
}
