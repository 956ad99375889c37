/* Acts on ringfence's own processes, found by who is whose parent: the command's is the stage, that one's the observer, and then
   comes the supervisor, whose other child is the proxy. */
#define _GNU_SOURCE
#include "network.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>

/* proc_pid_stat(5). */
static int parent_of(int pid, char *name) {
    char path[64], text[512], *end;
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file) return -1;
    if (fgets(text, sizeof text, file) && (end = strrchr(text, ')'))) {
        *end = 0;
        snprintf(name, 32, "%s", strchr(text, '(') + 1);
        sscanf(end + 1, " %*c %d", &parent);
    }
    fclose(file);
    return parent;
}

/* The first process above this one that runs ringfence, and that many steps more. */
static int above(int steps) {
    char name[32] = "";
    int pid = getppid();
    for (int parent; (parent = parent_of(pid, name)) > 0; pid = parent)
        if (!strcmp(name, "ringfence") && steps-- == 0) return pid;
    return -1;
}

static int process(const char *who) {
    char name[32] = "";
    if (!strcmp(who, "stage")) return above(0);
    if (!strcmp(who, "observer")) return above(1);
    int supervisor = above(2);
    if (!strcmp(who, "supervisor")) return supervisor;
    DIR *all = opendir("/proc");
    for (struct dirent *entry; all && (entry = readdir(all));) {
        int pid = atoi(entry->d_name);
        if (pid > 0 && pid != above(1) && parent_of(pid, name) == supervisor) return closedir(all), pid;
    }
    return -1;
}

#define OF(who) int pid = process(who); if (pid <= 0) return errno = ENOMSG, -1

static long end(char **a) { OF(a[0]); return kill(pid, atoi(a[1])); }

static long end_by_descriptor(char **a) {
    OF(a[0]);
    int fd = syscall(SYS_pidfd_open, pid, 0);
    return fd < 0 ? -1 : syscall(SYS_pidfd_send_signal, fd, SIGKILL, 0, 0);
}

static long trace(char **a) { OF(a[0]); return ptrace(strcmp(a[1], "seize") ? PTRACE_ATTACH : PTRACE_SEIZE, pid, 0, 0); }

static long opened(char **a) {
    char path[64];
    OF(a[0]);
    snprintf(path, sizeof path, "/proc/%d/%s", pid, a[1]);
    return open(path, !strcmp(a[2], "write") ? O_WRONLY : O_RDONLY);
}

static long vm(char **a) {
    char byte;
    struct iovec one = {&byte, 1};
    OF(a[0]);
    return process_vm_readv(pid, &one, 1, &(struct iovec){(void *)0x400000, 1}, 1, 0);
}

static long descriptor(char **a) {
    OF(a[0]);
    int fd = syscall(SYS_pidfd_open, pid, 0);
    return fd < 0 ? -1 : syscall(SYS_pidfd_getfd, fd, 0, 0);
}

const struct verb verbs_on_processes[] = {
    {"kill", end}, {"kill-by-descriptor", end_by_descriptor}, {"trace", trace}, {"open-of", opened}, {"vm", vm},
    {"descriptor", descriptor}, {0, 0},
};
