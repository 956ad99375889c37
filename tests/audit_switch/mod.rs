//! The machine's audit, switched for a test and back again, however the test ends.

use nix::fcntl::{Flock, FlockArg};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, socket,
};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

// Of linux/audit.h: message types, and the places of a status's words with the bits that say which are to be set.
const GET: u16 = 1000;
const SET: u16 = 1001;
const ENABLED: (usize, u32) = (1, 1);
const BACKLOG_LIMIT: (usize, u32) = (5, 0x10);
const BACKLOG_WAIT: (usize, u32) = (9, 0x20);
const WORDS: usize = 11;

/// Audit as the test wants it, until this is dropped or the test's process ends.
///
/// Another process holds it, so that a test that is killed leaves nothing switched on, and holds a lock that keeps other
/// suites on the machine off the switch.
pub struct Switch {
    holder: Child,
    says: BufReader<ChildStdout>,
}

impl Switch {
    /// Waits for its turn, then switches audit. Whoever is refused while the log is full is not kept waiting, so
    /// that nobody else on the machine notices.
    pub fn turn(on: bool, backlog: u32) -> Switch {
        let mut command = Command::new(std::env::current_exe().expect("this test's own file"));
        // A group of its own: what kills the test's group must not kill what puts things right after it.
        command.args(["--exact", "hold_the_switch", "--ignored", "--nocapture"]).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut holder = command.spawn().expect("a second process of this test");
        let says = BufReader::new(holder.stdout.take().expect("piped"));
        let mut switch = Switch { holder, says };
        switch.tell(&format!("{} {backlog}", u32::from(on)));
        switch
    }

    /// Switches audit in mid-test.
    pub fn again(&mut self, on: bool) {
        self.tell(&format!("{} 8192", u32::from(on)));
    }

    fn tell(&mut self, order: &str) {
        let stdin = self.holder.stdin.as_mut().expect("open until dropped");
        writeln!(stdin, "{order}").expect("the holder reads");
        self.await_line("switched");
    }

    fn await_line(&mut self, wanted: &str) {
        let mut line = String::new();
        while !line.ends_with(&format!("{wanted}\n")) {
            line.clear();
            assert_ne!(self.says.read_line(&mut line).expect("the holder's output"), 0, "audit could not be switched");
        }
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let status = self.holder.wait().expect("the holder is a child");
        if !std::thread::panicking() {
            assert!(status.success(), "audit was not put back as it was");
        }
    }
}

/// The holder's life: orders by lines, and the end of them.
pub fn hold() {
    let lock = std::fs::File::create("/run/ringfence-audit-switch.lock").expect("a lock file");
    let _turn = Flock::lock(lock, FlockArg::LockExclusive).expect("flock");
    let audit = Audit::open();
    let before = audit.status();
    let restored = Restored { audit: &audit, before };
    for line in std::io::stdin().lines() {
        let line = line.expect("orders are text");
        let words: Vec<u32> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
        audit.set(&[(BACKLOG_WAIT, 0), (BACKLOG_LIMIT, words[1]), (ENABLED, words[0])]);
        println!("switched");
    }
    drop(restored);
    let after = audit.status();
    for (place, _) in [ENABLED, BACKLOG_LIMIT, BACKLOG_WAIT] {
        assert_eq!(after[place], before[place]);
    }
}

struct Restored<'a> {
    audit: &'a Audit,
    before: [u32; WORDS],
}

impl Drop for Restored<'_> {
    fn drop(&mut self) {
        // Runs of other suites that read the log would have a gap: they come to their end first, within reason.
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.before[ENABLED.0] == 0 && has_readers() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        let prior = |of: (usize, u32)| (of, self.before[of.0]);
        self.audit.set(&[prior(ENABLED), prior(BACKLOG_LIMIT), prior(BACKLOG_WAIT)]);
    }
}

/// Whether anyone has joined the log's group.
fn has_readers() -> bool {
    const AUDIT: &str = "9";
    let sockets = std::fs::read_to_string("/proc/2/net/netlink").expect("the kernel thread's");
    sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|line| {
        line.get(1) == Some(&AUDIT) && line.get(3).and_then(|groups| u32::from_str_radix(groups, 16).ok()) == Some(1)
    })
}

struct Audit(OwnedFd);

impl Audit {
    fn open() -> Audit {
        let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkAudit)
            .expect("a kernel with audit");
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0)).expect("bind");
        Audit(socket)
    }

    fn status(&self) -> [u32; WORDS] {
        self.request(GET, &[]);
        let body = self.answer(GET);
        std::array::from_fn(|at| u32::from_ne_bytes(body[at * 4..at * 4 + 4].try_into().expect("four bytes")))
    }

    fn set(&self, what: &[((usize, u32), u32)]) {
        let mut words = [0; WORDS];
        for ((place, bit), value) in what {
            words[0] |= bit;
            words[*place] = *value;
        }
        self.request(SET, &words);
        let error = self.answer(libc::NLMSG_ERROR as u16);
        assert_eq!(error[..4], [0; 4], "AUDIT_SET: the machine's own policy for audit forbids this test");
    }

    fn request(&self, kind: u16, words: &[u32]) {
        let length = 16 + words.len() * 4;
        let acknowledged = if kind == SET { libc::NLM_F_ACK } else { 0 };
        let mut bytes = (length as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(((libc::NLM_F_REQUEST | acknowledged) as u16).to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        assert_eq!(send(self.0.as_raw_fd(), &bytes, MsgFlags::empty()), Ok(length));
    }

    fn answer(&self, wanted: u16) -> Vec<u8> {
        let mut bytes = [0; 8192];
        loop {
            let length = recv(self.0.as_raw_fd(), &mut bytes, MsgFlags::empty()).expect("an answer");
            let kind = u16::from_ne_bytes([bytes[4], bytes[5]]);
            if kind == wanted {
                return bytes[16..length].to_vec();
            }
            assert_ne!(i32::from(kind), libc::NLMSG_ERROR, "audit is not for this process to switch");
        }
    }
}
