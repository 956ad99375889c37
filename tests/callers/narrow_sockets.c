/* narrow_sockets PORT: a program of 32 bits that uses sockets by the calls proper and by socketcall(2), on this machine and to
 * the outside. Says WAY-ACT=OUTCOME. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static int by_one;

/* A call proper, or by its number of linux/net.h. */
static long make(long proper, int number, long a, long b, long c, long d, long e, long f) {
    if (!by_one)
        return syscall(proper, a, b, c, d, e, f);
    long arguments[] = {a, b, c, d, e, f};
    return syscall(SYS_socketcall, number, arguments);
}

#define SOCKET(a, b, c) make(359, 1, a, b, c, 0, 0, 0)
#define BIND(a, b, c) make(361, 2, a, (long)(b), c, 0, 0, 0)
#define CONNECT(a, b, c) make(362, 3, a, (long)(b), c, 0, 0, 0)
#define LISTEN(a, b) make(363, 4, a, b, 0, 0, 0, 0)
#define SENDTO(a, b, c, d, e, f) make(369, 11, a, (long)(b), c, d, (long)(e), f)
#define SENDMSG(a, b, c) make(370, 16, a, (long)(b), c, 0, 0, 0)

static void say(const char *act, long result) {
    printf("%s-%s=%s\n", by_one ? "one" : "own", act, result < 0 ? strerrorname_np(errno) : "ok");
    fflush(stdout);
}

static struct sockaddr_in at(const char *host, int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, host, &to.sin_addr);
    return to;
}

static long sends(int with_device, struct sockaddr_in *to) {
    char control[CMSG_SPACE(sizeof(struct in_pktinfo))] = {0};
    struct iovec part = {"x", 1};
    struct msghdr message = {.msg_name = to, .msg_namelen = sizeof *to, .msg_iov = &part, .msg_iovlen = 1};
    if (with_device) {
        message.msg_control = control, message.msg_controllen = sizeof control;
        struct cmsghdr *first = CMSG_FIRSTHDR(&message);
        first->cmsg_level = IPPROTO_IP, first->cmsg_type = IP_PKTINFO, first->cmsg_len = CMSG_LEN(sizeof(struct in_pktinfo));
        ((struct in_pktinfo *)CMSG_DATA(first))->ipi_ifindex = if_nametoindex("eth0");
    }
    int s = SOCKET(AF_INET, SOCK_DGRAM, 0);
    return SENDMSG(s, &message, 0);
}

int main(int argc, char **argv) {
    int port = argc > 1 ? atoi(argv[1]) : 0;
    struct sockaddr_in out = at("11.22.33.44", port);
    for (by_one = 0; by_one < 2; by_one++) {
        struct sockaddr_in here = at("127.0.0.1", 0);
        socklen_t size = sizeof here;
        int server = SOCKET(AF_INET, SOCK_STREAM, 0);
        say("socket", server);
        say("setsockopt", make(366, 14, server, SOL_SOCKET, SO_REUSEADDR, (long)&(int){1}, 4, 0));
        say("bind", BIND(server, &here, size));
        getsockname(server, (void *)&here, &size);
        say("listen", LISTEN(server, 5));
        say("connect", CONNECT(SOCKET(AF_INET, SOCK_STREAM, 0), &here, size));
        say("sendto", SENDTO(SOCKET(AF_INET, SOCK_DGRAM, 0), "x", 1, 0, &here, size));
        say("sendmsg", sends(0, &here));
        say("connect-out", CONNECT(SOCKET(AF_INET, SOCK_STREAM, 0), &out, size));
        say("sendto-out", SENDTO(SOCKET(AF_INET, SOCK_DGRAM, 0), "x", 1, 0, &out, size));
        say("sendmsg-out", sends(0, &out));
        say("device-out", sends(1, &out));
        say("fast-open-out", SENDTO(SOCKET(AF_INET, SOCK_STREAM, 0), "x", 1, MSG_FASTOPEN, &out, size));
        say("device", make(366, 14, SOCKET(AF_INET, SOCK_DGRAM, 0), SOL_SOCKET, SO_BINDTODEVICE, (long)"eth0", 5, 0));
    }
    return 0;
}
