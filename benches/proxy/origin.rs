//! The servers behind the proxies: one that answers small requests, and one for bulk.

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Where they stand: a public address that the box has on `lo`.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(11, 22, 34, 44);
/// The name of that address, by the hosts file: nobody asks a resolver.
pub const NAME: &str = "origin.test";
/// Of the server of small requests.
pub const SMALL: u16 = 8080;
/// Of the server of bulk.
pub const BULK: u16 = 8081;
/// Bytes of a small answer's body.
pub const BODY: usize = 1024;
/// The path whose answer leaves the connection open.
pub const STAY: &str = "/stay";

/// Starts both in threads that end with the process. The calling thread's network namespace is theirs.
pub fn start() {
    let bind = |port| TcpListener::bind((ADDRESS, port)).expect("an address of the box");
    let (small, bulk) = (bind(SMALL), bind(BULK));
    nix::sys::socket::listen(&small, nix::sys::socket::Backlog::MAXCONN).expect("listen");
    std::thread::spawn(move || answer(&small));
    std::thread::spawn(move || {
        for stream in bulk.incoming() {
            std::thread::spawn(|| carry(stream.expect("accept")));
        }
    });
}

/// Answers each request head. The connection ends with the answer, but for [`STAY`].
fn answer(listener: &TcpListener) {
    let answer = |more| format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n{more}\r\n{}", "a".repeat(BODY));
    let (last, kept) = (answer("Connection: close\r\n"), answer(""));
    listener.set_nonblocking(true).expect("fcntl");
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("epoll_create1");
    epoll.add(listener, EpollEvent::new(EpollFlags::EPOLLIN, 0)).expect("epoll_ctl");
    let mut streams: HashMap<u64, (TcpStream, Vec<u8>)> = HashMap::new();
    let mut events = vec![EpollEvent::empty(); 1024];
    let mut piece = [0; 4096];
    loop {
        let count = epoll.wait(&mut events, EpollTimeout::NONE).unwrap_or(0);
        for key in events[..count].iter().map(EpollEvent::data) {
            if key == 0 {
                while let Ok((stream, _)) = listener.accept() {
                    let key = stream.as_raw_fd() as u64;
                    epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, key)).expect("epoll_ctl");
                    streams.insert(key, (stream, Vec::new()));
                }
                continue;
            }
            let Some((stream, head)) = streams.get_mut(&key) else { continue };
            let ended = match stream.read(&mut piece) {
                Ok(count @ 1..) => {
                    head.extend_from_slice(&piece[..count]);
                    match head.ends_with(b"\r\n\r\n") {
                        true if head.starts_with(format!("GET {STAY} ").as_bytes()) => {
                            *head = Vec::new();
                            stream.write_all(kept.as_bytes()).is_err()
                        }
                        true => {
                            // Who is gone is not answered; it counts as an error where it was asked.
                            stream.write_all(last.as_bytes()).ok();
                            true
                        }
                        false => false,
                    }
                }
                _ => true,
            };
            if ended {
                streams.remove(&key);
            }
        }
    }
}

/// A connection begins with how many bytes go which way: eight bytes of a number, and `d` or `u`. Those that come are
/// counted in the answer.
fn carry(mut stream: TcpStream) {
    let mut order = [0; 9];
    stream.read_exact(&mut order).expect("an order");
    let size = u64::from_be_bytes(*order.first_chunk().expect("nine bytes"));
    let mut piece = vec![7; 1 << 20];
    if order[8] == b'd' {
        for _ in 0..size >> 20 {
            stream.write_all(&piece).expect("the client takes it");
        }
    } else {
        let got = drain(&mut stream, &mut piece, size);
        stream.write_all(&got.to_be_bytes()).expect("the client takes it");
    }
}

/// Reads so many bytes, or to the end.
pub fn drain(stream: &mut TcpStream, piece: &mut [u8], size: u64) -> u64 {
    let mut got = 0;
    while got < size {
        match stream.read(piece).expect("more of it") {
            0 => break,
            count => got += count as u64,
        }
    }
    got
}

/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(10);
