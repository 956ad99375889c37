//! What a refusal says: nothing unless the policy has it explained, and then one line under a mark that only the proxy makes.

mod common;

use common::{Ended, Fence};
use std::net::IpAddr;
use world::address::{PUBLIC4, RESOLVER4};
use world::origin::Content;
use world::{Internet, Response, World};

const FLAGS: [&str; 6] =
    ["--policy", "nist-high", "--allow-host", "inside.example.org", "--allow-host", "gone.example.org"];

/// Sends each line of its input, a Python bytes literal, to the proxy on a connection of its own and prints what came back, in hexadecimal.
const ASK: &str = r#"
import ast, os, socket, sys, urllib.parse
proxy = urllib.parse.urlsplit(os.environ["http_proxy"])
for line in sys.stdin:
    with socket.create_connection((proxy.hostname, proxy.port)) as stream:
        stream.sendall(ast.literal_eval(line))
        answer = b""
        while piece := stream.recv(65536):
            answer += piece
        print(answer.hex())
"#;

/// What came back for each request.
fn answers(ended: &Ended) -> Vec<String> {
    let byte = |digits: &[u8]| u8::from_str_radix(&String::from_utf8_lossy(digits), 16).expect("hexadecimal digits");
    let answer = |line: &str| line.as_bytes().chunks(2).map(byte).collect();
    ended.said.out.lines().map(|line| String::from_utf8(answer(line)).expect("ASCII")).collect()
}

fn asked(fence: &Fence, flags: &[&str], requests: &[&str]) -> Ended {
    let flags = [&FLAGS[..], flags].concat();
    let lines: String = requests.iter().map(|request| format!("b\"{request}\"\n")).collect();
    let script = format!("python3 -c '{ASK}' <<'REQUESTS'\n{lines}REQUESTS\n");
    let ended = fence.run(&flags, &script);
    assert_eq!((ended.said.code, ended.said.out.lines().count()), (Some(0), requests.len()), "{ended}");
    ended
}

/// Requests that are refused, with the status and what is said of each where refusals are explained.
const REFUSED: [(&str, &str, &str); 7] = [
    (
        r"CONNECT evil.example.net:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        "403 Forbidden",
        "CONNECT evil.example.net:443 is refused: rule default-deny, reason not_allowed; to admit it: --allow-host evil.example.net",
    ),
    (
        r"POST http://evil.example.net:8080/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n.",
        "403 Forbidden",
        "POST evil.example.net:8080 is refused: rule default-deny, reason not_allowed; to admit it: --allow-host evil.example.net:8080",
    ),
    (
        r"CONNECT pypi.org:22 HTTP/1.1\r\nHost: x\r\n\r\n",
        "403 Forbidden",
        "CONNECT pypi.org:22 is refused: rule port, reason port_not_allowed; to admit it: --allow-host pypi.org:22",
    ),
    (
        r"CONNECT inside.example.org:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        "403 Forbidden",
        "CONNECT inside.example.org:443 (10.0.0.9, 224.0.0.9) is refused: rule private-range, reason denied_address; to admit it: --trust-range 10.0.0.9/32, 224.0.0.9: nothing opens it",
    ),
    (
        r"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "400 Bad Request",
        "\"GET /\" is refused: rule malformed, reason target_form (the request target is not in the form that a proxy is asked in); to admit it: no flag",
    ),
    (
        r"GET http://a\x00\x1b[31m\xe2\x80\xae\\ HTTP/1.1\r\n",
        "400 Bad Request",
        "\"GET http://a\\x00\\x1b[31m\\xe2\\x80\\xae\\\\ HTTP/1.1\\r\\n\" is refused: rule malformed, reason control_byte (a control byte stands in the head); to admit it: no flag",
    ),
    (r"HEAD http://evil.example.net/ HTTP/1.0\r\n\r\n", "403 Forbidden", ""),
];

fn fence() -> Fence {
    let fence = Fence::new();
    let inside: [IpAddr; 2] = [[10, 0, 0, 9].into(), [224, 0, 0, 9].into()];
    fence.internet.resolver.host("inside.example.org", &inside);
    fence
}

