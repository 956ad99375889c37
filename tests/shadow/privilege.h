/* Calls that take privilege. */
static long clone_with(long flags) {
    long child = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(0);
    return child;
}

static long capabilities(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{1 << 21, 1 << 21, 1 << 21}, {0, 0, 0}};
    return syscall(SYS_capset, &header, data);
}

static long measured(void) {
    char attributes[128] = {0};
    *(unsigned *)attributes = 1;
    *(unsigned *)(attributes + 4) = 64;
    /* Of the whole machine, on processor 0. */
    return syscall(SYS_perf_event_open, attributes, -1, 0, -1, 0);
}

static long by_handle(void) {
    struct { struct file_handle head; char bytes[8]; } handle = {.head = {8, 77}};
    return open_by_handle_at(AT_FDCWD, &handle.head, O_RDONLY);
}

static long executed(const char *path) {
    char *arguments[] = {(char *)path, 0}, *environment[] = {0};
    pid_t child = fork();
    int status = 0;
    if (child == 0) {
        execve(path, arguments, environment);
        _exit(errno);
    }
    waitpid(child, &status, 0);
    errno = WEXITSTATUS(status);
    return errno ? -1 : 0;
}
