//! The static programs that do the acts.
#![allow(dead_code, reason = "each test binary uses its own part")]

use crate::attempts;
use crate::common::Fence;
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};

/// network.c and what belongs to it.
pub fn network() -> Vec<u8> {
    let others = ["talking", "reaching"].map(|name| format!("{}/tests/rungs/{name}.c", env!("CARGO_MANIFEST_DIR")));
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    attempts::compile_with(&others, "tests/rungs/network.c")
}

/// What a program said of each act, by its number.
pub fn outcomes(out: &str) -> BTreeMap<usize, &str> {
    let line = |line| {
        let fields: Vec<&str> = str::splitn(line, 3, '\t').collect();
        let [id, _, outcome] = fields[..] else { panic!("no outcome in {line:?}") };
        (id.parse().expect("a number"), outcome)
    };
    out.lines().map(line).collect()
}

/// Unix sockets of somebody outside, by a path and by an abstract name, for streams and for datagrams; they take all in.
pub struct Outside {
    streams: Vec<UnixListener>,
    datagrams: Vec<UnixDatagram>,
}

impl Outside {
    pub fn start(fence: &Fence) -> Outside {
        fence.world.inside().run(|| {
            std::fs::create_dir_all("/run/outside").expect("mkdir");
            let name = |suffix: &str| {
                let name = format!("outside-{}{suffix}", std::process::id());
                SocketAddr::from_abstract_name(name).expect("a name")
            };
            let streams = [UnixListener::bind("/run/outside/socket"), UnixListener::bind_addr(&name(""))];
            let datagrams = [UnixDatagram::bind("/run/outside/socket.d"), UnixDatagram::bind_addr(&name(".d"))];
            for path in ["/run/outside/socket", "/run/outside/socket.d"] {
                std::fs::set_permissions(path, Permissions::from_mode(0o666)).expect("chmod");
            }
            let outside = Outside {
                streams: streams.into_iter().map(|stream| stream.expect("bind")).collect(),
                datagrams: datagrams.into_iter().map(|datagram| datagram.expect("bind")).collect(),
            };
            outside.streams.iter().for_each(|stream| stream.set_nonblocking(true).expect("O_NONBLOCK"));
            outside.datagrams.iter().for_each(|datagram| datagram.set_nonblocking(true).expect("O_NONBLOCK"));
            outside
        })
    }

    /// Connections and datagrams that have come to the abstract names.
    pub fn heard_by_abstract_name(&self) -> (usize, usize) {
        let connections = std::iter::from_fn(|| self.streams[1].accept().ok()).count();
        let datagrams = std::iter::from_fn(|| self.datagrams[1].recv(&mut [0; 64]).ok()).count();
        (connections, datagrams)
    }
}
