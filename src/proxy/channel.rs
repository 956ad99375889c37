//! The channel between the proxy and the supervisor, who alone writes the ledger.
//!
//! A pair of connected AF_UNIX SOCK_SEQPACKET sockets: each report is one message, a JSON object with a number that
//! rises by one; each acknowledgement is one message of 8 bytes, that number in network order. Many may be under way.
//! Three numbers that no report has are orders: 0 asks the proxy to report what it has left and to end, and the two
//! highest ask it to admit nothing new, and to go on.
//! The proxy is the less trusted side: the supervisor takes nothing from it but the fields of a report.

use super::record::{Connection, Recorder, Unrecorded};
use crate::ledger::escape::printable;
use crate::ledger::record::{Denial, Infrastructure, Mechanism, Object};
use crate::policy::Axis;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use serde::{Deserialize, Serialize};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;
use tokio::net::UnixDatagram;
use tokio::sync::{Notify, oneshot};

/// Most bytes of a report.
pub const REPORT_LIMIT: usize = 64 * 1024;

/// How long an acknowledgement is waited for: a ledger that hangs longer is as good as none.
const ACKNOWLEDGE_LIMIT: Duration = Duration::from_secs(30);

/// Most reports that one [`ReportReceiver::drain`] takes, so that no sender can hold the supervisor.
const DRAIN_LIMIT: usize = 256;

/// Most refusals that one record may stand for; the proxy folds those of 100 ms.
const COUNT_LIMIT: u64 = 1 << 20;

/// Report what is left, and end.
const END: u64 = 0;
/// Admit nothing new.
const HOLD: u64 = u64::MAX;
/// Go on.
const RELEASE: u64 = u64::MAX - 1;

/// What the proxy reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Report {
    /// One refused request, or a folded count of them.
    Denial(Denial),
    /// One failure of the world outside.
    Infrastructure(Infrastructure),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Message {
    id: u64,
    report: Report,
    on: Option<Connection>,
}

/// Makes both ends, before the proxy is forked. Errors: socketpair(2)'s.
pub fn pair() -> io::Result<(ChannelRecorder, ReportReceiver)> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
    Ok((ChannelRecorder::new(theirs), ReportReceiver { socket: ours }))
}

/// The proxy's end.
#[derive(Debug)]
pub struct ChannelRecorder {
    /// Until the runtime that watches it is there.
    bare: RefCell<Option<OwnedFd>>,
    watched: OnceCell<UnixDatagram>,
    next: Cell<u64>,
    waiting: RefCell<HashMap<u64, oneshot::Sender<()>>>,
    /// Tells that nothing waits any more.
    idle: Notify,
    /// Tells that the supervisor has sent [`END`].
    asked: Notify,
    /// Whether [`HOLD`] came last of the two.
    held: Cell<bool>,
    /// Tells everyone who waits that [`RELEASE`] has come.
    released: Notify,
    /// How long an acknowledgement is waited for.
    patience: Duration,
}

impl ChannelRecorder {
    /// The socket's number, for the process that closes everything else; `None` once a runtime watches it.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.bare.borrow().as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Takes the proxy's end: a connected, non-blocking AF_UNIX SOCK_SEQPACKET socket.
    pub fn new(socket: OwnedFd) -> ChannelRecorder {
        ChannelRecorder {
            bare: RefCell::new(Some(socket)),
            watched: OnceCell::new(),
            next: Cell::new(1),
            waiting: RefCell::new(HashMap::new()),
            idle: Notify::new(),
            asked: Notify::new(),
            held: Cell::new(false),
            released: Notify::new(),
            patience: ACKNOWLEDGE_LIMIT,
        }
    }

    /// The socket, watched by the runtime from the first use on. tokio's datagram socket serves for it: what it calls
    /// are send(2) and recv(2), which keep the messages of a SOCK_SEQPACKET socket apart too.
    fn socket(&self) -> Result<&UnixDatagram, Unrecorded> {
        if let Some(socket) = self.bare.take() {
            let watched = UnixDatagram::from_std(socket.into()).map_err(failure("epoll_ctl"))?;
            return Ok(self.watched.get_or_init(|| watched));
        }
        self.watched.get().ok_or(Unrecorded::Closed)
    }

