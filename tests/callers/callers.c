/* Callers that stand in an unusual way to whoever answers their calls: each prints lines `WHAT ok` or `WHAT ERRNO`. Static,
   so that it runs in an image that holds nothing else. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/ioprio.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

static void say(const char *what, long returned) {
    const char *name = returned < 0 ? strerrorname_np(errno) : "ok";
    printf("%s %s\n", what, name ? name : "unknown");
    fflush(stdout);
}

static void say_number(const char *what, long number, unsigned of, long returned) {
    char name[64];
    int before = errno;
    snprintf(name, sizeof name, "%s-%ld-%u", what, number, of);
    errno = before;
    say(name, returned);
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

/* `others PID TREE`: by every spelling, into the file system that another process has, as one who is not dumpable. */
static void others(const char *pid, const char *tree) {
    static const char *spellings[] = {"/proc/%s/root%s", "/proc/self/../%s/root%s", "/proc/thread-self/../../../%s/root%s",
                                      "/proc/self/root/proc/%s/root%s", "/proc/self/cwd/proc/%s/root%s",
                                      "/proc/self/task/../../%s/cwd/../../../..%s"};
    char at[512], name[600], what[64];
    prctl(PR_SET_DUMPABLE, 0);
    chdir("/");
    for (unsigned i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        snprintf(at, sizeof at, spellings[i], pid, tree);
        snprintf(name, sizeof name, "%s/file", at);
        snprintf(what, sizeof what, "truncate-%u", i), say(what, open(name, O_CREAT | O_TRUNC | O_WRONLY, 0666));
        snprintf(what, sizeof what, "setattr-%u", i);
        char fsxattr[24] = {0};
        say(what, syscall(469, AT_FDCWD, name, fsxattr, sizeof fsxattr, 0));
        char second[620];
        snprintf(second, sizeof second, "%s/linked-%u", at, i);
        snprintf(what, sizeof what, "link-%u", i), say(what, link(name, second));
        snprintf(name, sizeof name, "%s/made-%u", at, i);
        snprintf(what, sizeof what, "mkdir-%u", i), say(what, mkdir(name, 0777));
        snprintf(name, sizeof name, "%s/dangling", at);
        snprintf(what, sizeof what, "through-%u", i), say(what, open(name, O_CREAT | O_WRONLY, 0666));
    }
}

/* `closed 0|1 TREE`: refused acts of a caller that is dumpable, or not, by every way of naming what is in TREE. */
static void closed(int dumpable, const char *tree) {
    char name[512];
    prctl(PR_SET_DUMPABLE, dumpable);
    chdir(tree);
    int fd = open(".", O_RDONLY | O_DIRECTORY), file = open("file", O_RDONLY);
    say("absolute", (snprintf(name, sizeof name, "%s/absolute", tree), mkdir(name, 0700)));
    say("relative", mkdir("relative", 0700));
    say("beneath", mkdirat(fd, "beneath", 0700));
    say("descriptor", fchmod(file, 0600));
    say("link", symlink("x", "link"));
    say("rename", rename("file", "renamed"));
    say("self-cwd", mkdir("/proc/self/cwd/self-cwd", 0700));
    say("self-fd", (snprintf(name, sizeof name, "/proc/self/fd/%d/self-fd", fd), mkdir(name, 0700)));
    say("own-fd", (snprintf(name, sizeof name, "/proc/%d/fd/%d/own-fd", getpid(), fd), mkdir(name, 0700)));
    say("self-file", (snprintf(name, sizeof name, "/proc/self/fd/%d", file), open(name, O_WRONLY)));
    say("self-root", (snprintf(name, sizeof name, "/proc/thread-self/root%s/self-root", tree), mkdir(name, 0700)));
    say("bad-descriptor", fchmod(77, 0600));
    say("missing", open("missing/file", O_WRONLY | O_CREAT, 0600));
    say("exists", mkdir("directory", 0700));
    /* What is allowed is allowed. */
    chdir("/tmp");
    fd = open(".", O_RDONLY | O_DIRECTORY);
    say("tmp-relative", mkdir("tmp-relative", 0700));
    say("tmp-beneath", mkdirat(fd, "tmp-beneath", 0700));
    say("tmp-self", (snprintf(name, sizeof name, "/proc/self/fd/%d/tmp-self", fd), mkdir(name, 0700)));
    say("tmp-own", (snprintf(name, sizeof name, "/proc/%d/cwd/tmp-own", getpid()), mkdir(name, 0700)));
    int own = open("/tmp/own", O_CREAT | O_RDWR, 0600);
    say("tmp-fchmod", fchmod(own, 0400));
    say("tmp-again", (snprintf(name, sizeof name, "/proc/self/fd/%d", own), chmod(name, 0600)));
    for (const char **n = (const char *[]){"tmp-relative", "tmp-beneath", "tmp-self", "tmp-own", 0}; *n; n++)
        rmdir(*n);
    unlink("/tmp/own");
}

