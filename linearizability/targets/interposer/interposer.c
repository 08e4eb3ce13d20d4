/*
 * Stands between a broker and the C library, by LD_PRELOAD, and makes its disk and its clock what a fault wants.
 *
 *   disk    a failing one: writes below the data folder end with ENOSPC (after a budget of bytes) or EIO;
 *   power   it is written down what a loss of power would leave of each file below the data folder;
 *   clock   CLOCK_REALTIME is off by an offset. The monotonic clock is left alone, as an operator's `date` leaves it.
 *
 * What a loss of power leaves (`rollback.py` carries it out, once the process has been killed):
 *
 *   - a file's bytes are durable from the end of an fsync, fdatasync or msync on, in so far as they were there when it
 *     began. What was written behind the durable length is lost; durable bytes that were overwritten, cut off, or mapped for
 *     writing have been copied before, and come back. Of bytes that were cut off by ftruncate a journal may know better: the
 *     shortest length since the last flush is written down, and a loss of power on such a file system leaves no more;
 *   - a folder's entries (files made, renamed, removed) are durable at once, as on a file system whose journal is
 *     written after every step. So a file that was renamed into place before its bytes were fsynced comes back empty.
 *
 * The state is in one mapped file, so that it outlasts the process: a header, and a table of files by inode.
 * TIDEGAUGE_INTERPOSER names it, TIDEGAUGE_DATA the data folder; copies go to a folder `copies` beside the mapped file.
 *
 * Calls go to the kernel directly: the C library's own would come back here.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define FILES 65536
#define DESCRIPTORS 65536
#define MAPPINGS 4096
#define NO_FILE 0
#define REMOVED 1 /* the kernel gives no file the inode 1 */
#define NANOS 1000000000LL
#define UNCUT -1

struct file {
    uint64_t inode;
    int64_t durable; /* so many bytes from the start outlive a loss of power */
    int64_t copied;  /* whether they lie in a copy, because the file has other ones by now */
    int64_t cut;     /* to so many bytes it was truncated since it was durable; UNCUT: not at all */
};

struct state {
    int64_t clock_ns;
    int64_t error;  /* what writes end with: 0, ENOSPC, EIO */
    int64_t budget; /* bytes that may still be written before ENOSPC */
    int64_t loads;  /* programs loaded so far; by it a fault knows that it can be injected */
    int64_t spare[4];
    struct file files[FILES];
};

struct mapping {
    void *address;
    uint64_t inode;
    int reader;
};

static struct state *state;
static char data[4096], copies[4096];
static dev_t device;
static uint64_t inode_of[DESCRIPTORS]; /* of files that were opened for writing below the data folder */
static struct mapping mappings[MAPPINGS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("TIDEGAUGE_INTERPOSER"), *folder = getenv("TIDEGAUGE_DATA");
    struct stat found;
    if (!path || !folder || stat(folder, &found))
        return;
    device = found.st_dev;
    snprintf(data, sizeof data, "%s/", folder);
    snprintf(copies, sizeof copies, "%.4000s", path);
    char *slash = strrchr(copies, '/');
    snprintf(slash, sizeof copies - (size_t)(slash - copies), "/copies");
    int file = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return;
    void *mapped = (void *)syscall(SYS_mmap, 0, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    syscall(SYS_close, file);
    if (mapped == MAP_FAILED)
        return;
    state = mapped;
    __atomic_add_fetch(&state->loads, 1, __ATOMIC_RELAXED);
}

/* ---- files */

static struct file *known(uint64_t inode, int make)
{
    struct file *gap = 0;
    for (unsigned step = 0; step < FILES; step++) {
        struct file *at = &state->files[(inode * 2654435761u + step) % FILES];
        if (at->inode == inode)
            return at;
        if (at->inode == REMOVED && !gap)
            gap = at;
        if (at->inode == NO_FILE) {
            gap = gap ? gap : at;
            break;
        }
    }
    if (!make || !gap)
        return 0;
    gap->durable = gap->copied = 0;
    gap->cut = UNCUT;
    gap->inode = inode;
    return gap;
}

static void copy_path(char *path, uint64_t inode, const char *ending)
{
    snprintf(path, 4096, "%.4000s/%llu%s", copies, (unsigned long long)inode, ending);
}

/* Keep the first `length` bytes of a file; holes stay holes. */
static void copy(int reader, struct file *file, int64_t length)
{
    static char buffer[1 << 16];
    char unfinished[4096], finished[4096];
    copy_path(unfinished, file->inode, ".new");
    copy_path(finished, file->inode, "");
    int writer = syscall(SYS_openat, AT_FDCWD, unfinished, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (writer < 0)
        return;
    int64_t at = 0;
    while (at < length && (at = syscall(SYS_lseek, reader, at, SEEK_DATA)) >= 0 && at < length) {
        int64_t end = syscall(SYS_lseek, reader, at, SEEK_HOLE);
        while (at < end && at < length) {
            int64_t wanted = length - at < (int64_t)sizeof buffer ? length - at : (int64_t)sizeof buffer;
            ssize_t got = syscall(SYS_pread64, reader, buffer, wanted, at);
            if (got <= 0)
                break;
            syscall(SYS_pwrite64, writer, buffer, got, at);
            at += got;
        }
    }
    syscall(SYS_ftruncate, writer, length);
    syscall(SYS_close, writer);
    syscall(SYS_renameat2, AT_FDCWD, unfinished, AT_FDCWD, finished, 0);
    file->durable = length;
    file->copied = 1;
    file->cut = UNCUT;
}

static void drop_copy(struct file *file)
{
    char path[4096];
    copy_path(path, file->inode, "");
    if (file->copied)
        syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    file->copied = 0;
}

static int reader_of(int descriptor)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    return syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC);
}

