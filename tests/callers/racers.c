/* One thread makes a call over and over, another changes what the call is about meanwhile. `racers WAY ACT MILLISECONDS OPEN
   SHUT [TRIES]` works in the directory OPEN, where everything may be done, and swaps it for SHUT; it prints how often each
   outcome was had. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

static const char *open_directory, *shut_directory;
static atomic_int over, descriptor;
static char path[512], other[512];
static char names[2][512];
static struct sockaddr_in address;
static struct sockaddr_in addresses[2];
static long outcomes[256], wrong;

static long long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000LL + at.tv_nsec / 1000000;
}

/* The ways to swap. */

static void *swap_memory(void *unused) {
    for (int turn = 0; !over; turn ^= 1)
        memcpy(path, names[turn], strlen(names[turn]) + 1);
    return unused;
}

static void *swap_links(void *unused) {
    char a[256], b[256];
    snprintf(a, sizeof a, "%s/way", open_directory);
    snprintf(b, sizeof b, "%s/yaw", open_directory);
    while (!over)
        syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
    return unused;
}

static void *swap_descriptor(void *unused) {
    int both[2] = {open(open_directory, O_PATH | O_DIRECTORY), open(shut_directory, O_PATH | O_DIRECTORY)};
    for (int turn = 0; !over; turn ^= 1)
        dup2(both[turn], descriptor);
    return unused;
}

/* The descriptor of a file that may be changed, or not. */
static void *swap_file(void *unused) {
    int both[2] = {open(names[0], O_RDONLY), open(names[1], O_RDONLY)};
    for (int turn = 0; !over; turn ^= 1)
        dup2(both[turn], descriptor);
    return unused;
}

static void *swap_address(void *unused) {
    for (int turn = 0; !over; turn ^= 1)
        address = addresses[turn];
    return unused;
}

/* A directory of the command's own that may be written to, or not. */
static void *swap_mode(void *unused) {
    char own[256];
    snprintf(own, sizeof own, "%s/own", open_directory);
    while (!over) {
        chmod(own, 0555);
        chmod(own, 0755);
    }
    return unused;
}

/* What open(2) sets of itself. */
#define LARGEFILE 0100000

/* The name beneath the directory where everything may be done. */
static char own_name[512];

static int stat_of(const char *name, struct stat *stat) {
    return fstatat(AT_FDCWD, name, stat, AT_SYMLINK_NOFOLLOW);
}

/* The acts, each on `path` relative to `at`. */

static long act(const char *what, int at, int turn) {
    struct timespec times[2] = {{1, 0}, {1, 0}};
    struct stat stat;
    long made;
    if (!strcmp(what, "create")) {
        made = openat(at, path, O_CREAT | O_EXCL | O_WRONLY | O_APPEND, 0666);
        if (made >= 0) {
            /* Whoever made it: it is ours, with our mask, open as we wanted it and no other way. */
            wrong += fstat(made, &stat) || stat.st_uid != geteuid() || stat.st_gid != getegid() ||
                     (stat.st_mode & 07777) != 0640 || stat.st_size != 0;
            wrong += (fcntl(made, F_GETFL) & ~LARGEFILE) != (O_WRONLY | O_APPEND) || fcntl(made, F_GETFD) != 0;
            wrong += write(made, "x", 1) != 1;
            close(made);
        }
        return made;
    }
    if (!strcmp(what, "open"))
        return (made = openat(at, path, O_CREAT | O_WRONLY | O_TRUNC, 0666)) < 0 ? made : close(made);
    if (!strcmp(what, "mkdir")) {
        made = mkdirat(at, path, 0777);
        if (!made && !stat_of(own_name, &stat))
            wrong += stat.st_uid != geteuid() || (stat.st_mode & 07777) != 0750;
        return made;
    }
    if (!strcmp(what, "mkfifo"))
        return mknodat(at, path, S_IFIFO | 0666, 0);
    if (!strcmp(what, "symlink"))
        return symlinkat("target", at, path);
    if (!strcmp(what, "link"))
        return linkat(AT_FDCWD, other, at, path, 0);
    if (!strcmp(what, "rename")) {
        close(openat(AT_FDCWD, other, O_CREAT | O_WRONLY, 0600));
        return renameat(AT_FDCWD, other, at, path);
    }
    if (!strcmp(what, "unlink"))
        return unlinkat(at, path, 0);
    if (!strcmp(what, "rmdir"))
        return unlinkat(at, path, AT_REMOVEDIR);
    if (!strcmp(what, "chmod"))
        return fchmodat(at, path, turn & 1 ? 0600 : 0640, 0);
    if (!strcmp(what, "chown"))
        return fchownat(at, path, geteuid(), getegid(), 0);
    if (!strcmp(what, "utimes"))
        return utimensat(at, path, times, 0);
    if (!strcmp(what, "fchmod"))
        return fchmod(descriptor, turn & 1 ? 0600 : 0640);
    if (!strcmp(what, "fchown"))
        return fchown(descriptor, geteuid(), getegid());
    if (!strcmp(what, "futimens"))
        return futimens(descriptor, times);
    if (!strcmp(what, "fsetxattr"))
        return fsetxattr(descriptor, "user.raced", turn & 1 ? "y" : "z", 1, 0);
    if (!strcmp(what, "setflags")) {
        /* With what a file of ext4 has: without it its blocks would be listed anew, which is not always to be had. */
        int flags = FS_NOATIME_FL | FS_EXTENT_FL;
        return ioctl(descriptor, FS_IOC_SETFLAGS, &flags);
    }
    if (!strcmp(what, "truncate"))
        return at == AT_FDCWD ? truncate(path, 1) : (errno = ENOSYS, -1);
    if (!strcmp(what, "setxattr"))
        return at == AT_FDCWD ? setxattr(path, "user.raced", turn & 1 ? "y" : "z", 1, 0) : (errno = ENOSYS, -1);
    if (!strcmp(what, "bind")) {
        struct sockaddr_un { sa_family_t family; char name[108]; } name = {AF_UNIX, ""};
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        strncpy(name.name, path, sizeof name.name - 1);
        made = bind(fd, (struct sockaddr *)&name, sizeof name);
        close(fd);
        return made;
    }
    if (!strcmp(what, "mount"))
        return mount("none", path, "tmpfs", 0, 0);
    if (!strcmp(what, "connect")) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        made = connect(fd, (struct sockaddr *)&address, sizeof address);
        close(fd);
        return made;
    }
    if (!strcmp(what, "send")) {
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        made = sendto(fd, "x", 1, 0, (struct sockaddr *)&address, sizeof address);
        close(fd);
        return made < 0 ? made : 0;
    }
    fprintf(stderr, "no act %s\n", what);
    exit(2);
}

