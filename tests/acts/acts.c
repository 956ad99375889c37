/* Does what a script says, one system call a line, and prints each call's errno:

     acts run SCRIPT                        does it
     acts enter PID UID GID PROGRAM ARG...  runs a program in the mount and network namespaces of PID, with the ids and without
                                            groups, capabilities and new privileges, under a filter of this file's own

   A line is ID HOW CWD DESCRIPTOR CALL ARGUMENT..., parted by tabs; `-` is none. HOW is direct, thread, child or grandchild.
   `@` in an argument is the number of the descriptor. What a call's arguments are, the table below says. Static: it needs
   nothing of the image. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utime.h>

#define FIELDS 16
#define COUNT(a) (sizeof(a) / sizeof *(a))

/* s a string, n a number, T two timespecs, U two timevals, B a utimbuf, V bytes and their size, H a struct open_how and its
   size, A an address and its size, I a pointer to a number, X a struct fsxattr, Y a struct xattr_args and its size, Z a page
   of zeros, K a file handle at the end of a page, M a struct timex, P a struct perf_event_attr, C capabilities. */
static const struct { const char *name; long number; const char *shape; } calls[] = {
    {"open", SYS_open, "snn"}, {"openat", SYS_openat, "nsnn"}, {"openat2", SYS_openat2, "nsH"}, {"creat", SYS_creat, "sn"},
    {"mkdir", SYS_mkdir, "sn"}, {"mkdirat", SYS_mkdirat, "nsn"}, {"mknod", SYS_mknod, "snn"},
    {"mknodat", SYS_mknodat, "nsnn"}, {"link", SYS_link, "ss"}, {"linkat", SYS_linkat, "nsnsn"},
    {"symlink", SYS_symlink, "ss"}, {"symlinkat", SYS_symlinkat, "sns"}, {"rename", SYS_rename, "ss"},
    {"renameat", SYS_renameat, "nsns"}, {"renameat2", SYS_renameat2, "nsnsn"}, {"unlink", SYS_unlink, "s"},
    {"unlinkat", SYS_unlinkat, "nsn"}, {"rmdir", SYS_rmdir, "s"}, {"chmod", SYS_chmod, "sn"},
    {"fchmod", SYS_fchmod, "nn"}, {"fchmodat", SYS_fchmodat, "nsn"}, {"fchmodat2", 452, "nsnn"},
    {"chown", SYS_chown, "snn"}, {"lchown", SYS_lchown, "snn"}, {"fchown", SYS_fchown, "nnn"},
    {"fchownat", SYS_fchownat, "nsnnn"}, {"truncate", SYS_truncate, "sn"}, {"ftruncate", SYS_ftruncate, "nn"},
    {"utime", SYS_utime, "sB"}, {"utimes", SYS_utimes, "sU"}, {"futimesat", SYS_futimesat, "nsU"},
    {"utimensat", SYS_utimensat, "nsTn"}, {"setxattr", SYS_setxattr, "ssVn"}, {"lsetxattr", SYS_lsetxattr, "ssVn"},
    {"fsetxattr", SYS_fsetxattr, "nsVn"}, {"setxattrat", 463, "nsnsY"}, {"removexattr", SYS_removexattr, "ss"},
    {"lremovexattr", SYS_lremovexattr, "ss"}, {"fremovexattr", SYS_fremovexattr, "ns"}, {"removexattrat", 466, "nsns"},
    {"access", SYS_access, "sn"}, {"faccessat", SYS_faccessat, "nsn"}, {"faccessat2", 439, "nsnn"},
    {"file_setattr", 469, "nsXnn"}, {"ioctl", SYS_ioctl, "nnI"}, {"fssetxattr", SYS_ioctl, "nnX"}, {"bind", SYS_bind, "nA"},
    {"connect", SYS_connect, "nA"}, {"sendto", SYS_sendto, "nVnA"}, {"socket", SYS_socket, "nnn"},
    {"mount", SYS_mount, "sssnn"}, {"umount2", SYS_umount2, "sn"}, {"pivot_root", SYS_pivot_root, "ss"},
    {"open_tree", SYS_open_tree, "nsn"}, {"move_mount", SYS_move_mount, "nsnsn"}, {"fsopen", SYS_fsopen, "sn"},
    {"fspick", SYS_fspick, "nsn"}, {"mount_setattr", SYS_mount_setattr, "nsnZn"}, {"setns", SYS_setns, "nn"},
    {"unshare", SYS_unshare, "n"}, {"clone", SYS_clone, "nnnnn"}, {"setuid", SYS_setuid, "n"},
    {"setreuid", SYS_setreuid, "nn"}, {"setresuid", SYS_setresuid, "nnn"}, {"setfsuid", SYS_setfsuid, "n"},
    {"setgid", SYS_setgid, "n"}, {"setregid", SYS_setregid, "nn"}, {"setresgid", SYS_setresgid, "nnn"},
    {"setgroups", SYS_setgroups, "nn"}, {"capset", SYS_capset, "C"}, {"bpf", SYS_bpf, "nZn"},
    {"perf_event_open", SYS_perf_event_open, "Pnnnn"}, {"init_module", SYS_init_module, "Zns"},
    {"finit_module", SYS_finit_module, "nsn"}, {"delete_module", SYS_delete_module, "sn"},
    {"kexec_load", SYS_kexec_load, "nnZn"}, {"reboot", SYS_reboot, "nnnn"}, {"swapon", SYS_swapon, "sn"},
    {"swapoff", SYS_swapoff, "s"}, {"settimeofday", SYS_settimeofday, "nZ"}, {"adjtimex", SYS_adjtimex, "M"},
    {"quotactl", SYS_quotactl, "nsnZ"}, {"keyctl", SYS_keyctl, "nn"}, {"add_key", SYS_add_key, "ssVn"},
    {"request_key", SYS_request_key, "ssnn"}, {"open_by_handle_at", SYS_open_by_handle_at, "nKn"},
    {"ptrace", SYS_ptrace, "nnnn"}, {"process_vm_readv", SYS_process_vm_readv, "nZnZnn"}, {"acct", SYS_acct, "s"},
    {"chroot", SYS_chroot, "s"}, {"sethostname", SYS_sethostname, "sn"}, {"setdomainname", SYS_setdomainname, "sn"},
    {"syslog", SYS_syslog, "nnn"}, {"fanotify_init", SYS_fanotify_init, "nn"}, {"userfaultfd", SYS_userfaultfd, "n"},
    {"iopl", SYS_iopl, "n"}, {"ioperm", SYS_ioperm, "nnn"}, {"vhangup", SYS_vhangup, ""},
    {"setsockopt", SYS_setsockopt, "nnnVn"}, {"access", SYS_access, "sn"}, {"io_uring_setup", SYS_io_uring_setup, "nZ"},
};

