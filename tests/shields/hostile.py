# Tries every route to what lies at sys.argv[1], each in a child of its own name, and says for each whether it has got any of it.
import ctypes, errno, mmap, os, struct, subprocess, sys, threading, time

SHIELD, WORK = sys.argv[1], sys.argv[2]
TOKEN = b"CANARY-7f3a91c"
ANSWER = SHIELD + "/answer.txt"
libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, O_PATH = -100, 0o10000000


def said(*command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20, **more)
    return done.stdout


def read(path):
    with open(path, "rb") as file:
        return file.read()


def listed(path):
    return " ".join(os.listdir(path)).encode()


def own(name):
    return f"{WORK}/{name}-{os.getpid()}"


def copied():
    to = own("copy")
    said("cp", ANSWER, to)
    return read(to)


def linked():
    to = own("link")
    os.link(ANSWER, to)
    return read(to)


def by_symlink():
    to = own("symlink")
    os.symlink(ANSWER, to)
    return read(to)


def renamed():
    to = own("renamed")
    os.rename(SHIELD, to)
    return read(to + "/answer.txt")


def parent_renamed():
    above = os.path.dirname(SHIELD)
    os.rename(above, above + "-moved")
    return read(f"{above}-moved/{os.path.basename(SHIELD)}/answer.txt")


def in_parent():
    os.chdir(os.path.dirname(SHIELD))
    return read(os.path.basename(SHIELD) + "/answer.txt")


def entered():
    os.chdir(SHIELD)
    return read("/proc/self/cwd/answer.txt")


def by_sibling():
    child = subprocess.Popen(["sleep", "10"])
    try:
        return read(f"/proc/{child.pid}/root{ANSWER}")
    finally:
        child.kill()


def by_thread():
    return read(f"/proc/self/task/{threading.get_native_id()}/root{ANSWER}")


def by_place():
    place = os.open(ANSWER, O_PATH)
    return read(f"/proc/self/fd/{place}")


def by_directory():
    directory = os.open(SHIELD, O_PATH)
    return os.read(os.open("answer.txt", os.O_RDONLY, dir_fd=directory), 100)


def by_openat2():
    how = (ctypes.c_uint64 * 3)(0, 0, 0x08)
    above = os.open("/usr", os.O_RDONLY)
    how2 = (ctypes.c_uint64 * 3)(0, 0, 0)
    for flags, base in ((how2, AT_FDCWD), (how, above)):
        fd = libc.syscall(437, base, ANSWER.encode(), flags, 24)
        if fd >= 0:
            return os.read(fd, 100)
    raise OSError(ctypes.get_errno(), "openat2")


def by_handle():
    handle = (ctypes.c_uint8 * 136)()
    struct.pack_into("I", handle, 0, 128)
    mount = ctypes.c_int()
    if libc.name_to_handle_at(AT_FDCWD, ANSWER.encode(), handle, ctypes.byref(mount), 0) < 0:
        raise OSError(ctypes.get_errno(), "name_to_handle_at")
    at = os.open("/", O_PATH)
    fd = libc.open_by_handle_at(at, handle, os.O_RDONLY)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "open_by_handle_at")
    return os.read(fd, 100)


def traced():
    for pid in (int(sys.argv[3]), 1):
        if libc.ptrace(16, pid, 0, 0) == 0:
            return b"traced " + TOKEN
    raise OSError(ctypes.get_errno(), "ptrace")


def read_memory():
    buffer = ctypes.create_string_buffer(16)
    class Piece(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
    mine, theirs = Piece(ctypes.addressof(buffer), 16), Piece(0x400000, 16)
    if libc.process_vm_readv(int(sys.argv[3]), ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0) > 0:
        return TOKEN
    raise OSError(ctypes.get_errno(), "process_vm_readv")


def looked(outcome, *past):
    """A call's outcome, where some errors come after the name was found."""
    if outcome < 0 and ctypes.get_errno() not in past:
        raise OSError(ctypes.get_errno(), "look")
    return TOKEN


# Above 424 a call has one number in every table.
GETXATTRAT, LISTXATTRAT, FILE_GETATTR = 464, 465, 468
EXECVEAT = 322
AT_EMPTY_PATH = 0x1000


def beside_empty():
    return looked(libc.statx(AT_FDCWD, ANSWER.encode(), AT_EMPTY_PATH, 0x7FF, ctypes.create_string_buffer(256)))


def xattr_at():
    how = (ctypes.c_uint64 * 2)(0, 0)
    return looked(libc.syscall(GETXATTRAT, AT_FDCWD, ANSWER.encode(), 0, b"user.x", how, 16), errno.ENODATA, errno.EOPNOTSUPP)


def xattrs_at():
    return looked(libc.syscall(LISTXATTRAT, AT_FDCWD, ANSWER.encode(), 0, None, 0))


def file_attributes():
    attributes = ctypes.create_string_buffer(24)
    outcome = libc.syscall(FILE_GETATTR, AT_FDCWD, ANSWER.encode(), attributes, 24, 0)
    return looked(outcome, errno.EOPNOTSUPP, errno.ENOTTY)


def marked():
    notices = libc.fanotify_init(0x200, os.O_RDONLY)
    if notices < 0:
        raise OSError(ctypes.get_errno(), "fanotify_init")
    opens = ctypes.c_uint64(0x20)
    return looked(libc.fanotify_mark(notices, 1, opens, AT_FDCWD, SHIELD.encode()))


def by_ring():
    parameters = (ctypes.c_uint8 * 120)()
    if libc.syscall(425, 4, parameters) >= 0:
        return TOKEN
    raise OSError(ctypes.get_errno(), "io_uring_setup")


def mapped():
    with open(ANSWER, "rb") as file:
        return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)[:100]


