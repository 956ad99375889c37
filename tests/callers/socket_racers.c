/* socket_racers WAY TRIES LINK: makes calls on sockets while another thread changes what they are about, from what this
 * machine serves to what is outside and back. Says WAY done=N refused=M, the calls that went through and those that did
 * not. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PORT 4466
static const char *OUTSIDE = "11.22.33.44";
static atomic_int over, begun;
static unsigned link_index;
static const char *link_name;

static struct sockaddr_in at(const char *host, int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, host, &to.sin_addr);
    return to;
}

/* What a message is made of; the racer writes to it. */
static struct {
    struct sockaddr_in to;
    char control[CMSG_SPACE(sizeof(struct in_pktinfo))];
    char data;
    struct iovec part;
    struct mmsghdr many[2];
} shared;
static struct sockaddr_in inside, outside;


static void lay_out(struct sockaddr_in to, int with_control) {
    shared.to = to;
    shared.part = (struct iovec){&shared.data, 1};
    for (int i = 0; i < 2; i++) {
        struct msghdr *m = &shared.many[i].msg_hdr;
        memset(m, 0, sizeof *m);
        m->msg_name = &shared.to;
        m->msg_namelen = sizeof shared.to;
        m->msg_iov = &shared.part;
        m->msg_iovlen = 1;
        if (with_control) {
            m->msg_control = shared.control;
            m->msg_controllen = sizeof shared.control;
        }
    }
    struct cmsghdr *c = (struct cmsghdr *)shared.control;
    c->cmsg_level = IPPROTO_IP;
    c->cmsg_type = IP_PKTINFO;
    c->cmsg_len = CMSG_LEN(sizeof(struct in_pktinfo));
}

static struct in_pktinfo *info(void) { return (struct in_pktinfo *)CMSG_DATA((struct cmsghdr *)shared.control); }

/* For a moment, with all that was written before in its place. */
static void pause_for(int rounds) {
    while (rounds-- > 0)
        __asm__ volatile("" ::: "memory");
}

/* Whether there is another turn; the first has begun when it is asked for the second time. */
static int turns(void) {
    static int asked;
    if (asked++ == 1)
        atomic_store(&begun, 1);
    return !atomic_load(&over);
}

/* The racers: each changes one thing there and back until all is over. */
static void *swaps_address(void *unused) {
    while (turns()) {
        shared.to.sin_addr = outside.sin_addr, shared.to.sin_port = outside.sin_port;
        pause_for(200);
        shared.to.sin_addr = inside.sin_addr, shared.to.sin_port = inside.sin_port;
        pause_for(200);
    }
    return unused;
}

static void *swaps_device(void *unused) {
    while (turns()) {
        info()->ipi_ifindex = link_index, shared.to.sin_addr = outside.sin_addr;
        pause_for(200);
        info()->ipi_ifindex = 0, shared.to.sin_addr = inside.sin_addr;
        pause_for(200);
    }
    return unused;
}

static int raced, harmless, dangerous;


static void *swaps_descriptor(void *unused) {
    while (turns()) {
        dup2(dangerous, raced);
        pause_for(100);
        dup2(harmless, raced);
        pause_for(100);
    }
    return unused;
}

/* No datagram socket is there but for a moment. */
static void *makes_and_swaps(void *unused) {
    while (turns()) {
        int made = socket(AF_INET, SOCK_DGRAM, 0);
        if (made < 0)
            continue;
        dup2(made, raced);
        close(made);
        pause_for(1000);
        dup2(harmless, raced);
    }
    return unused;
}

static void *takes_the_device(void *unused) {
    while (turns()) {
        setsockopt(raced, SOL_SOCKET, SO_BINDTODEVICE, link_name, strlen(link_name) + 1);
        setsockopt(raced, IPPROTO_IP, IP_UNICAST_IF, &(int){htonl(link_index)}, 4);
        sendto(raced, "x", 1, MSG_DONTWAIT, (void *)&outside, sizeof outside);
        connect(raced, (void *)&outside, sizeof outside);
        send(raced, "x", 1, MSG_DONTWAIT);
    }
    return unused;
}

/* The calls that are raced. */
static int connects(void) {
    int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int got = connect(s, (void *)&shared.to, sizeof shared.to);
    if (got < 0 && errno == EINPROGRESS)
        got = 0;
    close(s);
    return got;
}

