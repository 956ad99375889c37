/* A session of single acts, each in a process of its own, so that none depends on another: a line `NAME ANSWER` for each, the
   answer being `ok` or the errno's name. What would change the machine is asked for in a way that root's kernel refuses for
   another reason, after it has looked at the capability. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/sysmacros.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static const char *current;
static const char *only;

static int begin(const char *name) {
    if (only && strcmp(only, name)) return 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        current = name;
        alarm(20);
        return 1;
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status)) printf("%s signal-%d\n", name, WTERMSIG(status));
    return 0;
}

static void finish(long returned) {
    const char *answer = returned < 0 ? strerrorname_np(errno) : "ok";
    printf("%s %s\n", current, answer ? answer : "unknown");
    fflush(stdout);
    _exit(0);
}

#define ACT(name, expression) if (begin(name)) finish((long)(expression))

#define T "/usr/fix/"
#define E "/etc/fix/"
#define W "/tmp/work/"
#define A "/app/"

static int opened(const char *path) { return open(path, O_RDONLY); }

static long change_flags(const char *path) {
    int fd = opened(path), flags = 0;
    if (fd < 0 || ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0) return -1;
    flags |= FS_NOATIME_FL;
    return ioctl(fd, FS_IOC_SETFLAGS, &flags);
}

static long beneath(const char *directory, const char *path, int flags) {
    struct open_how how = {.flags = flags, .mode = flags & O_CREAT ? 0644 : 0, .resolve = RESOLVE_BENEATH};
    return syscall(SYS_openat2, open(directory, O_PATH | O_DIRECTORY), path, &how, sizeof how);
}

static socklen_t inet(const char *host, int port, struct sockaddr_storage *to) {
    struct sockaddr_in *four = (void *)to;
    struct sockaddr_in6 *six = (void *)to;
    memset(to, 0, sizeof *to);
    if (strchr(host, ':')) {
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(port);
        inet_pton(AF_INET6, host, &six->sin6_addr);
        return sizeof *six;
    }
    four->sin_family = AF_INET;
    four->sin_port = htons(port);
    inet_pton(AF_INET, host, &four->sin_addr);
    return sizeof *four;
}

static long tcp(const char *host, int port) {
    struct sockaddr_storage to;
    socklen_t length = inet(host, port, &to);
    int fd = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    if (connect(fd, (void *)&to, length) == 0) return fd;
    if (errno != EINPROGRESS) return -1;
    struct pollfd waits = {fd, POLLOUT, 0};
    int fault = 0;
    socklen_t size = sizeof fault;
    if (poll(&waits, 1, 5000) != 1) { errno = ETIMEDOUT; return -1; }
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &fault, &size);
    fcntl(fd, F_SETFL, 0);
    errno = fault;
    return fault ? -1 : fd;
}

/* A question for the address of a.example, the same each time. */
static const char QUESTION[] = "\x12\x34\x01\0\0\1\0\0\0\0\0\0\1a\7example\0\0\1\0\1";

static long udp_to(const char *host, int port) {
    struct sockaddr_storage to;
    socklen_t length = inet(host, port, &to);
    int fd = socket(to.ss_family, SOCK_DGRAM, 0);
    return fd < 0 ? -1 : sendto(fd, QUESTION, sizeof QUESTION - 1, 0, (void *)&to, length);
}

static long udp_message(const char *host, int port) {
    struct sockaddr_storage to;
    socklen_t length = inet(host, port, &to);
    struct iovec part = {(void *)QUESTION, sizeof QUESTION - 1};
    struct msghdr message = {.msg_name = &to, .msg_namelen = length, .msg_iov = &part, .msg_iovlen = 1};
    int fd = socket(to.ss_family, SOCK_DGRAM, 0);
    return fd < 0 ? -1 : sendmsg(fd, &message, 0);
}

static long udp_connected(const char *host, int port) {
    struct sockaddr_storage to;
    socklen_t length = inet(host, port, &to);
    int fd = socket(to.ss_family, SOCK_DGRAM, 0);
    if (fd < 0 || connect(fd, (void *)&to, length) < 0) return -1;
    return write(fd, QUESTION, sizeof QUESTION - 1);
}

static long unix_to(const char *path) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    strcpy(to.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return fd < 0 ? -1 : connect(fd, (void *)&to, sizeof to);
}

static long unix_at(const char *path) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    strcpy(at.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return fd < 0 ? -1 : bind(fd, (void *)&at, sizeof at);
}

