/* A file system of FUSE whose process makes a file before it says anything of its root, and what another process does there.
   Prints `looked ANSWER` once that is done. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define AT "/mnt/shadow-fuse"

static void answer(int device, unsigned long unique, int error, void *body, unsigned length) {
    struct fuse_out_header head = {sizeof head + length, error, unique};
    struct iovec parts[2] = {{&head, sizeof head}, {body, length}};
    if (writev(device, parts, length ? 2 : 1) < 0 && errno != ENOENT) _exit(1);
}

static void serve(int device) {
    static char request[1 << 20];
    for (;;) {
        if (read(device, request, sizeof request) < 0) _exit(0);
        struct fuse_in_header *in = (void *)request;
        if (in->opcode == FUSE_INIT) {
            struct fuse_init_out init = {.major = 7, .minor = 31, .max_write = 4096};
            answer(device, in->unique, 0, &init, sizeof init);
        } else if (in->opcode == FUSE_GETATTR) {
            close(open("/tmp/by-the-process", O_CREAT | O_WRONLY, 0644));
            struct fuse_attr_out out = {.attr = {.ino = 1, .mode = S_IFDIR | 0777, .nlink = 2}};
            answer(device, in->unique, 0, &out, sizeof out);
        } else if (in->opcode != FUSE_FORGET) {
            answer(device, in->unique, -ENOENT, 0, 0);
        }
    }
}

int main(void) {
    char options[128];
    int device = open("/dev/fuse", O_RDWR);
    mkdir(AT, 0755);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device);
    if (device < 0 || mount("fuse", AT, "fuse", 0, options) < 0) { perror("fuse"); return 1; }
    pid_t server = fork();
    if (server == 0) serve(device);
    close(device);
    alarm(30);
    int directory = open(AT, O_PATH | O_DIRECTORY);
    for (int n = 0; n < 8; n++)
        if (fork() == 0) { openat(directory, "x", O_CREAT | O_WRONLY, 0644); _exit(0); }
    errno = 0;
    long made = openat(directory, "y", O_CREAT | O_WRONLY, 0644);
    printf("looked %s\n", made < 0 ? strerrorname_np(errno) : "ok");
    fflush(stdout);
    umount2(AT, MNT_DETACH);
    kill(server, SIGKILL);
    return 0;
}
