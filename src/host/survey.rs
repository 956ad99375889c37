//! What an operator should see before a run and no policy decides: servers of others on loopback, sockets in reach, and
//! places that stay writable because no tree of the policy holds them.

use crate::plan::Plan;
use crate::policy::Posture;
use serde::Serialize;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A listening TCP socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listener {
    /// Where.
    pub address: SocketAddr,
    /// Whose.
    pub uid: u32,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Survey {
    /// Listeners that loopback reaches and that are not the command's user's.
    pub loopback_listeners: Vec<Listener>,
    /// Unix sockets that the command's user may connect to.
    pub reachable_sockets: Vec<PathBuf>,
    /// Directories that the command's user may write although the policy names them nowhere.
    pub writable_outside: Vec<PathBuf>,
}

/// Looks around.
pub fn survey(plan: &Plan) -> Survey {
    let Some(identity) = &plan.identity else { return Survey::default() };
    let uid = identity.uid.as_raw();
    let mut found = Survey::default();
    for (table, v6) in [("/proc/net/tcp", false), ("/proc/net/tcp6", true)] {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        found
            .loopback_listeners
            .extend(text.lines().skip(1).filter_map(|line| listener(line, v6)).filter(|l| l.uid != uid));
    }
    let unix = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let paths: BTreeSet<PathBuf> = unix.lines().skip(1).filter_map(unix_path).collect();
    let may_write = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|m| m.mode() & 0o002 != 0 || (m.uid() == uid && m.mode() & 0o200 != 0))
    };
    found.reachable_sockets = paths
        .into_iter()
        .filter(|p| std::fs::metadata(p).is_ok_and(|m| m.file_type().is_socket()) && may_write(p) && searchable(p))
        .collect();
    if plan.policy.filesystem.posture == Posture::Restricted {
        let mut pending = vec![(PathBuf::from("/"), 0)];
        while let Some((directory, depth)) = pending.pop() {
            for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
                let path = entry.path();
                let is_directory = entry.file_type().is_ok_and(|t| t.is_dir());
                let kernels = ["/proc", "/sys", "/dev"].iter().any(|k| path.starts_with(k));
                let named = plan
                    .mounts
                    .as_ref()
                    .is_some_and(|m| m.protects(&path) || m.writable.iter().any(|w| path.starts_with(&w.path)));
                if !is_directory || kernels || named {
                    continue;
                }
                if may_write(&path) {
                    found.writable_outside.push(path.clone());
                } else if depth < 3 {
                    pending.push((path, depth + 1));
                }
            }
        }
        found.writable_outside.sort();
    }
    found
}

fn searchable(path: &Path) -> bool {
    path.ancestors().skip(1).all(|dir| std::fs::metadata(dir).is_ok_and(|m| m.mode() & 0o001 != 0))
}

/// The path of a line of /proc/net/unix (proc(5)), where it has one.
pub fn unix_path(line: &str) -> Option<PathBuf> {
    let path = line.split_whitespace().nth(7)?;
    path.starts_with('/').then(|| PathBuf::from(path))
}

/// A line of /proc/net/tcp or tcp6 (proc(5)) that is a listener which loopback reaches.
pub fn listener(line: &str, v6: bool) -> Option<Listener> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (address, port) = fields.get(1)?.split_once(':')?;
    if *fields.get(3)? != LISTEN {
        return None;
    }
    let word = |at: usize| u32::from_str_radix(address.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = if v6 {
        let bytes: Vec<u8> = (0..4).map(|n| word(n * 8)).collect::<Option<Vec<_>>>()?.concat();
        IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?))
    } else {
        IpAddr::V4(Ipv4Addr::from(word(0)?))
    };
    let reached = ip.is_loopback() || ip.is_unspecified();
    let address = SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?);
    reached.then_some(Listener { address, uid: fields.get(7)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_read_in_both_families() {
        let v4 = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12345 1";
        let found = listener(v4, false).unwrap();
        assert_eq!((found.address.to_string().as_str(), found.uid), ("127.0.0.1:8080", 1000));
        let v6 =
            "   1: 00000000000000000000000001000000:0016 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 1 1";
        assert_eq!(listener(v6, true).unwrap().address.to_string(), "[::1]:22");
        let connected = v4.replace(" 0A ", " 01 ");
        assert_eq!(listener(&connected, false), None);
        assert_eq!(listener(&v4.replace("0100007F", "0100000A"), false), None);
    }
}
