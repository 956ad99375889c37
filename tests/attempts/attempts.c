/* Single system calls, each printed with the kernel's answer: `WHAT ok` or `WHAT ERRNO`. Static, so that it runs in an image
   that holds nothing else. What needs no shell is done here; what a shell does as well is left to the tests' scripts. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static void say(const char *what, long returned) {
    const char *name = returned < 0 ? strerrorname_np(errno) : "ok";
    printf("%s %s\n", what, name ? name : "unknown");
    fflush(stdout);
}

/* In a child, for what would change this process. */
static void say_in_child(const char *what, long (*act)(void)) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        say(what, act());
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) == child && !(WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
        printf("%s signal %d\n", what, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
        fflush(stdout);
    }
}

/* Every way of changing something in a directory that holds `file`. */
static void change(const char *directory) {
    if (chdir(directory) < 0) {
        say("chdir", -1);
        return;
    }
    struct timespec times[2] = {{1, 0}, {1, 0}};
    int fd;
    say("create", open("new", O_CREAT | O_EXCL | O_WRONLY, 0600));
    say("append", open("file", O_WRONLY | O_APPEND));
    say("open-truncate", open("file", O_WRONLY | O_TRUNC));
    say("truncate", truncate("file", 0));
    say("chmod", chmod("file", 0600));
    say("chown", chown("file", getuid(), getgid()));
    say("utimes", utimensat(AT_FDCWD, "file", times, 0));
    say("setxattr", setxattr("file", "user.x", "y", 1, 0));
    say("link", link("file", "second"));
    say("symlink", symlink("file", "symbolic"));
    say("mkdir", mkdir("directory", 0700));
    say("mkfifo", mkfifo("fifo", 0600));
    say("tmpfile", open(".", O_TMPFILE | O_RDWR, 0600));
    fd = open("file", O_RDWR);
    say("mmap", fd < 0 ? -1 : mmap(0, 1, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0);
    fd = open("file", O_RDONLY);
    if (fd >= 0) {
        char path[64];
        say("fchmod", fchmod(fd, 0600));
        say("futimens", futimens(fd, times));
        say("fsetxattr", fsetxattr(fd, "user.x", "y", 1, 0));
        say("mmap-of-read-only", mmap(0, 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        say("reopen", open(path, O_WRONLY));
    } else {
        say("open", fd);
    }
    say("exchange", renameat2(AT_FDCWD, "file", AT_FDCWD, "other", RENAME_EXCHANGE));
    say("rename", rename("file", "renamed"));
    say("unlink", unlink("other"));
}

static long namespace_flags;
static long do_unshare(void) { return unshare(namespace_flags); }
static long do_clone(void) {
    long child = syscall(SYS_clone, namespace_flags | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(0);
    return child;
}
static long do_pivot(void) { return syscall(SYS_pivot_root, ".", "."); }
static long do_chroot(void) { return chroot("/tmp"); }
static long setns_fd;
static long do_setns(void) { return setns_fd < 0 ? -1 : setns(setns_fd, 0); }
static long do_uid(void) { return setresuid(0, 0, 0); }
static long do_gid(void) { return setresgid(0, 0, 0); }
static long do_groups(void) { gid_t none[1] = {0}; return setgroups(1, none); }
static long do_caps(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{1 << 21, 1 << 21, 1 << 21}, {0, 0, 0}};
    return syscall(SYS_capset, &header, data);
}
#ifdef __x86_64__
static long do_i386(void) {
    long returned;
    /* getpid in the numbering of the i386 entry. */
    __asm__ volatile("int $0x80" : "=a"(returned) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
    if ((int)returned < 0) { errno = -(int)returned; return -1; }
    return 0;
}
static long do_x32(void) { return syscall(0x40000000 + SYS_getpid); }
#endif

static void namespaces(void) {
    static const struct { const char *name; long flag; } all[] = {
        {"user", CLONE_NEWUSER}, {"mnt", CLONE_NEWNS}, {"net", CLONE_NEWNET}, {"pid", CLONE_NEWPID},
        {"ipc", CLONE_NEWIPC}, {"uts", CLONE_NEWUTS}, {"cgroup", CLONE_NEWCGROUP}, {"time", 0x80},
    };
    char what[64];
    for (unsigned n = 0; n < sizeof all / sizeof *all; n++) {
        namespace_flags = all[n].flag;
        snprintf(what, sizeof what, "unshare-%s", all[n].name);
        say_in_child(what, do_unshare);
        if (all[n].flag == 0x80) continue;
        snprintf(what, sizeof what, "clone-%s", all[n].name);
        say_in_child(what, do_clone);
    }
    char arguments[88] = {0};
    say("clone3", syscall(SYS_clone3, arguments, 0));
}

/* The mount family; `tree` is a protected directory, `own` one that the caller may write. */
static void mounts(const char *tree, const char *own) {
    struct mount_attr writable = {.attr_clr = MOUNT_ATTR_RDONLY};
    say("remount-rw", mount(0, tree, 0, MS_REMOUNT | MS_BIND, 0));
    say("bind-over", mount(own, tree, 0, MS_BIND, 0));
    say("tmpfs", mount("t", tree, "tmpfs", 0, 0));
    say("proc", mount("p", own, "proc", 0, 0));
    say("sysfs", mount("s", own, "sysfs", 0, 0));
    say("overlay", mount("o", own, "overlay", 0, "lowerdir=/usr:/etc"));
    say("move", mount(own, tree, 0, MS_MOVE, 0));
    say("propagation", mount(0, tree, 0, MS_SHARED, 0));
    say("umount", umount2(tree, MNT_DETACH));
    say("open_tree", syscall(SYS_open_tree, AT_FDCWD, tree, 1));
    say("move_mount", syscall(SYS_move_mount, AT_FDCWD, own, AT_FDCWD, tree, 0));
    say("fsopen", syscall(SYS_fsopen, "tmpfs", 0));
    say("fsconfig", syscall(SYS_fsconfig, -1, 0, 0, 0, 0));
    say("fsmount", syscall(SYS_fsmount, -1, 0, 0));
    say("fspick", syscall(SYS_fspick, AT_FDCWD, tree, 0));
    say("mount_setattr", syscall(SYS_mount_setattr, AT_FDCWD, tree, 0, &writable, sizeof writable));
    say_in_child("pivot_root", do_pivot);
    say_in_child("chroot", do_chroot);
}

static void join(int pid) {
    static const char *all[] = {"user", "mnt", "net", "pid", "ipc", "uts", "cgroup"};
    char path[64], what[64];
    for (unsigned n = 0; n < sizeof all / sizeof *all; n++) {
        snprintf(path, sizeof path, "/proc/%d/ns/%s", pid, all[n]);
        snprintf(what, sizeof what, "setns-%s", all[n]);
        setns_fd = open(path, O_RDONLY);
        say_in_child(what, do_setns);
    }
}

static void sockets(void) {
    say("raw", socket(AF_INET, SOCK_RAW, 1));
    say("raw6", socket(AF_INET6, SOCK_RAW, 58));
    say("packet", socket(AF_PACKET, SOCK_RAW, 0));
    say("packet-datagram", socket(AF_PACKET, SOCK_DGRAM, 0));
    say("vsock", socket(AF_VSOCK, SOCK_STREAM, 0));
    say("alg", socket(AF_ALG, SOCK_SEQPACKET, 0));
    say("netlink", socket(AF_NETLINK, SOCK_RAW, 0));
    say("unix", socket(AF_UNIX, SOCK_STREAM, 0));
    say("tcp", socket(AF_INET, SOCK_STREAM, 0));
}

static void entries(void) {
    char parameters[120] = {0};
    say("io_uring_setup", syscall(SYS_io_uring_setup, 1, parameters));
#ifdef __x86_64__
    say_in_child("i386", do_i386);
    say_in_child("x32", do_x32);
#endif
}

static void regain(void) {
    say_in_child("setresuid", do_uid);
    say_in_child("setresgid", do_gid);
    say_in_child("setgroups", do_groups);
    say_in_child("capset", do_caps);
    say("keepcaps-setuid", prctl(PR_SET_SECUREBITS, 0, 0, 0, 0));
    say("mknod", mknod("/tmp/device", S_IFBLK | 0600, 0x0700));
}

/* What a process is, by system calls alone; the bounding set is read upward until the kernel says EINVAL. */
static void credentials(const char *who) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    memset(data, 0xff, sizeof data);
    uid_t r, e, s;
    gid_t gr, ge, gs;
    int bounding = 0, ambient = 0, known = 0;
    if (syscall(SYS_capget, &header, data) || getresuid(&r, &e, &s) || getresgid(&gr, &ge, &gs)) _exit(1);
    for (int n = 0, held; (held = prctl(PR_CAPBSET_READ, n, 0, 0, 0)) >= 0; n++) {
        bounding += held;
        ambient += prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, n, 0, 0) == 1;
        known++;
    }
    printf("%s uid=%u,%u,%u gid=%u,%u,%u groups=%d inh=%x%x prm=%x%x eff=%x%x amb=%d bnd=%d nnp=%d seccomp=%d known=%d\n", who, r, e, s, gr, ge, gs,
        getgroups(0, 0), data[1].inheritable, data[0].inheritable, data[1].permitted, data[0].permitted, data[1].effective,
        data[0].effective, ambient, bounding, prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), prctl(PR_GET_SECCOMP, 0, 0, 0, 0), known > 30);
    fflush(stdout);
}

static void *stay(void *arg) { pause(); return arg; }

/* A process with four threads that lives until its standard input ends. */
static void threads(void) {
    pthread_t thread;
    char byte;
    for (int n = 0; n < 3; n++)
        if (pthread_create(&thread, 0, stay, 0)) _exit(1);
    puts("ready");
    fflush(stdout);
    if (read(0, &byte, 1) < 0) _exit(1);
}

static long keyctl(int operation, long a, long b, long c, long d) { return syscall(SYS_keyctl, operation, a, b, c, d); }

/* Looks for the launcher's keys: the key `id`, and what the session keyring holds. */
static void keys(long id) {
    char payload[64];
    say("search", keyctl(KEYCTL_SEARCH, KEY_SPEC_SESSION_KEYRING, (long)"user", (long)"launcher", 0));
    say("search-logon", keyctl(KEYCTL_SEARCH, KEY_SPEC_SESSION_KEYRING, (long)"logon", (long)"launcher:logon", 0));
    say("read", keyctl(KEYCTL_READ, id, (long)payload, sizeof payload, 0));
    say("describe", keyctl(KEYCTL_DESCRIBE, id, (long)payload, sizeof payload, 0));
    say("link", keyctl(KEYCTL_LINK, id, KEY_SPEC_PROCESS_KEYRING, 0, 0));
    say("update", keyctl(KEYCTL_UPDATE, id, (long)"altered", 7, 0));
    say("revoke", keyctl(KEYCTL_REVOKE, id, 0, 0, 0));
    say("clear-own", keyctl(KEYCTL_CLEAR, KEY_SPEC_SESSION_KEYRING, 0, 0, 0));
    say("join-named", keyctl(KEYCTL_JOIN_SESSION_KEYRING, (long)"launcher-session", 0, 0, 0));
    say("search-joined", keyctl(KEYCTL_SEARCH, KEY_SPEC_SESSION_KEYRING, (long)"user", (long)"launcher", 0));
}

/* Runs a command from a session that holds keys, and says afterwards what has become of them. `ID` in an argument is
   replaced by the key's id. */
static int with_keys(char **command) {
    char id[32], payload[64] = {0};
    long session = keyctl(KEYCTL_JOIN_SESSION_KEYRING, (long)"launcher-session", 0, 0, 0);
    long key = syscall(SYS_add_key, "user", "launcher", "secret", 6, KEY_SPEC_SESSION_KEYRING);
    long logon = syscall(SYS_add_key, "logon", "launcher:logon", "secret", 6, KEY_SPEC_SESSION_KEYRING);
    if (session < 0 || key < 0 || logon < 0) {
        say("add_key", -1);
        return 1;
    }
    snprintf(id, sizeof id, "%ld", key);
    for (char **argument = command; *argument; argument++)
        if (!strcmp(*argument, "ID")) *argument = id;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execvp(command[0], command);
        _exit(127);
    }
    int status;
    if (waitpid(child, &status, 0) != child) return 1;
    long length = keyctl(KEYCTL_READ, key, (long)payload, sizeof payload, 0);
    printf("afterwards %.*s\n", (int)(length < 0 ? 0 : length), payload);
    say("afterwards-search", keyctl(KEYCTL_SEARCH, session, (long)"logon", (long)"launcher:logon", 0));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* Runs a command under a seccomp filter that refuses one system call with EPERM. */
#include <linux/filter.h>
static int without(long call, char **command) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0)) {
        say("seccomp", -1);
        return 1;
    }
    execvp(command[0], command);
    return 127;
}

