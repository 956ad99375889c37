"""Does what a script says, one function of os a line, and prints each one's errno: the form is that of acts.c."""
import errno, os, socket, sys, threading


def number(word, fd):
    return fd if word == "@" else None if word == "cwd" else int(word, 0)


def act(function, words, fd):
    text = lambda n: words[n].replace("@", str(fd))
    num = lambda n: number(words[n], fd)
    if function == "open":
        os.close(os.open(text(0), num(1), 0o644, dir_fd=num(2)))
    elif function == "file":
        open(text(0), words[1]).close()
    elif function == "mkdir":
        os.mkdir(text(0), dir_fd=num(1))
    elif function == "mkfifo":
        os.mkfifo(text(0), dir_fd=num(1))
    elif function == "symlink":
        os.symlink(words[0], text(1), dir_fd=num(2))
    elif function == "link":
        os.link(text(0), text(1), src_dir_fd=num(2), dst_dir_fd=num(2))
    elif function == "rename":
        os.rename(text(0), text(1), src_dir_fd=num(2), dst_dir_fd=num(2))
    elif function == "unlink":
        os.unlink(text(0), dir_fd=num(1))
    elif function == "rmdir":
        os.rmdir(text(0))
    elif function == "chmod":
        os.chmod(fd if words[0] == "@" else text(0), 0o600, dir_fd=num(1))
    elif function == "chown":
        os.chown(fd if words[0] == "@" else text(0), -1, num(1), dir_fd=num(2))
    elif function == "truncate":
        os.truncate(text(0), 0)
    elif function == "utime":
        os.utime(fd if words[0] == "@" else text(0), None if words[1] == "now" else (1, 1), dir_fd=num(2))
    elif function == "setxattr":
        os.setxattr(fd if words[0] == "@" else text(0), words[1], b"y")
    elif function == "removexattr":
        os.removexattr(fd if words[0] == "@" else text(0), words[1])
    elif function == "connect":
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(text(0))
    elif function == "tcp":
        with socket.socket(socket.AF_INET) as client:
            client.connect((words[0], num(1)))
    elif function == "udp":
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"x", (words[0], num(1)))
    elif function == "proxy":
        host, port = os.environ["https_proxy"].split("//")[1].rsplit(":", 1)
        with socket.create_connection((host.split("@")[-1], int(port.strip("/")))) as client:
            client.sendall(f"CONNECT {words[0]} HTTP/1.1\r\nHost: {words[0]}\r\n\r\n".encode())
            status = client.makefile("rb").readline().split()[1].decode()
            if status != "200":
                return status
    else:
        sys.exit(f"acts.py: no function {function}")
    return "ok"


def perform(fields):
    identity, _, cwd, opened, function, *words = fields
    if cwd != "-":
        os.chdir(cwd)
    fd = -1
    if opened != "-":
        flags = {"r": os.O_RDONLY, "p": os.O_PATH, "d": os.O_PATH | os.O_DIRECTORY, "D": os.O_DIRECTORY}[opened[0]]
        fd = os.open(opened[2:], flags)
    try:
        outcome = act(function, words, fd)
    except OSError as error:
        outcome = errno.errorcode[error.errno]
    os.write(1, f"{identity}\t{os.getpid()}\t{outcome}\n".encode())
    if fd >= 0:
        os.close(fd)


def in_child(fields, generations):
    child = os.fork()
    if child == 0:
        if generations > 1:
            os.setsid()
            in_child(fields, generations - 1)
        else:
            perform(fields)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, fields


for line in open(sys.argv[1]):
    fields = line.rstrip("\n").split("\t")
    how = fields[1]
    if how == "thread":
        thread = threading.Thread(target=perform, args=(fields,))
        thread.start()
        thread.join()
    elif how == "direct":
        perform(fields)
        os.chdir("/")
    else:
        in_child(fields, 2 if how == "grandchild" else 1)
