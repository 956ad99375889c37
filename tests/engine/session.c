/* What an agent may try in a container, each act printed with its answer: `WHAT ok`, `WHAT ERRNO` or `WHAT STATUS`. Static, so
   that it runs in an image that holds nothing else.

   session ACT…, the acts in order: mark PATH, who, fetch NAME, tcp ADDRESS PORT, udp ADDRESS PORT, echo ADDRESS, name ADDRESS,
   families,
   loopback, change DIRECTORY, write PATH, create PATH,
   seize PATH, privilege, leave PATH, orphans COUNT, zombies COUNT, await PATH, serve PORT, wait, end STATUS, kill SIGNAL. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void say(const char *what, const char *object, long returned) {
    const char *name = returned < 0 ? strerrorname_np(errno) : "ok";
    printf("%s%s%s %s\n", what, *object ? " " : "", object, name ? name : "unknown");
    fflush(stdout);
}

static struct sockaddr_in at(const char *address, int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (inet_pton(AF_INET, address, &to.sin_addr) != 1) exit(3);
    return to;
}

static void mark(const char *path) {
    int fd = open(path, O_CREAT | O_WRONLY, 0666);
    say("mark", "", fd);
    close(fd);
}

static void who(void) {
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    printf("who pid=%d uid=%d gid=%d groups=%d", getpid(), getuid(), getgid(), getgroups(0, 0));
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, "CapEff:", 7) || !strncmp(line, "CapBnd:", 7) || !strncmp(line, "NoNewPrivs:", 11)) {
            char *value = strchr(line, '\t') + 1;
            value[strcspn(value, "\n")] = 0;
            *strchr(line, ':') = 0;
            printf(" %s=%s", line, value);
        }
    printf("\n");
    fflush(stdout);
    if (status) fclose(status);
}

/* By the proxy that the environment names: the status of its answer. */
static void fetch(const char *name) {
    char host[64] = "", buffer[4096];
    int port = 0;
    const char *proxy = getenv("http_proxy");
    if (!proxy || sscanf(proxy, "http://%63[0-9.]:%d", host, &port) != 2) {
        printf("fetch %s no-proxy\n", name);
        return;
    }
    struct sockaddr_in to = at(host, port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to)) {
        say("fetch", name, -1);
        return;
    }
    int length = snprintf(buffer, sizeof buffer, "GET http://%s/ HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", name, name);
    if (write(fd, buffer, length) != length) say("fetch", name, -1);
    long got = 0, more;
    while (got < (long)sizeof buffer - 1 && (more = read(fd, buffer + got, sizeof buffer - 1 - got)) > 0) got += more;
    buffer[got] = 0;
    printf("fetch %s %.3s\n", name, got > 12 ? buffer + 9 : "nothing");
    fflush(stdout);
    close(fd);
}

static void tcp(const char *address, int port) {
    struct sockaddr_in to = at(address, port);
    struct timeval limit = {.tv_sec = 5};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    say("tcp", address, fd < 0 ? fd : connect(fd, (struct sockaddr *)&to, sizeof to));
    if (fd >= 0) close(fd);
    /* A connection that is made while data is sent. */
    fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    say("tcp-fastopen", address, fd < 0 ? fd : sendto(fd, "fast", 4, MSG_FASTOPEN, (struct sockaddr *)&to, sizeof to));
    if (fd >= 0) close(fd);
}

static void udp(const char *address, int port) {
    struct sockaddr_in to = at(address, port);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    say("udp", address, fd < 0 ? fd : sendto(fd, "datagram", 8, 0, (struct sockaddr *)&to, sizeof to));
    if (fd >= 0) close(fd);
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    long returned = fd < 0 ? fd : connect(fd, (struct sockaddr *)&to, sizeof to);
    if (returned == 0) returned = send(fd, "connected", 9, 0);
    say("udp-connected", address, returned);
    if (fd >= 0) close(fd);
    /* The control message that names another interface than the socket's. */
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    union { struct cmsghdr head; char space[CMSG_SPACE(sizeof(struct in_pktinfo))]; } control = {0};
    struct iovec bytes = {.iov_base = "pktinfo", .iov_len = 7};
    struct msghdr message = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &bytes, .msg_iovlen = 1,
        .msg_control = &control, .msg_controllen = sizeof control};
    control.head = (struct cmsghdr){.cmsg_level = IPPROTO_IP, .cmsg_type = IP_PKTINFO, .cmsg_len = CMSG_LEN(sizeof(struct in_pktinfo))};
    for (unsigned index = 2; index < 64; index++) {
        struct in_pktinfo *information = (struct in_pktinfo *)CMSG_DATA(&control.head);
        *information = (struct in_pktinfo){.ipi_ifindex = index};
        returned = fd < 0 ? fd : sendmsg(fd, &message, 0);
        if (returned >= 0) break;
    }
    /* Which errno it is depends on which interfaces there are. */
    printf("udp-pktinfo %s %s\n", address, returned < 0 ? "refused" : "ok");
    fflush(stdout);
    if (fd >= 0) close(fd);
}