/* A line. */
struct act { char *id, *how, *cwd, *descriptor, *call, **arguments; int descriptor_number; };

static void fatal(const char *what) {
    fprintf(stderr, "acts: %s: %s\n", what, strerror(errno));
    _exit(99);
}

/* Room for what pointers point to; it lasts as long as the act, which is less than the process. */
static void *room(size_t size) {
    void *memory = calloc(1, size ? size : 1);
    if (!memory) fatal("calloc");
    return memory;
}

static char *text(const struct act *act, const char *word) {
    if (!strcmp(word, "null")) return NULL;
    char *out = room(strlen(word) * 12 + 1), *at = out;
    for (; *word; word++) {
        if (*word == '@') at += sprintf(at, "%d", act->descriptor_number);
        else *at++ = *word;
    }
    return out;
}

static long number(const struct act *act, const char *word) {
    if (!strcmp(word, "@")) return act->descriptor_number;
    if (!strcmp(word, "cwd")) return AT_FDCWD;
    if (!strcmp(word, "pid")) return getpid();
    return (long)strtoull(word, NULL, 0);
}

static socklen_t address(const struct act *act, const char *word, struct sockaddr_storage *out) {
    char kind[8], rest[4096];
    if (sscanf(word, "%7[^:]:%4095s", kind, rest) != 2) fatal(word);
    if (!strcmp(kind, "unix")) {
        struct sockaddr_un *to = (void *)out;
        to->sun_family = AF_UNIX;
        const char *path = text(act, rest);
        if (strlen(path) >= sizeof to->sun_path) fatal("a path too long for a socket");
        strcpy(to->sun_path, path);
        return offsetof(struct sockaddr_un, sun_path) + strlen(path) + 1;
    }
    char *port = strrchr(rest, ':');
    *port++ = 0;
    if (!strcmp(kind, "inet")) {
        struct sockaddr_in *to = (void *)out;
        to->sin_family = AF_INET;
        to->sin_port = htons(atoi(port));
        if (inet_pton(AF_INET, rest, &to->sin_addr) != 1) fatal(word);
        return sizeof *to;
    }
    struct sockaddr_in6 *to = (void *)out;
    to->sin6_family = AF_INET6;
    to->sin6_port = htons(atoi(port));
    if (inet_pton(AF_INET6, rest, &to->sin6_addr) != 1) fatal(word);
    return sizeof *to;
}

