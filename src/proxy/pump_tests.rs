use super::*;
use nix::sys::socket::{getsockopt, send, setsockopt, sockopt};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn now<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Two ends of a connection over loopback.
async fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (near, listener.accept().await.unwrap().0)
}

/// A sender and a receiver, and the halves between them that are pumped.
async fn line() -> (TcpStream, Inflow<OwnedReadHalf>, OwnedWriteHalf, TcpStream) {
    let ((sender, source), (destination, receiver)) = (connection().await, connection().await);
    (sender, Inflow::new(source.into_split().0), destination.into_split().1, receiver)
}

/// Bytes that differ wherever two of them change places.
fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| ((at as u32).wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

async fn pause(count: usize) {
    if count.is_multiple_of(5) {
        tokio::time::sleep(Duration::from_micros(300)).await;
    }
}

/// Sends `sent` in pieces and ends; reads in pieces; what has arrived.
async fn through(sent: &[u8], written: usize, read: usize, pipes: &Rc<Pipes>) -> Vec<u8> {
    let (mut sender, mut from, mut to, mut receiver) = line().await;
    let send = async {
        for (count, piece) in sent.chunks(written).enumerate() {
            sender.write_all(piece).await.unwrap();
            pause(count).await;
        }
        drop(sender);
    };
    let pump = async {
        pass_all(&mut from, &mut to, &Pulse::new(), pipes).await.unwrap();
        drop(to);
    };
    let receive = async {
        let mut got = Vec::new();
        let mut piece = vec![0; read];
        for count in 0.. {
            match receiver.read(&mut piece).await.unwrap() {
                0 => break,
                length => got.extend_from_slice(&piece[..length]),
            }
            // A slow start fills everything on the way.
            if count < 100 {
                pause(count).await;
            }
        }
        got
    };
    tokio::join!(send, pump, receive).2
}

const EDGES: [usize; 12] = [
    0,
    1,
    PIECE - 1,
    PIECE,
    2 * PIECE - 1,
    2 * PIECE,
    2 * PIECE + 1,
    SIZE as usize - 1,
    SIZE as usize,
    SIZE as usize + 1,
    3_000_000,
    6_000_001,
];

#[test]
fn everything_arrives_once_and_in_order_whatever_the_sizes() {
    for length in EDGES {
        for (written, read) in [(1 << 20, 1 << 20), (PIECE, 777), (1 << 20, 50_000)] {
            for most in [0, 4] {
                let (sent, pipes) = (bytes(length), Pipes::new(most));
                let got = now(through(&sent, written, read, &pipes));
                assert!(got == sent, "{length} bytes written by {written}, read by {read}, {most} pipes");
                assert_eq!(pipes.open.get(), 0);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn random_sizes_arrive_whole(length in 0usize..4_000_000, written in 300usize..300_000, read in 200usize..300_000) {
        let (sent, pipes) = (bytes(length), Pipes::new(1));
        prop_assert!(now(through(&sent, written, read, &pipes)) == sent);
    }

    #[test]
    fn a_length_is_kept_to_the_byte(length in 0usize..1_500_000, more in 1usize..100_000) {
        now(async {
            let (mut sender, mut from, mut to, mut receiver) = line().await;
            let sent = bytes(length + more);
            let mut got = Vec::new();
            let pipes = Pipes::new(1);
            let send = async { sender.write_all(&sent).await.unwrap() };
            let pump = async {
                pass_length(&mut from, &mut to, length as u64, &Pulse::new(), &pipes).await.unwrap();
                drop(to);
                let mut rest = Vec::new();
                while rest.len() < more {
                    let some = from.some().await.unwrap().to_vec();
                    from.consume(some.len());
                    rest.extend_from_slice(&some);
                }
                rest
            };
            let (_, rest, _) = tokio::join!(send, pump, receiver.read_to_end(&mut got));
            assert!(got == sent[..length] && rest == sent[length..]);
        });
    }
}

#[test]
fn a_body_that_stops_is_not_whole() {
    for length in [1, BULK] {
        now(async {
            let (mut sender, mut from, mut to, _receiver) = line().await;
            sender.write_all(&bytes(length as usize)).await.unwrap();
            drop(sender);
            let (mut receiver, pipes) = (_receiver, Pipes::new(1));
            let mut got = Vec::new();
            let pump = async {
                let done = pass_length(&mut from, &mut to, length + 1, &Pulse::new(), &pipes).await;
                drop(to);
                done
            };
            let (done, _) = tokio::join!(pump, receiver.read_to_end(&mut got));
            assert!(matches!(done, Err(BodyError::Truncated)), "{done:?}");
            assert_eq!(got.len() as u64, length);
        });
    }
}

/// The pump of a stream that has become bulk and then is silent, polled until `seen`; gives what it holds then.
async fn bulk_then(receiver: &mut TcpStream, length: usize, pump: impl Future, seen: impl AsyncFnOnce(&mut TcpStream)) {
    let look = async {
        let mut got = vec![0; length];
        receiver.read_exact(&mut got).await.unwrap();
        assert!(got == bytes(length));
        seen(receiver).await;
    };
    tokio::select! {
        _ = pump => panic!("the stream has not ended"),
        () = look => {}
    }
}

#[test]
fn bulk_takes_a_pipe_and_silence_gives_it_back() {
    now(async {
        let (mut sender, mut from, mut to, mut receiver) = line().await;
        let (sent, pulse, pipes) = (bytes(2_000_000), Pulse::new(), Pipes::new(1));
        let send = tokio::spawn(async move {
            sender.write_all(&sent).await.unwrap();
            sender
        });
        let pump = pass_all(&mut from, &mut to, &pulse, &pipes);
        bulk_then(&mut receiver, 2_000_000, pump, async |receiver| {
            assert_eq!(pipes.open.get(), 1);
            tokio::time::sleep(HOLD + Duration::from_millis(200)).await;
            assert_eq!(pipes.open.get(), 0);
            // What comes then is no bulk.
            let mut sender = send.await.unwrap();
            sender.write_all(b"x").await.unwrap();
            receiver.read_exact(&mut [0]).await.unwrap();
            assert_eq!(pipes.open.get(), 0);
        })
        .await;
    });
}

#[test]
fn a_slow_reader_holds_back_one_pipe_and_what_the_sockets_hold() {
    // What the sender got rid of when nothing moves any more.
    let taken = |most: usize| {
        now(async move {
            let (sender, mut from, mut to, receiver) = line().await;
            let mut buffers = 0;
            for socket in [&sender, from.bare().unwrap().as_ref(), to.as_ref(), &receiver] {
                setsockopt(socket, sockopt::SndBuf, &262_144).unwrap();
                setsockopt(socket, sockopt::RcvBuf, &262_144).unwrap();
            }
            for socket in [&sender, to.as_ref()] {
                buffers += getsockopt(socket, sockopt::SndBuf).unwrap();
            }
            for socket in [from.bare().unwrap().as_ref(), &receiver] {
                buffers += getsockopt(socket, sockopt::RcvBuf).unwrap();
            }
            let (pulse, pipes) = (Pulse::new(), Pipes::new(most));
            let fill = async {
                let (mut taken, piece) = (0, bytes(16_384));
                while let Ok(ready) = timeout(Duration::from_millis(500), sender.writable()).await {
                    ready.unwrap();
                    taken += sender.try_write(&piece).unwrap_or(0);
                }
                (taken, buffers, pipes.open.get())
            };
            tokio::select! {
                _ = pass_length(&mut from, &mut to, u64::MAX, &pulse, &pipes) => panic!("it has no end"),
                taken = fill => taken,
            }
        })
    };
    let (copied, buffers, none) = taken(0);
    assert_eq!(none, 0);
    assert!(copied <= buffers + PIECE, "{copied}, {buffers}");
    let (spliced, buffers, one) = taken(1);
    assert_eq!(one, 1);
    assert!(spliced <= buffers + SIZE as usize, "{spliced}, {buffers}");
}

#[test]
fn an_urgent_byte_within_bulk_is_left_out_and_nothing_else() {
    // As without a pipe: recv(2) leaves the urgent byte out, while splice(2) stops in front of it, and says "the end" where
    // the stream has ended behind it.
    for most in [0, 1] {
        now(async {
            let (mut sender, mut from, mut to, mut receiver) = line().await;
            let (sent, pipes) = (bytes(1_000_000), Pipes::new(most));
            let send = async {
                sender.write_all(&sent).await.unwrap();
                sender.writable().await.unwrap();
                assert_eq!(send(sender.as_raw_fd(), b"!", MsgFlags::MSG_OOB), Ok(1));
                sender.write_all(&sent).await.unwrap();
                drop(sender);
            };
            let pump = async {
                pass_all(&mut from, &mut to, &Pulse::new(), &pipes).await.unwrap();
                drop(to);
            };
            let mut got = Vec::new();
            tokio::join!(send, pump, async { receiver.read_to_end(&mut got).await.unwrap() });
            assert!(got == [&sent[..], &sent[..]].concat(), "{most} pipes: {} bytes", got.len());
        });
    }
}

#[test]
fn where_sockets_cannot_be_spliced_nothing_is_lost_and_no_pipe_is_taken_again() {
    now(async {
        let (mut sender, from, to, mut receiver) = line().await;
        sender.write_all(b"abc").await.unwrap();
        let (mut from, mut to) = (from, to);
        let pipes = Pipes::new(1);
        let mut pipe = pipes.take().unwrap();
        // splice(2): EINVAL where neither end is a pipe.
        pipe.write = std::fs::File::options().write(true).open("/dev/null").unwrap().into();
        let reader = from.bare().unwrap().as_ref();
        assert_eq!(pipe.pass(reader, to.as_ref(), u64::MAX, &Pulse::new()).await.unwrap(), 0);
        drop(pipe);
        assert!(pipes.take().is_none());
        pass_length(&mut from, &mut to, 3, &Pulse::new(), &pipes).await.unwrap();
        let mut got = [0; 3];
        receiver.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"abc");
    });
}

#[test]
fn a_reset_of_either_side_within_bulk_is_an_error() {
    for source in [true, false] {
        now(async {
            let (mut sender, mut from, mut to, mut receiver) = line().await;
            let (pulse, pipes) = (Pulse::new(), Pipes::new(1));
            let ends = async {
                sender.write_all(&bytes(500_000)).await.unwrap();
                let mut got = vec![0; 400_000];
                receiver.read_exact(&mut got).await.unwrap();
                assert_eq!(pipes.open.get(), 1);
                let gone = if source { &sender } else { &receiver };
                gone.set_zero_linger().unwrap();
                match source {
                    true => drop(sender),
                    false => {
                        drop(receiver);
                        // Its peer finds out by writing.
                        sender.write_all(&bytes(500_000)).await.ok();
                    }
                }
            };
            let pump = pass_length(&mut from, &mut to, u64::MAX, &pulse, &pipes);
            let (_, done) = tokio::join!(ends, pump);
            match source {
                true => assert!(matches!(done, Err(BodyError::Read(_))), "{done:?}"),
                false => assert!(matches!(done, Err(BodyError::Write(_))), "{done:?}"),
            }
            assert_eq!(pipes.open.get(), 0);
        });
    }
}