/* What ping(8) sends where any user may (icmp(7), ping_group_range). */
static void echo(const char *address) {
    struct sockaddr_in to = at(address, 0);
    static const char request[] = "\10\0\0\0\0\1\0\1ping";
    int fd = socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP);
    say("echo", address, fd < 0 ? fd : sendto(fd, request, sizeof request - 1, 0, (struct sockaddr *)&to, sizeof to));
    if (fd >= 0) close(fd);
}

/* A question to a resolver by itself, over both transports. */
static void name(const char *address) {
    static const char question[] = "\x12\x34\x01\0\0\1\0\0\0\0\0\0\6secret\6stolen\4test\0\0\1\0\1";
    struct sockaddr_in to = at(address, 53);
    struct timeval limit = {.tv_sec = 5};
    char answer[512];
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    long returned = fd < 0 ? fd : sendto(fd, question, sizeof question - 1, 0, (struct sockaddr *)&to, sizeof to);
    if (returned >= 0) returned = recv(fd, answer, sizeof answer, 0);
    say("name-udp", address, returned);
    if (fd >= 0) close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    say("name-tcp", address, fd < 0 ? fd : connect(fd, (struct sockaddr *)&to, sizeof to));
    if (fd >= 0) close(fd);
}

static void families(void) {
    static const struct { const char *name; int family, type, protocol; } all[] = {
        {"raw", AF_INET, SOCK_RAW, IPPROTO_ICMP}, {"packet", AF_PACKET, SOCK_RAW, 0},
        {"vsock", AF_VSOCK, SOCK_STREAM, 0}, {"sctp", AF_INET, SOCK_STREAM, IPPROTO_SCTP}, {"mptcp", AF_INET, SOCK_STREAM, 262},
        {"alg", AF_ALG, SOCK_SEQPACKET, 0},
    };
    for (unsigned at = 0; at < sizeof all / sizeof *all; at++) {
        int fd = socket(all[at].family, all[at].type, all[at].protocol);
        say("family", all[at].name, fd);
        if (fd >= 0) close(fd);
    }
    say("family", "io_uring", syscall(SYS_io_uring_setup, 1, 0));
}

/* A server and a client on one's own loopback, by both transports. */
static void loopback(void) {
    struct sockaddr_in own = at("127.0.0.1", 0);
    socklen_t length = sizeof own;
    int server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    char byte = 0;
    if (bind(server, (struct sockaddr *)&own, sizeof own) || listen(server, 1) ||
        getsockname(server, (struct sockaddr *)&own, &length) || connect(client, (struct sockaddr *)&own, sizeof own)) {
        say("loopback", "tcp", -1);
    } else {
        int accepted = accept(server, 0, 0);
        say("loopback", "tcp", write(client, "x", 1) == 1 && read(accepted, &byte, 1) == 1 && byte == 'x' ? 0 : -1);
    }
    own = at("127.0.0.1", 0);
    server = socket(AF_INET, SOCK_DGRAM, 0), client = socket(AF_INET, SOCK_DGRAM, 0);
    if (bind(server, (struct sockaddr *)&own, sizeof own) || getsockname(server, (struct sockaddr *)&own, &length) ||
        sendto(client, "y", 1, 0, (struct sockaddr *)&own, sizeof own) != 1) say("loopback", "udp", -1);
    else say("loopback", "udp", recv(server, &byte, 1, 0) == 1 && byte == 'y' ? 0 : -1);
}

