/* Connections, datagrams and requests. */
static socklen_t inet(const char *host, int port, struct sockaddr_storage *to) {
    struct sockaddr_in *four = (void *)to;
    struct sockaddr_in6 *six = (void *)to;
    memset(to, 0, sizeof *to);
    if (strchr(host, ':')) {
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(port);
        inet_pton(AF_INET6, host, &six->sin6_addr);
        return sizeof *six;
    }
    four->sin_family = AF_INET;
    four->sin_port = htons(port);
    inet_pton(AF_INET, host, &four->sin_addr);
    return sizeof *four;
}

static long tcp(const char *host, int port) {
    struct sockaddr_storage to;
    socklen_t length = inet(host, port, &to);
    int fd = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    if (connect(fd, (void *)&to, length) == 0) return fd;
    if (errno != EINPROGRESS) return -1;
    struct pollfd waits = {fd, POLLOUT, 0};
    int fault = 0;
    socklen_t size = sizeof fault;
    if (poll(&waits, 1, 5000) != 1) { errno = ETIMEDOUT; return -1; }
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &fault, &size);
    fcntl(fd, F_SETFL, 0);
    errno = fault;
    return fault ? -1 : fd;
}

/* A question for the address of a.example, the same each time. */
static const char QUESTION[] = "\x12\x34\x01\0\0\1\0\0\0\0\0\0\1a\7example\0\0\1\0\1";

static long udp_to(const char *host, int port) {
    struct sockaddr_storage to;
    socklen_t length = inet(host, port, &to);
    int fd = socket(to.ss_family, SOCK_DGRAM, 0);
    return fd < 0 ? -1 : sendto(fd, QUESTION, sizeof QUESTION - 1, 0, (void *)&to, length);
}

static long udp_message(const char *host, int port) {
    struct sockaddr_storage to;
    socklen_t length = inet(host, port, &to);
    struct iovec part = {(void *)QUESTION, sizeof QUESTION - 1};
    struct msghdr message = {.msg_name = &to, .msg_namelen = length, .msg_iov = &part, .msg_iovlen = 1};
    int fd = socket(to.ss_family, SOCK_DGRAM, 0);
    return fd < 0 ? -1 : sendmsg(fd, &message, 0);
}

static long udp_connected(const char *host, int port) {
    struct sockaddr_storage to;
    socklen_t length = inet(host, port, &to);
    int fd = socket(to.ss_family, SOCK_DGRAM, 0);
    if (fd < 0 || connect(fd, (void *)&to, length) < 0) return -1;
    return write(fd, QUESTION, sizeof QUESTION - 1);
}

static long unix_to(const char *path) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    strcpy(to.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return fd < 0 ? -1 : connect(fd, (void *)&to, sizeof to);
}

static long unix_at(const char *path) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    strcpy(at.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return fd < 0 ? -1 : bind(fd, (void *)&at, sizeof at);
}

static long serve_at(int port) {
    struct sockaddr_storage at;
    socklen_t length = inet("127.0.0.1", port, &at);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return fd < 0 ? -1 : bind(fd, (void *)&at, length);
}

static const char *proxy_host;
static int proxy_port;

/* Says this to the proxy, and prints the first line of its answer as the answer of the act. */
static void by_proxy(const char *name, const char *text, size_t length, const char *then, size_t then_length) {
    if (!proxy_host || !begin(name)) return;
    int fd = tcp(proxy_host, proxy_port);
    char answer[512] = {0};
    if (fd < 0) finish(-1);
    if (write(fd, text, length) < 0) finish(-1);
    long got = read(fd, answer, sizeof answer - 1);
    if (then) {
        memset(answer, 0, sizeof answer);
        if (write(fd, then, then_length) < 0) finish(-1);
        got = read(fd, answer, sizeof answer - 1);
    }
    if (got < 0) finish(-1);
    if (answer[0] == 'H') answer[strcspn(answer, "\r")] = 0;
    printf("%s %s\n", name, answer[0] == 'H' ? answer + 9 : got > 1 && answer[0] == 5 ? (answer[1] ? "socks-refused" : "socks-ok") : "closed");
    fflush(stdout);
    _exit(0);
}

#define BY_PROXY(name, text) by_proxy(name, text, sizeof text - 1, 0, 0)
#define BY_SOCKS(name, request) by_proxy(name, "\5\1\0", 3, request, sizeof request - 1)
