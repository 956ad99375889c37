use super::*;
use proptest::prelude::*;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

fn inode(socket: &impl AsRawFd) -> u64 {
    std::fs::metadata(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap().ino()
}

fn flow(protocol: u8, local: SocketAddr, remote: SocketAddr) -> Flow {
    Flow { protocol, local, remote }
}

/// Both ways of asking agree, though the tables do not say that there is none, and may miss one while others come and go.
fn of(flow: Flow) -> Owner {
    let monitor = SocketOwner::default().of(flow);
    let tables = (0..20).map(|_| by_tables(flow.plain())).find(|owner| *owner != Owner::Undecided);
    let expected = Some(monitor).filter(|owner| matches!(owner, Owner::Socket(_)));
    assert_eq!(tables, expected, "{flow:?}");
    monitor
}

#[test]
fn a_connections_two_ends_are_two_sockets() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let listener = TcpListener::bind(address).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let (near, far) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        assert_eq!(of(flow(TCP, near, far)), Owner::Socket(inode(&client)));
        assert_eq!(of(flow(TCP, far, near)), Owner::Socket(inode(&server)));
        drop(client);
        assert_eq!(of(flow(TCP, near, far)), Owner::NoSocket);
    }
}

#[test]
fn a_socket_of_ipv6_is_found_by_the_ipv4_flow_it_has() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = TcpStream::connect(SocketAddr::new("::ffff:127.0.0.1".parse().unwrap(), port)).unwrap();
    let (server, seen) = listener.accept().unwrap();
    assert!(seen.is_ipv4());
    assert_eq!(of(flow(TCP, seen, server.local_addr().unwrap())), Owner::Socket(inode(&client)));
    let sender = UdpSocket::bind("[::]:0").unwrap();
    let from = SocketAddr::new([127, 0, 0, 1].into(), sender.local_addr().unwrap().port());
    assert_eq!(of(flow(UDP, from, "127.0.0.1:9".parse().unwrap())), Owner::Socket(inode(&sender)));
}

#[test]
fn a_listener_is_not_taken_for_a_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let local = listener.local_addr().unwrap();
    assert_eq!(of(flow(TCP, local, "127.0.0.1:9".parse().unwrap())), Owner::NoSocket);
}

#[test]
fn a_datagrams_socket_is_the_one_that_has_its_port() {
    let remote = "11.22.33.44:443".parse().unwrap();
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let from = |ip: [u8; 4]| SocketAddr::new(ip.into(), port);
    assert_eq!(of(flow(UDP, from([10, 0, 0, 1]), remote)), Owner::Socket(inode(&socket)));
    socket.connect("127.0.0.1:9").unwrap();
    assert_eq!(of(flow(UDP, from([127, 0, 0, 1]), remote)), Owner::Socket(inode(&socket)), "connected elsewhere");
    drop(socket);
    assert_eq!(of(flow(UDP, from([10, 0, 0, 1]), remote)), Owner::NoSocket);
}

#[test]
fn a_port_that_two_sockets_share_tells_nothing() {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, setsockopt, socket, sockopt};
    let shared = |port: u16| -> OwnedFd {
        let fd = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::empty(), None).unwrap();
        setsockopt(&fd, sockopt::ReusePort, &true).unwrap();
        bind(fd.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, port)).unwrap();
        fd
    };
    let first = UdpSocket::from(shared(0));
    let local = first.local_addr().unwrap();
    let second = shared(local.port());
    let asked = flow(UDP, local, "11.22.33.44:443".parse().unwrap());
    assert_eq!(of(asked), Owner::Undecided);
    drop(second);
    assert_eq!(of(asked), Owner::Socket(inode(&first)));
}

#[test]
fn a_socket_has_one_holder_or_none_that_can_be_named() {
    use std::os::unix::process::CommandExt;
    // A uid that no other process has.
    let uid = 300_000 + std::process::id();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let number = inode(&socket);
    let hold = || {
        let shared: OwnedFd = socket.try_clone().unwrap().into();
        let mut command = std::process::Command::new("sleep");
        command.arg("1000").uid(uid).gid(uid).stdin(shared).spawn().unwrap()
    };
    assert_eq!(Search::new(number).among(uid), Holder::Nobody);
    let mut first = hold();
    let found = Search::new(number).among(uid);
    assert_eq!(found, Holder::One { pid: first.id(), fd: 0 });
    assert!(found.still_holds(number) && !found.still_holds(number + 1));
    assert_eq!(Search::new(number).in_process(first.id()), Some(true));
    assert_eq!(Search::new(number + 1).in_process(first.id()), Some(false));
    let mut second = hold();
    assert_eq!(Search::new(number).among(uid), Holder::Undecided);
    for child in [&mut first, &mut second] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(!found.still_holds(number));
    assert_eq!(Search::new(number).among(uid), Holder::Nobody);
}

#[test]
fn a_table_is_read_in_both_families() {
    let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
        0: 0100007F:1F90 2C21160B:01BB 01 00000000:00000000 00:00000000 00000000  1000        0 12345 1 0 20\n   \
        1: 00000000000000000000000001000000:0016 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 77 1\n";
    let rows: Vec<Row> = table(text.as_bytes()).collect();
    let row = |local: &str, remote: &str, inode| Row {
        local: local.parse().unwrap(),
        remote: remote.parse().unwrap(),
        inode,
    };
    assert_eq!(rows, [row("127.0.0.1:8080", "11.22.33.44:443", 12345), row("[::1]:22", "[::]:0", 77)]);
}

proptest! {
    #[test]
    fn any_answer_is_read(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        if let Some(row) = row(&bytes) {
            prop_assert!(bytes.len() >= 72 && row.local.is_ipv4() == row.remote.is_ipv4());
        }
    }

    #[test]
    fn any_table_is_read(text in "[ 0-9A-F:\n]{0,400}") {
        prop_assert!(table(text.as_bytes()).count() <= text.lines().count());
    }
}