/* Every way of changing a directory that its mode opens to everyone, and the file named `file` in it. */
static void change(const char *directory) {
    if (chdir(directory)) { say("change", directory, -1); return; }
    int fd = open("file", O_WRONLY | O_APPEND);
    say("change", "open", fd);
    if (fd >= 0 && write(fd, "changed\n", 8) < 0) say("change", "append", -1);
    say("change", "truncate", truncate("file", 1));
    say("change", "chmod", chmod("file", 0600));
    say("change", "utime", utimensat(AT_FDCWD, "file", 0, 0));
    say("change", "create", open("new", O_CREAT | O_EXCL | O_WRONLY, 0600));
    say("change", "mkdir", mkdir("directory", 0700));
    say("change", "symlink", symlink("/etc", "link"));
    say("change", "link", link("file", "other"));
    say("change", "rename", rename("file", "moved"));
    say("change", "unlink", unlink("file"));
    if (chdir("/")) exit(3);
}

/* Every way to read, change, move or replace a file that is another's, the record say. */
static void seize(const char *path) {
    char byte, other[300];
    int fd = open(path, O_RDONLY);
    long got = fd < 0 ? -1 : read(fd, &byte, 1);
    if (got == 1) printf("seize read ok\n");
    /* What is masked is there, and empty. */
    else if (got == 0) printf("seize read nothing\n");
    else say("seize", "read", -1);
    fd = open(path, O_WRONLY | O_APPEND);
    say("seize", "append", fd < 0 ? fd : write(fd, "x", 1));
    say("seize", "truncate", truncate(path, 0));
    say("seize", "chmod", chmod(path, 0666));
    snprintf(other, sizeof other, "%s.other", path);
    say("seize", "link", link(path, other));
    say("seize", "rename", rename(path, other));
    snprintf(other, sizeof other, "%s.own", path);
    close(open(other, O_CREAT | O_WRONLY, 0600));
    say("seize", "replace", rename(other, path));
    say("seize", "unlink", unlink(path));
    snprintf(other, sizeof other, "/proc/1/root%s", path);
    say("seize", "by-root-of-1", open(other, O_RDWR));
}

static void privilege(void) {
    say("privilege", "setuid", setresuid(0, 0, 0));
    /* In a child, as what follows is to be tried with the capabilities that are there. */
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        say("privilege", "userns", unshare(CLONE_NEWUSER));
        _exit(0);
    }
    waitpid(child, 0, 0);
    say("privilege", "mount", mount("none", "/tmp", "tmpfs", 0, 0));
    say("privilege", "kill-1", kill(1, SIGKILL));
    say("privilege", "trace-1", ptrace(PTRACE_ATTACH, 1, 0, 0));
    /* Its answer is 0 where every process is kept from it (kill(2) with -1): what lives on tells. */
    say("signal", "all", kill(-1, SIGKILL));
    static const char *entries[] = {"mem", "environ", "fd/0", "cwd/.", "root/.", "oom_score_adj"};
    for (unsigned at = 0; at < sizeof entries / sizeof *entries; at++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/1/%s", entries[at]);
        say(at == 5 ? "steer" : "privilege", entries[at], open(path, at == 5 ? O_WRONLY : O_RDONLY | O_NONBLOCK));
    }
    /* What the kernel lets a user do to all processes of the same uid. */
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    struct rlimit limit = {.rlim_cur = 16, .rlim_max = 16};
    struct sched_param idle = {0};
    say("privilege", "affinity-1", sched_setaffinity(1, sizeof one, &one));
    say("privilege", "priority-1", setpriority(PRIO_PROCESS, 1, 19));
    say("privilege", "scheduler-1", sched_setscheduler(1, SCHED_IDLE, &idle));
    say("privilege", "limits-1", prlimit(1, RLIMIT_NOFILE, &limit, 0));
    say("privilege", "io-priority-1", syscall(SYS_ioprio_set, 1, 1, 3 << 13));
    say("privilege", "pidfd-1", syscall(SYS_pidfd_send_signal, syscall(SYS_pidfd_open, 1, 0), SIGKILL, 0, 0));
    say("privilege", "group-of-1", setpgid(1, getpgrp()));
}

/* Goes on once there is a file of that name. */
static void await(const char *path) {
    struct timespec short_while = {.tv_nsec = 10000000};
    while (access(path, F_OK)) nanosleep(&short_while, 0);
    say("await", "", 0);
}

