/* One refused act made over and over, as fast as the kernel answers: `flood TALLY COUNT ACT ARGUMENTS…`, COUNT 0 for ever.

   TALLY is a file of eight bytes that is mapped: the number of refusals that have been answered so far, which stays readable
   when everything is killed. At the end `refused N` is printed; anything but the refusal that is expected ends it at once. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static void fail(const char *what) {
    printf("failed %s: %s\n", what, strerrorname_np(errno));
    fflush(stdout);
    _exit(1);
}

static void expect(const char *what, long returned, int refusal) {
    if (returned >= 0)
        errno = 0;
    if (errno != refusal)
        fail(what);
}

static struct sockaddr_in place(const char *address, const char *port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    if (inet_pton(AF_INET, address, &to.sin_addr) != 1)
        fail("inet_pton");
    return to;
}

/* A datagram that the firewall refuses: without an address of its own, so that nothing but the firewall sees it. */
static void udp(char **arguments) {
    static int fd = -1;
    if (fd < 0) {
        struct sockaddr_in to = place(arguments[0], arguments[1]);
        fd = socket(AF_INET, SOCK_DGRAM, 0);
        if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
            fail("connect");
    }
    /* The refusal of the one before may be told first (udp(7)): such a call sends nothing. */
    long written;
    while ((written = write(fd, "x", 1)) < 0 && errno == ECONNREFUSED)
        ;
    expect("write", written, EPERM);
}

/* A request that the proxy refuses, on a connection that is kept. */
static void proxy(char **arguments) {
    static int fd = -1;
    static char request[512];
    static size_t length;
    if (fd < 0) {
        char *url = getenv("http_proxy"), host[64], port[8];
        if (!url || sscanf(url, "http://%63[^:]:%7[0-9]", host, port) != 2)
            fail("http_proxy");
        struct sockaddr_in to = place(host, port);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
            fail("connect");
        length = snprintf(request, sizeof request, "GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n", arguments[0], arguments[0]);
    }
    if (write(fd, request, length) != (ssize_t)length)
        fail("write");
    char answer[1024] = "";
    size_t had = 0;
    while (!strstr(answer, "\r\n\r\n")) {
        ssize_t more = read(fd, answer + had, sizeof answer - 1 - had);
        if (more <= 0)
            fail("read");
        had += more;
    }
    if (strncmp(answer, "HTTP/1.1 403 ", 13) != 0)
        fail(answer);
}

/* A file that is opened for writing, made if need be: `open PATH ERRNO-NUMBER`. */
static void open_file(char **arguments) {
    int fd = open(arguments[0], O_WRONLY | O_CREAT, 0600);
    expect("open", fd, atoi(arguments[1]));
}

/* The same with another name each time. */
static void open_files(char **arguments) {
    static unsigned number;
    char path[512];
    snprintf(path, sizeof path, "%s%u", arguments[0], number++);
    expect("open", open(path, O_WRONLY | O_CREAT, 0600), atoi(arguments[1]));
}

int main(int count, char **arguments) {
    if (count < 5)
        return 2;
    int fd = open(arguments[1], O_RDWR);
    if (fd < 0)
        fail("open the tally");
    _Atomic uint64_t *tally = mmap(0, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (tally == MAP_FAILED)
        fail("mmap");
    struct {
        const char *name;
        void (*act)(char **);
    } acts[] = {{"udp", udp}, {"proxy", proxy}, {"open", open_file}, {"open-distinct", open_files}};
    uint64_t times = strtoull(arguments[2], 0, 10);
    for (size_t n = 0; n < sizeof acts / sizeof *acts; n++)
        if (!strcmp(acts[n].name, arguments[3])) {
            for (uint64_t done = 0; done < times || times == 0; done++) {
                acts[n].act(arguments + 4);
                atomic_fetch_add(tally, 1);
            }
            printf("refused %llu\n", (unsigned long long)times);
            return 0;
        }
    return 2;
}
