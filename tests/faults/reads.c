/* Calls that read below one folder, counted; one of them, or all from one on at its file, fail with a chosen errno.
 *
 * Preloaded, so that it meets the calls of every library of the process, not only Python's.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define DESCRIPTORS 4096

static char folder[PATH_MAX], met[PATH_MAX], kind[8], names[DESCRIPTORS][PATH_MAX];
static char watched[DESCRIPTORS];
static long at, count;
static int number, lasting, armed;

/* Fail call `position` (none if 0) below `root` with errno `error`; `lasts`: all later ones at that file, too. */
void arm(const char *root, long position, int error, int lasts) {
    snprintf(folder, sizeof folder, "%s/", root);
    at = position, number = error, lasting = lasts, count = 0, met[0] = kind[0] = 0, armed = 1;
}
void disarm(void) { armed = 0; }
long calls(void) { return count; }
const char *failed(void) { return met; }
const char *failed_kind(void) { return kind; }

static int fails(const char *path, const char *name) {
    if (!armed || strncmp(path, folder, strlen(folder)))
        return 0;
    count++;
    int again = lasting && met[0] && !strcmp(met, path);
    if (count != at && !again)
        return 0;
    if (!again) {
        snprintf(met, sizeof met, "%s", path);
        snprintf(kind, sizeof kind, "%s", name);
    }
    errno = number;
    return 1;
}

static void absolute(int at_folder, const char *path, char *whole) {
    char base[PATH_MAX] = "";
    if (path[0] == '/') {
        snprintf(whole, PATH_MAX, "%s", path);
        return;
    }
    if (at_folder == AT_FDCWD) {
        if (!getcwd(base, sizeof base))
            base[0] = 0;
    } else if (at_folder >= 0 && at_folder < DESCRIPTORS && watched[at_folder]) {
        snprintf(base, sizeof base, "%s", names[at_folder]);
    }
    if (snprintf(whole, PATH_MAX, "%s/%s", base, path) >= PATH_MAX)
        whole[0] = 0;
}

static int opened(int descriptor, const char *path, int flags) {
    if (descriptor >= 0 && descriptor < DESCRIPTORS) {
        watched[descriptor] = armed && (flags & O_ACCMODE) == O_RDONLY && !strncmp(path, folder, strlen(folder));
        if (watched[descriptor])
            snprintf(names[descriptor], PATH_MAX, "%s", path);
    }
    return descriptor;
}

static int of_watched(int descriptor, const char *name) {
    return descriptor >= 0 && descriptor < DESCRIPTORS && watched[descriptor] && fails(names[descriptor], name);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define OPEN(name)                                                                                  \
    int name(const char *path, int flags, ...) {                                                    \
        va_list rest;                                                                               \
        va_start(rest, flags);                                                                      \
        int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;                           \
        va_end(rest);                                                                               \
        char whole[PATH_MAX];                                                                       \
        absolute(AT_FDCWD, path, whole);                                                            \
        if ((flags & O_ACCMODE) == O_RDONLY && fails(whole, "open"))                                \
            return -1;                                                                              \
        return opened(NEXT(name)(path, flags, mode), whole, flags);                                 \
    }
OPEN(open)
OPEN(open64)

#define OPEN_AT(name)                                                                               \
    int name(int at_folder, const char *path, int flags, ...) {                                     \
        va_list rest;                                                                               \
        va_start(rest, flags);                                                                      \
        int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;                           \
        va_end(rest);                                                                               \
        char whole[PATH_MAX];                                                                       \
        absolute(at_folder, path, whole);                                                           \
        if ((flags & O_ACCMODE) == O_RDONLY && fails(whole, "open"))                                \
            return -1;                                                                              \
        return opened(NEXT(name)(at_folder, path, flags, mode), whole, flags);                      \
    }
OPEN_AT(openat)
OPEN_AT(openat64)

DIR *opendir(const char *path) {
    char whole[PATH_MAX];
    absolute(AT_FDCWD, path, whole);
    return fails(whole, "open") ? NULL : NEXT(opendir)(path);
}

ssize_t read(int descriptor, void *buffer, size_t bytes) {
    return of_watched(descriptor, "read") ? -1 : NEXT(read)(descriptor, buffer, bytes);
}
ssize_t pread(int descriptor, void *buffer, size_t bytes, off_t offset) {
    return of_watched(descriptor, "read") ? -1 : NEXT(pread)(descriptor, buffer, bytes, offset);
}
ssize_t pread64(int descriptor, void *buffer, size_t bytes, off64_t offset) {
    return of_watched(descriptor, "read") ? -1 : NEXT(pread64)(descriptor, buffer, bytes, offset);
}
int close(int descriptor) {
    int wrong = of_watched(descriptor, "close"), error = errno;
    if (descriptor >= 0 && descriptor < DESCRIPTORS)
        watched[descriptor] = 0;
    int done = NEXT(close)(descriptor);
    if (wrong)
        errno = error;
    return wrong ? -1 : done;
}

#define STAT(name, type)                                                                            \
    int name(const char *path, struct type *found) {                                                \
        char whole[PATH_MAX];                                                                       \
        absolute(AT_FDCWD, path, whole);                                                            \
        return fails(whole, "stat") ? -1 : NEXT(name)(path, found);                                 \
    }
STAT(stat, stat)
STAT(stat64, stat64)
STAT(lstat, stat)
STAT(lstat64, stat64)

#define STAT_OPENED(name, type)                                                                     \
    int name(int descriptor, struct type *found) {                                                  \
        return of_watched(descriptor, "stat") ? -1 : NEXT(name)(descriptor, found);                 \
    }
STAT_OPENED(fstat, stat)
STAT_OPENED(fstat64, stat64)

#define STAT_AT(name, type)                                                                         \
    int name(int at_folder, const char *path, struct type *found, int flags) {                      \
        char whole[PATH_MAX];                                                                       \
        absolute(at_folder, path, whole);                                                           \
        if (path[0] ? fails(whole, "stat") : of_watched(at_folder, "stat"))                         \
            return -1;                                                                              \
        return NEXT(name)(at_folder, path, found, flags);                                           \
    }
STAT_AT(fstatat, stat)
STAT_AT(fstatat64, stat64)

int statx(int at_folder, const char *restrict path, int flags, unsigned mask, struct statx *restrict found) {
    char whole[PATH_MAX];
    absolute(at_folder, path, whole);
    if (path[0] ? fails(whole, "stat") : of_watched(at_folder, "stat"))
        return -1;
    return NEXT(statx)(at_folder, path, flags, mask, found);
}
