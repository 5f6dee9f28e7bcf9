// Included before each library source with ONECOPY_POSIX_ONLY, where glibc shows the names of POSIX.1-2008 with XSI
// alone. Declared here are names of POSIX.1-2024, and what the headers of libstdc++ call.
#pragma once

#include <pthread.h>
#include <sys/mman.h>

#ifndef MAP_ANON
#define MAP_ANON 0x20  // of Linux
#endif

extern "C" {
int pthread_cond_clockwait(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
int pthread_mutex_clocklock(pthread_mutex_t*, clockid_t, const struct timespec*) noexcept;
int pthread_rwlock_clockrdlock(pthread_rwlock_t*, clockid_t, const struct timespec*) noexcept;
int pthread_rwlock_clockwrlock(pthread_rwlock_t*, clockid_t, const struct timespec*) noexcept;
long syscall(long, ...) noexcept;  // <bits/atomic_wait.h>
}