    async fn report(&self, report: Report, on: Option<Connection>) -> Result<(), Unrecorded> {
        let socket = self.socket()?;
        let id = self.next.replace(self.next.get() + 1);
        let message = encode(Message { id, report, on })?;
        let (acknowledged, wait) = oneshot::channel();
        self.waiting.borrow_mut().insert(id, acknowledged);
        let done = async {
            socket.send(&message).await.map_err(failure("send"))?;
            wait.await.map_err(|_| Unrecorded::Closed)
        };
        let outcome = tokio::time::timeout(self.patience, done).await;
        self.no_longer_waiting(id);
        outcome.unwrap_or(Err(Unrecorded::Late { id, after: self.patience }))
    }

    fn no_longer_waiting(&self, id: u64) -> Option<oneshot::Sender<()>> {
        let mut waiting = self.waiting.borrow_mut();
        let one = waiting.remove(&id);
        if waiting.is_empty() {
            self.idle.notify_one();
        }
        one
    }
}

impl Recorder for ChannelRecorder {
    async fn denial(&self, denial: Denial, on: Option<Connection>) -> Result<(), Unrecorded> {
        if crate::mutation::left_out("proxy-reports") {
            return Ok(());
        }
        self.report(Report::Denial(denial), on).await
    }

    async fn infrastructure(&self, failure: Infrastructure) -> Result<(), Unrecorded> {
        self.report(Report::Infrastructure(failure), None).await
    }

    async fn attend(&self) -> Unrecorded {
        let socket = match self.socket() {
            Ok(socket) => socket,
            Err(cause) => return cause,
        };
        loop {
            let mut number = [0; 9];
            match socket.recv(&mut number).await.map_err(failure("recv")) {
                Ok(8) => {
                    let id = number.first_chunk().map_or(END, |n| u64::from_be_bytes(*n));
                    match id {
                        END => self.asked.notify_one(),
                        HOLD => self.held.set(true),
                        RELEASE => {
                            self.held.set(false);
                            self.released.notify_waiters();
                        }
                        report => {
                            if let Some(waiting) = self.no_longer_waiting(report) {
                                // Who waited may have gone with its connection; the record stands all the same.
                                waiting.send(()).ok();
                            }
                        }
                    }
                }
                Ok(_) => return Unrecorded::Closed,
                Err(cause) => return cause,
            }
        }
    }

    async fn asked_to_end(&self) {
        self.asked.notified().await;
    }

    async fn free_to_admit(&self) {
        while self.held.get() {
            self.released.notified().await;
        }
    }

    async fn settled(&self) {
        while !self.waiting.borrow().is_empty() {
            self.idle.notified().await;
        }
    }
}

fn failure(call: &'static str) -> impl Fn(io::Error) -> Unrecorded {
    move |cause| match cause.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Unrecorded::Closed,
        _ => Unrecorded::Channel { call, cause },
    }
}

/// The message's bytes; a report that is too long gives up the client's text, and then its addresses.
fn encode(mut message: Message) -> Result<Vec<u8>, Unrecorded> {
    for pass in 0.. {
        let bytes = serde_json::to_vec(&message).map_err(|e| failure("encode")(e.into()))?;
        if bytes.len() <= REPORT_LIMIT {
            return Ok(bytes);
        }
        let object = match &mut message.report {
            Report::Denial(denial) => &mut denial.object,
            Report::Infrastructure(failure) => &mut failure.object,
        };
        match pass {
            0 => object.text = Some("…".to_owned()),
            1 => object.addrs.truncate(64),
            _ => break,
        }
    }
    Err(failure("encode")(io::ErrorKind::FileTooLarge.into()))
}