#[test]
fn a_refusal_is_bare_unless_the_policy_has_it_explained() {
    let fence = fence();
    let requests: Vec<&str> = REFUSED.iter().map(|(request, ..)| *request).collect();

    let bare = asked(&fence, &[], &requests);
    for ((request, status, _), answer) in REFUSED.iter().zip(answers(&bare)) {
        assert_eq!(answer, format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"), "{request}");
    }
    assert_eq!(bare.start().refusal_nonce, None);
    assert!(!String::from_utf8_lossy(&fence.world.read(&bare.ledger).unwrap()).contains("refusal_nonce"));

    let explained = asked(&fence, &["--explain"], &requests);
    let nonce = explained.start().refusal_nonce.clone().expect("a nonce");
    assert!(nonce.len() == 32 && nonce.bytes().all(|digit| b"0123456789abcdef".contains(&digit)), "{nonce}");
    for ((request, status, text), answer) in REFUSED.iter().zip(answers(&explained)) {
        let body = format!("ringfence: {text}\n");
        let head = |length: usize| {
            format!(
                "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\
                 Ringfence-Refusal: {nonce}\r\nConnection: close\r\n\r\n"
            )
        };
        if text.is_empty() {
            // To HEAD the length of what it would have been, and no body.
            let would = "HEAD evil.example.net:80 is refused: rule default-deny, reason not_allowed; to admit it: --allow-host evil.example.net";
            assert_eq!(answer, head("ringfence: \n".len() + would.len()), "{request}");
        } else {
            assert_eq!(answer, format!("{}{body}", head(body.len())), "{request}");
        }
    }
    // What is on record is the same either way.
    let told = |ended: &Ended| -> Vec<String> {
        ended.denials().iter().map(|d| format!("{} {:?} {} {}", d.operation, d.object, d.rule, d.reason)).collect()
    };
    assert_eq!(told(&bare), told(&explained));
    assert_eq!(told(&bare).len(), REFUSED.len());
    let again = asked(&fence, &["--explain"], &requests[..1]);
    assert_ne!(again.start().refusal_nonce, Some(nonce), "each run has its own");
}

#[test]
fn a_request_for_another_host_than_its_tunnels_is_told_so() {
    let fence = fence();
    let flags = [&FLAGS[..], &["--explain"]].concat();
    let ended = fence.run(&flags, "curl -s -p --suppress-connect-headers -i -H 'Host: github.com' http://pypi.org/");
    let text = "ringfence: GET pypi.org:80 is refused: rule tunnel-host, reason host_mismatch; to admit it: no flag";
    assert!(ended.said.out.starts_with("HTTP/1.1 403 Forbidden") && ended.said.out.contains(text), "{ended}");
    let mark = format!("Ringfence-Refusal: {}", ended.start().refusal_nonce.as_deref().expect("a nonce"));
    assert!(ended.said.out.contains(&mark), "{ended}");
}

/// A failure of the world outside is no refusal, and the connection of an explained one serves on.
#[test]
fn only_refusals_are_marked() {
    let fence = fence();
    let requests = [
        r"CONNECT gone.example.org:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        r"GET http://evil.example.net/ HTTP/1.1\r\nHost: x\r\n\r\nGET http://pypi.org/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    ];
    let ended = asked(&fence, &["--explain"], &requests);
    let answers = answers(&ended);
    assert_eq!(answers[0], "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let (refused, served) = answers[1].split_once("--allow-host evil.example.net\n").expect("an explained refusal");
    assert!(
        refused.starts_with("HTTP/1.1 403 Forbidden\r\nContent-Type") && !refused.contains("Connection"),
        "{refused}"
    );
    assert!(served.starts_with("HTTP/1.1 200 ") && !served.contains("Ringfence"), "{served}");
    assert!(!fence.internet.resolver.questions_about("gone.example.org").is_empty(), "{RESOLVER4} was asked");
}

#[test]
fn nobody_else_can_make_the_mark() {
    let world = World::new().expect("a closed world");
    let content: Content = std::sync::Arc::new(|_| Response {
        status: 403,
        fields: vec![("RINGFENCE-refusal".into(), "0".repeat(32)), ("X-Own".into(), "1".into())],
        body: b"mine".to_vec(),
    });
    let internet = Internet::serving(&world, content).expect("servers outside");
    let fence = Fence::of(world, internet);
    // The control: the server does send it.
    let plain = fence.as_root(&format!("curl -si http://{PUBLIC4}/ -H 'Host: pypi.org'"));
    assert!(plain.out.contains("RINGFENCE-refusal: 000"), "{plain}");
    let seen = fence.internet.http.requests().len();
    let request =
        r"GET http://pypi.org/ HTTP/1.1\r\nHost: x\r\nRingfence-Refusal: 1\r\nX-Mine: 2\r\nConnection: close\r\n\r\n";
    for flags in [&[][..], &["--explain"]] {
        let ended = asked(&fence, flags, &[request]);
        let answer = answers(&ended).remove(0);
        assert!(answer.starts_with("HTTP/1.1 403 ") && answer.ends_with("\r\n\r\nmine"), "{answer}");
        assert!(answer.contains("X-Own: 1") && !answer.to_lowercase().contains("ringfence"), "{answer}");
    }
    let requests = [fence.internet.http.requests(), fence.internet.http6.requests()].concat();
    let by_proxy: Vec<_> = requests.iter().filter(|request| request.field("x-mine").next() == Some("2")).collect();
    assert_eq!((by_proxy.len(), requests.len() - seen), (2, 2), "{requests:?}");
    assert!(by_proxy.iter().all(|request| !request.head.to_lowercase().contains("ringfence")), "{by_proxy:?}");
}