static int descriptor(const char *word) {
    if (!strcmp(word, "-")) return -1;
    const char *path = word + 2;
    int flags = word[0] == 'r' ? O_RDONLY : word[0] == 'p' ? O_PATH : word[0] == 'd' ? O_PATH | O_DIRECTORY
              : word[0] == 'D' ? O_RDONLY | O_DIRECTORY : word[0] == 'w' ? O_WRONLY : -1;
    int fd;
    if (word[0] == 's') {
        int family = strstr(path, "unix") ? AF_UNIX : strstr(path, "inet6") ? AF_INET6 : AF_INET;
        fd = socket(family, strstr(path, "dgram") ? SOCK_DGRAM : SOCK_STREAM, 0);
    } else {
        fd = open(path, flags | O_CLOEXEC | O_NONBLOCK);
    }
    if (fd < 0) fatal(word);
    return fd;
}

#ifdef __x86_64__
/* getpid in the numbering of the i386 entry. */
static long of_i386(void) {
    long returned;
    __asm__ volatile("int $0x80" : "=a"(returned) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
    if ((int)returned < 0) { errno = -(int)returned; return -1; }
    return returned;
}
#endif

/* Runs a program that does nothing but exit. */
static long execute(const char *path) {
    char *argv[] = {(char *)path, "nothing", NULL}, *environment[] = {NULL};
    execve(path, argv, environment);
    return -1;
}

static long do_call(const struct act *act) {
#ifdef __x86_64__
    if (!strcmp(act->call, "i386")) return of_i386();
    if (!strcmp(act->call, "x32")) return syscall(0x40000000 + SYS_getpid);
#endif
    if (!strcmp(act->call, "execve")) return execute(text(act, act->arguments[0]));
    const char *shape = NULL;
    long which = 0, words[8] = {0};
    for (unsigned n = 0; n < COUNT(calls); n++) {
        if (!strcmp(calls[n].name, act->call)) { shape = calls[n].shape; which = calls[n].number; }
    }
    if (!shape) { errno = 0; fatal(act->call); }
    int at = 0;
    char **word = act->arguments;
    for (; *shape; shape++, word++) {
        if (!*word) { errno = 0; fatal(act->id); }
        switch (*shape) {
        case 's': words[at++] = (long)text(act, *word); break;
        case 'n': words[at++] = number(act, *word); break;
        case 'T': {
            struct timespec *times = room(2 * sizeof *times);
            times[0].tv_sec = times[1].tv_sec = 1;
            if (!strcmp(*word, "now")) times[0].tv_nsec = times[1].tv_nsec = UTIME_NOW;
            if (!strcmp(*word, "omit")) times[0].tv_nsec = times[1].tv_nsec = UTIME_OMIT;
            if (!strcmp(*word, "wrong")) times[0].tv_nsec = 1000000000;
            words[at++] = strcmp(*word, "null") ? (long)times : 0;
            break;
        }
        case 'U': {
            struct timeval *times = room(2 * sizeof *times);
            times[0].tv_sec = times[1].tv_sec = 1;
            words[at++] = strcmp(*word, "null") ? (long)times : 0;
            break;
        }
        case 'B': {
            struct utimbuf *times = room(sizeof *times);
            times->actime = times->modtime = 1;
            words[at++] = strcmp(*word, "null") ? (long)times : 0;
            break;
        }
        case 'V': words[at++] = (long)text(act, *word); words[at++] = strlen(*word); break;
        case 'H': {
            uint64_t *how = room(24);
            sscanf(*word, "%li:%li:%li", (long *)&how[0], (long *)&how[1], (long *)&how[2]);
            words[at++] = (long)how;
            words[at++] = 24;
            break;
        }
        case 'A': {
            struct sockaddr_storage *to = room(sizeof *to);
            words[at + 1] = address(act, *word, to);
            words[at] = (long)to;
            at += 2;
            break;
        }
        case 'I': {
            long *value = room(sizeof *value);
            *value = number(act, *word);
            words[at++] = (long)value;
            break;
        }
        case 'X': {
            uint32_t *fields = room(28);
            fields[0] = number(act, *word);
            words[at++] = (long)fields;
            break;
        }
        case 'Y': {
            struct { uint64_t value; uint32_t size, flags; } *how = room(16);
            how->value = (long)text(act, *word);
            how->size = strlen(*word);
            words[at++] = (long)how;
            words[at++] = 16;
            break;
        }
        case 'Z': words[at++] = (long)room(4096); break;
        case 'K': {
            /* struct file_handle, and nothing mapped after it. */
            char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (pages == MAP_FAILED || munmap(pages + 4096, 4096) < 0) fatal("mmap");
            uint32_t *handle = (uint32_t *)(pages + 4096 - 16);
            handle[0] = 8;
            handle[1] = 1;
            words[at++] = (long)handle;
            break;
        }
        case 'M': {
            /* struct timex: a tick that no clock takes. */
            uint32_t *fields = room(208);
            fields[0] = 0x4000;
            words[at++] = (long)fields;
            break;
        }
        case 'P': {
            /* struct perf_event_attr: a hardware event of the kernel's and the user's. */
            uint32_t *fields = room(128);
            fields[1] = 128;
            words[at++] = (long)fields;
            break;
        }
        case 'C': {
            uint32_t *header = room(8), *sets = room(24);
            header[0] = 0x20080522;
            sets[0] = sets[1] = 1 << number(act, *word);
            words[at++] = (long)header;
            words[at++] = (long)sets;
            break;
        }
        }
    }
    long returned = syscall(which, words[0], words[1], words[2], words[3], words[4], words[5]);
    if (which == SYS_clone && returned == 0) _exit(0);
    return returned;
}

static void say(const struct act *act, const char *outcome) {
    char line[256];
    int length = snprintf(line, sizeof line, "%s\t%d\t%s\n", act->id, getpid(), outcome);
    if (write(1, line, length) != length) _exit(98);
}

static void perform(struct act *act) {
    char name[16];
    /* A grandchild's is no text. */
    snprintf(name, sizeof name, "act%.10s%s", act->id, act->how[0] == 'g' ? "\xff" : "");
    prctl(PR_SET_NAME, name);
    if (strcmp(act->cwd, "-") && chdir(act->cwd) < 0) fatal(act->cwd);
    act->descriptor_number = descriptor(act->descriptor);
    long returned = do_call(act);
    const char *errno_name = strerrorname_np(errno);
    say(act, returned >= 0 ? "ok" : errno_name ? errno_name : "unknown");
    if (returned > 2 && (strstr(act->call, "open") || !strcmp(act->call, "creat") || !strcmp(act->call, "socket"))) close(returned);
    if (act->descriptor_number > 2) close(act->descriptor_number);
}

static void *in_thread(void *act) {
    /* A working directory of its own, where it will have one. */
    if (strcmp(((struct act *)act)->cwd, "-") && unshare(CLONE_FS) < 0) fatal("unshare");
    perform(act);
    return NULL;
}

static void in_child(struct act *act, int generations) {
    pid_t child = fork();
    if (child < 0) fatal("fork");
    if (child == 0) {
        if (generations > 1) {
            setsid();
            in_child(act, generations - 1);
        } else {
            perform(act);
        }
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child) fatal("waitpid");
    if (generations == 1 && !strcmp(act->call, "execve") && WIFEXITED(status) && WEXITSTATUS(status) == 42) {
        char line[256];
        int length = snprintf(line, sizeof line, "%s\t%d\tok\n", act->id, child);
        if (write(1, line, length) != length) _exit(98);
    } else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "acts: %s ended with %#x\n", act->id, status);
    }
}

