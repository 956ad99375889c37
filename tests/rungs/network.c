/* Acts on the network, each of which may take several calls. `network SCRIPT` does what the script's lines say: NUMBER VERB
   ARGUMENT..., parted by tabs. It prints NUMBER PID OUTCOME of each: `ok` or the first errno that it met. Who does an act is
   named after its number. Static: it needs nothing of the image. */
#define _GNU_SOURCE
#include "network.h"

#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/vm_sockets.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/un.h>

#define PATIENCE 5

struct address address(const char *text, const char *port) {
    struct address to = {.length = sizeof to.v4};
    if (inet_pton(AF_INET, text, &to.v4.sin_addr) == 1) {
        to.v4.sin_family = AF_INET, to.v4.sin_port = htons(atoi(port));
    } else {
        to.length = sizeof to.v6;
        to.v6.sin6_family = AF_INET6, to.v6.sin6_port = htons(atoi(port));
        if (inet_pton(AF_INET6, text, &to.v6.sin6_addr) != 1) exit(3);
    }
    return to;
}

static void limit(int fd) {
    struct timeval patience = {.tv_sec = PATIENCE};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
}

int open_for(const struct address *to, int type, int protocol) {
    int fd = socket(to->any.sa_family, type | SOCK_CLOEXEC, protocol);
    if (fd >= 0) limit(fd);
    return fd;
}

static long connected(int fd, const struct address *to) { return fd < 0 ? -1 : connect(fd, &to->any, to->length); }

static long sent(int fd, const struct address *to, int flags) {
    return fd < 0 ? -1 : sendto(fd, PAYLOAD, sizeof PAYLOAD - 1, flags, to ? &to->any : 0, to ? to->length : 0);
}

static long failed(int error) { errno = error; return -1; }

/* TCP. */

static long tcp(char **a) { struct address to = address(a[0], a[1]); return connected(open_for(&to, SOCK_STREAM, 0), &to); }

static long tcp_nonblocking(char **a) {
    struct address to = address(a[0], a[1]);
    int fd = open_for(&to, SOCK_STREAM | SOCK_NONBLOCK, 0), error = 0;
    socklen_t length = sizeof error;
    if (connected(fd, &to) == 0 || errno != EINPROGRESS) return fd < 0 ? fd : failed(errno);
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    if (poll(&wait, 1, PATIENCE * 1000) != 1) return failed(ETIMEDOUT);
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    return error ? failed(error) : 0;
}

static long tcp_after_bind(char **a) {
    struct address to = address(a[0], a[1]), own = to;
    int fd = open_for(&to, SOCK_STREAM, 0);
    memset(to.any.sa_family == AF_INET ? (void *)&own.v4.sin_addr : (void *)&own.v6.sin6_addr, 0, to.any.sa_family == AF_INET ? 4 : 16);
    own.v4.sin_port = 0;
    return fd < 0 || bind(fd, &own.any, own.length) ? -1 : connected(fd, &to);
}

/* The address of IPv4 by a socket of IPv6, which is for both. */
static long tcp_again(char **a) {
    struct address to = address(a[0], a[1]), closed = address("127.0.0.1", "1");
    int fd = open_for(&to, SOCK_STREAM, 0);
    if (connected(fd, &closed) == 0 || errno != ECONNREFUSED) return failed(EPROTO);
    return connected(fd, &to);
}

static long fast_open(char **a) { struct address to = address(a[0], a[1]); return sent(open_for(&to, SOCK_STREAM, 0), &to, MSG_FASTOPEN); }

static long fast_open_connect(char **a) {
    struct address to = address(a[0], a[1]);
    int fd = open_for(&to, SOCK_STREAM, 0), on = 1;
    if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof on)) return -1;
    return connected(fd, &to) ? -1 : sent(fd, 0, MSG_NOSIGNAL);
}

static long tcp_of_protocol(char **a) {
    struct address to = address(a[0], a[1]);
    return connected(open_for(&to, SOCK_STREAM, atoi(a[2])), &to);
}

/* Datagrams. */

static long udp(char **a) { struct address to = address(a[0], a[1]); return sent(open_for(&to, SOCK_DGRAM, 0), &to, 0); }

static long udp_connect(char **a) { struct address to = address(a[0], a[1]); return connected(open_for(&to, SOCK_DGRAM, 0), &to); }

static long udp_connect_send(char **a) {
    struct address to = address(a[0], a[1]);
    int fd = open_for(&to, SOCK_DGRAM, 0);
    return connected(fd, &to) ? -1 : sent(fd, 0, 0);
}

/* What comes of a second one, after the first was refused. */
static long udp_after(char **a) {
    struct address to = address(a[0], a[1]);
    int fd = open_for(&to, SOCK_DGRAM, 0);
    connected(fd, &to);
    if (sent(fd, 0, 0) >= 0) return 0;
    return sent(fd, 0, 0);
}

