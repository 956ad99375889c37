# Tries each argument ("tcp HOST PORT", "udp HOST PORT", ...) and prints one line for each: "ok", or the error's name.
# A refusal that takes a second or more is "slow".
import errno
import socket
import struct
import sys
import time


def family(host):
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def tcp(host, port, *options):
    s = socket.socket(family(host), socket.SOCK_STREAM)
    s.settimeout(5)
    prepare(s, host, options)
    s.connect((host, int(port)))
    assert s.recv(5) == b"hello"


def mptcp(host, port):
    s = socket.socket(family(host), socket.SOCK_STREAM, 262)
    s.settimeout(5)
    s.connect((host, int(port)))


def udplite(host, port):
    s = socket.socket(family(host), socket.SOCK_DGRAM, 136)
    s.sendto(b"datagram", (host, int(port)))


# A datagram that is sent; "echo" wants it back.
def udp(host, port, *options):
    s = socket.socket(family(host), socket.SOCK_DGRAM)
    s.settimeout(5)
    prepare(s, host, options)
    s.sendto(b"datagram", (host, int(port)))
    if "echo" in options:
        assert s.recv(100) == b"datagram"


def prepare(s, host, options):
    if "lo" in options:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
    if "options" in options and ":" in host:
        # A routing header of type 4 with one segment, the destination itself.
        segment = socket.inet_pton(socket.AF_INET6, host)
        s.setsockopt(socket.IPPROTO_IPV6, 57, struct.pack("BBBBBBH", 0, 2, 4, 0, 0, 0, 0) + segment)
    elif "options" in options:
        s.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, b"\x01\x01\x01\x00")


# An echo and its answer. IPv6 tells the sender of no refusal; the answer stays away.
def ping(host):
    v6 = ":" in host
    s = socket.socket(family(host), socket.SOCK_DGRAM, socket.IPPROTO_ICMPV6 if v6 else socket.IPPROTO_ICMP)
    s.settimeout(0.5)
    s.sendto(bytes([128 if v6 else 8, 0, 0, 0, 0, 0, 0, 1]) + b"payload", (host, 0))
    s.recv(100)


# A datagram to an own server in the name of HOST, then what would be the server's answer.
def forged(own, host, port):
    server = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    server.bind((own, 6666))
    server.settimeout(1)
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IPV6, 78, 1)  # IPV6_FREEBIND
    s.bind((host, int(port)))
    s.sendto(b"opening", (own, 6666))
    _, peer = server.recvfrom(100)
    server.sendto(b"answer", peer)


# COUNT datagrams, each refused or each sent.
def flood(host, port, count):
    s = socket.socket(family(host), socket.SOCK_DGRAM)
    outcomes = set()
    for _ in range(int(count)):
        try:
            s.sendto(b"datagram", (host, int(port)))
            outcomes.add("ok")
        except OSError as e:
            outcomes.add(errno.errorcode[e.errno])
    if outcomes != {"ok"}:
        raise OSError(getattr(errno, "/".join(sorted(outcomes))), "")


# Serves one connection and one datagram on every address, saying first that it does.
def serve(port):
    t = socket.create_server(("::", int(port)), family=socket.AF_INET6, dualstack_ipv6=True)
    u = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    u.bind(("::", int(port)))
    print("serving", flush=True)
    while True:
        c, _ = t.accept()
        c.sendall(b"hello")
        c.close()
        data, peer = u.recvfrom(100)
        u.sendto(data, peer)


for line in sys.argv[1:]:
    name, *arguments = line.split()
    start = time.monotonic()
    try:
        globals()[name](*arguments)
        outcome = "ok"
    except TimeoutError:
        outcome = "timeout"
    except OSError as e:
        outcome = errno.errorcode[e.errno]
    slow = outcome != "ok" and time.monotonic() - start >= 1
    print("slow " + outcome if slow else outcome, flush=True)