static int sends_to(void) { return sendto(raced, "x", 1, MSG_DONTWAIT, (void *)&shared.to, sizeof shared.to); }
static int sends_message(void) { return sendmsg(raced, &shared.many[0].msg_hdr, MSG_DONTWAIT); }
static int sends_messages(void) { return sendmmsg(raced, shared.many, 2, MSG_DONTWAIT); }
static int connects_raced(void) { return connect(raced, (void *)&shared.to, sizeof shared.to); }

static int disconnects(void) {
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    int got = connect(raced, (void *)&inside, sizeof inside);
    connect(raced, &none, sizeof none);
    return got;
}

static void *receives(void *unused) {
    char byte[64];
    while (recv(*(int *)unused, byte, sizeof byte, 0) >= 0) {}
    return unused;
}

struct way {
    const char *name;
    int (*call)(void);
    void *(*racer)(void *);
    /* What the raced descriptor is: a datagram socket, or a pair's end that a datagram socket or a stream takes turns with. */
    enum { NOTHING, DATAGRAM, PAIR_AND_DATAGRAM, STREAM_AND_DATAGRAM, PAIR } raced;
    int with_control, to_outside;
};

static const struct way ways[] = {
    {"address-connect", connects, swaps_address, NOTHING, 0, 0},
    {"address-sendto", sends_to, swaps_address, DATAGRAM, 0, 0},
    {"address-sendmsg", sends_message, swaps_address, DATAGRAM, 0, 0},
    {"address-sendmmsg", sends_messages, swaps_address, DATAGRAM, 0, 0},
    {"device-sendmsg", sends_message, swaps_device, DATAGRAM, 1, 0},
    {"device-sendmmsg", sends_messages, swaps_device, DATAGRAM, 1, 0},
    {"descriptor-connect", connects_raced, swaps_descriptor, STREAM_AND_DATAGRAM, 0, 1},
    {"descriptor-sendto", sends_to, swaps_descriptor, PAIR_AND_DATAGRAM, 0, 1},
    {"descriptor-sendmsg", sends_message, swaps_descriptor, PAIR_AND_DATAGRAM, 1, 1},
    {"descriptor-sendmmsg", sends_messages, swaps_descriptor, PAIR_AND_DATAGRAM, 1, 1},
    {"made-sendmsg", sends_message, makes_and_swaps, PAIR, 1, 1},
    {"made-sendmmsg", sends_messages, makes_and_swaps, PAIR, 1, 1},
    {"unspecified", disconnects, takes_the_device, DATAGRAM, 0, 0},
};

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    int tries = atoi(argv[2]);
    link_name = argv[3];
    link_index = if_nametoindex(link_name);
    int server = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), echo = socket(AF_INET, SOCK_DGRAM, 0);
    inside = at("127.0.0.1", 0), outside = at(OUTSIDE, PORT);
    socklen_t size = sizeof inside;
    if (bind(server, (void *)&inside, size) || getsockname(server, (void *)&inside, &size))
        return perror("bind"), 1;

    if (listen(server, 4096) || bind(echo, (void *)&inside, size))
        return perror("listen"), 1;
    for (const struct way *way = ways; way < ways + sizeof ways / sizeof *ways; way++) {
        if (strcmp(way->name, argv[1]))
            continue;
        int pair[2];
        socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
        if (way->raced == PAIR)
            close(echo);
        dangerous = way->raced == PAIR || way->raced == NOTHING ? -1 : socket(AF_INET, SOCK_DGRAM, 0);
        harmless = way->raced == STREAM_AND_DATAGRAM ? socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0) : pair[0];
        raced = dup(way->raced == DATAGRAM ? dangerous : harmless);
        if (way->with_control)
            info()->ipi_ifindex = way->to_outside ? link_index : 0;
        lay_out(way->to_outside ? outside : inside, way->with_control);
        info()->ipi_ifindex = way->to_outside ? link_index : 0;
        pthread_t racer, reader;
        pthread_create(&reader, NULL, receives, &pair[1]);
        pthread_create(&racer, NULL, way->racer, NULL);
        while (!atomic_load(&begun)) {}
        int done = 0, refused = 0;
        struct timespec before, after;
        clock_gettime(CLOCK_MONOTONIC, &before);
        for (int i = 0; i < tries; i++) {
            if (way->call() >= 0)
                done++;
            else
                refused++;
            if (way->call == connects)
                close(accept4(server, NULL, NULL, SOCK_NONBLOCK));
        }
        atomic_store(&over, 1);
        pthread_join(racer, NULL);
        clock_gettime(CLOCK_MONOTONIC, &after);
        long took = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
        printf("%s=done %d refused %d in %ld ms\n", way->name, done, refused, took);
        return 0;
    }
    return 2;
}
