//! The proxy that ours is measured against: one thread, nothing judged, nothing recorded, no deadline. It takes any CONNECT,
//! and any GET in absolute form whose head comes in one piece, as it is.

use super::origin::{ADDRESS, NAME};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

/// Where it listens.
pub const AT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 3130);

/// Serves for ever.
pub fn serve() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    // As a task of its own: what a runtime blocks on is woken by a system call.
    let serving = runtime.spawn(async {
        let socket = tokio::net::TcpSocket::new_v4().expect("socket");
        socket.bind(AT.into()).expect("bind");
        let listener: TcpListener = socket.listen(4096).expect("listen");
        loop {
            let (stream, _) = listener.accept().await.expect("accept");
            // Whatever ends one connection ends nothing else.
            tokio::spawn(async move { relay(stream).await.ok() });
        }
    });
    runtime.block_on(serving).expect("it goes on for ever")
}

async fn relay(mut client: TcpStream) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut head = Vec::with_capacity(4096);
    while !head.ends_with(b"\r\n\r\n") {
        if client.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let text = std::str::from_utf8(&head).map_err(io::Error::other)?;
    let mut words = text.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let authority = target.strip_prefix("http://").unwrap_or(target).split('/').next().unwrap_or_default();
    let (host, port) = authority.rsplit_once(':').ok_or(io::ErrorKind::InvalidInput)?;
    let port: u16 = port.parse().map_err(io::Error::other)?;
    let address = if host == NAME { ADDRESS } else { host.parse().map_err(io::Error::other)? };
    let mut server = TcpStream::connect((address, port)).await?;
    server.set_nodelay(true)?;
    match method {
        "CONNECT" => client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?,
        _ => server.write_all(&head).await?,
    }
    drop(head);
    copy_bidirectional(&mut client, &mut server).await.map(|_| ())
}