static void run(const char *script) {
    FILE *file = fopen(script, "re");
    if (!file) fatal(script);
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, file) > 0) {
        line[strcspn(line, "\n")] = 0;
        char *fields[FIELDS + 1] = {0}, *rest = strdup(line);
        for (int n = 0; n < FIELDS && rest; n++) fields[n] = strsep(&rest, "\t");
        struct act act = {fields[0], fields[1], fields[2], fields[3], fields[4], &fields[5], -1};
        if (!act.call) { errno = 0; fatal(line); }
        pthread_t thread;
        switch (act.how[0]) {
        case 'd': perform(&act); if (chdir("/") < 0) fatal("chdir"); break;
        case 't':
            if (pthread_create(&thread, NULL, in_thread, &act) || pthread_join(thread, NULL)) fatal("thread");
            break;
        case 'c': in_child(&act, 1); break;
        default: in_child(&act, 2);
        }
    }
}

/* What ringfence's own filter answers where the kernel by itself would answer otherwise: written down anew. */
static const struct { int number, argument; uint32_t mask, value; int answer; } filter[] = {
    {SYS_mount, -1, 0, 0, EPERM}, {SYS_umount2, -1, 0, 0, EPERM}, {SYS_pivot_root, -1, 0, 0, EPERM},
    {SYS_open_tree, -1, 0, 0, EPERM}, {SYS_move_mount, -1, 0, 0, EPERM}, {SYS_fsopen, -1, 0, 0, EPERM},
    {SYS_fspick, -1, 0, 0, EPERM}, {SYS_mount_setattr, -1, 0, 0, EPERM}, {SYS_setns, -1, 0, 0, EPERM},
    {SYS_keyctl, -1, 0, 0, ENOSYS}, {SYS_add_key, -1, 0, 0, ENOSYS}, {SYS_request_key, -1, 0, 0, ENOSYS},
    {SYS_io_uring_setup, -1, 0, 0, ENOSYS}, {SYS_clone3, -1, 0, 0, ENOSYS},
    {SYS_unshare, 0, CLONE_NEWUSER, CLONE_NEWUSER, EPERM}, {SYS_clone, 0, CLONE_NEWUSER, CLONE_NEWUSER, EPERM},
    {SYS_socket, 0, ~0u, AF_VSOCK, EPERM}, {SYS_socket, 0, ~0u, AF_ALG, EPERM}, {SYS_socket, 0, ~0u, AF_PACKET, EPERM},
    {SYS_socket, 2, ~0u, 262, EPROTONOSUPPORT}, {SYS_ioctl, 1, ~0u, 0x5412, EPERM},
};