int main(int argc, char **argv) {
    if (argc < 6)
        return 2;
    const char *way = argv[1], *what = argv[2];
    long long end = now() + atoi(argv[3]);
    int at = AT_FDCWD;
    void *(*swap)(void *) = swap_memory;
    pthread_t thread;
    umask(027);
    open_directory = argv[4], shut_directory = argv[5];
    snprintf(names[0], sizeof names[0], "%s/new", open_directory);
    snprintf(names[1], sizeof names[1], "%s/new", shut_directory);
    snprintf(other, sizeof other, "%s/other", open_directory);
    /* What is there already is what the command might change. */
    if (strcmp(what, "link") && strstr("unlink rmdir chmod chown utimes truncate setxattr fchmod fchown futimens fsetxattr setflags", what))
        for (int i = 0; i < 2; i++)
            snprintf(names[i], sizeof names[i], "%s/%s", i ? shut_directory : open_directory,
                     strcmp(what, "rmdir") ? "kept" : "directory");
    strcpy(path, names[0]);
    strcpy(own_name, names[0]);
    int is_new = !strcmp(strrchr(names[0], '/'), "/new"), parents = !strcmp(way, "parents");
    if (!strcmp(way, "links")) {
        char a[256], b[256];
        snprintf(a, sizeof a, "%s/way", open_directory);
        snprintf(b, sizeof b, "%s/yaw", open_directory);
        symlink(open_directory, a), symlink(shut_directory, b);
        snprintf(path, sizeof path, "%s/way%s", open_directory, strrchr(names[0], '/'));
        swap = swap_links;
    } else if (!strcmp(way, "parents")) {
        /* A directory, and in its place at times a link to where nothing may be done. */
        char a[256], b[256];
        snprintf(a, sizeof a, "%s/way", open_directory);
        snprintf(b, sizeof b, "%s/yaw", open_directory);
        mkdir(a, 0755), symlink(shut_directory, b);
        snprintf(path, sizeof path, "%s/kept", a);
        close(open(path, O_CREAT | O_WRONLY, 0600));
        snprintf(path, sizeof path, "%s/directory", a);
        mkdir(path, 0755);
        snprintf(path, sizeof path, "%s/way%s", open_directory, strrchr(names[0], '/'));
        strcpy(own_name, path);
        swap = swap_links;
    } else if (!strcmp(way, "file")) {
        descriptor = 40;
        dup2(open(names[0], O_RDONLY), descriptor);
        swap = swap_file;
    } else if (!strcmp(way, "descriptor")) {
        at = descriptor = 40;
        dup2(open(open_directory, O_PATH | O_DIRECTORY), descriptor);
        strcpy(path, strrchr(names[0], '/') + 1);
        swap = swap_descriptor;
    } else if (!strcmp(way, "mode")) {
        snprintf(path, sizeof path, "%s/own", open_directory);
        mkdir(path, 0755);
        snprintf(path, sizeof path, "%s/own/new", open_directory);
        strcpy(own_name, path);
        swap = swap_mode;
    } else if (!strcmp(way, "address")) {
        for (int i = 0; i < 2; i++) {
            addresses[i] = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(atoi(strchr(argv[4 + i], ':') + 1))};
            *strchr(argv[4 + i], ':') = 0;
            inet_pton(AF_INET, argv[4 + i], &addresses[i].sin_addr);
        }
        address = addresses[0];
        swap = swap_address;
    }
    close(openat(AT_FDCWD, other, O_CREAT | O_WRONLY, 0600));
    if (pthread_create(&thread, 0, swap, 0))
        return 3;
    long tries = 0, most = argc > 6 ? atol(argv[6]) : 200000;
    for (; now() < end && tries < most; tries++) {
        long made = act(what, at, tries);
        outcomes[made < 0 ? errno & 255 : 0]++;
        /* What was made is taken away, and what was taken away is put back. */
        if (!strcmp(what, "unlink"))
            close(open(own_name, O_CREAT | O_WRONLY, 0600));
        else if (!strcmp(what, "rmdir"))
            mkdir(own_name, 0700);
        else if (made >= 0 && is_new)
            /* Where its directory may be written to at times, until it may. */
            while (unlinkat(AT_FDCWD, own_name, strcmp(what, "mkdir") ? 0 : AT_REMOVEDIR) < 0 && (parents || (errno == EACCES && !strcmp(way, "mode"))))
                ;
    }
    over = 1;
    pthread_join(thread, 0);
    printf("%s %s wrong=%ld", way, what, wrong);
    for (int i = 0; i < 256; i++)
        if (outcomes[i])
            printf(" %s=%ld", i ? strerrorname_np(i) : "ok", outcomes[i]);
    printf("\n");
    return 0;
}