static long serve_at(int port) {
    struct sockaddr_storage at;
    socklen_t length = inet("127.0.0.1", port, &at);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return fd < 0 ? -1 : bind(fd, (void *)&at, length);
}

static const char *proxy_host;
static int proxy_port;

/* Says this to the proxy, and prints the first line of its answer as the answer of the act. */
static void by_proxy(const char *name, const char *text, size_t length, const char *then, size_t then_length) {
    if (!proxy_host || !begin(name)) return;
    int fd = tcp(proxy_host, proxy_port);
    char answer[512] = {0};
    if (fd < 0) finish(-1);
    if (write(fd, text, length) < 0) finish(-1);
    long got = read(fd, answer, sizeof answer - 1);
    if (then) {
        memset(answer, 0, sizeof answer);
        if (write(fd, then, then_length) < 0) finish(-1);
        got = read(fd, answer, sizeof answer - 1);
    }
    if (got < 0) finish(-1);
    if (answer[0] == 'H') answer[strcspn(answer, "\r")] = 0;
    printf("%s %s\n", name, answer[0] == 'H' ? answer + 9 : got > 1 && answer[0] == 5 ? (answer[1] ? "socks-refused" : "socks-ok") : "closed");
    fflush(stdout);
    _exit(0);
}

#define BY_PROXY(name, text) by_proxy(name, text, sizeof text - 1, 0, 0)
#define BY_SOCKS(name, request) by_proxy(name, "\5\1\0", 3, request, sizeof request - 1)

static long clone_with(long flags) {
    long child = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(0);
    return child;
}

static long capabilities(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{1 << 21, 1 << 21, 1 << 21}, {0, 0, 0}};
    return syscall(SYS_capset, &header, data);
}

static long measured(void) {
    char attributes[128] = {0};
    *(unsigned *)attributes = 1;
    *(unsigned *)(attributes + 4) = 64;
    /* Of the whole machine, on processor 0. */
    return syscall(SYS_perf_event_open, attributes, -1, 0, -1, 0);
}

static long by_handle(void) {
    struct { struct file_handle head; char bytes[8]; } handle = {.head = {8, 77}};
    return open_by_handle_at(AT_FDCWD, &handle.head, O_RDONLY);
}

static long executed(const char *path) {
    char *arguments[] = {(char *)path, 0}, *environment[] = {0};
    pid_t child = fork();
    int status = 0;
    if (child == 0) {
        execve(path, arguments, environment);
        _exit(errno);
    }
    waitpid(child, &status, 0);
    errno = WEXITSTATUS(status);
    return errno ? -1 : 0;
}

static void own_file(const char *path) { close(open(path, O_CREAT | O_WRONLY, 0644)); }

/* What is made in a directory that everyone may write, or that is the command's, is the command's own. */
static void own_acts(const char *directory) {
    char name[64], path[128], other[256];
    const char *what[] = {"create", "append", "chmod", "rename", "link", "symlink", "mkdir", "unlink", "utimes", "xattr",
                          "chown-other", "mknod-fifo", "bind", "closed-file", "closed-directory", "setgid-directory"};
    for (unsigned n = 0; n < sizeof what / sizeof *what; n++) {
        snprintf(name, sizeof name, "own%s%s", strcmp(directory, W) ? "-app-" : "-tmp-", what[n]);
        if (!begin(name)) continue;
        snprintf(path, sizeof path, "%sown-%s", directory, what[n]);
        snprintf(other, sizeof other, "%sother-%s", directory, what[n]);
        long answer = -1;
        switch (n) {
        case 0: answer = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600); break;
        case 1: own_file(path); answer = open(path, O_WRONLY | O_APPEND); break;
        case 2: own_file(path); answer = chmod(path, 0600); break;
        case 3: own_file(path); answer = rename(path, other); break;
        case 4: own_file(path); answer = link(path, other); break;
        case 5: answer = symlink("/nowhere", path); break;
        case 6: answer = mkdir(path, 0700); break;
        case 7: own_file(path); answer = unlink(path); break;
        case 8: own_file(path); answer = utimensat(AT_FDCWD, path, 0, 0); break;
        case 9: own_file(path); answer = setxattr(path, "user.x", "y", 1, 0); break;
        case 10: own_file(path); answer = chown(path, 4242, 4242); break;
        case 11: answer = mkfifo(path, 0600); break;
        case 12: answer = unix_at(path); break;
        case 13: own_file(path); chmod(path, 0400); answer = open(path, O_WRONLY); break;
        case 14: mkdir(path, 0700); snprintf(other, sizeof other, "%s/within", path); answer = mkdir(other, 0700); break;
        case 15: mkdir(path, 0700); answer = chmod(path, 02700); break;
        }
        finish(answer);
    }
}

