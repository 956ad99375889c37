//! The link between the box and the outside, their addresses and routes, and the check that nothing else is there.

use crate::address::{BOX4, BOX6, GATEWAY4, GATEWAY6, OUTSIDE};
use crate::error::{Doing, Error};
use crate::namespace::Namespace;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::IpAddr;
use std::process::{Command, Stdio};

/// The box's end of the link, named as in a container.
pub const BOX_LINK: &str = "eth0";
/// The outside's end of the link.
pub const OUTSIDE_LINK: &str = "veth0";

/// Joins the two namespaces by a veth pair and gives each its addresses.
pub(crate) fn connect(inside: &Namespace, outside: &Namespace) -> Result<(), Error> {
    for namespace in [inside, outside] {
        namespace.run(prepare_ipv6)?;
    }
    let peer = outside.path();
    inside.run(move || {
        ip_batch(&format!("link add {BOX_LINK} type veth peer name {OUTSIDE_LINK} netns {peer}\nlink set lo up\n"))
    })?;
    let mut script = format!("link set lo up\nlink set {OUTSIDE_LINK} up\n");
    for address in OUTSIDE {
        script.push_str(&add_address(address));
    }
    // Every other address is the outside's too: whatever is sent is answered there, by a reset where nobody listens.
    script.push_str("route add local 0.0.0.0/0 dev lo table main\nroute add local ::/0 dev lo table main\n");
    outside.run(move || ip_batch(&script))?;
    inside.run(|| {
        ip_batch(&format!(
            "link set {BOX_LINK} up\n\
             address add {BOX4}/24 dev {BOX_LINK}\n\
             address add {BOX6}/64 dev {BOX_LINK} nodad\n\
             route add default via {GATEWAY4}\n\
             route add ::/0 via {GATEWAY6}\n"
        ))
    })
}

/// Gives the outside one more address, reachable from the box over its default route.
pub(crate) fn assign(outside: &Namespace, address: IpAddr) -> Result<(), Error> {
    outside.run(move || ip_batch(&add_address(address)))
}

fn add_address(address: IpAddr) -> String {
    let mut line = String::new();
    let (prefix, rest) = match address {
        // The gateways carry the link's prefix: the answers' way back to the box.
        IpAddr::V4(address) => (if address == GATEWAY4 { 24 } else { 32 }, ""),
        IpAddr::V6(address) => (if address == GATEWAY6 { 64 } else { 128 }, " nodad"),
    };
    writeln!(line, "address add {address}/{prefix} dev {OUTSIDE_LINK}{rest}").expect("a String takes every write");
    line
}

/// Holds both namespaces to the link's two ends: an interface more could be a way to the real network.
pub(crate) fn assert_closed(inside: &Namespace, outside: &Namespace) -> Result<(), Error> {
    for (name, namespace, link) in [("the box", inside, BOX_LINK), ("the outside", outside, OUTSIDE_LINK)] {
        let found: BTreeSet<String> = namespace.run(|| -> Result<_, Error> {
            let interfaces = nix::net::if_::if_nameindex().doing("if_nameindex")?;
            Ok(interfaces.iter().map(|one| one.name().to_string_lossy().into_owned()).collect())
        })?;
        let expected = BTreeSet::from(["lo".to_owned(), link.to_owned()]);
        // Tunnel modules put their fallback devices (sit0, tunl0 …) into each new namespace: down, and without a peer.
        let extra = found.difference(&expected).any(|name| !FALLBACK_DEVICES.contains(&name.as_str()));
        if extra || !expected.is_subset(&found) {
            return Err(Error::NotClosed {
                namespace: name,
                interfaces: found.into_iter().collect(),
                expected: expected.into_iter().collect(),
            });
        }
    }
    Ok(())
}

const FALLBACK_DEVICES: [&str; 8] = ["sit0", "tunl0", "ip6tnl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0"];

/// Turns IPv6 on and duplicate address detection off, so that addresses serve at once.
fn prepare_ipv6() -> Result<(), Error> {
    for (key, value) in
        [("all/disable_ipv6", "0"), ("default/disable_ipv6", "0"), ("all/accept_dad", "0"), ("default/accept_dad", "0")]
    {
        let path = format!("/proc/sys/net/ipv6/conf/{key}");
        std::fs::write(&path, value).doing(format!("write {path}"))?;
    }
    Ok(())
}

/// Runs `ip -batch -` in the calling thread's namespace.
fn ip_batch(script: &str) -> Result<(), Error> {
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .doing("run ip (iproute2)")?;
    child.stdin.take().expect("piped").write_all(script.as_bytes()).doing("write to ip -batch -")?;
    let output = child.wait_with_output().doing("wait for ip")?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Tool { tool: "ip -batch -".to_owned(), said: String::from_utf8_lossy(&output.stderr).trim().to_owned() })
}