def sent():
    with open(ANSWER, "rb") as file, open(own("sent"), "w+b") as to:
        os.sendfile(to.fileno(), file.fileno(), 0, 100)
        return os.pread(to.fileno(), 100, 0)


def spliced():
    read_end, write_end = os.pipe()
    with open(ANSWER, "rb") as file:
        os.splice(file.fileno(), write_end, 100)
    return os.read(read_end, 100)


def reopened():
    """By a place that is named through a link of one's own."""
    place = os.dup2(os.open(ANSWER, O_PATH), 777)
    os.symlink(f"/proc/self/fd/{place}", own("place"))
    return read(own("place"))


def by_descriptors(pid):
    got = b""
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            got += read(f"/proc/{pid}/fd/{number}{ANSWER}")
        except OSError:
            pass
    return got


def by_memory(pid):
    with open(f"/proc/{pid}/mem", "rb", buffering=0):
        return TOKEN


def by_namespace(pid):
    with open(f"/proc/{pid}/ns/mnt") as view:
        if libc.setns(view.fileno(), 0x20000) < 0:
            raise OSError(ctypes.get_errno(), "setns")
    return read(ANSWER)


def handle_of(path):
    handle, mount = (ctypes.c_uint8 * 136)(), ctypes.c_int()
    struct.pack_into("I", handle, 0, 128)
    if libc.name_to_handle_at(AT_FDCWD, path.encode(), handle, ctypes.byref(mount), 0) < 0:
        raise OSError(ctypes.get_errno(), "name_to_handle_at")
    return handle


def by_handle_of_parent():
    """Up to what lies above, which is no attempt on the shield, and down again beneath every mask."""
    above = libc.open_by_handle_at(os.open(os.path.dirname(SHIELD), O_PATH), handle_of(os.path.dirname(SHIELD)), os.O_RDONLY)
    if above < 0:
        raise OSError(ctypes.get_errno(), "open_by_handle_at")
    return os.read(os.open(os.path.basename(SHIELD) + "/answer.txt", os.O_RDONLY, dir_fd=above), 100)


OPEN_TREE, OPEN_TREE_CLONE = 428, 1


def by_tree(flags):
    tree = libc.syscall(OPEN_TREE, AT_FDCWD, SHIELD.encode(), flags)
    if tree < 0:
        raise OSError(ctypes.get_errno(), "open_tree")
    return os.read(os.open("answer.txt", os.O_RDONLY, dir_fd=tree), 100)


def interpreted():
    script = own("script")
    with open(script, "w") as file:
        file.write(f"#!{SHIELD}/run.sh\n")
    os.chmod(script, 0o755)
    return said(script)


def executed_by_descriptor():
    name = (ctypes.c_char_p * 2)(b"run", None)
    program = os.dup2(os.open(SHIELD + "/run.sh", O_PATH), 778)
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.dup2(write_end, 1)
        libc.syscall(EXECVEAT, program, b"", name, None, AT_EMPTY_PATH)
        os._exit(9)
    os.close(write_end)
    return os.read(read_end, 100)


def rooted():
    os.chroot(SHIELD)
    return read("/answer.txt")


def raced():
    plain, moving, stop = own("plain"), own("moving"), []
    open(plain, "w").close()
    def swap():
        while not stop:
            for target in (plain, ANSWER):
                os.symlink(target, moving + "n")
                os.rename(moving + "n", moving)
    swapper = threading.Thread(target=swap)
    swapper.start()
    got, end = b"", time.time() + 1.5
    while time.time() < end and TOKEN not in got:
        try:
            got += read(moving)
        except OSError:
            pass
    stop.append(1)
    swapper.join()
    return got


