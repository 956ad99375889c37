"""Looks by every route for what a repository holds beyond HEAD. Prints ROUTE=GOT or ROUTE=none."""
import os, re, subprocess, sys, zlib

tree, future = sys.argv[1:3]
git = tree + "/.git"
TOKEN, SECRET = b"CANARY-7f3a91c", b"hunter2-password"
os.chdir(tree)
os.environ["GIT_CONFIG_COUNT"] = "1"
os.environ["GIT_CONFIG_KEY_0"] = "safe.directory"
os.environ["GIT_CONFIG_VALUE_0"] = "*"


def run(command, **more):
    return subprocess.run(command, shell=True, capture_output=True, **more).stdout


def inflated(directory):
    """All that any zlib stream in any file beneath begins with, and all that is not deflated."""
    found = []
    for above, _, names in os.walk(directory):
        for name in names:
            try:
                data = open(os.path.join(above, name), "rb").read()
            except OSError:
                continue
            found.append(data)
            for at in (m.start() for m in re.finditer(rb"[\x18-\x78][\x01-\xff]", data)):
                try:
                    found.append(zlib.decompressobj().decompress(data[at:], 1 << 16))
                except zlib.error:
                    pass
    return b"\n".join(found)


def paths(*names):
    out = b""
    for name in names:
        try:
            out += open(name, "rb").read()
        except OSError:
            pass
    return out


ROUTES = {
    "log-all": lambda: run("git log --all -p"),
    "log-reflog": lambda: run("git log -g -p"),
    "show": lambda: run(f"git show {future}"),
    "cat-file": lambda: run(f"git cat-file -p {future}:fix.txt"),
    "batch-all": lambda: run("git cat-file --batch-all-objects --batch"),
    "lost-found": lambda: run("git fsck --lost-found | while read a b c; do git show $c; done"),
    "stash": lambda: run("git stash show -p stash@{0}"),
    "branch": lambda: run("git show future"),
    "tag": lambda: run("git show v2.0"),
    "origin": lambda: run("git show refs/remotes/origin/main"),
    "orig-head": lambda: run("git show ORIG_HEAD"),
    "clone": lambda: run(f"git clone -q --mirror {git} /tmp/mirror && git -C /tmp/mirror log --all -p"),
    "upload-pack": lambda: run(f"git ls-remote {git} | grep -e future -e v2.0 -e stash && echo CANARY-7f3a91c"),
    "bundle": lambda: run("git bundle create -q /tmp/b --all; git bundle list-heads /tmp/b | grep future && echo CANARY-7f3a91c"),
    "files": lambda: run(f"grep -rs {future} {git} && echo CANARY-7f3a91c"),
    "raw": lambda: inflated(git),
    "proc-root": lambda: inflated("/proc/self/root" + git),
    "proc-cwd": lambda: inflated("/proc/self/cwd/.git"),
    "alias": lambda: inflated("/mnt/alias/.git"),
    "alias-git": lambda: run(f"git --git-dir /mnt/alias/.git show {future}"),
    "alternates": lambda: run(
        f"mkdir -p /tmp/alt && git init -q --object-format=$(git rev-parse --show-object-format) /tmp/alt && for p in {git}/objects /mnt/alias/.git/objects; do "
        f"echo $p > /tmp/alt/.git/objects/info/alternates; git -C /tmp/alt show {future}; done"
    ),
    "moved": lambda: run(f"mv {git} {tree}/away; git --git-dir {tree}/away show {future}; mv {tree}/away {git}"),
    "unmounted": lambda: run(f"umount -l {git}; git show {future}"),
    "other-process": lambda: inflated(f"/proc/{os.getppid()}/root{git}"),
    "init": lambda: inflated("/proc/1/root" + git),
    "config": lambda: TOKEN if SECRET in run("git config --list") + paths(git + "/config") else b"",
    "descriptors": lambda: b"".join(inflated(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if int(fd) > 2),
}

for name, route in ROUTES.items():
    print(f"{name}={'GOT' if TOKEN in route() else 'none'}", flush=True)