/* `apart 0|1 TREE`: a thread with descriptors and a working directory of its own. */
static const char *apart_tree;
static void *apart_thread(void *unused) {
    unshare(CLONE_FILES | CLONE_FS);
    int fd = open("/tmp", O_RDONLY | O_DIRECTORY);
    dup2(fd, 30), close(fd);
    chdir("/tmp");
    say("thread-tmp-beneath", mkdirat(30, "apart-beneath", 0700));
    say("thread-tmp-relative", mkdir("apart-relative", 0700));
    rmdir("/tmp/apart-beneath"), rmdir("/tmp/apart-relative");
    fd = open(apart_tree, O_RDONLY | O_DIRECTORY);
    dup2(fd, 31), close(fd);
    say("thread-beneath", mkdirat(31, "thread-beneath", 0700));
    return unused;
}

static void apart(int dumpable, const char *tree) {
    pthread_t thread;
    prctl(PR_SET_DUMPABLE, dumpable);
    apart_tree = tree;
    chdir(tree);
    dup2(open(tree, O_RDONLY | O_DIRECTORY), 30);
    dup2(open("/tmp", O_RDONLY | O_DIRECTORY), 31);
    pthread_create(&thread, 0, apart_thread, 0), pthread_join(thread, 0);
    say("process-beneath", mkdirat(30, "process-beneath", 0700));
    say("process-tmp-beneath", mkdirat(31, "apart", 0700)), rmdir("/tmp/apart");
}

