//! Pathname sockets of well-known daemons that do for their clients what these may not do themselves (case N16).

use std::path::PathBuf;

/// Daemons that act with more power than their client.
const CONTROL: [&str; 10] = [
    "/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/podman/podman.sock",
    "/run/buildkit/buildkitd.sock",
    SYSTEM_BUS,
    "/run/systemd/private",
    "/run/snapd.socket",
    "/run/libvirt/libvirt-sock",
    "/var/run/docker.sock",
];

/// Daemons that ask name servers, each for a name that its client chooses (case N13): systemd-resolved, nscd, Avahi; and
/// the bus, on which systemd-resolved, Avahi and NetworkManager answer too.
const RESOLVERS: [&str; 7] = [
    "/run/systemd/resolve/io.systemd.Resolve",
    "/run/systemd/resolve/io.systemd.Resolve.Monitor",
    "/run/nscd/socket",
    "/var/run/nscd/socket",
    "/var/cache/nscd/socket",
    "/run/avahi-daemon/socket",
    SYSTEM_BUS,
];

const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";

fn existing(paths: &[&str]) -> Vec<PathBuf> {
    let mut real: Vec<PathBuf> = paths.iter().filter_map(|path| std::fs::canonicalize(path).ok()).collect();
    real.sort();
    real.dedup();
    real
}

/// The control sockets that exist, by their paths without symbolic links.
pub fn control() -> Vec<PathBuf> {
    existing(&CONTROL)
}

/// The resolvers' sockets that exist.
pub fn resolvers() -> Vec<PathBuf> {
    existing(&RESOLVERS)
}
