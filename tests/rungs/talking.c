/* Acts by which somebody answers: the proxy, the kernel's netlink, servers of one's own; and other ways into the kernel. */
#define _GNU_SOURCE
#include "network.h"

#include <linux/io_uring.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>

const char *status_of(int error) {
    static char text[16];
    snprintf(text, sizeof text, "%d", error - 1000);
    return text;
}

long converse(int server, int client) {
    char byte = 0;
    int accepted = accept(server, 0, 0);
    if (accepted < 0 || write(client, "x", 1) != 1 || read(accepted, &byte, 1) != 1) return -1;
    return byte == 'x' ? 0 : (errno = EIO, -1);
}

/* A request to the proxy that the environment names: its status, which is an error unless it is 200. */
static long asked(const char *request) {
    char host[64] = "", answer[64] = "";
    int port = 0, status = 0;
    const char *proxy = getenv("http_proxy");
    if (!proxy || sscanf(proxy, "http://%63[0-9.]:%d", host, &port) != 2) return errno = ENOTCONN, -1;
    char digits[8];
    snprintf(digits, sizeof digits, "%d", port);
    struct address to = address(host, digits);
    int fd = open_for(&to, SOCK_STREAM, 0);
    if (connect(fd, &to.any, to.length) || write(fd, request, strlen(request)) < 0) return -1;
    for (unsigned got = 0, more; got < 12; got += more)
        if ((int)(more = read(fd, answer + got, sizeof answer - 1 - got)) <= 0) return errno = EPIPE, -1;
    if (sscanf(answer, "HTTP/1.1 %d", &status) != 1) return errno = EPROTO, -1;
    return status == 200 ? 0 : (errno = 1000 + status, -1);
}

static long tunnel(char **a) {
    char request[512];
    snprintf(request, sizeof request, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", a[0], a[0]);
    return asked(request);
}

static long fetch(char **a) {
    char request[512];
    snprintf(request, sizeof request, "GET http://%s/ HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", a[0], a[0]);
    return asked(request);
}

static long serve_tcp(char **a) {
    struct address own = address(a[0], a[2] ? a[2] : "0"), to = address(a[1], "0");
    int server = open_for(&own, SOCK_STREAM, 0), client = open_for(&to, SOCK_STREAM, 0);
    socklen_t length = own.length;
    if (bind(server, &own.any, own.length) || listen(server, 1) || getsockname(server, &own.any, &length)) return -1;
    to.v4.sin_port = own.v4.sin_port;
    return connect(client, &to.any, to.length) ? -1 : converse(server, client);
}

static long serve_udp(char **a) {
    struct address own = address(a[0], "0"), to = address(a[1], "0");
    int server = open_for(&own, SOCK_DGRAM, 0), client = open_for(&to, SOCK_DGRAM, 0);
    socklen_t length = own.length;
    char byte = 0;
    if (bind(server, &own.any, own.length) || getsockname(server, &own.any, &length)) return -1;
    to.v4.sin_port = own.v4.sin_port;
    if (sendto(client, "x", 1, 0, &to.any, to.length) != 1 || recv(server, &byte, 1, 0) != 1) return -1;
    return byte == 'x' ? 0 : (errno = EIO, -1);
}

/* netlink(7). */

struct request { struct nlmsghdr head; char body[128]; };

static void add(struct request *to, const void *bytes, unsigned length) {
    memcpy((char *)to + NLMSG_ALIGN(to->head.nlmsg_len), bytes, length);
    to->head.nlmsg_len = NLMSG_ALIGN(to->head.nlmsg_len) + NLMSG_ALIGN(length);
}

static long answered(int fd, const void *bytes, size_t length) {
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    char answer[8192];
    if (fd < 0 || sendto(fd, bytes, length, 0, (void *)&kernel, sizeof kernel) < 0) return -1;
    if (poll(&wait, 1, 5000) != 1 || recv(fd, answer, sizeof answer, 0) < 0) return -1;
    struct nlmsghdr *head = (void *)answer;
    if (head->nlmsg_type != NLMSG_ERROR) return 0;
    struct nlmsgerr *said = NLMSG_DATA(head);
    return said->error ? (errno = -said->error, -1) : 0;
}

/* A route to everywhere, by the loopback device. */
static long route(char **a) {
    struct request one = {.head = {NLMSG_HDRLEN, RTM_NEWROUTE, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE, 1, 0}};
    struct rtmsg rest = {.rtm_family = AF_INET, .rtm_dst_len = 32, .rtm_table = RT_TABLE_MAIN, .rtm_protocol = RTPROT_STATIC,
        .rtm_scope = RT_SCOPE_LINK, .rtm_type = RTN_UNICAST};
    struct { struct rtattr head; unsigned value; } device = {{8, RTA_OIF}, 1}, to = {{8, RTA_DST}, 0};
    to.value = inet_addr(a[0]);
    add(&one, &rest, sizeof rest), add(&one, &to, sizeof to), add(&one, &device, sizeof device);
    return answered(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE), &one, one.head.nlmsg_len);
}

static long links(char **a) {
    struct request one = {.head = {NLMSG_HDRLEN, RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 1, 0}};
    struct ifinfomsg rest = {.ifi_family = AF_UNSPEC};
    add(&one, &rest, sizeof rest);
    return (void)a, answered(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE), &one, one.head.nlmsg_len);
}