/* Opens each path in turn for reading and for writing. */
static void open_each(char **paths) {
    for (; *paths; paths++) {
        char what[4096];
        snprintf(what, sizeof what, "read %s", *paths);
        say(what, open(*paths, O_RDONLY | O_NONBLOCK));
        snprintf(what, sizeof what, "create %s/new", *paths);
        char path[4096];
        snprintf(path, sizeof path, "%s/new", *paths);
        say(what, open(path, O_CREAT | O_WRONLY, 0600));
    }
}

static void terminal(void) {
    char byte = 'x';
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || unlockpt(master)) { say("pty", -1); return; }
    /* A session leader's first terminal is its own, so that the kernel lets it push without privilege where it lets anyone. */
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        setsid();
        int slave = open(ptsname(master), O_RDWR);
        say("controlling", ioctl(slave, TIOCSCTTY, 0));
        say("TIOCSTI", ioctl(slave, TIOCSTI, &byte));
        say("TIOCSTI-high-bits", syscall(SYS_ioctl, slave, TIOCSTI | 0xdead00000000UL, &byte));
        say("TIOCLINUX", ioctl(slave, TIOCLINUX, &byte));
        _exit(0);
    }
    waitpid(child, 0, 0);
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "";
    if (!strcmp(what, "change")) change(arguments[2]);
    else if (!strcmp(what, "namespaces")) namespaces();
    else if (!strcmp(what, "mounts")) mounts(arguments[2], arguments[3]);
    else if (!strcmp(what, "join")) join(atoi(arguments[2]));
    else if (!strcmp(what, "sockets")) sockets();
    else if (!strcmp(what, "entries")) entries();
    else if (!strcmp(what, "regain")) regain();
    else if (!strcmp(what, "threads")) threads();
    else if (!strcmp(what, "keys")) keys(atol(arguments[2]));
    else if (!strcmp(what, "with-keys")) return with_keys(arguments + 2);
    else if (!strcmp(what, "without")) return without(atol(arguments[2]), arguments + 3);
    else if (!strcmp(what, "chroot")) {
        if (chroot(arguments[2]) || chdir("/")) { say("chroot", -1); return 1; }
        execv(arguments[3], arguments + 3);
        return 127;
    } else if (!strcmp(what, "open")) open_each(arguments + 2);
    else if (!strcmp(what, "terminal")) terminal();
    else if (!strcmp(what, "credentials")) {
        credentials("self");
        pid_t child = fork();
        if (child == 0) {
            credentials("child");
            if (fork() == 0) { credentials("grandchild"); _exit(0); }
            while (wait(0) > 0) {}
            _exit(0);
        }
        while (wait(0) > 0) {}
    } else return 2;
    return 0;
}