/* The durable bytes will be changed. */
static void protect(int descriptor, struct file *file)
{
    if (file->copied)
        return;
    int reader = reader_of(descriptor);
    if (reader >= 0) {
        copy(reader, file, file->durable);
        syscall(SYS_close, reader);
    }
}

/* The file behind a descriptor, if it is one of ours. */
static struct file *behind(int descriptor, struct stat *found)
{
    if (!state || descriptor < 0 || descriptor >= DESCRIPTORS || !inode_of[descriptor])
        return 0;
    if (fstat(descriptor, found) || found->st_ino != inode_of[descriptor] || found->st_dev != device) {
        inode_of[descriptor] = NO_FILE;
        return 0;
    }
    return known(found->st_ino, 0);
}

static void forget_if_last(int folder, const char *path)
{
    struct stat found;
    int saved = errno;
    if (state && !fstatat(folder, path, &found, AT_SYMLINK_NOFOLLOW) && S_ISREG(found.st_mode)
        && found.st_nlink == 1 && found.st_dev == device) {
        pthread_mutex_lock(&lock);
        struct file *file = known(found.st_ino, 0);
        if (file) {
            drop_copy(file);
            file->inode = REMOVED;
        }
        pthread_mutex_unlock(&lock);
    }
    errno = saved;
}

/* ---- opening and closing */

static int is_below_data(int descriptor)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    return length > 0 && !strncmp(path, data, strlen(data)) && (path[length] = 0, 1);
}

static void opened(int descriptor, int is_new)
{
    struct stat found;
    if (descriptor >= DESCRIPTORS || fstat(descriptor, &found) || !S_ISREG(found.st_mode)
        || found.st_dev != device || !is_below_data(descriptor))
        return;
    struct file *file = known(found.st_ino, 0);
    if (!file || is_new) {
        file = known(found.st_ino, 1);
        if (!file)
            return;
        drop_copy(file);
        file->durable = is_new ? 0 : found.st_size;
        file->cut = UNCUT;
    }
    inode_of[descriptor] = found.st_ino;
}

static int refuses_new(void)
{
    return state->error && (state->error != ENOSPC || state->budget <= 0);
}

static int open_at(int folder, const char *path, int flags, mode_t mode)
{
    if (!state || !(flags & (O_WRONLY | O_RDWR)) || (flags & O_TMPFILE) == O_TMPFILE)
        return syscall(SYS_openat, folder, path, flags, mode);
    pthread_mutex_lock(&lock);
    int is_new = 0;
    int descriptor = syscall(SYS_openat, folder, path, flags & ~(O_CREAT | O_EXCL | O_TRUNC), mode);
    if (descriptor >= 0 && (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL)) {
        syscall(SYS_close, descriptor);
        descriptor = -1;
        errno = EEXIST;
    } else if (descriptor < 0 && errno == ENOENT && (flags & O_CREAT)) {
        descriptor = syscall(SYS_openat, folder, path, flags, mode);
        is_new = descriptor >= 0;
        if (is_new && refuses_new() && is_below_data(descriptor)) {
            syscall(SYS_close, descriptor);
            syscall(SYS_unlinkat, folder, path, 0);
            descriptor = -1;
            errno = (int)state->error;
        }
    }
    if (descriptor >= 0) {
        opened(descriptor, is_new);
        if ((flags & O_TRUNC) && !is_new) {
            struct stat found;
            struct file *file = behind(descriptor, &found);
            if (file && file->durable)
                protect(descriptor, file);
            syscall(SYS_ftruncate, descriptor, 0);
        }
    }
    int saved = errno;
    pthread_mutex_unlock(&lock);
    errno = saved;
    return descriptor;
}

