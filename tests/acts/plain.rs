//! Acts that are done in no directory: privilege, set-id programs, the network.

use super::line::{bare, fields, without_names};
use super::privileged::{ORDINARY, PRIVILEGED, Privileged, SOCKETS};
use super::script::{Act, Draw, HOWS, Setting, Wanted};
use super::table::Via;

pub fn plain(draw: &mut Draw, id: usize, setting: &Setting) -> Act {
    let socket = draw.below(8) == 0;
    let Privileged(call, layout, errno, object, rule) = draw.of(if socket { SOCKETS } else { PRIVILEGED });
    let how = *draw.of(&HOWS);
    let operation = if matches!(*call, "i386" | "x32") { "abi" } else { call };
    let denial = Wanted {
        axis: if socket { "network" } else { "privilege" },
        mechanism: "notifier",
        operation: operation.to_owned(),
        object: object.unwrap_or_default().to_owned(),
        errno: (*errno).to_owned(),
        rule: (*rule).to_owned(),
    };
    Act {
        id,
        what: format!("{call} {layout} {how}"),
        via: Via::C,
        zone: None,
        lines: without_names(id, how, call, layout, setting),
        errno: (*errno).to_owned(),
        denial: Some(denial),
    }
}

pub fn ordinary(draw: &mut Draw, id: usize, setting: &Setting) -> Act {
    let (call, layout, errno) = draw.of(ORDINARY);
    // What may change the caller has a process of its own.
    let how = *draw.of(&HOWS[2..]);
    Act {
        id,
        what: format!("{call} {layout} {how}"),
        via: Via::C,
        zone: None,
        lines: without_names(id, how, call, layout, setting),
        errno: (*errno).to_owned(),
        denial: None,
    }
}

/// Programs, made by the test, and whether they have bits that are without effect.
pub const PROGRAMS: [(&str, &str, bool); 6] = [
    ("/usr/local/lib/acts/set-uid", "u+s", true),
    ("/usr/local/lib/acts/set-gid", "g+s", true),
    ("/usr/local/lib/acts/capable", "", true),
    ("/usr/local/lib/acts/plain", "", false),
    // A lock's mark, not a set-gid bit (inode(7)), and what the kernel takes for no program.
    ("/usr/local/lib/acts/locked", "g+s,g-x", false),
    ("/usr/local/lib/acts/closed", "u+s,a-x", false),
];

pub fn set_id(draw: &mut Draw, id: usize) -> Act {
    let (path, _, gives) = draw.of(&PROGRAMS);
    let how = *draw.of(&HOWS[2..]);
    let line = fields(id, how, &bare("-"), "execve", &[(*path).to_owned()]);
    Act {
        id,
        what: format!("execve {path} {how}"),
        via: Via::C,
        zone: None,
        lines: [line.clone(), line],
        errno: if path.ends_with("closed") { "EACCES" } else { "ok" }.to_owned(),
        denial: gives.then(|| Wanted {
            axis: "privilege",
            mechanism: "notifier",
            operation: "execve".to_owned(),
            object: (*path).to_owned(),
            errno: String::new(),
            rule: "set-id".to_owned(),
        }),
    }
}

pub fn network(draw: &mut Draw, id: usize) -> Act {
    const ADDRESSES: [&str; 4] = ["10.0.0.5", "169.254.169.254", "11.22.33.44", "168.63.129.16"];
    let to = *draw.of(&ADDRESSES);
    let udp = draw.below(2) == 0;
    let how = *draw.of(&HOWS);
    let ports = [20_000 + id, 40_000 + id];
    let (via, lines) = match draw.below(3) {
        0 => (
            Via::Python,
            ports.map(|port| {
                let function = if udp { "udp" } else { "tcp" };
                fields(id, how, &bare("-"), function, &[to.to_owned(), port.to_string()])
            }),
        ),
        1 if draw.below(3) == 0 => return proxied(draw, id),
        _ => (
            Via::C,
            ports.map(|port| {
                let address = format!("inet:{to}:{port}");
                match udp {
                    true => {
                        fields(id, how, &bare("s:inet:dgram"), "sendto", &["@", "x", "0", &address].map(str::to_owned))
                    }
                    false => fields(id, how, &bare("s:inet:stream"), "connect", &["@", &address].map(str::to_owned)),
                }
            }),
        ),
    };
    let errno = if udp { "EPERM" } else { "ECONNREFUSED" };
    let denial = Wanted {
        axis: "network",
        mechanism: "firewall",
        operation: if udp { "udp" } else { "tcp" }.to_owned(),
        object: format!("{to} {}", ports[0]),
        errno: errno.to_owned(),
        rule: String::new(),
    };
    let what = format!("{} {to} {via:?} {how}", denial.operation);
    Act { id, what, via, zone: None, lines, errno: errno.to_owned(), denial: Some(denial) }
}

/// By the proxy, to a name that it does not admit, or does.
fn proxied(draw: &mut Draw, id: usize) -> Act {
    let admitted = draw.below(2) == 0;
    let (host, how) = (if admitted { "pypi.org" } else { "stranger.example.org" }, *draw.of(&HOWS));
    let lines = ['a', 'b'].map(|tree| {
        let host = if admitted { format!("{host}:443") } else { format!("{tree}{id}.{host}:443") };
        fields(id, how, &bare("-"), "proxy", &[host])
    });
    let denial = Wanted {
        axis: "network",
        mechanism: "proxy",
        operation: "CONNECT".to_owned(),
        object: format!("a{id}.{host}"),
        errno: "403".to_owned(),
        rule: String::new(),
    };
    Act {
        id,
        what: format!("proxy {host} {how}"),
        via: Via::Python,
        zone: None,
        lines,
        errno: if admitted { "ok" } else { "403" }.to_owned(),
        denial: (!admitted).then_some(denial),
    }
}
