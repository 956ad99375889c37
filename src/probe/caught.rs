//! What probes try where tools that ask no proxy are served: questions to the host's resolver, and connections to addresses that
//! stand for names.

use super::network::said;
use crate::proxy::transparent::stand_ins::STAND_INS;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

/// What of it the probes need to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaughtSeen {
    /// A resolver of the host's, in whose place names are answered.
    pub resolver: SocketAddr,
    /// A port on which connections are caught.
    pub port: u16,
}

/// The answer to what is refused.
pub const REFUSED: &str = "REFUSED";
/// The proxy has taken the connection, and ended it.
pub const RESET: &str = "reset";
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The identifier of the question.
const ID: [u8; 2] = [0x70, 0x66];

/// Asks the resolver for the IPv4 addresses of a name, once, and says how it answers.
pub fn lookup(seen: CaughtSeen, name: &str) -> String {
    let outcome = (|| -> io::Result<String> {
        let any = if seen.resolver.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.connect(seen.resolver)?;
        socket.send(&question(name))?;
        let mut answer = [0; 512];
        let length = socket.recv(&mut answer)?;
        Ok(match answer.get(..length) {
            Some([a, b, _, code, ..]) if [*a, *b] == ID => code_name(code & 0xf),
            _ => "no answer to the question".to_owned(),
        })
    })();
    outcome.unwrap_or_else(|error| said(&error))
}

/// A question for the IPv4 addresses of a name (RFC 1035, 4.1).
fn question(name: &str) -> Vec<u8> {
    let labels = name.split('.').flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
    [&ID[..], &[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]].concat().into_iter().chain(labels).chain([0, 0, 1, 0, 1]).collect()
}

fn code_name(code: u8) -> String {
    match code {
        0 => "NOERROR".to_owned(),
        2 => "SERVFAIL".to_owned(),
        3 => "NXDOMAIN".to_owned(),
        5 => REFUSED.to_owned(),
        other => format!("code {other}"),
    }
}

/// Connects to an address that stands for nothing, the last one of the range, and says how that ends.
pub fn never_handed_out(seen: CaughtSeen) -> String {
    let address = SocketAddr::new(IpAddr::V4(STAND_INS.broadcast()), seen.port);
    let outcome = (|| -> io::Result<usize> {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.read(&mut [0])
    })();
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => RESET.to_owned(),
        Err(error) => said(&error),
        Ok(0) => "ended".to_owned(),
        Ok(_) => "bytes came".to_owned(),
    }
}
