/* A session of single acts, each in a process of its own, so that none depends on another: a line `NAME ANSWER` for each, the
   answer being `ok` or the errno's name. What would change the machine is asked for in a way that root's kernel refuses for
   another reason, after it has looked at the capability. */
#include "act.h"
#include "privilege.h"
#include "sockets.h"

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

    /* In directories and on files of the image's lower layer: the first act has a copy made of each, the next one meets that. */
    ACT("image-create", open("/mnt/shadow-a", O_CREAT | O_WRONLY, 0644));
    ACT("image-create-again", open("/mnt/shadow-b", O_CREAT | O_WRONLY, 0644));
    ACT("image-mkdir", mkdir("/mnt/shadow-c", 0755));
    ACT("image-media", open("/media/shadow-a", O_CREAT | O_WRONLY, 0644));
    ACT("image-media-again", open("/media/shadow-b", O_CREAT | O_WRONLY, 0644));
    ACT("image-chmod", chmod("/mnt", 0755));
    ACT("image-chmod-again", chmod("/mnt", 0755));
    ACT("image-file-chmod", chmod("/usr/bin/true", 0755));
    ACT("image-file-chmod-again", chmod("/usr/bin/true", 0755));
    ACT("image-file-append", open("/etc/services", O_WRONLY | O_APPEND));
    ACT("image-file-append-again", open("/etc/services", O_WRONLY | O_APPEND));
    ACT("image-file-utimes", utimensat(AT_FDCWD, "/etc/services", 0, 0));
    ACT("image-below-a-copy", open("/usr/games/shadow-a", O_CREAT | O_WRONLY, 0644));
    ACT("image-below-a-copy-again", mkdir("/usr/games/shadow-b", 0755));

    /* Names in one's own and in others' directories: whose the directory is decides. */
    ACT("workspace-itself", rmdir("/app"));
    ACT("roots-into-own", (mkdir(W "into-own", 0700), rename("/tmp/roots5", W "into-own/x"), unlink(W "into-own/x")));
    ACT("own-into-roots", (own_file(W "into-roots"), rename(W "into-roots", "/tmp/roots-directory/x")));
    ACT("own-linked-into-roots", (own_file(W "linked"), link(W "linked", "/tmp/roots-directory/y")));
    ACT("roots-linked", link("/tmp/roots4", W "roots-linked"));
    ACT("exchange-with-roots", (own_file(W "swap"), renameat2(AT_FDCWD, W "swap", AT_FDCWD, "/tmp/roots6", RENAME_EXCHANGE)));
    ACT("directory-out-of-own", (mkdir(W "moving", 0700), rename(W "moving", "/tmp/moved-directory")));
    ACT("own-over-own", (own_file(W "over"), own_file(W "under"), rename(W "over", W "under")));
    ACT("own-unlink-twice", (own_file(W "twice"), unlink(W "twice"), unlink(W "twice")));
    ACT("openat2-own", beneath(W, "beneath", O_CREAT | O_WRONLY));
    ACT("openat2-own-there", (own_file(W "there"), beneath(W, "there", O_CREAT | O_WRONLY)));
    ACT("openat2-roots", beneath("/tmp/roots-directory", "beneath", O_CREAT | O_WRONLY));
    ACT("openat2-out", beneath(W, "../out", O_CREAT | O_WRONLY));

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