static void load_filter(void) {
    struct sock_filter program[16 + 8 * COUNT(filter)];
    unsigned at = 0;
#define EMIT(...) program[at++] = (struct sock_filter)__VA_ARGS__
    EMIT(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)));
#ifdef __x86_64__
    EMIT(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0));
    EMIT(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS));
    EMIT(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    EMIT(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1));
    EMIT(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS));
#endif
    for (unsigned n = 0; n < COUNT(filter); n++) {
        unsigned answer = SECCOMP_RET_ERRNO | filter[n].answer;
        EMIT(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
        if (filter[n].argument < 0) {
            EMIT(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, filter[n].number, 0, 1));
        } else {
            EMIT(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, filter[n].number, 0, 4));
            EMIT(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[filter[n].argument])));
            EMIT(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, filter[n].mask));
            EMIT(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, filter[n].value, 0, 1));
        }
        EMIT(BPF_STMT(BPF_RET | BPF_K, answer));
    }
    EMIT(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    struct sock_fprog whole = {at, program};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &whole) < 0) fatal("seccomp");
}

static void enter(char **argv) {
    char path[64];
    const char *kinds[] = {"mnt", "net"};
    int spaces[2];
    for (int n = 0; n < 2; n++) {
        snprintf(path, sizeof path, "/proc/%s/ns/%s", argv[0], kinds[n]);
        spaces[n] = open(path, O_RDONLY | O_CLOEXEC);
        if (spaces[n] < 0) fatal(path);
    }
    for (int n = 0; n < 2; n++) if (setns(spaces[n], 0) < 0) fatal("setns");
    uid_t uid = atoi(argv[1]);
    gid_t gid = atoi(argv[2]);
    for (int n = 0; prctl(PR_CAPBSET_READ, n) >= 0; n++) if (prctl(PR_CAPBSET_DROP, n) < 0) fatal("bounding set");
    if (chdir("/") < 0 || setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0) fatal("ids");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) fatal("no_new_privs");
    load_filter();
    execv(argv[3], argv + 3);
    fatal(argv[3]);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "nothing")) return 42;
    if (argc == 3 && !strcmp(argv[1], "run")) run(argv[2]);
    else if (argc > 5 && !strcmp(argv[1], "enter")) enter(argv + 2);
    else return 64;
    return 0;
}
