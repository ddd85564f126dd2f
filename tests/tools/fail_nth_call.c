// A library to preload: lets the N-th call of one kind fail, as a disk or the system may.
//   FAULT_KIND   read, write, open, rename, fsync, mmap, thread (its start), malloc, or child_malloc:
//                one of a forked child
//   FAULT_NUMBER the call that fails, from 1; 0 = none
//   FAULT_ROOT   only files below this folder count, and threads and memory from the first such file on
//   FAULT_COUNT  a file that receives how many calls there were (the last process to end wins)
// One thread's N-th call is another's in the next run: the number is of the whole process.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static const char* kind;
static const char* root;
static const char* count_file;
static size_t root_length;
static long number;
static atomic_long calls;
static atomic_int started;
static int is_child;

static void begin_child(void) {
  is_child = 1;
  if (kind != NULL && strcmp(kind, "child_malloc") == 0) atomic_store(&calls, 0);
}

__attribute__((constructor)) static void begin(void) {
  const char* text = getenv("FAULT_NUMBER");
  root = getenv("FAULT_ROOT");
  count_file = getenv("FAULT_COUNT");
  number = text == NULL ? 0 : atol(text);
  root_length = root == NULL ? 0 : strlen(root);
  pthread_atfork(NULL, NULL, begin_child);
  kind = getenv("FAULT_KIND");  // last: only now does anything count
}

__attribute__((destructor)) static void end(void) {
  if (kind == NULL || count_file == NULL) return;
  char line[32];
  const int length = snprintf(line, sizeof line, "%ld\n", atomic_load(&calls));
  kind = NULL;
  const int file = open(count_file, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (file < 0) return;
  if (write(file, line, (size_t)length) != length) {}
  close(file);
}

static int is_below(const char* path) {
  return root_length > 0 && path != NULL && (path[0] != '/' || strncmp(path, root, root_length) == 0);
}

static int is_below_descriptor(int descriptor) {
  char link[64];
  char path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return 0;
  path[length] = '\0';
  return path[0] == '/' && is_below(path);
}

// Whether this call, of a kind that counts, is the one.
static int hits(void) {
  return atomic_fetch_add(&calls, 1) + 1 == number;
}
static int is_kind(const char* name) {
  return kind != NULL && strcmp(kind, name) == 0;
}
static int fails(const char* name, int descriptor, int error) {
  if (!is_kind(name) || !is_below_descriptor(descriptor) || !hits()) return 0;
  errno = error;
  return 1;
}
static int fails_path(const char* name, const char* path, int error) {
  if (is_below(path)) atomic_store(&started, 1);
  if (!is_kind(name) || !is_below(path) || !hits()) return 0;
  errno = error;
  return 1;
}

#define NEXT(name) \
  static __typeof__(&name) next; \
  if (next == NULL) next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

ssize_t read(int file, void* to, size_t bytes) {
  NEXT(read);
  return fails("read", file, EIO) ? -1 : next(file, to, bytes);
}
ssize_t pread(int file, void* to, size_t bytes, off_t at) {
  NEXT(pread);
  return fails("read", file, EIO) ? -1 : next(file, to, bytes, at);
}
ssize_t pread64(int file, void* to, size_t bytes, off64_t at) {
  NEXT(pread64);
  return fails("read", file, EIO) ? -1 : next(file, to, bytes, at);
}
ssize_t write(int file, const void* from, size_t bytes) {
  NEXT(write);
  return fails("write", file, ENOSPC) ? -1 : next(file, from, bytes);
}
ssize_t writev(int file, const struct iovec* parts, int count) {
  NEXT(writev);
  return fails("write", file, ENOSPC) ? -1 : next(file, parts, count);
}
ssize_t pwrite(int file, const void* from, size_t bytes, off_t at) {
  NEXT(pwrite);
  return fails("write", file, ENOSPC) ? -1 : next(file, from, bytes, at);
}
ssize_t pwrite64(int file, const void* from, size_t bytes, off64_t at) {
  NEXT(pwrite64);
  return fails("write", file, ENOSPC) ? -1 : next(file, from, bytes, at);
}
int fsync(int file) {
  NEXT(fsync);
  return fails("fsync", file, EIO) ? -1 : next(file);
}
int fdatasync(int file) {
  NEXT(fdatasync);
  return fails("fsync", file, EIO) ? -1 : next(file);
}
static mode_t mode_of(int flags, va_list more) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
}
int open(const char* path, int flags, ...) {
  NEXT(open);
  va_list more;
  va_start(more, flags);
  const mode_t mode = mode_of(flags, more);
  va_end(more);
  return fails_path("open", path, EMFILE) ? -1 : next(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  NEXT(open64);
  va_list more;
  va_start(more, flags);
  const mode_t mode = mode_of(flags, more);
  va_end(more);
  return fails_path("open", path, EMFILE) ? -1 : next(path, flags, mode);
}
FILE* fopen(const char* path, const char* mode) {
  NEXT(fopen);
  return fails_path("open", path, EMFILE) ? NULL : next(path, mode);
}
FILE* fopen64(const char* path, const char* mode) {
  NEXT(fopen64);
  return fails_path("open", path, EMFILE) ? NULL : next(path, mode);
}
int rename(const char* from, const char* to) {
  NEXT(rename);
  return fails_path("rename", to, EIO) ? -1 : next(from, to);
}
void* mmap(void* at, size_t bytes, int protection, int flags, int file, off_t offset) {
  NEXT(mmap);
  if ((flags & MAP_ANONYMOUS) == 0 && fails("mmap", file, ENOMEM)) return MAP_FAILED;
  return next(at, bytes, protection, flags, file, offset);
}
void* mmap64(void* at, size_t bytes, int protection, int flags, int file, off64_t offset) {
  NEXT(mmap64);
  if ((flags & MAP_ANONYMOUS) == 0 && fails("mmap", file, ENOMEM)) return MAP_FAILED;
  return next(at, bytes, protection, flags, file, offset);
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*work)(void*),
                   void* argument) {
  NEXT(pthread_create);
  if (is_kind("thread") && atomic_load(&started) && hits()) return EAGAIN;
  return next(thread, attributes, work, argument);
}

#ifndef NO_MALLOC
extern void* __libc_malloc(size_t bytes);
extern void* __libc_calloc(size_t count, size_t bytes);
extern void* __libc_realloc(void* old, size_t bytes);
static int no_memory(void) {
  if (kind == NULL || !atomic_load(&started)) return 0;
  if (!is_kind(is_child ? "child_malloc" : "malloc") || !hits()) return 0;
  errno = ENOMEM;
  return 1;
}
void* malloc(size_t bytes) {
  return no_memory() ? NULL : __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  return no_memory() ? NULL : __libc_calloc(count, bytes);
}
void* realloc(void* old, size_t bytes) {
  return no_memory() ? NULL : __libc_realloc(old, bytes);
}
#endif
