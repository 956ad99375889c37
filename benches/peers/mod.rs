//! The programs of this kind that are measured beside ours, each with a policy as near to ours as it has.

use super::rounds::Bench;

/// One of them.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// What it is called, and in the tables too.
    pub name: &'static str,
    version: &'static [&'static str],
    /// What stands before a command that it is to confine.
    pub prefix: &'static [&'static str],
}

impl Peer {
    /// The words that run `command` under it.
    pub fn around<'a>(&self, command: &[&'a str]) -> Vec<&'a str> {
        self.prefix.iter().chain(command).copied().collect()
    }
}

const VERSION: &[&str] = &["--version"];

/// Each that is known. None has a record, and none tries its own policy before the command starts.
const PEERS: &[Peer] = &[
    // Ids, groups, capabilities and no_new_privs; no confinement else.
    Peer {
        name: "setpriv",
        version: VERSION,
        prefix: &[
            "setpriv",
            "--reuid",
            "10500",
            "--regid",
            "10500",
            "--clear-groups",
            "--bounding-set",
            "-all",
            "--inh-caps",
            "-all",
            "--no-new-privs",
        ],
    },
    // Every namespace, and a root that is read-only.
    Peer {
        name: "bwrap",
        version: VERSION,
        prefix: &[
            "bwrap",
            "--unshare-all",
            "--ro-bind",
            "/",
            "/",
            "--dev",
            "/dev",
            "--proc",
            "/proc",
            "--tmpfs",
            "/tmp",
        ],
    },
    // A network namespace with loopback only, a read-only root, no capabilities, its default seccomp list.
    Peer {
        name: "firejail",
        version: VERSION,
        prefix: &[
            "firejail",
            "--quiet",
            "--noprofile",
            "--net=none",
            "--read-only=/",
            "--caps.drop=all",
            "--seccomp",
            "--nonewprivs",
        ],
    },
    // Landlock and a supervisor, no network.
    Peer {
        name: "nono",
        version: VERSION,
        prefix: &[
            "nono",
            "run",
            "--silent",
            "--block-net",
            "--allow-cwd",
            "--read",
            "/usr",
            "--read",
            "/etc",
            "--allow",
            "/tmp",
            "--",
        ],
    },
    // Its default: bwrap and seccomp, no network, nothing writable but the directory and /tmp.
    Peer { name: "codex", version: VERSION, prefix: &["codex", "sandbox", "--"] },
    // A proxy that judges by patterns, in a network namespace.
    Peer { name: "httpjail", version: VERSION, prefix: &["httpjail", "--rule", "deny: .*", "--"] },
    // Node: a proxy, bwrap and seccomp.
    Peer { name: "srt", version: VERSION, prefix: &["srt"] },
];

/// Those that are installed, each with its version left among the bench's lines.
pub fn here(bench: &mut Bench) -> Vec<Peer> {
    PEERS.iter().filter(|peer| bench.peer(peer.prefix[0], peer.version)).copied().collect()
}