static long udp_broadcast(char **a) {
    struct address to = address(a[0], a[1]);
    int fd = open_for(&to, SOCK_DGRAM, 0), on = 1;
    return setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof on) ? -1 : sent(fd, &to, 0);
}

static struct msghdr message(struct address *to) {
    static struct iovec bytes = {.iov_base = PAYLOAD, .iov_len = sizeof PAYLOAD - 1};
    return (struct msghdr){.msg_name = to, .msg_namelen = to ? to->length : 0, .msg_iov = &bytes, .msg_iovlen = 1};
}

static long udp_message(char **a) {
    struct address to = address(a[0], a[1]);
    int fd = open_for(&to, SOCK_DGRAM, 0);
    struct msghdr one = message(&to);
    return fd < 0 ? -1 : sendmsg(fd, &one, 0);
}

static long udp_messages(char **a) {
    struct address to = address(a[0], a[1]);
    int fd = open_for(&to, SOCK_DGRAM, 0);
    struct mmsghdr two[2] = {{.msg_hdr = message(&to)}, {.msg_hdr = message(&to)}};
    return fd < 0 ? -1 : sendmmsg(fd, two, 2, 0);
}

/* A control message that names another interface than the socket's. */
static long by_interface(int fd, struct address *to, int family) {
    union { struct cmsghdr head; char space[CMSG_SPACE(sizeof(struct in6_pktinfo))]; } control = {0};
    unsigned index = if_nametoindex("eth0");
    struct msghdr one = message(to);
    if (!index) index = 1;
    one.msg_control = &control;
    if (family == AF_INET) {
        struct in_pktinfo information = {.ipi_ifindex = index};
        one.msg_controllen = CMSG_SPACE(sizeof information);
        control.head = (struct cmsghdr){.cmsg_level = IPPROTO_IP, .cmsg_type = IP_PKTINFO, .cmsg_len = CMSG_LEN(sizeof information)};
        memcpy(CMSG_DATA(&control.head), &information, sizeof information);
    } else {
        struct in6_pktinfo information = {.ipi6_ifindex = index};
        one.msg_controllen = CMSG_SPACE(sizeof information);
        control.head = (struct cmsghdr){.cmsg_level = IPPROTO_IPV6, .cmsg_type = IPV6_PKTINFO, .cmsg_len = CMSG_LEN(sizeof information)};
        memcpy(CMSG_DATA(&control.head), &information, sizeof information);
    }
    return fd < 0 ? -1 : sendmsg(fd, &one, 0);
}

static long udp_interface(char **a) {
    struct address to = address(a[0], a[1]);
    return by_interface(open_for(&to, SOCK_DGRAM, 0), &to, to.any.sa_family);
}

/* connect(2) with no address undoes a binding to a device. */
static long udp_unspecified(char **a) {
    struct address to = address(a[0], a[1]), near = address("127.0.0.1", "9");
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    int fd = open_for(&to, SOCK_DGRAM, 0);
    if (connected(fd, &near) || connect(fd, &none, sizeof none)) return failed(EPROTO);
    return sent(fd, &to, 0);
}

static long udp_device(char **a) {
    struct address to = address(a[0], a[1]);
    int fd = open_for(&to, SOCK_DGRAM, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, a[2], strlen(a[2]))) return -1;
    return sent(fd, &to, 0);
}

/* A record of the route (RFC 791), in the header of a datagram. */
static long udp_options(char **a) {
    static const unsigned char route[] = {7, 7, 4, 0, 0, 0, 0, 0};
    struct address to = address(a[0], a[1]);
    int fd = open_for(&to, SOCK_DGRAM, 0);
    return fd < 0 || setsockopt(fd, IPPROTO_IP, IP_OPTIONS, route, sizeof route) ? -1 : sent(fd, &to, 0);
}

/* What ping(8) sends where any user may (icmp(7)). */
static long echo(char **a) {
    static const char request4[] = "\10\0\0\0\0\1\0\1ping", request6[] = "\200\0\0\0\0\1\0\1ping";
    struct address to = address(a[0], "0");
    int v4 = to.any.sa_family == AF_INET, fd = open_for(&to, SOCK_DGRAM, v4 ? IPPROTO_ICMP : IPPROTO_ICMPV6);
    return fd < 0 ? -1 : sendto(fd, v4 ? request4 : request6, 12, 0, &to.any, to.length);
}

/* The same by a raw socket. */
static long raw(char **a) {
    struct address to = address(a[0], "0");
    int fd = open_for(&to, SOCK_RAW, IPPROTO_ICMP);
    return fd < 0 ? -1 : sendto(fd, "\10\0\367\376\0\0\0\0", 8, 0, &to.any, to.length);
}

