//! Origin servers: HTTP and HTTPS, keeping every request that reaches them.

use crate::authority::Authority;
use crate::error::{Doing, Error};
use crate::http::{self, Request, Response};
use crate::listening::Tcp;
use crate::namespace::Namespace;
use crate::seen::Seen;
use rustls::{ServerConnection, StreamOwned};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// What an origin serves: a function from request to response.
pub type Content = Arc<dyn Fn(&Request) -> Response + Send + Sync>;

/// An origin server at one address and port.
pub struct Origin {
    seen: Arc<Seen<Request>>,
    socket: Tcp,
}

impl Origin {
    /// Serves plain HTTP.
    ///
    /// # Errors
    /// The address can't be bound.
    pub fn http(space: &Namespace, address: impl Into<IpAddr>, port: u16, content: Content) -> Result<Origin, Error> {
        let seen = Arc::new(Seen::new());
        let noting = seen.clone();
        let socket = Tcp::listen(space, SocketAddr::new(address.into(), port), move |stream| {
            let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else {
                return;
            };
            converse(stream, (peer, local, None), &noting, &content);
        })?;
        Ok(Origin { seen, socket })
    }

    /// Serves HTTPS with a certificate for these names, signed by the authority.
    ///
    /// # Errors
    /// No certificate could be made, or the address can't be bound.
    pub fn https(
        space: &Namespace,
        address: impl Into<IpAddr>,
        port: u16,
        authority: &Authority,
        names: &[&str],
        content: Content,
    ) -> Result<Origin, Error> {
        let config = authority.server(names)?;
        let seen = Arc::new(Seen::new());
        let noting = seen.clone();
        let socket = Tcp::listen(space, SocketAddr::new(address.into(), port), move |mut stream| {
            let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else {
                return;
            };
            let Ok(mut tls) = ServerConnection::new(config.clone()) else {
                return;
            };
            // A peer that doesn't like the certificate is the test's affair.
            while tls.is_handshaking() {
                if tls.complete_io(&mut stream).is_err() {
                    return;
                }
            }
            let name = tls.server_name().map(str::to_owned);
            converse(StreamOwned::new(tls, stream), (peer, local, name), &noting, &content);
        })?;
        Ok(Origin { seen, socket })
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<Request> {
        self.seen.all()
    }

    /// Waits until `count` requests have come, at most ten seconds.
    pub fn wait_for(&self, count: usize) -> Vec<Request> {
        self.seen.wait_for(count, Duration::from_secs(10))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.socket.address()
    }
}

fn converse(
    stream: impl std::io::Read + std::io::Write,
    (peer, local, name): (SocketAddr, SocketAddr, Option<String>),
    seen: &Seen<Request>,
    content: &Content,
) {
    let about = |request: &mut Request| {
        (request.peer, request.local, request.server_name) = (peer, local, name.clone());
    };
    let answer = |request: Request| {
        let response = content(&request);
        seen.push(request);
        response
    };
    // A connection that breaks is seen by the peer; the requests that came are kept.
    if let Err(cause) = http::serve(stream, &about, &answer)
        && !matches!(cause.kind(), std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::WouldBlock)
    {
        eprintln!("world: connection from {peer}: {cause}");
    }
}

/// What most tests need: `/` says "hello from HOST", `/bytes/N` gives N bytes, `/echo` gives the body back,
/// `/redirect?URL` sends the client on; everything else is 404.
pub fn standard() -> Content {
    Arc::new(|request| {
        let host = request.field("host").next().unwrap_or_default();
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        if let Some(count) = path.strip_prefix("/bytes/").and_then(|count| count.parse::<usize>().ok()) {
            return Response::text((0..count).map(|at| at as u8).collect::<Vec<u8>>());
        }
        match path {
            "/" => Response::text(format!("hello from {host}\n")),
            "/echo" => Response::text(request.body.clone()),
            "/redirect" => Response::status(302).with("location", query),
            _ => Response::status(404),
        }
    })
}

/// The files below a directory of the machine, as they are now: the directory may go afterwards.
///
/// # Errors
/// The directory or a file in it can't be read.
pub fn directory(root: &Path) -> Result<Content, Error> {
    let mut files = HashMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        let reading = || format!("read {}", directory.display());
        for entry in std::fs::read_dir(&directory).doing(reading())? {
            let path = entry.doing(reading())?.path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let bytes = std::fs::read(&path).doing(format!("read {}", path.display()))?;
            let name = path.strip_prefix(root).expect("below the root").to_string_lossy();
            files.insert(format!("/{name}"), bytes);
        }
    }
    Ok(Arc::new(move |request| match files.get(request.path()) {
        Some(bytes) => Response::text(bytes.clone()),
        None => Response::status(404),
    }))
}
