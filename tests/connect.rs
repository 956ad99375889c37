//! `ringfence connect`, by itself against a proxy of the test's: what it asks, what it passes on, and how it fails.

mod tested;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::{self, JoinHandle};

const CONNECTED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";
const LARGE: usize = 32 << 20;

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(tested::binary());
    command.env_clear().arg("connect").args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn start(proxy: SocketAddr, arguments: &[&str]) -> (Child, ChildStdin, ChildStdout) {
    let mut child = command(arguments).env("https_proxy", format!("http://{proxy}")).spawn().expect("it starts");
    let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
    (child, input, output)
}

/// Status, standard output and standard error of one that needs no input.
fn said(mut command: Command) -> (Option<i32>, Vec<u8>, String) {
    let output = command.stdin(Stdio::null()).output().expect("it runs");
    (output.status.code(), output.stdout, String::from_utf8(output.stderr).expect("text"))
}

/// What the proxy of `serve` does with the one connection that comes, once the request's head is read.
fn serve<T: Send + 'static>(
    listener: TcpListener,
    answer: impl FnOnce(TcpStream) -> T + Send + 'static,
) -> JoinHandle<(String, T)> {
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).expect("a head");
            head.push(byte[0]);
        }
        (String::from_utf8(head).expect("text"), answer(stream))
    })
}

fn pattern(seed: u32) -> Vec<u8> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(LARGE).collect()
}

fn rest(mut from: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).expect("to its end");
    bytes
}