/// A report as it came.
#[derive(Debug, PartialEq)]
pub struct Reported {
    /// Its number, by which it is acknowledged.
    pub id: u64,
    /// What it says.
    pub report: Report,
    /// The connection on which the client asked, as the proxy claims. It waits for the acknowledgement, so its two ends
    /// are still there unless the client has gone.
    pub on: Option<Connection>,
}

/// What [`ReportReceiver::drain`] found.
#[derive(Debug, Default, PartialEq)]
pub struct Received {
    /// The reports, in the order in which they were sent.
    pub reports: Vec<Reported>,
    /// Messages that are no report. The proxy sends none: a count above 0 means that it is not itself any more.
    pub rejected: u64,
    /// Whether the proxy's end is closed.
    pub closed: bool,
}

/// The supervisor's end.
#[derive(Debug)]
pub struct ReportReceiver {
    socket: OwnedFd,
}

impl AsFd for ReportReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl ReportReceiver {
    /// Takes what is there, at most 256 messages, without waiting; call it again when the descriptor is readable.
    ///
    /// Whatever the sender claims, a denial comes out as one of the network, made by the proxy and seen by it, with
    /// no attempt number, no subject and no path, and its text has no control or hidden character.
    /// Errors: recv(2)'s, except that a reset counts as closed.
    pub fn drain(&mut self) -> io::Result<Received> {
        let mut received = Received::default();
        let mut buffer = vec![0; REPORT_LIMIT + 1];
        for _ in 0..DRAIN_LIMIT {
            let length = match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(0) | Err(Errno::ECONNRESET) => {
                    received.closed = true;
                    break;
                }
                Ok(length) => length,
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            let message = match length <= REPORT_LIMIT {
                true => serde_json::from_slice::<Message>(&buffer[..length]).ok(),
                false => None,
            };
            match message {
                Some(Message { id, report, on }) => received.reports.push(Reported { id, report: own(report), on }),
                None => received.rejected += 1,
            }
        }
        Ok(received)
    }

    /// Tells the proxy that a report is in the ledger. Errors: send(2)'s; EAGAIN when the proxy does not read its
    /// acknowledgements, EPIPE when it is gone.
    pub fn acknowledge(&self, id: u64) -> io::Result<()> {
        self.tell(id)
    }

    /// Asks the proxy to report what it has left to report, and to end; its end closes the channel. Errors: as
    /// [`ReportReceiver::acknowledge`].
    pub fn ask_to_end(&self) -> io::Result<()> {
        self.tell(END)
    }

    /// Asks the proxy to admit nothing new, or to go on. Errors: as [`ReportReceiver::acknowledge`].
    pub fn hold(&self, held: bool) -> io::Result<()> {
        self.tell(if held { HOLD } else { RELEASE })
    }

    fn tell(&self, id: u64) -> io::Result<()> {
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        send(self.socket.as_raw_fd(), &id.to_be_bytes(), flags)?;
        Ok(())
    }
}

/// The report with everything set that the proxy has no say in, and its text made harmless once more.
fn own(report: Report) -> Report {
    let text = |text: String| printable(&text).into_owned();
    let object = |object: Object| Object {
        host: object.host.map(text),
        port: object.port,
        addrs: object.addrs,
        path: None,
        to: None,
        text: object.text.map(text),
    };
    match report {
        Report::Denial(claimed) => {
            let let_through = claimed.is_let_through();
            let mut denial = Denial::observed(
                Axis::Network,
                Mechanism::Proxy,
                &printable(&claimed.operation),
                object(claimed.object),
                &printable(&claimed.rule),
                &printable(&claimed.reason),
            );
            denial.http_status = claimed.http_status;
            denial.count = claimed.count.clamp(1, COUNT_LIMIT);
            // The ledger believes that where there is a shadow alone.
            Report::Denial(if let_through { denial.let_through() } else { denial })
        }
        Report::Infrastructure(claimed) => Report::Infrastructure(Infrastructure {
            operation: text(claimed.operation),
            object: object(claimed.object),
            cause: text(claimed.cause),
            http_status: claimed.http_status,
        }),
    }
}

#[cfg(test)]
#[path = "channel_tests.rs"]
mod tests;