/* `pointers`: arguments that lead nowhere, end with their page, or never end. */
static void pointers(void) {
    char *pages = mmap(0, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(pages + 8192, 4096);
    memset(pages, 'a', 8192);
    char *ends = pages + 8192 - sizeof "/usr/ends";
    char *huge = malloc(1 << 16);
    memset(huge, 'a', 1 << 16), huge[(1 << 16) - 1] = 0;
    /* 4,095 bytes, and one more. */
    char *longest = malloc(5000), *longer = malloc(5000);
    memset(longest, '/', 4095), memcpy(longest + 4095 - 9, "usr/xyzzy", 10);
    memset(longer, '/', 4096), memcpy(longer + 4096 - 9, "usr/xyzzy", 10);
    char *unreadable = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t nowhere[] = {0, 1, 0xfff, (uint64_t)(uintptr_t)unreadable, (uint64_t)(uintptr_t)(pages + 8192), 0x7ffffffff000,
                          0x7fffffffffff, 0x800000000000, 0x8000000000000000, 0xffff800000000000, 0xfffffffffffff000,
                          0xffffffffffffffff, 0xffffffffff600000};
    static const long calls[] = {SYS_open, SYS_creat, SYS_mkdir, SYS_rmdir, SYS_unlink, SYS_chmod, SYS_chown, SYS_lchown,
                                 SYS_truncate, SYS_utime, SYS_utimes, SYS_mknod, SYS_rename, SYS_link, SYS_symlink,
                                 SYS_execve, SYS_setxattr, SYS_removexattr, SYS_swapon, SYS_chroot, SYS_acct};
    for (unsigned i = 0; i < sizeof nowhere / sizeof *nowhere; i++) {
        uint64_t to = nowhere[i];
        for (unsigned c = 0; c < sizeof calls / sizeof *calls; c++) {
            /* Where an address would be a number, it is the same number each time. */
            uint64_t second = calls[c] == SYS_open ? (uint64_t)O_WRONLY : calls[c] == SYS_mknod ? (uint64_t)S_IFREG : to;
            say_number("call", calls[c], i, syscall(calls[c], to, second, to, 0, 0));
        }
        static const long at[] = {SYS_openat, SYS_mkdirat, SYS_unlinkat, SYS_fchmodat, SYS_fchownat, SYS_mknodat, SYS_openat2,
                                  SYS_execveat, SYS_utimensat, SYS_linkat, SYS_renameat2, SYS_symlinkat, 452, 463, 469};
        for (unsigned c = 0; c < sizeof at / sizeof *at; c++) {
            uint64_t third = at[c] == SYS_openat ? (uint64_t)O_WRONLY : at[c] == SYS_mknodat ? (uint64_t)S_IFREG : to;
            say_number("at", at[c], i, syscall(at[c], AT_FDCWD, to, third, 24, 0, 0));
        }
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        for (socklen_t length = 0; length < 300; length += 37) {
            say_number("connect", length, i, connect(fd, (void *)(uintptr_t)to, length));
            say_number("bind", length, i, bind(fd, (void *)(uintptr_t)to, length));
            if (to)
                say_number("send", length, i, sendto(fd, "x", 1, 0, (void *)(uintptr_t)to, length));
        }
        close(fd);
        say_number("capset", 0, i, syscall(SYS_capset, to, to));
        say_number("bpf", 0, i, syscall(SYS_bpf, 0, to, 64));
        say_number("perf", 0, i, syscall(SYS_perf_event_open, to, 0, -1, -1, 0));
        say_number("readv", 0, i, syscall(SYS_process_vm_readv, getpid(), to, 1, to, 1, 0));
    }
    strcpy(ends, "/usr/ends");
    say("ends-with-its-page", mkdir(ends, 0700));
    memset(ends, 'a', sizeof "/usr/ends");
    say("ends-without-nul", mkdir(ends, 0700));
    say("huge", mkdir(huge, 0700));
    say("longest", mkdir(longest, 0700));
    say("longer", mkdir(longer, 0700));
    chdir("/usr");
    char *relative = malloc(5000);
    for (int i = 0; i < 4095; i += 2)
        memcpy(relative + i, "./", 2);
    memcpy(relative + 4095 - 5, "xyzzy", 6);
    memcpy(relative + 4095 - 6, "/", 1);
    say("longest-relative", mkdir(relative, 0700));
    int uffd = syscall(SYS_userfaultfd, O_CLOEXEC);
    say("userfaultfd", uffd);
}

/* `signals`: handlers run while notified calls are made, and soon. */
static volatile sig_atomic_t handled;
static void handle(int signal) { (void)signal, handled++; }

static void signals(void) {
    /* What the kernel gives up before anyone has looked at it, it begins again. */
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, 0), sigaction(SIGTERM, &action, 0);
    struct itimerval every = {{0, 2000}, {0, 2000}};
    setitimer(ITIMER_REAL, &every, 0);
    long wrong = 0, interrupted = 0, tries = 0;
    double until = now() + 1.5, worst = 0;
    while (now() < until) {
        double since = now();
        int made = mkdir("/usr/refused", 0700);
        interrupted += made < 0 && errno == EINTR, wrong += made == 0 || (errno != EROFS && errno != EINTR);
        made = open("/tmp/allowed", O_CREAT | O_WRONLY, 0600);
        interrupted += made < 0 && errno == EINTR, wrong += made < 0 && errno != EINTR;
        close(made);
        double took = now() - since;
        worst = took > worst ? took : worst, tries++;
    }
    setitimer(ITIMER_REAL, &(struct itimerval){0}, 0);
    unlink("/tmp/allowed");
    printf("tries %ld\nhandled %d\nwrong %ld\ninterrupted %ld\nworst-ms %.0f\n", tries, (int)handled, wrong, interrupted, worst * 1e3);
    /* Killed in the middle of such calls: at once. */
    double slowest = 0;
    for (int i = 0; i < 50; i++) {
        pid_t child = fork();
        if (!child)
            for (;;)
                mkdir("/usr/refused", 0700);
        usleep(i * 37 % 3000);
        double since = now();
        kill(child, SIGKILL), waitpid(child, 0, 0);
        slowest = now() - since > slowest ? now() - since : slowest;
    }
    printf("kill-ms %.0f\n", slowest * 1e3);
}

