/* What the acts on the network share. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAYLOAD "secret"

struct address {
    union { struct sockaddr any; struct sockaddr_in v4; struct sockaddr_in6 v6; };
    socklen_t length;
};

/* An act on its arguments: negative with errno, where errno above 1000 is an HTTP status and 1000. */
struct verb { const char *name; long (*act)(char **arguments); };

struct address address(const char *text, const char *port);
int open_for(const struct address *to, int type, int protocol);
/* Whether a byte goes from a client to its server. */
long converse(int server, int client);
const char *status_of(int error);
/* The last of each has no name. */
extern const struct verb more_verbs[], verbs_on_processes[];