/* A table of the firewall's, in a batch as nft(8) sends it. */
static long table(char **a) {
    struct request all[3] = {
        {.head = {NLMSG_HDRLEN, NFNL_MSG_BATCH_BEGIN, NLM_F_REQUEST, 1, 0}},
        {.head = {NLMSG_HDRLEN, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWTABLE, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE, 2, 0}},
        {.head = {NLMSG_HDRLEN, NFNL_MSG_BATCH_END, NLM_F_REQUEST, 3, 0}}};
    struct nfgenmsg batch = {.nfgen_family = AF_UNSPEC, .res_id = htons(NFNL_SUBSYS_NFTABLES)}, inet = {.nfgen_family = 1};
    struct { struct rtattr head; char name[8]; } name = {{4 + 8, NFTA_TABLE_NAME}, ""};
    char bytes[sizeof all];
    size_t length = 0;
    strncpy(name.name, a[0], 7);
    add(&all[0], &batch, sizeof batch), add(&all[1], &inet, sizeof inet), add(&all[1], &name, sizeof name);
    add(&all[2], &batch, sizeof batch);
    for (int n = 0; n < 3; length += all[n++].head.nlmsg_len) memcpy(bytes + length, &all[n], all[n].head.nlmsg_len);
    return answered(socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER), bytes, length);
}

/* Other ways into the kernel. */

static long ring(char **a) { return (void)a, syscall(SYS_io_uring_setup, 8, (char[256]){0}); }

/* A connection by io_uring's own worker (io_uring_enter(2)), which no filter of system calls sees. */
static long ring_connect(char **a) {
    struct address to = address(a[0], a[1]);
    struct io_uring_params setup = {0};
    int ring = syscall(SYS_io_uring_setup, 4, &setup), fd = open_for(&to, SOCK_STREAM, 0);
    if (ring < 0 || fd < 0) return -1;
    char *queue = mmap(0, setup.sq_off.array + setup.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    char *done = mmap(0, setup.cq_off.cqes + setup.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE, MAP_SHARED, ring,
        IORING_OFF_CQ_RING);
    struct io_uring_sqe *entry = mmap(0, setup.sq_entries * sizeof *entry, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    if (queue == MAP_FAILED || done == MAP_FAILED || entry == MAP_FAILED) return -1;
    *entry = (struct io_uring_sqe){.opcode = IORING_OP_CONNECT, .fd = fd, .addr = (unsigned long)&to, .off = to.length};
    *(unsigned *)(queue + setup.sq_off.array) = 0;
    __atomic_store_n((unsigned *)(queue + setup.sq_off.tail), 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) < 0) return -1;
    int result = ((struct io_uring_cqe *)(done + setup.cq_off.cqes))->res;
    return result < 0 ? (errno = -result, -1) : 0;
}

static long clone_by_structure(char **a) {
    uint64_t arguments[11] = {0};
    arguments[4] = SIGCHLD;
    long child = syscall(SYS_clone3, arguments, sizeof arguments);
    if (child == 0) _exit(0);
    return (void)a, child;
}

#ifdef __x86_64__
static long int80(long number, long one, long two, long three) {
    long returned;
    __asm__ volatile("int $0x80" : "=a"(returned) : "a"(number), "b"(one), "c"(two), "d"(three) : "memory", "r8", "r9", "r10", "r11");
    return (int)returned < 0 ? (errno = -(int)returned, -1) : (int)returned;
}

/* A datagram by socket and sendto in the numbering of the i386 entry, socketcall(2). */
static long of_i386(char **a) {
    struct address to = address(a[0], a[1]);
    char *low = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    uint32_t *words = (uint32_t *)low;
    words[0] = AF_INET, words[1] = SOCK_DGRAM, words[2] = 0;
    long fd = int80(102, 1, (long)low, 0);
    if (fd < 0) return -1;
    memcpy(low + 64, &to, to.length), memcpy(low + 128, PAYLOAD, sizeof PAYLOAD);
    words[0] = fd, words[1] = (uint32_t)(long)low + 128, words[2] = sizeof PAYLOAD - 1, words[3] = 0;
    words[4] = (uint32_t)(long)low + 64, words[5] = to.length;
    return int80(102, 11, (long)low, 0);
}

static long of_x32(char **a) {
    struct address to = address(a[0], a[1]);
    long fd = syscall(0x40000000 | SYS_socket, AF_INET, SOCK_DGRAM, 0);
    return fd < 0 ? -1 : syscall(0x40000000 | SYS_sendto, fd, PAYLOAD, sizeof PAYLOAD - 1, 0, &to, to.length);
}
#endif

const struct verb more_verbs[] = {
    {"tunnel", tunnel}, {"fetch", fetch}, {"serve-tcp", serve_tcp}, {"serve-udp", serve_udp}, {"route", route}, {"links", links},
    {"table", table},
    {"ring", ring}, {"ring-connect", ring_connect}, {"clone3", clone_by_structure},
#ifdef __x86_64__
    {"i386", of_i386}, {"x32", of_x32},
#endif
    {0, 0},
};
