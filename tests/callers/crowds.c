/* Many callers at once, and callers that have little left of what the kernel gives: each prints lines `WHAT NUMBER`. Static, so
   that it runs in an image that holds nothing else. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void say(const char *what, long returned) {
    const char *name = returned < 0 ? strerrorname_np(errno) : "ok";
    printf("%s %s\n", what, name ? name : "unknown");
    fflush(stdout);
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

/* `full MILLISECONDS`: files made in a directory of one's own that may be written to at times, with a table of descriptors
   that is full at times. */
static atomic_int over;
static void *swap_mode(void *own) {
    while (!over)
        chmod(own, 0555), chmod(own, 0755);
    return own;
}

static void full(int milliseconds) {
    char own[] = "/tmp/full", name[] = "/tmp/full/new";
    pthread_t thread;
    mkdir(own, 0755);
    /* The limit is the number that the next descriptor would have. */
    int next = dup(0);
    close(next);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){next, next});
    pthread_create(&thread, 0, swap_mode, own);
    long seen[3] = {0};
    for (double until = now() + milliseconds / 1e3; now() < until;) {
        int made = open(name, O_CREAT | O_EXCL | O_WRONLY, 0600);
        seen[made >= 0 ? 0 : errno == EMFILE ? 1 : 2]++;
        unlink(name);
    }
    over = 1;
    pthread_join(thread, 0);
    chmod(own, 0755), unlink(name), rmdir(own);
    printf("opened %ld\nfull %ld\nothers %ld\n", seen[0], seen[1], seen[2]);
}

/* `crowd`: many callers at once, some of which end, stop, or become another program in the middle of their calls. */
static void *refused_and_allowed(void *wrong) {
    char own[64];
    snprintf(own, sizeof own, "/tmp/crowd-%ld", syscall(SYS_gettid));
    for (int i = 0; i < 40; i++) {
        *(atomic_long *)wrong += mkdir("/usr/crowd", 0700) == 0 || errno != EROFS;
        *(atomic_long *)wrong += mkdir(own, 0700) != 0;
        *(atomic_long *)wrong += rmdir(own) != 0;
    }
    return 0;
}

static void *becomes_another(void *unused) {
    usleep(rand() % 2000);
    execl("/proc/self/exe", "crowds", "nothing", (char *)0);
    return unused;
}

static void *hammers(void *unused) {
    for (;;)
        mkdir("/usr/crowd", 0700), close(open("/tmp/hammered", O_CREAT | O_WRONLY, 0600));
    return unused;
}