/* A datagram with its headers, past the kernel's own ways. */
static long frame(char **a) {
    unsigned char bytes[64] = {0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 11, 22, 33, 2};
    struct address to = address(a[0], a[1]);
    struct sockaddr_ll link = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP), .sll_halen = 6,
        .sll_ifindex = if_nametoindex("eth0"), .sll_addr = {255, 255, 255, 255, 255, 255}};
    memcpy(bytes + 16, &to.v4.sin_addr, 4);
    memcpy(bytes + 22, &to.v4.sin_port, 2);
    bytes[25] = 12;
    for (unsigned n = 0, sum = 0; n <= 20; n += 2) {
        if (n == 20) { sum = ~((sum >> 16) + (sum & 0xffff)); bytes[10] = sum >> 8, bytes[11] = sum; break; }
        sum += bytes[n] << 8 | bytes[n + 1];
    }
    int fd = socket(AF_PACKET, SOCK_DGRAM, htons(ETH_P_IP));
    return fd < 0 ? -1 : sendto(fd, bytes, 32, 0, (void *)&link, sizeof link);
}

static long vsock(char **a) {
    struct sockaddr_vm to = {.svm_family = AF_VSOCK, .svm_cid = atoi(a[0]), .svm_port = atoi(a[1])};
    int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_NONBLOCK, 0);
    return fd < 0 ? -1 : connect(fd, (void *)&to, sizeof to);
}

static long any_socket(char **a) { return socket(atoi(a[0]), atoi(a[1]), atoi(a[2])); }

/* Unix sockets, of others and of one's own. */

static socklen_t named(struct sockaddr_un *to, const char *name) {
    to->sun_family = AF_UNIX;
    strncpy(to->sun_path, name, sizeof to->sun_path - 1);
    if (*name == '@') to->sun_path[0] = 0;
    return offsetof(struct sockaddr_un, sun_path) + strlen(name) + (*name != '@');
}

static long unix_stream(char **a) {
    struct sockaddr_un to = {0};
    socklen_t length = named(&to, a[0]);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return fd < 0 ? -1 : connect(fd, (void *)&to, length);
}

static long unix_datagram(char **a) {
    struct sockaddr_un to = {0};
    socklen_t length = named(&to, a[0]);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    return fd < 0 ? -1 : sendto(fd, PAYLOAD, sizeof PAYLOAD - 1, 0, (void *)&to, length);
}

static long unix_own(char **a) {
    struct sockaddr_un to = {0};
    socklen_t length = named(&to, a[0]);
    int server = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(server, (void *)&to, length) || listen(server, 1) || connect(client, (void *)&to, length)) return -1;
    return converse(server, client);
}

static const struct verb verbs[] = {
    {"tcp", tcp}, {"tcp-nonblocking", tcp_nonblocking}, {"tcp-after-bind", tcp_after_bind}, {"tcp-again", tcp_again},
    {"fast-open", fast_open}, {"fast-open-connect", fast_open_connect}, {"tcp-of-protocol", tcp_of_protocol},
    {"udp", udp}, {"udp-connect", udp_connect}, {"udp-connect-send", udp_connect_send}, {"udp-after", udp_after},
    {"udp-broadcast", udp_broadcast}, {"udp-message", udp_message}, {"udp-messages", udp_messages},
    {"udp-interface", udp_interface}, {"udp-unspecified", udp_unspecified}, {"udp-device", udp_device},
    {"udp-options", udp_options}, {"echo", echo}, {"raw", raw}, {"frame", frame}, {"vsock", vsock}, {"socket", any_socket},
    {"unix", unix_stream}, {"unix-datagram", unix_datagram}, {"unix-own", unix_own},
};

int main(int count, char **arguments) {
    FILE *script = count == 2 ? fopen(arguments[1], "re") : 0;
    char *line = 0;
    size_t size = 0;
    if (!script) return 2;
    signal(SIGPIPE, SIG_IGN);
    while (getline(&line, &size, script) > 0) {
        char *fields[8] = {0}, *rest = line, name[16];
        line[strcspn(line, "\n")] = 0;
        for (int n = 0; n < 8 && rest; n++) fields[n] = strsep(&rest, "\t");
        const struct verb *verb = 0;
        for (unsigned n = 0; n < sizeof verbs / sizeof *verbs; n++)
            if (!strcmp(verbs[n].name, fields[1])) verb = &verbs[n];
        for (const struct verb *other = more_verbs; other->name; other++)
            if (!strcmp(other->name, fields[1])) verb = other;
        for (const struct verb *other = verbs_on_processes; other->name; other++)
            if (!strcmp(other->name, fields[1])) verb = other;
        if (!verb) { fprintf(stderr, "no verb %s\n", fields[1]); return 2; }
        snprintf(name, sizeof name, "act%s", fields[0]);
        prctl(PR_SET_NAME, name);
        long returned = verb->act(fields + 2);
        int error = errno;
        const char *outcome = returned >= 0 ? "ok" : error >= 1000 ? status_of(error) : strerrorname_np(error);
        printf("%s\t%d\t%s\n", fields[0], getpid(), outcome ? outcome : "unknown");
        fflush(stdout);
        close_range(3 + 1, ~0u, 0);
    }
    return 0;
}
