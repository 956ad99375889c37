//! The numbers of capabilities (capabilities(7), linux/capability.h).

/// CAP_CHOWN.
pub const CHOWN: u32 = 0;
/// CAP_DAC_OVERRIDE.
pub const DAC_OVERRIDE: u32 = 1;
/// CAP_DAC_READ_SEARCH.
pub const DAC_READ_SEARCH: u32 = 2;
/// CAP_FOWNER.
pub const FOWNER: u32 = 3;
/// CAP_KILL.
pub const KILL: u32 = 5;
/// CAP_SETGID.
pub const SETGID: u32 = 6;
/// CAP_SETUID.
pub const SETUID: u32 = 7;
/// CAP_SETPCAP.
pub const SETPCAP: u32 = 8;
/// CAP_NET_BIND_SERVICE.
pub const NET_BIND_SERVICE: u32 = 10;
/// CAP_NET_ADMIN.
pub const NET_ADMIN: u32 = 12;
/// CAP_NET_RAW.
pub const NET_RAW: u32 = 13;
/// CAP_SYS_MODULE.
pub const SYS_MODULE: u32 = 16;
/// CAP_SYS_RAWIO.
pub const SYS_RAWIO: u32 = 17;
/// CAP_SYS_CHROOT.
pub const SYS_CHROOT: u32 = 18;
/// CAP_SYS_PTRACE.
pub const SYS_PTRACE: u32 = 19;
/// CAP_SYS_PACCT.
pub const SYS_PACCT: u32 = 20;
/// CAP_SYS_ADMIN.
pub const SYS_ADMIN: u32 = 21;
/// CAP_SYS_BOOT.
pub const SYS_BOOT: u32 = 22;
/// CAP_SYS_TIME.
pub const SYS_TIME: u32 = 25;
/// CAP_SYS_TTY_CONFIG.
pub const SYS_TTY_CONFIG: u32 = 26;
/// CAP_SYSLOG.
pub const SYSLOG: u32 = 34;
/// CAP_PERFMON.
pub const PERFMON: u32 = 38;
/// CAP_BPF.
pub const BPF: u32 = 39;
