use super::*;
use crate::ledger::record::Evidence;
use nix::sys::socket::{ControlMessage, sendmsg};
use proptest::prelude::*;

fn denial(host: &str) -> Denial {
    let object = Object { host: Some(host.to_owned()), port: Some(443), ..Object::default() };
    Denial::observed(Axis::Network, Mechanism::Proxy, "CONNECT", object, "default-deny", "not_allowed")
}

/// Both ends, the proxy's as a bare socket.
fn bare() -> (OwnedFd, ReportReceiver) {
    let (recorder, receiver) = pair().unwrap();
    (recorder.bare.take().unwrap(), receiver)
}

fn put(socket: &OwnedFd, bytes: &[u8]) {
    send(socket.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL).unwrap();
}

fn now<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn nothing_there_is_no_end_and_an_end_is_one() {
    let (proxy, mut receiver) = bare();
    assert_eq!(receiver.drain().unwrap(), Received::default());
    drop(proxy);
    assert!(receiver.drain().unwrap().closed);
    assert_eq!(receiver.acknowledge(1).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}

#[test]
fn reports_before_the_end_are_not_lost() {
    let (proxy, mut receiver) = bare();
    let message = |id| encode(Message { id, report: Report::Denial(denial("a.test")), on: None }).unwrap();
    put(&proxy, &message(1));
    put(&proxy, &message(2));
    drop(proxy);
    let received = receiver.drain().unwrap();
    assert_eq!(received.reports.iter().map(|reported| reported.id).collect::<Vec<_>>(), [1, 2]);
    assert!(received.closed);
}

#[test]
fn a_denial_is_the_proxys_whatever_the_sender_claims() {
    let (proxy, mut receiver) = bare();
    let mut claimed = denial("a.test");
    claimed.axis = Axis::Privilege;
    claimed.nist = vec!["AC-6".to_owned()];
    claimed.mechanism = Mechanism::Notifier;
    claimed.evidence = Evidence::TranscriptInferred;
    claimed.subject.pid = Some(1);
    claimed.attempt = 9;
    claimed.count = 0;
    claimed.errno = Some("EPERM".to_owned());
    claimed.object.path = Some("/etc/shadow".to_owned());
    let on = Some(Connection {
        client: ([127, 0, 0, 1], 40_000).into(),
        proxy: ([127, 0, 0, 1], 3128).into(),
        datagram: false,
    });
    put(&proxy, &encode(Message { id: 7, report: Report::Denial(claimed), on }).unwrap());
    let report = Report::Denial(denial("a.test"));
    assert_eq!(receiver.drain().unwrap().reports, [Reported { id: 7, report, on }]);
}

#[test]
fn text_is_made_harmless_and_counts_are_bounded() {
    let (proxy, mut receiver) = bare();
    let mut claimed = denial("a\u{1b}[31m.test");
    claimed.object.text = Some("x\n{\"kind\":\"seal\"}".to_owned());
    claimed.rule = "r\u{202e}".to_owned();
    claimed.count = u64::MAX;
    put(&proxy, &encode(Message { id: 1, report: Report::Denial(claimed), on: None }).unwrap());
    let Some(Reported { report: Report::Denial(read), .. }) = receiver.drain().unwrap().reports.pop() else { panic!() };
    assert_eq!(read.object.host.as_deref(), Some(r"a\x1b[31m.test"));
    assert_eq!(read.object.text.as_deref(), Some(r#"x\x0a{"kind":"seal"}"#));
    assert_eq!((read.rule.as_str(), read.count), (r"r\u{202e}", COUNT_LIMIT));
}

#[test]
fn what_is_no_report_is_counted_and_what_follows_is_read() {
    let (proxy, mut receiver) = bare();
    let good = encode(Message { id: 3, report: Report::Denial(denial("a.test")), on: None }).unwrap();
    let unknown = String::from_utf8(good.clone()).unwrap().replacen("{\"id\"", "{\"x\":1,\"id\"", 1);
    let sent: [&[u8]; 5] = [
        b"{",
        b"{\"id\":1}",
        b"{\"id\":-1,\"report\":{\"denial\":{}}}",
        unknown.as_bytes(),
        &vec![b'['; REPORT_LIMIT + 10],
    ];
    for bytes in sent {
        put(&proxy, bytes);
    }
    put(&proxy, &good);
    let received = receiver.drain().unwrap();
    assert_eq!((received.rejected, received.reports.len(), received.closed), (5, 1, false));
}

#[test]
fn descriptors_sent_along_are_not_taken() {
    let (proxy, mut receiver) = bare();
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let good = encode(Message { id: 3, report: Report::Denial(denial("a.test")), on: None }).unwrap();
    let before = open();
    sendmsg::<()>(
        proxy.as_raw_fd(),
        &[io::IoSlice::new(&good)],
        &[ControlMessage::ScmRights(&[proxy.as_raw_fd(); 4])],
        MsgFlags::MSG_NOSIGNAL,
        None,
    )
    .unwrap();
    assert_eq!(receiver.drain().unwrap().reports.len(), 1);
    // Other tests of this process open descriptors of their own: only what came along would stay.
    assert!(open() < before + 4);
}

#[test]
fn one_call_takes_so_many_and_the_next_takes_the_rest() {
    let (proxy, mut receiver) = bare();
    nix::sys::socket::setsockopt(&proxy, nix::sys::socket::sockopt::SndBuf, &(1 << 20)).unwrap();
    let mut sent = 0;
    while send(proxy.as_raw_fd(), b"x", MsgFlags::MSG_DONTWAIT).is_ok() {
        sent += 1;
    }
    assert!(sent > DRAIN_LIMIT as u64, "{sent}");
    assert_eq!(receiver.drain().unwrap().rejected, DRAIN_LIMIT as u64);
    let mut taken = DRAIN_LIMIT as u64;
    while taken < sent {
        taken += receiver.drain().unwrap().rejected;
    }
    assert_eq!(taken, sent);
}

#[test]
fn a_record_that_is_not_acknowledged_in_time_is_none() {
    let (mut recorder, _receiver) = pair().unwrap();
    recorder.patience = Duration::from_millis(20);
    let outcome = now(recorder.denial(denial("a.test"), None));
    assert!(matches!(outcome, Err(Unrecorded::Late { id: 1, .. })), "{outcome:?}");
}

#[test]
fn the_supervisors_end_is_noticed_by_who_waits_and_by_who_sends() {
    let (recorder, receiver) = pair().unwrap();
    drop(receiver);
    now(async {
        assert!(matches!(recorder.attend().await, Unrecorded::Closed));
        assert!(matches!(recorder.denial(denial("a.test"), None).await, Err(Unrecorded::Closed)));
    });
}

#[test]
fn who_is_asked_to_end_waits_for_the_acknowledgement() {
    let (recorder, mut receiver) = pair().unwrap();
    receiver.ask_to_end().unwrap();
    let acknowledged = Cell::new(false);
    now(async {
        let supervisor = async {
            while receiver.drain().unwrap().reports.is_empty() {
                tokio::task::yield_now().await;
            }
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            acknowledged.set(true);
            receiver.acknowledge(1).unwrap();
            std::future::pending::<()>().await
        };
        let ended = async {
            recorder.asked_to_end().await;
            recorder.settled().await;
        };
        let reporting = async {
            recorder.denial(denial("a.test"), None).await.unwrap();
            std::future::pending::<()>().await
        };
        // The arms are polled in their order: the report is under way before the end is looked at.
        tokio::select! {
            biased;
            () = reporting => {}
            cause = recorder.attend() => panic!("{cause}"),
            () = supervisor => {}
            () = ended => assert!(acknowledged.get()),
        }
    });
}

#[test]
fn a_report_that_is_too_long_gives_up_its_text() {
    let mut long = denial("a.test");
    long.object.text = Some("\u{1}".repeat(REPORT_LIMIT / 4));
    long.object.addrs = vec![[11, 22, 33, 44].into(); 20_000];
    let bytes = encode(Message { id: 1, report: Report::Denial(long), on: None }).unwrap();
    assert!(bytes.len() <= REPORT_LIMIT);
    let read: Message = serde_json::from_slice(&bytes).unwrap();
    assert!(matches!(read.report, Report::Denial(d) if d.object.host.as_deref() == Some("a.test")));
}

proptest! {
    #[test]
    fn any_message_at_all_is_survived(bytes in proptest::collection::vec(any::<u8>(), 1..300)) {
        let (proxy, mut receiver) = bare();
        put(&proxy, &bytes);
        let received = receiver.drain().unwrap();
        prop_assert_eq!((received.rejected, received.reports.len(), received.closed), (1, 0, false));
    }
}
