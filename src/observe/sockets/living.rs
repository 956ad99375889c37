//! Which sockets some process still has, and which the kernel lists as what.

use super::table::Known;
use crate::procfs;
use nix::fcntl::readlink;
use std::collections::HashSet;

/// Takes those inodes away that a process has which this one may look at: the sandbox's are among them, but for those that
/// are not dumpable, whose calls on sockets are refused in any event.
pub fn remove_living(inodes: &mut HashSet<u64>) {
    let own = std::process::id().to_string();
    let processes: Vec<String> = numbers("/proc").filter(|pid| *pid != own).collect();
    for pid in &processes {
        if inodes.is_empty() {
            return;
        }
        remove_open(&format!("/proc/{pid}/fd"), inodes);
    }
    // A thread may have descriptors of its own, and the first one may have ended.
    for pid in &processes {
        for tid in numbers(&format!("/proc/{pid}/task")).filter(|tid| tid != pid) {
            if inodes.is_empty() {
                return;
            }
            remove_open(&format!("/proc/{pid}/task/{tid}/fd"), inodes);
        }
    }
}

fn numbers(directory: &str) -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
}

fn remove_open(directory: &str, inodes: &mut HashSet<u64>) {
    for fd in numbers(directory) {
        let link = readlink(format!("{directory}/{fd}").as_str()).unwrap_or_default();
        if let Some(inode) = inode_of(link.to_str().unwrap_or_default()) {
            inodes.remove(&inode);
        }
    }
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
        let mut missing = HashSet::from(inodes);
        remove_living(&mut missing);
        assert_eq!(missing, HashSet::from([inodes[0]]), "this process's own do not count");
        drop(ours);
        child.wait().unwrap();
    }
}