#[test]
fn large_transfers_go_both_ways_at_once_and_end_each_on_its_own() {
    let (listener, proxy) = listener();
    let served = serve(listener, |mut stream| {
        stream.write_all(CONNECTED).expect("an answer");
        let reading = stream.try_clone().expect("dup");
        let up = thread::spawn(move || rest(reading));
        stream.write_all(&pattern(1)).expect("written");
        let up = up.join().expect("read");
        // The client has ended its way by now, and the other one is still open.
        stream.write_all(b"last").expect("written");
        up
    });
    let (mut child, mut input, output) = start(proxy, &["GitHub.com.", "22"]);
    let writing = thread::spawn(move || input.write_all(&pattern(2)).expect("written"));
    let down = rest(output);
    writing.join().expect("written");
    let (head, up) = served.join().expect("served");
    assert_eq!(head, "CONNECT github.com:22 HTTP/1.1\r\nHost: github.com:22\r\n\r\n");
    assert!(up == pattern(2), "{} bytes came up", up.len());
    assert!(down == [&pattern(1)[..], b"last"].concat(), "{} bytes came down", down.len());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn an_end_from_the_far_side_ends_stdout_and_leaves_stdin_open() {
    let (listener, proxy) = listener();
    let served = serve(listener, |mut stream| {
        // A byte at a time, an interim answer first, and the tunnel's first bytes in one piece with the head's last.
        let head = [b"HTTP/1.1 102 Processing\r\n\r\n", CONNECTED].concat();
        stream.set_nodelay(true).expect("nodelay");
        for byte in &head[..head.len() - 1] {
            stream.write_all(&[*byte]).expect("written");
        }
        stream.write_all(b"\nearly").expect("written");
        stream.shutdown(Shutdown::Write).expect("shutdown");
        rest(stream)
    });
    let (mut child, mut input, output) = start(proxy, &["2a00:1:2:3::44", "22"]);
    assert_eq!(rest(output), b"early");
    assert!(child.try_wait().expect("wait").is_none(), "the other way is open");
    input.write_all(b"late").expect("stdin is open");
    drop(input);
    let (head, up) = served.join().expect("served");
    assert!(head.starts_with("CONNECT [2a00:1:2:3::44]:22 HTTP/1.1\r\n"), "{head}");
    assert_eq!(up, b"late");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn what_is_no_tunnel_is_one_line_and_a_failure() {
    type Answer = fn(TcpStream);
    let cases: [(&str, Answer); 6] = [
        ("a.test:22: the proxy answered 403 Forbidden", |mut stream| {
            stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nbody").expect("written");
        }),
        // Nothing that a terminal would obey is passed on to it.
        ("no HTTP", |mut stream| stream.write_all(b"HTTP/1.1 502 \x1b[31m\r\n\r\n").expect("written")),
        ("closed the connection without an answer", |mut stream| {
            stream.write_all(b"HTTP/1.1 200").expect("written");
        }),
        ("no HTTP", |mut stream| stream.write_all(b"SSH-2.0-x\r\n").expect("written")),
        ("longer than 64 KiB", |mut stream| {
            stream.write_all(b"HTTP/1.1 200 OK\r\nX: ").expect("written");
            // It hangs up in the midst of it.
            while stream.write_all(&[b'x'; 4096]).is_ok() {}
        }),
        ("a.test:22: proxy 127.0.0.1:", drop::<TcpStream> as Answer),
    ];
    for (expected, answer) in cases {
        let (listener, proxy) = listener();
        let served = serve(listener, answer);
        let mut connect = command(&["a.test", "22"]);
        connect.env("ALL_PROXY", format!("http://{proxy}/"));
        let (status, out, err) = said(connect);
        assert_eq!((status, out.as_slice()), (Some(125), &b""[..]), "{expected}: {err}");
        assert!(err.starts_with("ringfence: connect: ") && err.contains(expected), "{expected}: {err}");
        assert_eq!(err.lines().count(), 1, "{err}");
        served.join().expect("served");
    }
}

#[test]
fn a_tunnel_that_breaks_is_a_failure() {
    let (listener, proxy) = listener();
    let served = serve(listener, |mut stream| {
        stream.write_all(CONNECTED).expect("written");
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a byte of the tunnel");
        // Closed with more to be read, it is a reset.
        thread::sleep(std::time::Duration::from_millis(50));
    });
    let (child, mut input, output) = start(proxy, &["a.test", "22"]);
    input.write_all(&[7; 4096]).expect("written");
    served.join().expect("served");
    assert_eq!(rest(output), b"");
    // stdin stays open: nothing waits for its end.
    let ended = child.wait_with_output().expect("it ends");
    let err = String::from_utf8(ended.stderr).expect("text");
    assert_eq!(ended.status.code(), Some(125), "{err}");
    assert!(err.contains("a.test:22: read from the proxy:") && err.lines().count() == 1, "{err}");
    drop(input);
}

#[test]
fn without_a_proxy_or_a_host_nothing_is_connected_to() {
    let (listener, proxy) = listener();
    listener.set_nonblocking(true).expect("nonblocking");
    let url = format!("http://{proxy}");
    let named = format!("http://localhost:{}", proxy.port());
    for (variables, arguments, expected) in [
        (vec![], ["a.test", "22"], "none of https_proxy, HTTPS_PROXY, all_proxy and ALL_PROXY is set"),
        (vec![("http_proxy", &url)], ["a.test", "22"], "none of https_proxy"),
        (vec![("https_proxy", &named), ("ALL_PROXY", &url)], ["a.test", "22"], "accepted: http://ADDRESS:PORT"),
        (vec![("https_proxy", &url)], ["a test", "22"], "it holds a space"),
        (vec![("https_proxy", &url)], ["a.test\r\nX: y", "22"], "it holds a control byte"),
        (vec![("https_proxy", &url)], ["a.test", "0"], "the port must be decimal"),
        (vec![("https_proxy", &url)], ["a@b.test", "22"], "it holds '@'"),
        (vec![("https_proxy", &url)], ["0x7f.1", "22"], "is no host and port"),
    ] {
        let mut connect = command(&arguments);
        connect.envs(variables);
        let (status, out, err) = said(connect);
        assert_eq!((status, out.as_slice()), (Some(125), &b""[..]), "{arguments:?}: {err}");
        assert!(err.starts_with("ringfence: connect: ") && err.contains(expected), "{expected}: {err}");
        assert_eq!(err.lines().count(), 1, "{err}");
        assert_eq!(listener.accept().expect_err("nobody came").kind(), ErrorKind::WouldBlock, "{expected}");
    }
    // Live: a host and the proxy, and somebody comes.
    let (mut child, input, _output) = start(proxy, &["a.test", "22"]);
    listener.set_nonblocking(false).expect("blocking");
    drop((listener.accept().expect("somebody comes"), input));
    assert_eq!(child.wait().expect("it ends").code(), Some(125));
    // And where the proxy was, there is nobody.
    drop(listener);
    let mut connect = command(&["a.test", "22"]);
    connect.env("https_proxy", &url);
    let (status, _, err) = said(connect);
    assert!(status == Some(125) && err.contains(&format!("a.test:22: proxy {proxy}: Connection refused")), "{err}");
}
