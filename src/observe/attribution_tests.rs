use super::*;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Child;

const THERE: &str = "11.22.33.44:443";

/// A uid that no other process has.
fn uid() -> u32 {
    300_000 + std::process::id()
}

fn attribution() -> Attribution {
    let mut attribution = Attribution::default();
    attribution.command(uid(), getpid());
    attribution
}

fn inode(socket: &impl AsRawFd) -> u64 {
    std::fs::metadata(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap().ino()
}

/// A process of the uid that holds the socket and nothing else.
fn holder(socket: OwnedFd) -> Child {
    std::process::Command::new("sleep").arg("1000").uid(uid()).gid(uid()).stdin(socket).spawn().unwrap()
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn logged(protocol: u8, from: SocketAddr, to: &str) -> Logged {
    let to: SocketAddr = to.parse().unwrap();
    let packet = Packet {
        protocol,
        src: from.ip(),
        sport: Some(from.port()),
        dst: to.ip(),
        dport: Some(to.port()),
        icmp: None,
        sequence: None,
    };
    Logged { rule: "default-deny".into(), uid: Some(uid()), packet: Some(packet) }
}

fn noted(pid: u32, inode: Option<u64>, to: &str) -> Note {
    let subject = Subject { pid: Some(pid), comm: Some("noted".into()), ..Subject::default() };
    Note { subject, inode, protocol: None, destination: to.parse().unwrap() }
}

fn uid_only() -> Subject {
    Subject { uid: Some(uid()), ..Subject::default() }
}

#[test]
fn a_client_is_the_process_that_holds_its_end_or_the_one_that_was_noted() {
    let mut attribution = attribution();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    let on =
        Some(Connection { client: server.peer_addr().unwrap(), proxy: server.local_addr().unwrap(), datagram: false });
    let inode = inode(&client);
    assert_eq!(attribution.of_client(on), Subject::default(), "no process of the uid holds it");
    attribution.held.clear();
    let child = holder(client.try_clone().unwrap().into());
    let subject = attribution.of_client(on);
    assert_eq!((subject.pid, subject.uid, subject.comm.as_deref()), (Some(child.id()), Some(uid()), Some("sleep")));
    assert_eq!(subject.argv.as_deref(), Some(&["sleep", "1000"].map(str::to_owned)[..]));
    assert_eq!(subject.ancestors.as_deref(), Some(&[][..]), "the stage is not named");
    assert_eq!(attribution.of_client(on), subject, "from what is kept");
    attribution.note(noted(77, Some(inode), &listener.local_addr().unwrap().to_string()));
    assert_eq!(attribution.of_client(on).pid, Some(77));
    drop(client);
    end(child);
    assert_eq!(attribution.of_client(on), Subject::default());
    assert_eq!(attribution.of_client(None), Subject::default());
}

#[test]
fn a_holder_that_has_gone_is_not_named_from_what_is_kept() {
    let mut attribution = attribution();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let from = socket.local_addr().unwrap();
    let first = holder(socket.try_clone().unwrap().into());
    assert_eq!(attribution.of_packet(&logged(UDP, from, THERE)).pid, Some(first.id()));
    end(first);
    let second = holder(socket.try_clone().unwrap().into());
    assert_eq!(attribution.of_packet(&logged(UDP, from, THERE)).pid, Some(second.id()));
    end(second);
    assert_eq!(attribution.of_packet(&logged(UDP, from, THERE)), uid_only());
}

#[test]
fn a_datagram_of_a_closed_socket_is_the_only_senders_unless_that_one_is_open() {
    let mut attribution = attribution();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let gone = socket.local_addr().unwrap();
    drop(socket);
    let open = UdpSocket::bind("127.0.0.1:0").unwrap();
    let child = holder(open.try_clone().unwrap().into());
    attribution.note(noted(child.id(), Some(inode(&open)), THERE));
    assert_eq!(attribution.of_packet(&logged(UDP, gone, THERE)), uid_only(), "its socket is another one");
    assert_eq!(attribution.of_packet(&logged(UDP, open.local_addr().unwrap(), THERE)).comm.as_deref(), Some("noted"));
    attribution.note(noted(child.id(), Some(1), THERE));
    assert_eq!(attribution.of_packet(&logged(UDP, gone, THERE)).pid, Some(child.id()));
    attribution.note(noted(1, None, THERE));
    assert_eq!(attribution.of_packet(&logged(UDP, gone, THERE)), uid_only(), "another may have sent it");
    end(child);
}

#[test]
fn a_connections_note_is_used_once() {
    let mut attribution = attribution();
    let from = "127.0.0.1:1".parse().unwrap();
    attribution.note(noted(77, Some(1), THERE));
    assert_eq!(attribution.of_packet(&logged(TCP, from, THERE)).pid, Some(77));
    assert_eq!(attribution.of_packet(&logged(TCP, from, THERE)), uid_only());
    attribution.note(noted(77, Some(1), THERE));
    attribution.begin();
    assert_eq!(attribution.of_packet(&logged(TCP, from, THERE)), uid_only(), "the probes' notes are forgotten");
}

#[test]
fn without_time_left_nobody_is_looked_for_and_notes_still_count() {
    let mut attribution = attribution();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let child = holder(socket.try_clone().unwrap().into());
    let datagram = logged(UDP, socket.local_addr().unwrap(), THERE);
    attribution.note(noted(77, Some(1), THERE));
    // An hour's worth is owed, however long the test takes.
    attribution.budget.spend(Duration::from_secs(3600));
    assert_eq!(attribution.of_packet(&datagram), uid_only());
    assert_eq!(attribution.of_packet(&logged(TCP, "127.0.0.1:1".parse().unwrap(), THERE)).pid, Some(77));
    attribution.budget = Budget::default();
    attribution.begin();
    assert_eq!(attribution.of_packet(&datagram).pid, Some(child.id()));
    end(child);
}

#[test]
fn time_is_given_by_the_share_and_what_is_overspent_is_owed() {
    let (mut budget, now) = (Budget::default(), Instant::now());
    let milliseconds = Duration::from_millis;
    assert!(budget.allows(now));
    budget.spend(milliseconds(510));
    assert!(!budget.allows(now));
    assert!(!budget.allows(now + milliseconds(40)));
    assert!(budget.allows(now + milliseconds(80)));
    assert_eq!(budget.left, 10_000_000);
    assert!(budget.allows(now + Duration::from_secs(3600)));
    assert_eq!(budget.left, AHEAD);
}
