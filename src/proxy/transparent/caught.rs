//! A connection to an address that stands for a name: a tunnel to the name, which nobody has asked for by CONNECT.

use super::{Serving, Told, stand_ins};
use crate::policy::{Authority, Host};
use crate::proxy::admission::{Asked, admit_and_reach};
use crate::proxy::carry::{Opened, carry};
use crate::proxy::core::Core;
use crate::proxy::record::{self, Connection, Recorder, Unrecorded};
use crate::proxy::wire::Wire;
use nix::sys::socket::{getsockopt, sockopt};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use tokio::net::TcpStream;

/// What the record calls it.
const OPERATION: &str = "connect";

/// Serves a caught connection to its end; `port` is the one that its client has asked for. Errors: a refusal could not be
/// recorded.
pub async fn serve<R: Recorder>(
    stream: TcpStream,
    client: SocketAddr,
    port: u16,
    serving: Rc<Serving>,
    core: Rc<Core<R>>,
) -> Result<(), Unrecorded> {
    let Ok((asked, proxy)) = destination(&stream, port, &serving) else { return Ok(()) };
    let Ok(wire) = Wire::new(stream, &core.pipes) else { return Ok(()) };
    let on = Connection { client, proxy, datagram: false };
    let wire = wire.with_ends(on);
    let name = serving.stand_ins.borrow().name_of(asked.ip()).cloned();
    let Some(name) = name else {
        core.recorder.denial(record::to_no_name(OPERATION, asked), Some(on)).await?;
        wire.reset();
        return Ok(());
    };
    let authority = Authority { host: Host::Name(name), port };
    let asked = Asked { operation: OPERATION, on: Some(on), by_http: false };
    match admit_and_reach(&core, asked, &authority).await? {
        Ok((permit, server)) => {
            let opened = Opened { client: wire, server, permit, caught: true };
            Box::pin(carry(opened, &core)).await
        }
        Err(_) => {
            wire.reset();
            Ok(())
        }
    }
}

/// Where a connection was meant for whose destination the kernel has translated; of IPv4 alone.
pub fn translated(stream: &TcpStream) -> io::Result<SocketAddr> {
    let original = getsockopt(stream, sockopt::OriginalDst)?;
    let ip = Ipv4Addr::from_bits(u32::from_be(original.sin_addr.s_addr));
    Ok(SocketAddr::new(ip.into(), u16::from_be(original.sin_port)))
}

/// Where the client wanted to go, and the end that its own socket takes for the other one.
fn destination(stream: &TcpStream, port: u16, serving: &Serving) -> io::Result<(SocketAddr, SocketAddr)> {
    match serving.told {
        Told::ByTranslation => {
            let asked = SocketAddr::new(translated(stream)?.ip(), port);
            // Nobody whom the wall holds comes here by this address itself.
            match stream.local_addr()?.ip() == asked.ip() {
                true => Err(io::ErrorKind::AddrNotAvailable.into()),
                false => Ok((asked, asked)),
            }
        }
        Told::ByDestination => {
            let local = stream.local_addr()?;
            // By any other address of loopback nobody is led here.
            let asked: Option<IpAddr> = stand_ins::by_loopback(local.ip(), &serving.listed);
            Ok((SocketAddr::new(asked.ok_or(io::ErrorKind::AddrNotAvailable)?, port), local))
        }
    }
}