/* `listener`: a filter of one's own, and a listener of one's own. */
static void listener(void) {
    struct sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_filter deny[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {1, allow}, denying = {4, deny};
    say("listener", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
    say("filter", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &denying));
    say("filtered", syscall(SYS_getppid));
    say("still-refused", mkdir("/usr/still", 0700));
}

/* `attack PID`: all that one process may try on another. */
static pid_t fixed, standing;

/* Who is attacked: for `attack 0` a child, a new one each time. */
static pid_t target(void) {
    if (fixed)
        return fixed;
    if (standing)
        kill(standing, SIGKILL), waitpid(standing, 0, 0);
    standing = fork();
    if (!standing)
        for (;;)
            pause();
    return standing;
}
#define pid target()

static void attack(pid_t of) {
    char what[32], path[64];
    fixed = of;
    static const int signals[] = {0, SIGKILL, SIGSTOP, SIGCONT, SIGTERM, SIGINT, SIGUSR1, SIGSEGV, SIGCHLD, 34};
    for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++) {
        snprintf(what, sizeof what, "kill-%d", signals[i]), say(what, kill(pid, signals[i]));
        pid_t one = target();
        snprintf(what, sizeof what, "tgkill-%d", signals[i]), say(what, syscall(SYS_tgkill, one, one, signals[i]));
    }
    siginfo_t info = {.si_code = SI_QUEUE};
    say("sigqueue", syscall(SYS_rt_sigqueueinfo, pid, SIGUSR1, &info));
    say("pidfd-signal", syscall(SYS_pidfd_send_signal, syscall(SYS_pidfd_open, pid, 0), SIGKILL, 0, 0));
    int pidfd = syscall(SYS_pidfd_open, pid, 0);
    for (int fd = 0; fd < 12; fd++)
        snprintf(what, sizeof what, "getfd-%d", fd), say(what, syscall(SYS_pidfd_getfd, pidfd, fd, 0));
    say("attach", ptrace(PTRACE_ATTACH, pid, 0, 0));
    say("seize", ptrace(PTRACE_SEIZE, pid, 0, 0));
    static const char *files[] = {"mem", "maps", "environ", "auxv", "syscall", "stack", "clear_refs", "oom_score_adj", "fd",
                                  "cwd/", "root/", "exe", "ns/user", "timerslack_ns", "coredump_filter", "pagemap"};
    for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
        char byte;
        int length = snprintf(path, sizeof path, "/proc/%d/", pid);
        strcpy(path + length, files[i]);
        int fd = open(path, strstr("mem clear_refs oom_score_adj timerslack_ns coredump_filter", files[i]) ? O_WRONLY : O_RDONLY);
        /* The files of /proc that open for all are refused when they are read. */
        say(files[i], fd < 0 || strstr("cwd/ root/ exe fd", files[i]) ? fd : read(fd, &byte, 1) > 0 ? 0 : -1);
        close(fd);
    }
    char byte;
    struct iovec ours = {&byte, 1}, theirs = {(void *)0x400000, 1};
    say("readv", process_vm_readv(pid, &ours, 1, &theirs, 1, 0));
    say("writev", process_vm_writev(pid, &ours, 1, &theirs, 1, 0));
    struct rlimit limit = {0, 0};
    say("limit", prlimit(pid, RLIMIT_NOFILE, &limit, 0));
    say("limits", prlimit(pid, RLIMIT_CPU, 0, &limit));
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    say("affinity", sched_setaffinity(pid, sizeof one, &one));
    say("scheduler", sched_setscheduler(pid, SCHED_IDLE, &(struct sched_param){0}));
    say("priority", setpriority(PRIO_PROCESS, pid, 19));
    say("io-priority", syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, pid, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0)));
    pidfd = syscall(SYS_pidfd_open, pid, 0);
    say("advise", syscall(SYS_process_madvise, pidfd, &theirs, 1, MADV_COLD, 0));
    say("compare", syscall(SYS_kcmp, pid, getpid(), 0, 0, 0));
    say("robust-list", syscall(SYS_get_robust_list, pid, &ours, &theirs));
    unsigned long nodes = 1;
    say("migrate", syscall(SYS_migrate_pages, pid, 8 * sizeof nodes, &nodes, &nodes));
    if (standing)
        kill(standing, SIGKILL);
}
#undef pid


int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    const char *one = argc > 2 ? argv[2] : "0", *two = argc > 3 ? argv[3] : "/usr";
    if (!strcmp(what, "others")) others(one, two);
    else if (!strcmp(what, "closed")) closed(atoi(one), two);
    else if (!strcmp(what, "apart")) apart(atoi(one), two);
    else if (!strcmp(what, "pointers")) pointers();
    else if (!strcmp(what, "signals")) signals();
    else if (!strcmp(what, "listener")) listener();
    else if (!strcmp(what, "attack")) attack(atoi(one));
    else return 2;
    return 0;
}