int main(int count, char **arguments) {
    int outside = count > 1 ? atoi(arguments[1]) : 0;
    only = count > 2 ? arguments[2] : 0;
    const char *proxy = getenv("http_proxy");
    if (proxy && !strncmp(proxy, "http://", 7)) {
        char *host = strdup(proxy + 7);
        host[strcspn(host, "/")] = 0;
        char *colon = strrchr(host, ':');
        if (colon) { *colon = 0; proxy_port = atoi(colon + 1); proxy_host = host; }
    }
    umask(022);

    /* Files in protected trees. */
    ACT("create", open(T "new", O_CREAT | O_WRONLY, 0644));
    ACT("create-exclusive", open(T "file", O_CREAT | O_EXCL | O_WRONLY, 0644));
    ACT("create-where-nothing", open(T "none/new", O_CREAT | O_WRONLY, 0644));
    ACT("create-below-a-file", open(T "file/new", O_CREAT | O_WRONLY, 0644));
    ACT("write", open(T "file", O_WRONLY));
    ACT("write-open-to-all", open(T "open/file", O_WRONLY));
    ACT("write-missing", open(T "missing", O_WRONLY));
    ACT("write-directory", open(T "open", O_WRONLY));
    ACT("write-by-link", open(T "link", O_RDWR));
    ACT("truncate-open", open(T "open/file", O_WRONLY | O_TRUNC));
    ACT("read", open(T "file", O_RDONLY));
    ACT("tmpfile", open(T "open", O_TMPFILE | O_RDWR, 0600));
    ACT("openat2-beneath", beneath(T, "open/file", O_WRONLY));
    ACT("openat2-create", beneath(T, "made", O_CREAT | O_WRONLY));
    ACT("truncate", truncate(T "open/file", 1));
    ACT("mkdir", mkdir(T "directory", 0755));
    ACT("mkdir-there", mkdir(T "open", 0755));
    ACT("mkdir-where-nothing", mkdir(T "none/x", 0755));
    ACT("rmdir", rmdir(T "empty"));
    ACT("rmdir-full", rmdir(T "open"));
    ACT("unlink", unlink(T "victim"));
    ACT("unlink-missing", unlink(T "missing"));
    ACT("rename", rename(T "from", T "to"));
    ACT("rename-out", rename(T "out", W "in"));
    ACT("rename-in", (own_file(W "going"), rename(W "going", T "arrived")));
    ACT("exchange", renameat2(AT_FDCWD, T "one", AT_FDCWD, T "two", RENAME_EXCHANGE));
    ACT("link", link(T "file", T "second"));
    ACT("link-out", link(T "file", W "second"));
    ACT("symlink", symlink("file", T "symbolic"));
    ACT("mkfifo", mkfifo(T "fifo", 0600));
    ACT("mknod-device", mknod(T "device", S_IFCHR | 0600, makedev(1, 3)));
    ACT("chmod", chmod(T "file", 0640));
    ACT("chmod-missing", chmod(T "missing", 0640));
    ACT("fchmod", fchmod(opened(T "file"), 0644));
    ACT("fchmodat-relative", (chdir(T), fchmodat(AT_FDCWD, "file", 0644, 0)));
    ACT("create-relative", (chdir(T), open("relative", O_CREAT | O_WRONLY, 0644)));
    ACT("create-at", openat(open(T, O_PATH | O_DIRECTORY), "at", O_CREAT | O_WRONLY, 0644));
    ACT("chown", chown(T "file", 4242, 4242));
    ACT("lchown", lchown(T "link", 4242, 4242));
    ACT("utimes", utimensat(AT_FDCWD, T "file", 0, 0));
    ACT("setxattr", setxattr(T "open/file", "user.x", "y", 1, 0));
    ACT("setxattr-trusted", setxattr(T "open/file", "trusted.x", "y", 1, 0));
    ACT("removexattr", removexattr(T "open/file", "user.none"));
    ACT("flags", change_flags(T "open/file"));
    ACT("by-proc-root", open("/proc/self/root/usr/fix/open/file", O_WRONLY));
    ACT("by-proc-cwd", (chdir(T "open"), open("/proc/self/cwd/file", O_WRONLY)));
    ACT("by-proc-fd", ({
            char path[64];
            snprintf(path, sizeof path, "/proc/self/fd/%d", opened(T "open/file"));
            open(path, O_WRONLY);
        }));
    ACT("in-etc", open(E "new", O_CREAT | O_WRONLY, 0644));
    ACT("passwd", open("/etc/passwd", O_WRONLY | O_APPEND));
    ACT("closed-directory", open("/usr/closed/file", O_WRONLY | O_CREAT, 0600));
    ACT("closed-directory-mkdir", mkdir("/usr/closed/sub/x", 0700));
    ACT("root-home", open("/root/new", O_CREAT | O_WRONLY, 0600));
    ACT("var-tmp", open("/var/tmp/new", O_CREAT | O_WRONLY, 0600));
    ACT("run", mkdir("/run/new", 0755));
    ACT("top", mkdir("/new-top", 0755));
    ACT("proc-sys", open("/proc/sys/kernel/domainname", O_WRONLY));
    ACT("bind-in-tree", unix_at(T "socket"));

    /* What lies in directories that everyone may write and is root's. */
    ACT("roots-write", open("/tmp/roots", O_WRONLY));
    ACT("roots-unlink", unlink("/tmp/roots"));
    ACT("roots-rename", rename("/tmp/roots2", "/tmp/renamed"));
    ACT("roots-replace", (own_file(W "new"), rename(W "new", "/tmp/roots3")));
    ACT("roots-chmod", chmod("/tmp/roots4", 0600));
    ACT("roots-directory", mkdir("/tmp/roots-directory/x", 0700));
    ACT("dangling", (symlink(W "nowhere", W "dangling"), open(W "dangling", O_CREAT | O_WRONLY, 0644)));
    ACT("dangling-into-tree", (symlink(T "nowhere", W "into"), open(W "into", O_CREAT | O_WRONLY, 0644)));
    ACT("shm", open("/dev/shm/shadow-act", O_CREAT | O_WRONLY, 0600));
    ACT("null", open("/dev/null", O_WRONLY));
    ACT("device", mknod(W "block", S_IFBLK | 0600, makedev(7, 200)));
    ACT("own-to-none", (own_file(W "to-none"), chown(W "to-none", -1, -1)));
    own_acts(W);
    own_acts(A);
    ACT("app-there", open(A "there", O_WRONLY));
    ACT("app-unlink", unlink(A "old"));

    /* Connections. */
    ACT("tcp-public", tcp("11.22.33.44", 443));
    ACT("tcp-public-v6", tcp("2a00:1:2:3::44", 443));
    ACT("tcp-public-closed-port", tcp("11.22.33.44", 9));
    ACT("tcp-mapped", tcp("::ffff:11.22.33.44", 80));
    ACT("tcp-private", tcp("10.0.0.5", 80));
    ACT("tcp-metadata", tcp("169.254.169.254", 80));
    ACT("tcp-resolver", tcp("11.22.33.53", 53));
    ACT("tcp-loopback", tcp("127.0.0.1", 9));
    ACT("tcp-loopback-dns", tcp("127.0.0.1", 53));
    ACT("udp-public", udp_to("11.22.33.44", 4433));
    ACT("udp-public-v6", udp_to("2a00:1:2:3::44", 4433));
    ACT("udp-message", udp_message("11.22.33.44", 4434));
    ACT("udp-connected", udp_connected("11.22.33.44", 4435));
    ACT("udp-connect-alone", ({
            struct sockaddr_storage to;
            socklen_t length = inet("11.22.33.44", 4436, &to);
            connect(socket(AF_INET, SOCK_DGRAM, 0), (void *)&to, length);
        }));
    ACT("udp-private", udp_to("10.0.0.5", 4433));
    ACT("udp-loopback", udp_to("127.0.0.1", 4433));
    ACT("dns", udp_to("11.22.33.53", 53));
    ACT("dns-connected", udp_connected("11.22.33.53", 53));
    ACT("dns-loopback", udp_to("127.0.0.53", 53));
    ACT("raw", socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
    ACT("raw-v6", socket(AF_INET6, SOCK_RAW, IPPROTO_RAW));
    ACT("packet", socket(AF_PACKET, SOCK_RAW, 0));
    ACT("vsock", socket(40, SOCK_STREAM, 0));
    ACT("alg", socket(38, SOCK_SEQPACKET, 0));
    ACT("bluetooth", socket(31, SOCK_RAW, 1));
    ACT("key", socket(15, SOCK_RAW, 2));
    ACT("multipath", socket(AF_INET, SOCK_STREAM, 262));
    ACT("netlink", socket(AF_NETLINK, SOCK_RAW, 0));
    ACT("unix-pair", ({ int pair[2]; socketpair(AF_UNIX, SOCK_STREAM, 0, pair); }));
    ACT("unix-roots", unix_to("/run/roots.sock"));
    ACT("unix-missing", unix_to("/run/missing.sock"));
    ACT("port-80", serve_at(80));
    ACT("port-8080", serve_at(18080));

    /* By the proxy. */
    BY_PROXY("proxy-connect", "CONNECT stranger.example.org:443 HTTP/1.1\r\nHost: stranger.example.org:443\r\n\r\n");
    BY_PROXY("proxy-get", "GET http://stranger.example.org/ HTTP/1.1\r\nHost: stranger.example.org\r\n\r\n");
    BY_PROXY("proxy-metadata", "GET http://169.254.169.254/latest HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n");
    BY_PROXY("proxy-literal", "CONNECT 11.22.33.44:443 HTTP/1.1\r\n\r\n");
    BY_PROXY("proxy-port", "CONNECT pypi.org:8443 HTTP/1.1\r\n\r\n");
    BY_PROXY("proxy-admitted", "CONNECT pypi.org:443 HTTP/1.1\r\n\r\n");
    BY_PROXY("proxy-malformed", "CONNECT user@pypi.org:443 HTTP/1.1\r\n\r\n");
    BY_SOCKS("proxy-socks", "\5\1\0\3\24stranger.example.org\1\273");
    BY_SOCKS("proxy-socks-address", "\5\1\0\1\13\26\41\54\1\273");

    /* Privilege. */
    ACT("setuid", setuid(4243));
    ACT("setuid-other", setuid(4242));
    ACT("setgid", setgid(4243));
    ACT("setresuid", setresuid(-1, 4242, -1));
    ACT("setgroups", setgroups(1, (gid_t[]){0}));
    ACT("setfsuid", setfsuid(4242));
    ACT("capset", capabilities());
    ACT("chroot", chroot("/tmp"));
    ACT("unshare-user", unshare(CLONE_NEWUSER));
    ACT("unshare-mount", unshare(CLONE_NEWNS));
    ACT("unshare-net", unshare(CLONE_NEWNET));
    ACT("clone-user", clone_with(CLONE_NEWUSER));
    ACT("clone-pid", clone_with(CLONE_NEWPID));
    ACT("setns", setns(opened("/proc/self/ns/uts"), 0));
    ACT("mount", mount("none", "/none", "tmpfs", 0, 0));
    ACT("umount", umount2("/none", 0));
    ACT("pivot-root", syscall(SYS_pivot_root, "/none", "/none"));
    ACT("fsopen", syscall(SYS_fsopen, "tmpfs", 0));
    ACT("keyctl", syscall(SYS_keyctl, 0, -3, 0));
    ACT("reboot", syscall(SYS_reboot, 0, 0, 0, 0));
    ACT("swapon", swapon("/none", 0));
    ACT("acct", acct("/none/none"));
    ACT("sethostname", syscall(SYS_sethostname, 0, -1));
    ACT("delete-module", syscall(SYS_delete_module, "none", O_NONBLOCK));
    ACT("init-module", syscall(SYS_init_module, 0, 0, 0));
    ACT("syslog", syscall(SYS_syslog, 3, 0, 0));
    ACT("bpf", syscall(SYS_bpf, BPF_PROG_LOAD, 0, 0));
    ACT("perf", measured());
    ACT("by-handle", by_handle());
    ACT("fanotify", syscall(SYS_fanotify_init, 0, 0));
    ACT("iopl", syscall(SYS_iopl, 3));
    ACT("ptrace-outside", ptrace(PTRACE_SEIZE, outside, 0, 0));
    ACT("read-outside", ({
            char byte;
            struct iovec here = {&byte, 1}, there = {0, 1};
            process_vm_readv(outside, &here, 1, &there, 1, 0);
        }));
    ACT("ptrace-own", ({
            pid_t child = fork();
            if (child == 0) { pause(); _exit(0); }
            long answer = ptrace(PTRACE_SEIZE, child, 0, 0);
            kill(child, SIGKILL);
            answer;
        }));
    ACT("terminal-input", ioctl(0, TIOCSTI, "x"));
    ACT("set-id", executed("/usr/local/bin/set-id"));
    ACT("set-gid", executed("/usr/local/bin/set-gid"));
    ACT("file-capability", executed("/usr/local/bin/with-capability"));
    ACT("plain-program", executed("/usr/bin/true"));
    return 0;
}
