"""A parent proxy as a network that has no other way out would have one. It resolves names by its own table, may demand
credentials, and notes each head that it gets.

Arguments: address, port, USER:PASSWORD or nothing, the file for what it gets, the table as JSON. A name's value is the
address that it stands for, or {"answer": TEXT} sent in place of an answer, or {"silent": true}."""
import base64, json, socket, sys, threading

ADDRESS, PORT, PAIR, LOG, TABLE = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], json.loads(sys.argv[5])
WANTED = "Basic " + base64.b64encode(PAIR.encode()).decode()
LOCK = threading.Lock()


def noted(head):
    with LOCK, open(LOG, "a") as log:
        log.write(json.dumps(head.decode("latin-1")) + "\n")


def passed(source, sink):
    try:
        while piece := source.recv(65536):
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def read_head(client):
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(65536)
        if not piece:
            return None, b""
        data += piece
    head, rest = data.split(b"\r\n\r\n", 1)
    return head, rest


def fields(head):
    lines = head.decode("latin-1").split("\r\n")[1:]
    return [line.split(": ", 1) for line in lines]


def serve(client):
    head, rest = read_head(client)
    if head is None:
        return
    noted(head)
    method, target, version = head.decode("latin-1").split("\r\n")[0].split(" ")
    if PAIR and [value for name, value in fields(head) if name.lower() == "proxy-authorization"] != [WANTED]:
        client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"x\"\r\n"
                       b"Content-Length: 5\r\n\r\nlogin")
        client.shutdown(socket.SHUT_WR)
        return
    if method == "CONNECT":
        authority, path = target, ""
    else:
        assert target.startswith("http://"), target
        authority, slash, path = target[len("http://"):].partition("/")
        path = slash + path or "*"
        authority += "" if authority.rsplit(":", 1)[-1].isdigit() else ":80"
    host, port = authority.rsplit(":", 1)
    place = TABLE.get(host, host.strip("[]"))
    if isinstance(place, dict):
        if place.get("silent"):
            while client.recv(65536):
                pass
        else:
            client.sendall(place["answer"].encode("latin-1"))
            client.shutdown(socket.SHUT_WR)
            while client.recv(65536):
                pass
        return
    server = socket.create_connection((place, int(port)), timeout=10)
    if method == "CONNECT":
        client.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n")
    else:
        own = "".join(f"{name}: {value}\r\n" for name, value in fields(head) if not name.lower().startswith("proxy-"))
        server.sendall(f"{method} {path} {version}\r\n{own}\r\n".encode("latin-1") + rest)
        rest = b""
    server.sendall(rest)
    up = threading.Thread(target=passed, args=(client, server), daemon=True)
    up.start()
    passed(server, client)
    up.join(10)


listener = socket.create_server((ADDRESS, PORT))
print("ready", flush=True)
while True:
    connection, _ = listener.accept()
    threading.Thread(target=serve, args=(connection,), daemon=True).start()