static mode_t mode_in(int flags, va_list rest)
{
    return flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(rest, unsigned) : 0;
}

#define OPEN(name)                                                                                                     \
    int name(const char *path, int flags, ...)                                                                         \
    {                                                                                                                  \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = mode_in(flags, rest);                                                                            \
        va_end(rest);                                                                                                  \
        return open_at(AT_FDCWD, path, flags, mode);                                                                   \
    }
#define OPENAT(name)                                                                                                   \
    int name(int folder, const char *path, int flags, ...)                                                             \
    {                                                                                                                  \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = mode_in(flags, rest);                                                                            \
        va_end(rest);                                                                                                  \
        return open_at(folder, path, flags, mode);                                                                     \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

int close(int descriptor)
{
    if (descriptor >= 0 && descriptor < DESCRIPTORS)
        inode_of[descriptor] = NO_FILE;
    return syscall(SYS_close, descriptor);
}

/* ---- writing */

/* Before `length` bytes are written at `position` (-1: at the file's own). How many may be; -1 with errno for none. */
static ssize_t admit(int descriptor, int64_t position, size_t length)
{
    struct stat found;
    if (!state || descriptor < 0 || descriptor >= DESCRIPTORS || !inode_of[descriptor])
        return length;
    ssize_t admitted = length;
    pthread_mutex_lock(&lock);
    struct file *file = behind(descriptor, &found);
    if (file) {
        if (fcntl(descriptor, F_GETFL) & O_APPEND)
            position = found.st_size; /* of pwrite too: pwrite(2), BUGS */
        else if (position < 0)
            position = syscall(SYS_lseek, descriptor, 0, SEEK_CUR);
        if (state->error == ENOSPC && position + (int64_t)length > found.st_size) {
            admitted = (int64_t)length < state->budget ? (ssize_t)length : state->budget;
            state->budget -= admitted;
        } else if (state->error && state->error != ENOSPC)
            admitted = 0;
        if (admitted && position < file->durable)
            protect(descriptor, file);
    }
    pthread_mutex_unlock(&lock);
    if (length && admitted <= 0) {
        errno = (int)state->error;
        return -1;
    }
    return admitted;
}

ssize_t write(int descriptor, const void *bytes, size_t length)
{
    ssize_t admitted = admit(descriptor, -1, length);
    return admitted < 0 ? -1 : syscall(SYS_write, descriptor, bytes, admitted);
}

ssize_t pwrite64(int descriptor, const void *bytes, size_t length, off64_t position)
{
    ssize_t admitted = admit(descriptor, position, length);
    return admitted < 0 ? -1 : syscall(SYS_pwrite64, descriptor, bytes, admitted, position);
}

ssize_t pwrite(int descriptor, const void *bytes, size_t length, off_t position)
{
    return pwrite64(descriptor, bytes, length, position);
}

/* Several buffers are written as long as all of them fit: a shorter write begins with the first. */
ssize_t pwritev64(int descriptor, const struct iovec *parts, int count, off64_t position)
{
    size_t length = 0;
    for (int part = 0; part < count; part++)
        length += parts[part].iov_len;
    ssize_t admitted = admit(descriptor, position, length);
    if (admitted < 0)
        return -1;
    if ((size_t)admitted == length)
        return position < 0 ? syscall(SYS_writev, descriptor, parts, count)
                            : syscall(SYS_pwritev, descriptor, parts, count, position, 0);
    while (!parts->iov_len)
        parts++;
    length = (size_t)admitted < parts->iov_len ? (size_t)admitted : parts->iov_len;
    return position < 0 ? syscall(SYS_write, descriptor, parts->iov_base, length)
                        : syscall(SYS_pwrite64, descriptor, parts->iov_base, length, position);
}

ssize_t pwritev(int descriptor, const struct iovec *parts, int count, off_t position)
{
    return pwritev64(descriptor, parts, count, position);
}

ssize_t writev(int descriptor, const struct iovec *parts, int count)
{
    return pwritev64(descriptor, parts, count, -1);
}

int ftruncate64(int descriptor, off64_t length)
{
    struct stat found;
    pthread_mutex_lock(&lock);
    struct file *file = behind(descriptor, &found);
    int refused = file && state->error && (state->error != ENOSPC || (length > found.st_size && state->budget <= 0));
    if (file && !refused && length < file->durable)
        protect(descriptor, file);
    if (file && !refused && (file->cut == UNCUT || length < file->cut))
        file->cut = length;
    pthread_mutex_unlock(&lock);
    if (refused) {
        errno = (int)state->error;
        return -1;
    }
    return syscall(SYS_ftruncate, descriptor, length);
}

int ftruncate(int descriptor, off_t length)
{
    return ftruncate64(descriptor, length);
}

/* ---- making durable */

static int is_mapped(uint64_t inode)
{
    for (int at = 0; at < MAPPINGS; at++)
        if (mappings[at].address && mappings[at].inode == inode)
            return 1;
    return 0;
}

/* A mapped file's bytes may change at any moment, unseen: the durable ones are copied as soon as the flush is over. */
static int flush(int descriptor, long call)
{
    struct stat found;
    if (!state || descriptor < 0 || descriptor >= DESCRIPTORS || !inode_of[descriptor])
        return syscall(call, descriptor);
    pthread_mutex_lock(&lock);
    struct file *file = behind(descriptor, &found);
    int refused = file && state->error && state->error != ENOSPC;
    pthread_mutex_unlock(&lock);
    if (refused) {
        errno = (int)state->error;
        return -1;
    }
    int result = syscall(call, descriptor);
    int saved = errno;
    if (file && !result) {
        pthread_mutex_lock(&lock);
        if (is_mapped(found.st_ino)) {
            int reader = reader_of(descriptor);
            if (reader >= 0) {
                copy(reader, file, found.st_size);
                syscall(SYS_close, reader);
            }
        } else {
            drop_copy(file);
            file->durable = found.st_size;
            file->cut = UNCUT;
        }
        pthread_mutex_unlock(&lock);
    }
    errno = saved;
    return result;
}

int fsync(int descriptor)
{
    return flush(descriptor, SYS_fsync);
}

int fdatasync(int descriptor)
{
    return flush(descriptor, SYS_fdatasync);
}

void *mmap64(void *wish, size_t length, int protection, int flags, int descriptor, off64_t offset)
{
    struct stat found;
    void *address = (void *)syscall(SYS_mmap, wish, length, protection, flags, descriptor, offset);
    if (address == MAP_FAILED || !state || descriptor < 0 || !(protection & PROT_WRITE) || !(flags & MAP_SHARED))
        return address;
    pthread_mutex_lock(&lock);
    struct file *file = behind(descriptor, &found);
    if (file) {
        protect(descriptor, file);
        for (int at = 0; at < MAPPINGS; at++)
            if (!mappings[at].address) {
                mappings[at] = (struct mapping){address, found.st_ino, reader_of(descriptor)};
                break;
            }
    }
    pthread_mutex_unlock(&lock);
    return address;
}

void *mmap(void *wish, size_t length, int protection, int flags, int descriptor, off_t offset)
{
    return mmap64(wish, length, protection, flags, descriptor, offset);
}

int msync(void *address, size_t length, int flags)
{
    struct stat found;
    int result = syscall(SYS_msync, address, length, flags);
    if (!state || result || !(flags & MS_SYNC))
        return result;
    pthread_mutex_lock(&lock);
    for (int at = 0; at < MAPPINGS; at++)
        if (mappings[at].address == address && !fstat(mappings[at].reader, &found)) {
            struct file *file = known(mappings[at].inode, 0);
            if (file)
                copy(mappings[at].reader, file, found.st_size);
        }
    pthread_mutex_unlock(&lock);
    return result;
}

int munmap(void *address, size_t length)
{
    if (state) {
        pthread_mutex_lock(&lock);
        for (int at = 0; at < MAPPINGS; at++)
            if (mappings[at].address == address) {
                syscall(SYS_close, mappings[at].reader);
                mappings[at].address = 0;
            }
        pthread_mutex_unlock(&lock);
    }
    return syscall(SYS_munmap, address, length);
}

/* ---- names */

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    if (!flags)
        forget_if_last(to_folder, to);
    return syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    return renameat2(from_folder, from, to_folder, to, 0);
}

int rename(const char *from, const char *to)
{
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlinkat(int folder, const char *path, int flags)
{
    if (!(flags & AT_REMOVEDIR))
        forget_if_last(folder, path);
    return syscall(SYS_unlinkat, folder, path, flags);
}

int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

int remove(const char *path)
{
    int result = unlinkat(AT_FDCWD, path, 0);
    return result && errno == EISDIR ? syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR) : result;
}

/* ---- the clock */

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = syscall(SYS_clock_gettime, clock, now);
    if (state && !result && state->clock_ns && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t total = now->tv_sec * NANOS + now->tv_nsec + state->clock_ns;
        now->tv_sec = total / NANOS;
        now->tv_nsec = total % NANOS;
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return result;
}

time_t time(time_t *where)
{
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (where)
        *where = precise.tv_sec;
    return precise.tv_sec;
}
