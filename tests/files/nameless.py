"""Changes of what has no name where it is, or another's: each printed with its errno."""
import errno
import os
import socket
import struct
import sys
import fcntl

own, kept = sys.argv[1], sys.argv[2]


def tried(what, act):
    try:
        act()
        said = "ok"
    except OSError as error:
        said = errno.errorcode[error.errno]
    print(f"{what}={said}", flush=True)


def changes(what, fd):
    uid, gid = os.getuid(), os.getgid()
    tried(f"{what}-fchmod", lambda: os.fchmod(fd, 0o600))
    tried(f"{what}-fchown", lambda: os.fchown(fd, uid, gid))
    tried(f"{what}-utime", lambda: os.utime(fd, (1, 1)))
    tried(f"{what}-setxattr", lambda: os.setxattr(fd, b"user.note", b"x"))
    tried(f"{what}-chmod", lambda: os.chmod(f"/proc/self/fd/{fd}", 0o600))
    tried(f"{what}-setflags", lambda: fcntl.ioctl(fd, 0x40086602, struct.pack("l", 0)))
    tried(f"{what}-truncate", lambda: os.truncate(f"/proc/self/fd/{fd}", 0))


changes("memory", os.memfd_create("memory"))
changes("pipe", os.pipe()[0])
endpoint = socket.socket(socket.AF_UNIX)
changes("socket", endpoint.fileno())
changes("event", os.eventfd(0))
changes("temporary", os.open(own, os.O_TMPFILE | os.O_RDWR, 0o600))
gone = os.open(f"{own}/gone", os.O_CREAT | os.O_RDWR, 0o600)
os.unlink(f"{own}/gone")
changes("gone", gone)
os.mkdir(f"{own}/directory")
directory = os.open(f"{own}/directory", os.O_RDONLY)
os.rmdir(f"{own}/directory")
changes("gone-directory", directory)
lost = os.open(f"{kept}/lost", os.O_RDONLY)
print("open", flush=True)
sys.stdin.readline()
changes("lost", lost)
changes("named", os.open(f"{kept}/named", os.O_RDONLY))
changes("null", os.open("/dev/null", os.O_RDWR))
if sys.argv[3] != "bare":
    changes("process", os.open("/proc/self/comm", os.O_RDWR))
for path in ["/proc/self/comm", "/proc/thread-self/comm", "/proc/self", "/proc/1/comm", "/dev/null"]:
    # Where the uid is the caller's, the process table takes no writes.
    if sys.argv[3] == "bare" and path.startswith("/proc"):
        continue
    tried(f"chmod-{path}", lambda: os.chmod(path, 0o600))
    tried(f"chown-{path}", lambda: os.chown(path, os.getuid(), os.getgid()))
    tried(f"utime-{path}", lambda: os.utime(path, (1, 1)))
    tried(f"access-{path}", lambda: os.access(path, os.W_OK) or os.open(path, os.O_WRONLY))
os.chdir(own)
for _ in range(30):
    os.mkdir("x" * 200)
    os.chdir("x" * 200)
os.mkdir("directory")
open("file", "w").close()
os.symlink("file", "link")
for name in [".", "directory", "file", "link", "../" + "x" * 200 + "/file"]:
    tried(f"far-{name[:9]}", lambda: os.chmod(name, 0o700))
    tried(f"far-utime-{name[:9]}", lambda: os.utime(name, (1, 1)))
tried("far-lchown", lambda: os.lchown("link", os.getuid(), os.getgid()))
tried("far-fchmod", lambda: os.fchmod(os.open("directory", os.O_RDONLY), 0o700))
tried("far-write", lambda: os.open("file", os.O_WRONLY | os.O_TRUNC))
tried("far-rename", lambda: os.rename("file", "directory/file"))
tried("longest", lambda: os.chmod("./" * 2000 + ".", 0o700))
tried("too-long", lambda: os.chmod("./" * 2100 + ".", 0o700))