static void crowd(void) {
    static atomic_long wrong;
    pthread_t threads[64];
    for (int i = 0; i < 64; i++)
        pthread_create(&threads[i], 0, refused_and_allowed, &wrong);
    for (int i = 0; i < 64; i++)
        pthread_join(threads[i], 0);
    printf("threads %ld\n", (long)wrong);
    long ended = 0;
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (!child) {
            pthread_t thread;
            srand(i);
            for (int t = 0; t < 4; t++)
                pthread_create(&thread, 0, hammers, 0);
            becomes_another(0);
        }
        int status;
        ended += waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    printf("became-another %ld\n", ended);
    pid_t child = vfork();
    if (!child) {
        int refused = mkdir("/usr/vfork", 0700) < 0 && errno == EROFS;
        _exit(refused && !mkdir("/tmp/vfork", 0700) && !rmdir("/tmp/vfork") ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    printf("vfork %d\n", status);
    /* Callers that are stopped hold up nobody. */
    pid_t stopped[16];
    for (int i = 0; i < 16; i++) {
        if (!(stopped[i] = fork()))
            hammers(0);
        usleep(1500), kill(stopped[i], SIGSTOP);
    }
    double since = now();
    say("beside-stopped", mkdir("/usr/beside", 0700));
    printf("beside-ms %.0f\n", (now() - since) * 1e3);
    for (int i = 0; i < 16; i++)
        kill(stopped[i], SIGKILL), waitpid(stopped[i], 0, 0);
    /* A pipe that nobody reads from blocks whoever opens it, and nobody else. */
    mkfifo("/tmp/fifo", 0600);
    pid_t waits[8];
    for (int i = 0; i < 8; i++)
        if (!(waits[i] = fork()))
            _exit(open("/tmp/fifo", O_WRONLY | O_CREAT, 0600) < 0);
    usleep(20000);
    since = now();
    say("beside-blocked", mkdir("/usr/beside", 0700));
    printf("blocked-ms %.0f\n", (now() - since) * 1e3);
    int reader = open("/tmp/fifo", O_RDONLY), opened = 0;
    for (int i = 0; i < 8; i++)
        opened += waitpid(waits[i], &status, 0) == waits[i] && status == 0;
    close(reader);
    printf("opened %d\n", opened);
    unlink("/tmp/fifo"), unlink("/tmp/hammered");
}

/* `starve`: with nothing left of descriptors, processes and processor time, one's own acts are answered all the same. */
static void starve(void) {
    int highest = 0, fd;
    while ((fd = dup(0)) >= 0)
        highest = fd;
    printf("full %s\n", errno == EMFILE ? "EMFILE" : "others");
    say("full-refused", mkdir("/usr/starve", 0700));
    say("full-allowed", mkdir("/tmp/starve", 0700)), rmdir("/tmp/starve");
    for (; highest > 2; highest--)
        close(highest);
    pid_t burners[40];
    for (int i = 0; i < 40; i++)
        if (!(burners[i] = fork()))
            for (;;)
                ;
    double since = now();
    for (int i = 0; i < 20; i++)
        mkdir("/usr/starve", 0700);
    say("burnt", mkdir("/usr/starve", 0700));
    printf("burnt-ms %.0f\n", (now() - since) * 1e3);
    for (int i = 0; i < 40; i++)
        kill(burners[i], SIGKILL), waitpid(burners[i], 0, 0);
    setrlimit(RLIMIT_NPROC, &(struct rlimit){1, 1});
    say("fork", fork());
    say("alone-refused", mkdir("/usr/starve", 0700));
    say("alone-allowed", mkdir("/tmp/starve", 0700)), rmdir("/tmp/starve");
}

/* `hammer TRIES`: what no number of tries may give. */
static int tries;
static void *hammer_thread(void *had) {
    static const int sockets[][3] = {{AF_VSOCK, SOCK_STREAM, 0}, {AF_ALG, SOCK_SEQPACKET, 0}, {AF_PACKET, SOCK_RAW, 0},
                                     {AF_INET, SOCK_RAW, 1}, {AF_INET6, SOCK_RAW, 58}, {AF_INET, SOCK_STREAM, 262},
                                     {AF_INET, 10, 3}};
    for (int i = 0; i < tries; i++) {
        const int *of = sockets[i % 7];
        int fd = socket(of[0], of[1] | (i & 64 ? SOCK_CLOEXEC : 0), of[2]);
        if (fd >= 0) {
            ((atomic_long *)had)[i % 7]++;
            close(fd);
        }
        if (i % 16 == 0 && !mount("none", "/tmp", "tmpfs", 0, 0)) {
            ((atomic_long *)had)[7]++;
            umount2("/tmp", MNT_DETACH);
        }
    }
    return 0;
}

static void hammer(int each) {
    static atomic_long had[8];
    pthread_t threads[16];
    tries = each;
    for (int i = 0; i < 16; i++)
        pthread_create(&threads[i], 0, hammer_thread, had);
    for (int i = 0; i < 16; i++)
        pthread_join(threads[i], 0);
    static const char *names[] = {"vsock", "alg", "packet", "raw", "raw6", "multipath", "packet-by-inet", "mount"};
    for (int i = 0; i < 8; i++)
        printf("%s %ld\n", names[i], (long)had[i]);
}

/* `acts TREE ADDRESS PORT [SECONDS]`: what is refused, over and over, by a process, a thread, and a child that minds no
   signal. Each outcome that has not been seen before is printed, and at the end how long the slowest act took. */
static const char *tree;
static struct sockaddr_in outside;
static atomic_uchar seen[4][256];
static double until, worst;

static void saw(int act, long returned) {
    static const char *names[] = {"mkdir", "open", "connect", "allowed"};
    int number = returned < 0 ? errno & 255 : 0;
    if (!seen[act][number]) {
        char line[64];
        seen[act][number] = 1;
        int length = snprintf(line, sizeof line, "%s %s\n", names[act], number ? strerrorname_np(number) : "ok");
        write(1, line, length);
    }
}

static void *acts_thread(void *unused) {
    char name[256], own[64];
    snprintf(own, sizeof own, "/tmp/acts-%ld", syscall(SYS_gettid));
    for (long i = 0; !until || now() < until; i++) {
        double since = now();
        snprintf(name, sizeof name, "%s/%ld-%ld", tree, syscall(SYS_gettid), i % 16);
        saw(0, mkdir(name, 0777));
        snprintf(name, sizeof name, "%s/file", tree);
        int fd = open(name, O_WRONLY | O_TRUNC);
        saw(1, fd), close(fd);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        saw(2, connect(fd, (struct sockaddr *)&outside, sizeof outside));
        close(fd);
        saw(3, mkdir(own, 0700)), rmdir(own);
        worst = now() - since > worst ? now() - since : worst;
    }
    return unused;
}

static void acts(const char *of, const char *address, int port, int seconds) {
    pthread_t thread;
    tree = of;
    until = seconds ? now() + seconds : 0;
    outside = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, address, &outside.sin_addr);
    write(1, "acts\n", 5);
    if (!fork()) {
        signal(SIGTERM, SIG_IGN), signal(SIGHUP, SIG_IGN), setsid();
        acts_thread(0);
        _exit(0);
    }
    pthread_create(&thread, 0, acts_thread, 0);
    acts_thread(0);
    pthread_join(thread, 0);
    while (wait(0) > 0)
        ;
    printf("worst-ms %.0f\n", worst * 1e3);
}

/* `distinct TREE COUNT`: so many refused acts, each on another object, and how long they took. */
static void distinct(const char *of, int count) {
    char name[256];
    double since = now();
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%s/distinct-%d", of, i);
        saw(0, mkdir(name, 0777));
    }
    printf("distinct-ms %.0f\n", (now() - since) * 1e3);
}

/* `unknown`: an act whose outcome the observer cannot know, for nobody but this process sees what it is about. */
static void unknown(void) {
    prctl(PR_SET_DUMPABLE, 0);
    int fd = open("/proc/self/fdinfo/0", O_WRONLY);
    saw(1, fd);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    int one = argc > 2 ? atoi(argv[2]) : 0;
    if (!strcmp(what, "full")) full(one);
    else if (!strcmp(what, "crowd")) crowd();
    else if (!strcmp(what, "starve")) starve();
    else if (!strcmp(what, "hammer")) hammer(one);
    else if (!strcmp(what, "acts") && argc > 4) acts(argv[2], argv[3], atoi(argv[4]), argc > 5 ? atoi(argv[5]) : 0);
    else if (!strcmp(what, "distinct") && argc > 3) distinct(argv[2], atoi(argv[3]));
    else if (!strcmp(what, "unknown")) unknown();
    else if (strcmp(what, "nothing")) return 2;
    return 0;
}
