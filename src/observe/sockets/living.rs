//! Which sockets some process still has, and which the kernel lists as what.

use super::table::Known;
use crate::procfs;
use nix::fcntl::readlink;
use std::collections::{HashMap, HashSet};
use std::fs::{ReadDir, read_dir};

/// Who has sockets with these inodes, as one of the descriptors in /proc of each that this process may look at: the sandbox's
/// are among them, but for processes that are not dumpable, whose calls on sockets are refused in any event.
pub fn holders(inodes: HashSet<u64>) -> HashMap<u64, String> {
    let mut looked_for = inodes;
    let mut found = HashMap::new();
    let own = std::process::id().to_string();
    let mut processes = Vec::new();
    for pid in numbers("/proc").filter(|pid| *pid != own) {
        if looked_for.is_empty() {
            return found;
        }
        if look_in(&format!("/proc/{pid}/fd"), &mut looked_for, &mut found) {
            processes.push(pid);
        }
    }
    // A thread may have descriptors of its own, and the first one may have ended.
    for pid in &processes {
        for tid in numbers(&format!("/proc/{pid}/task")).filter(|tid| tid != pid) {
            if looked_for.is_empty() {
                return found;
            }
            look_in(&format!("/proc/{pid}/task/{tid}/fd"), &mut looked_for, &mut found);
        }
    }
    found
}

fn numbers(directory: &str) -> impl Iterator<Item = String> {
    read_dir(directory).into_iter().flat_map(names)
}

fn names(entries: ReadDir) -> impl Iterator<Item = String> {
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether it may be looked at.
fn look_in(directory: &str, looked_for: &mut HashSet<u64>, found: &mut HashMap<u64, String>) -> bool {
    let Ok(entries) = read_dir(directory) else { return false };
    for fd in names(entries) {
        let place = format!("{directory}/{fd}");
        if let Some(inode) = inode_at(&place).filter(|inode| looked_for.remove(inode)) {
            found.insert(inode, place);
        }
    }
    true
}

/// The inode of the socket that a descriptor in /proc is.
pub fn inode_at(place: &str) -> Option<u64> {
    inode_of(readlink(place).ok()?.to_str()?)
}

/// The inode of a socket, by the link of a descriptor (proc_pid_fd(5)).
pub fn inode_of(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// What the kernel lists a socket as; `None` where it is in none of the lists, as a datagram socket without a port is, and a
/// netlink socket that is not bound.
pub fn listed(inode: u64) -> Option<Known> {
    let text = inode.to_string();
    // The columns of the inodes (proc_pid_net(5)). A line of unix sockets ends in the path, which may hold anything.
    let lists: [(&str, usize, Known); 4] =
        [("unix", 6, Known::Unix), ("tcp", 9, Known::Tcp), ("tcp6", 9, Known::Tcp), ("netlink", 9, Known::Netlink)];
    lists.into_iter().find_map(|(list, column, known)| {
        let sockets = procfs::read(&format!("/proc/self/net/{list}")).ok()?;
        let mut lines = sockets.lines().skip(1);
        lines.any(|line| line.split_ascii_whitespace().nth(column) == Some(&text)).then_some(known)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    fn inode(file: &impl AsRawFd) -> u64 {
        inode_of(readlink(format!("/proc/self/fd/{}", file.as_raw_fd()).as_str()).unwrap().to_str().unwrap()).unwrap()
    }

    #[test]
    fn a_socket_is_what_the_kernel_lists_it_as() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let six = std::net::TcpListener::bind("[::1]:0").unwrap();
        let (unix, _peer) = UnixStream::pair().unwrap();
        let mut netlink = netlink_sys::Socket::new(netlink_sys::protocols::NETLINK_ROUTE).unwrap();
        netlink.bind_auto().unwrap();
        let datagram = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(listed(inode(&listener)), Some(Known::Tcp));
        assert_eq!(listed(inode(&client)), Some(Known::Tcp));
        assert_eq!(listed(inode(&six)), Some(Known::Tcp));
        assert_eq!(listed(inode(&unix)), Some(Known::Unix));
        assert_eq!(listed(inode(&netlink)), Some(Known::Netlink));
        assert_eq!(listed(inode(&datagram)), None);
    }

    #[test]
    fn what_a_process_has_is_living() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let inodes = [inode(&ours), inode(&theirs)];
        let input = std::process::Stdio::from(std::os::fd::OwnedFd::from(theirs));
        let mut child = std::process::Command::new("cat").stdin(input).spawn().unwrap();
        let found = holders(HashSet::from(inodes));
        let places: Vec<_> = found.iter().map(|(inode, place)| (*inode, place.clone())).collect();
        assert_eq!(places, [(inodes[1], format!("/proc/{}/fd/0", child.id()))], "this process's own do not count");
        drop(ours);
        child.wait().unwrap();
    }
}
