//! Large pieces of TCP streams on loopback: the kernel marks them by a header that no process may send (BIG TCP), and the
//! firewall lets them pass.

mod common;

use common::Fence;

const SCRIPT: &str = r#"
python3 - <<'END'
import socket, threading
for family, host in (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"):
    server = socket.socket(family)
    server.bind((host, 0))
    server.listen()
    received = []
    def take():
        client, _ = server.accept()
        while piece := client.recv(1 << 20):
            received.append(len(piece))
    taker = threading.Thread(target=take)
    taker.start()
    client = socket.create_connection(server.getsockname()[:2])
    client.sendall(bytes(20_000_000))
    client.close()
    taker.join()
    print(f"{host}={sum(received)}")
END"#;

#[test]
fn twenty_megabytes_pass_over_the_loopback_of_both_families() {
    let fence = Fence::new();
    let ended = fence.run(&["--policy", "nist-high"], SCRIPT);
    assert_eq!((ended.value("127.0.0.1"), ended.value("::1")), ("20000000", "20000000"), "{ended}");
    assert!(ended.denials().is_empty(), "{ended}");
}