/* Leaves a process behind that is nobody's child, in a session of its own; it says its end by nothing. */
static void leave(const char *path) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (fork()) _exit(0);
        setsid();
        freopen("/dev/null", "r", stdin);
        freopen("/dev/null", "w", stdout);
        freopen("/dev/null", "w", stderr);
        mark(path);
        for (;;) pause();
    }
    waitpid(child, 0, 0);
    await(path);
}

/* Leaves children of nobody behind that have ended: what is first in the process table has to reap them. */
static void orphans(int count) {
    fflush(stdout);
    for (; count > 0; count--) {
        pid_t child = fork();
        if (child == 0) {
            /* The grandchild ends only after its parent is gone, so that it is inherited alive. */
            pid_t parent = getpid();
            if (fork()) _exit(0);
            struct timespec short_while = {.tv_nsec = 1000000};
            while (getppid() == parent) nanosleep(&short_while, 0);
            _exit(0);
        }
        waitpid(child, 0, 0);
    }
    say("orphans", "", 0);
}

/* Of the processes that run this program besides this one: how many live, and how many wait to be reaped (proc(5), stat). */
static void others(int *alive, int *ended) {
    DIR *all = opendir("/proc");
    struct dirent *entry;
    *alive = *ended = 0;
    while (all && (entry = readdir(all))) {
        char path[300], name[32], state;
        int pid = atoi(entry->d_name);
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        FILE *file = pid > 0 && pid != getpid() ? fopen(path, "r") : 0;
        if (file && fscanf(file, "%*d (%31[^)]) %c", name, &state) == 2 && !strcmp(name, "session"))
            ++*(state == 'Z' || state == 'X' ? ended : alive);
        if (file) fclose(file);
    }
    if (all) closedir(all);
}

/* Waits until all of them have ended and `count` of them wait to be reaped; at most ten seconds. */
static void zombies(int count) {
    struct timespec short_while = {.tv_nsec = 10000000};
    int alive, ended;
    for (int tries = 0; others(&alive, &ended), (alive || ended != count) && tries < 1000; tries++) nanosleep(&short_while, 0);
    printf("zombies %d alive %d\n", ended, alive);
    fflush(stdout);
}

/* Answers every connection to a port of one's own loopback, until it is ended. */
static void serve(int port) {
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_ANY)};
    int server = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(server, (struct sockaddr *)&own, sizeof own) || listen(server, 8)) { say("serve", "", -1); exit(1); }
    say("serve", "", 0);
    for (;;) {
        int accepted = accept(server, 0, 0);
        if (accepted < 0) exit(1);
        if (write(accepted, "served\n", 7) != 7) exit(1);
        close(accepted);
    }
}

int main(int count, char **arguments) {
    (void)count;
    for (char **next = arguments + 1; *next; next++) {
        const char *act = *next;
        if (!strcmp(act, "mark")) mark(*++next);
        else if (!strcmp(act, "who")) who();
        else if (!strcmp(act, "fetch")) fetch(*++next);
        else if (!strcmp(act, "tcp")) { tcp(next[1], atoi(next[2])); next += 2; }
        else if (!strcmp(act, "udp")) { udp(next[1], atoi(next[2])); next += 2; }
        else if (!strcmp(act, "echo")) echo(*++next);
        else if (!strcmp(act, "name")) name(*++next);
        else if (!strcmp(act, "families")) families();
        else if (!strcmp(act, "loopback")) loopback();
        else if (!strcmp(act, "change")) change(*++next);
        else if (!strcmp(act, "create")) { ++next; say("create", *next, open(*next, O_CREAT | O_WRONLY, 0600)); }
        else if (!strcmp(act, "seize")) seize(*++next);
        else if (!strcmp(act, "privilege")) privilege();
        else if (!strcmp(act, "leave")) leave(*++next);
        else if (!strcmp(act, "orphans")) orphans(atoi(*++next));
        else if (!strcmp(act, "zombies")) zombies(atoi(*++next));
        else if (!strcmp(act, "await")) await(*++next);
        else if (!strcmp(act, "serve")) serve(atoi(*++next));
        else if (!strcmp(act, "wait")) for (;;) pause();
        else if (!strcmp(act, "end")) return atoi(*++next);
        else if (!strcmp(act, "kill")) raise(atoi(*++next));
        else return 2;
    }
    return 0;
}
