//! Who reaches a server of the command's: on `full` everyone as before, where sockets are bound to `lo` whoever is on this
//! machine's loopback, and in a network namespace of its own nobody but by `--publish`.

mod common;
#[path = "rungs/rung.rs"]
mod rung;

use common::{Fence, own_user};
use rung::Rung;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Stdio;
use std::time::Duration;
use world::Namespace;
use world::address::BOX4;

const PORT: u16 = 4555;

/// Serves on every address, says a word to whoever comes until it is told to end, and then how many came.
const SERVER: &str = "
import select, socket, sys
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(('0.0.0.0', 4555)); server.listen(8)
print('ready', flush=True)
came = 0
while sys.stdin not in select.select([server, sys.stdin], [], [])[0]:
    client, _ = server.accept()
    came += client.send(b'!') == 1
    client.close()
print(f'came={came}')
";

/// Whether a server answers from this namespace.
fn answers(from: &Namespace, address: Ipv4Addr) -> bool {
    from.run(move || {
        let patience = Duration::from_secs(5);
        let Ok(mut stream) = TcpStream::connect_timeout(&SocketAddr::from((address, PORT)), patience) else {
            return false;
        };
        let mut word = [0];
        stream.set_read_timeout(Some(patience)).expect("a timeout");
        stream.read(&mut word).is_ok_and(|count| count == 1 && word == *b"!")
    })
}

/// From outside by the machine's address, and from the machine by its loopback.
fn reached(rung: Rung, flags: &[&str]) -> (bool, bool) {
    let fence = Fence::new();
    let user = own_user();
    let home = format!("/home/dev{user}");
    rung::prepare(&fence, user, &home);
    fence.world.write("/usr/local/lib/server.py", SERVER, 0o644);
    let arguments = ["/usr/bin/python3", "/usr/local/lib/server.py"];
    let (mut command, ledger) = rung.command(&fence, user, &home, flags, &arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = fence.world.spawn_with(&rung.less(user), command).expect("ringfence starts");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n", "{rung:?}");
    let found = (answers(fence.world.outside(), BOX4), answers(fence.world.inside(), Ipv4Addr::LOCALHOST));
    child.stdin.take().expect("piped").write_all(b"\n").expect("the server waits");
    line.clear();
    output.read_to_string(&mut line).expect("the rest");
    assert_eq!(line, format!("came={}\n", u8::from(found.0) + u8::from(found.1)), "{rung:?} {found:?}");
    let code = child.wait().expect("it ends").code();
    let ended = fence.ended(world::Said { code, out: line, err: String::new() }, ledger);
    assert_eq!((ended.said.code, ended.start().rung.as_str()), (Some(0), rung.name()), "{ended}");
    assert!(ended.denials().is_empty() && ended.seal().complete, "{ended}");
    found
}

#[test]
fn a_server_is_reached_as_the_table_of_differences_says() {
    let publish = PORT.to_string();
    for (rung, flags, expected) in [
        (Rung::Full, &[][..], (true, true)),
        (Rung::Container, &[], (false, true)),
        (Rung::Bare, &[], (false, true)),
        (Rung::Rootless, &[], (false, false)),
        (Rung::Rootless, &["--publish", &publish], (false, true)),
    ] {
        assert_eq!(reached(rung, flags), expected, "{rung:?} {flags:?}");
    }
}
