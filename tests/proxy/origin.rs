//! Servers on loopback that log what reaches them.

use crate::rig::PATIENCE;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A server on loopback that logs every connection's bytes.
pub struct Origin {
    pub port: u16,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Origin {
    /// An HTTP server: one request a connection, each answered by `respond`.
    pub fn http(respond: impl Fn(&str) -> String + Send + Sync + 'static) -> Origin {
        Origin::start("127.0.0.1:0", move |stream, log| {
            let request = read_request(stream);
            log(&request);
            stream.write_all(respond(&request).as_bytes()).ok();
        })
    }

    /// An HTTP server that answers `200 ok`.
    pub fn plain() -> Origin {
        Origin::http(|_| "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_owned())
    }

    /// A server that sends back what it gets.
    pub fn echo() -> Origin {
        Origin::start("127.0.0.1:0", |stream, log| {
            log("connection");
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut piece) {
                if stream.write_all(&piece[..count]).is_err() {
                    return;
                }
            }
        })
    }

    /// A server that nothing may reach.
    pub fn sink(addr: &str) -> Origin {
        Origin::start(addr, |_, log| log("connection"))
    }

    pub fn start(addr: &str, serve: impl Fn(&mut TcpStream, &dyn Fn(&str)) + Send + Sync + 'static) -> Origin {
        let listener = TcpListener::bind(addr).unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        let serve = Arc::new(serve);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (log, serve) = (log.clone(), serve.clone());
                std::thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    serve(&mut stream, &|text| log.lock().unwrap().push(text.to_owned()));
                });
            }
        });
        Origin { port, seen }
    }

    /// What came, a text for each connection.
    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

/// Has a connection end with a reset when it is closed (socket(7), SO_LINGER).
pub fn reset_at_close(stream: &TcpStream) {
    let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    nix::sys::socket::setsockopt(stream, nix::sys::socket::sockopt::Linger, &linger).unwrap();
}

/// Reads up to an empty line, or to the end.
pub fn read_head(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
        bytes.push(byte[0]);
    }
    bytes
}

/// Reads one request, head and body, exactly as it came.
pub fn read_request(stream: &mut TcpStream) -> String {
    let mut bytes = read_head(stream);
    let mut byte = [0];
    let head = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    if let Some(length) = length {
        let mut body = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut body).ok();
        bytes.extend_from_slice(&body);
    } else if head.contains("transfer-encoding: chunked") {
        while !bytes.ends_with(b"0\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
            bytes.push(byte[0]);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