ROUTES = {
    "cat": lambda: said("cat", ANSWER),
    "cp": copied,
    "tar": lambda: said("tar", "cf", "-", SHIELD),
    "grep": lambda: said("grep", "-r", "CANARY", SHIELD),
    "find": lambda: said("find", SHIELD, "-name", "*.txt", "-printf", "%f answer.txt\n") if os.path.exists(SHIELD + "/x") else said("find", SHIELD),
    "ls": lambda: said("ls", "-la", SHIELD),
    "glob": lambda: said("bash", "-c", f"echo {SHIELD}/*.txt; cat {SHIELD}/*"),
    "redirect": lambda: said("bash", "-c", f"read -r x < {ANSWER}; echo $x"),
    "open": lambda: read(ANSWER),
    "list": lambda: listed(SHIELD),
    "stat": lambda: str(os.stat(ANSWER)).encode() + TOKEN,
    "readlink": lambda: os.readlink(SHIELD + "/pointer").encode(),
    "xattr": lambda: repr(os.listxattr(ANSWER)).encode() + TOKEN,
    "access": lambda: looked(libc.access(f"{SHIELD}/linked".encode(), os.W_OK), errno.EROFS),
    "empty-path": beside_empty,
    "xattr-at": xattr_at,
    "xattrs-at": xattrs_at,
    "file-attributes": file_attributes,
    "fanotify": marked,
    "mmap": mapped,
    "sendfile": sent,
    "splice": spliced,
    "place-by-link": reopened,
    "interpreter": interpreted,
    "exec-by-fd": executed_by_descriptor,
    "mkdir": lambda: os.mkdir(SHIELD + "/directory") or TOKEN,
    "fifo": lambda: os.mkfifo(SHIELD + "/fifo") or TOKEN,
    "symlink-in": lambda: os.symlink("x", SHIELD + "/symlink") or TOKEN,
    "rename-out": lambda: os.rename(ANSWER, own("out")) or read(own("out")),
    "rename-in": lambda: (open(own("in"), "w").close(), os.rename(own("in"), SHIELD + "/in")) and TOKEN,
    "rmdir": lambda: os.rmdir(SHIELD) or TOKEN,
    "utime": lambda: os.utime(ANSWER) or TOKEN,
    "setxattr": lambda: os.setxattr(ANSWER, "user.x", b"x") or TOKEN,
    "append": lambda: open(SHIELD + "/linked", "ab").close() or TOKEN,
    "chroot": rooted,
    "truncate": lambda: os.truncate(ANSWER, 0) or TOKEN,
    "write": lambda: open(SHIELD + "/new", "w").close() or TOKEN,
    "unlink": lambda: os.unlink(ANSWER) or TOKEN,
    "proc-root": lambda: read("/proc/self/root" + ANSWER),
    "proc-sibling": by_sibling,
    "proc-thread": by_thread,
    "proc-1": lambda: read("/proc/1/root" + ANSWER),
    "proc-parent": lambda: read(f"/proc/{sys.argv[3]}/root{ANSWER}"),
    "proc-fd": lambda: by_descriptors(sys.argv[3]),
    "proc-1-fd": lambda: by_descriptors(1),
    "proc-mem": lambda: by_memory(sys.argv[3]),
    "proc-1-mem": lambda: by_memory(1),
    "setns": lambda: by_namespace(sys.argv[3]),
    "setns-1": lambda: by_namespace(1),
    "open-tree": lambda: by_tree(0),
    "clone-tree": lambda: by_tree(OPEN_TREE_CLONE),
    "handle-above": by_handle_of_parent,
    "proc-cwd": lambda: read(f"/proc/{sys.argv[3]}/cwd/../..{ANSWER}"),
    "chdir": entered,
    "relative": in_parent,
    "symlink": by_symlink,
    "link": linked,
    "rename": renamed,
    "rename-parent": parent_renamed,
    "alias": lambda: read("/mnt/alias/answer.txt"),
    "alias-list": lambda: listed("/mnt/alias"),
    "hard-link": lambda: read("/srv/kept/other-name"),
    "o-path": by_place,
    "dir-fd": by_directory,
    "openat2": by_openat2,
    "exec": lambda: said(SHIELD + "/run.sh"),
    "chmod": lambda: os.chmod(ANSWER, 0o777) or read(ANSWER),
    "chown": lambda: os.chown(SHIELD, os.getuid(), os.getgid()) or read(ANSWER),
    "bind": lambda: said("mount", "--bind", SHIELD, WORK) + listed(WORK) + read(WORK + "/answer.txt"),
    "umount": lambda: said("umount", SHIELD) + read(ANSWER),
    "unshare": lambda: said("unshare", "-Urm", "cat", ANSWER),
    "set-id": lambda: said("/usr/local/bin/suidcat", ANSWER),
    "handle": by_handle,
    "ptrace": traced,
    "memory": read_memory,
    "io-uring": by_ring,
    "race": raced,
}


def tried(name):
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        libc.prctl(15, b"r-" + name.encode(), 0, 0, 0)
        os.close(read_end)
        try:
            got = ROUTES[name]()
            word = b"GOT" if TOKEN in got or b"answer.txt\n" == got or b"run.sh" in got else b"nothing"
        except OSError as error:
            word = b"E%d" % error.errno
        except Exception as error:
            word = repr(error).encode()
        os.write(write_end, word)
        os._exit(0)
    os.close(write_end)
    word = b""
    while piece := os.read(read_end, 1000):
        word += piece
    os.close(read_end)
    os.waitpid(pid, 0)
    return word.decode()


chosen = sys.argv[4:] or ROUTES
for name in chosen:
    print(f"{name}={tried(name)}", flush=True)
