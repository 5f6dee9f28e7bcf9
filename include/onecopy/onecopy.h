/* onecopy for C, and for every language that calls C: named arrays in big read-only files, one copy per machine.

       onecopy_file* file = NULL;
       if (onecopy_open("model.safetensors", NULL, &file) != ONECOPY_OK) return puts(onecopy_last_error()->message);
       onecopy_entry entry = {.size = sizeof entry};
       onecopy_find_entry(file, "encoder.weight", &entry);  // entry.data: the page cache's own bytes
       onecopy_close(file);

   Errors. A function that returns int returns ONECOPY_OK or another code of the list below; onecopy_last_error() has
   the details. No C++ exception leaves the library. Results are written only on success. NULL is an error
   (ONECOPY_ARGUMENT) unless its meaning is documented.
   Lifetimes. Every pointer that is returned for a file (data, names, shapes) is valid until the file is closed. The
   memory is read-only: a write to it ends the process with SIGSEGV.
   Threads. Any thread may call any function, and any number of threads may use one file at once; onecopy_close must
   follow all other calls. A forked child may use and close the files of its parent. A callback must return: it must
   not call longjmp or throw. pthread_cancel of a thread that is inside a call ends the process.
   Structs. The caller sets `size` to sizeof of the struct and everything else to zero, which means the default. Later
   versions add fields at the end, so programs compiled with an older header work unchanged; a nonzero field that this
   library does not know results in ONECOPY_ARGUMENT. A number that the kernel does not report is -1. */
#ifndef ONECOPY_ONECOPY_H
#define ONECOPY_ONECOPY_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" { /* NOLINTBEGIN(modernize-*): C */
#endif
#define ONECOPY_API __attribute__((visibility("default")))

typedef struct onecopy_file onecopy_file; /* an open file */

/* Codes; later versions may add some. */
enum {
  ONECOPY_OK = 0,
  ONECOPY_SYSTEM = 1,       /* the operating system refused: `number` is an errno value */
  ONECOPY_DATA_LOST = 2,    /* an open file was truncated, or its device failed; `number` as above */
  ONECOPY_FILE_CHANGED = 3, /* the source changed during a build; `number` as above */
  ONECOPY_FORMAT = 4,       /* the bytes of the file are wrong: `kind` reports how */
  ONECOPY_CHECKSUM = 5,     /* bytes differ from their checksum; `offset` is that of the first damaged block */
  ONECOPY_NO_CHECKSUM = 6,  /* the file has no checksums to verify it against */
  ONECOPY_NOT_FOUND = 7,    /* no array of this name or number */
  ONECOPY_ARGUMENT = 8,     /* the call is wrong */
  ONECOPY_CALLBACK = 9,     /* the build function failed: `number` is what it returned */
  ONECOPY_MEMORY = 10,      /* malloc failed */
  ONECOPY_INTERNAL = 11     /* a defect of the library, or an exception of a callback */
};

/* Kinds of ONECOPY_FORMAT, _CHECKSUM and _NO_CHECKSUM, with their names in C++ and Python; 0 for all other codes. */
enum {
  ONECOPY_NOT_THIS_FORMAT = 1, /* a file of another format */
  ONECOPY_UNSUPPORTED = 2,     /* a version, encoding or type that this library does not read */
  ONECOPY_TRUNCATED = 3,       /* the data ends before what it declares */
  ONECOPY_OUT_OF_BOUNDS = 4,   /* an offset, a size or a number points outside the data */
  ONECOPY_MALFORMED = 5,       /* the bytes break a rule of the format */
  ONECOPY_INCONSISTENT = 6,    /* two parts contradict each other: a name that occurs twice, a checksum */
  ONECOPY_TOO_COSTLY = 7       /* beyond a limit that keeps a small file from taking much memory or time */
};

typedef struct onecopy_error {
  size_t size; /* set by the library: fields beyond it do not exist */
  int32_t code, kind;
  int64_t number;      /* errno, or what a callback returned; else 0 */
  int64_t offset;      /* in the file, in bytes; -1: unknown */
  const char* message; /* what failed, on what, why; cut after 1,023 bytes */
  const char* path;    /* of the file; "": unknown; cut after 4,095 bytes */
} onecopy_error;

/* The last call of this thread that failed. Never NULL; `code` is ONECOPY_OK before the first failure, and a call that
   succeeds changes nothing. Valid until the next failure in this thread, and until the thread ends. */
ONECOPY_API const onecopy_error* onecopy_last_error(void);

ONECOPY_API const char* onecopy_version(void); /* of the library, not of this header: "0.1.0" */

enum { ONECOPY_MAP = 0, ONECOPY_COPY = 1 };

typedef struct onecopy_open_options {
  size_t size;
  int32_t mode; /* ONECOPY_MAP: the page cache's pages. ONECOPY_COPY: private memory, for files that others edit */
  int32_t raw;  /* 1: open a file with any contents: onecopy_info has its bytes, and it has no arrays */
} onecopy_open_options;

/* Opens safetensors, .npy, .npz, GGUF, ONNX, torch and ExecuTorch files. Nothing but the header is read. A path such as
   "/proc/self/fd/3" opens a descriptor: a memory file of another process. `options` may be NULL. */
ONECOPY_API int onecopy_open(const char* path, const onecopy_open_options* options, onecopy_file** file);

/* Frees the file and everything that was returned for it. NULL is allowed. */
ONECOPY_API void onecopy_close(onecopy_file* file);

typedef struct onecopy_info {
  size_t size;
  const char* path;
  const char* format;      /* "safetensors", "gguf", ...; "raw" */
  const char* kind;        /* "arrays", "records", "structure", "image"; "foreign": another tool wrote it */
  const void* data;        /* the whole file; 64 bytes more can be read */
  uint64_t bytes, entries; /* entries: number of arrays */
  int32_t mode, built;     /* built is 1: onecopy_get_or_build built it in this call */
} onecopy_info;

ONECOPY_API int onecopy_get_info(const onecopy_file* file, onecopy_info* info);

typedef struct onecopy_entry {
  size_t size;
  const char* name;        /* ends with a NUL; may contain others */
  const char* dtype;       /* "F32", "BF16", "I64", "BOOL", ... as in safetensors; otherwise the file's name: "Q4_K" */
  const uint64_t* shape;   /* `rank` numbers */
  const uint64_t* strides; /* in elements, `rank` numbers; NULL: the last axis runs fastest */
  const void* data;        /* aligned as in the file */
  uint64_t name_length;
  uint64_t offset; /* in the file */
  uint64_t bytes;
  uint32_t item_bits; /* of an element; 0: blocks of the file's own type */
  uint32_t rank;      /* 0: a scalar */
} onecopy_entry;

/* An array, by its number (from 0, in the order of the file) or by its name. */
ONECOPY_API int onecopy_get_entry(const onecopy_file* file, uint64_t number, onecopy_entry* entry);
ONECOPY_API int onecopy_find_entry(const onecopy_file* file, const char* name, onecopy_entry* entry);

/* For the next functions `names` are `count` names of arrays; NULL: the whole file. */
enum { ONECOPY_AUTO = 0, ONECOPY_YES = 1, ONECOPY_NO = 2 };

typedef struct onecopy_warm_options {
  size_t size;
  const char* const* names;
  uint64_t count;
  uint64_t budget;  /* maximum number of bytes to read; 0: the available memory */
  uint32_t threads; /* 0: chosen automatically */
  int32_t huge;     /* request 2 MiB pages: ONECOPY_AUTO, ONECOPY_YES, ONECOPY_NO */
  int32_t verify;   /* 1: compare checksums in the same pass; then also ONECOPY_CHECKSUM, ONECOPY_NO_CHECKSUM */
  int32_t in_order; /* 1: the caller reads everything from front to back next */
} onecopy_warm_options;

typedef struct onecopy_warm_report {
  size_t size;
  uint64_t bytes;  /* requested, in whole pages */
  uint64_t filled; /* read by this call; the rest was in memory before, or exceeds the budget */
  int64_t verified, cached_before, cached_after;
  double huge_share; /* the part that is mapped in 2 MiB pages: 0 to 1 */
  double seconds;
  const char* mechanism; /* a literal: "populate", "read", "advise", "none" */
  uint32_t threads;
  int32_t complete;  /* 1: everything is in memory, or was read */
  char reason[1024]; /* a sentence: what was chosen, and why */
} onecopy_warm_report;

/* Reads the file into memory at the device's speed and returns when that is done; call it in another thread to
   work meanwhile. `options` and `report` may be NULL. Requests that the kernel declines are reported, not errors. */
ONECOPY_API int onecopy_warm(const onecopy_file* file, const onecopy_warm_options* options,
                             onecopy_warm_report* report);

/* Compares the bytes with the checksums that onecopy stored with them. `bytes` receives their number, or is NULL. */
ONECOPY_API int onecopy_verify(const onecopy_file* file, const char* const* names, uint64_t count, uint64_t* bytes);

typedef struct onecopy_residency {
  size_t size;
  uint64_t bytes;     /* requested, in whole pages */
  int64_t cached;     /* in memory, for every process */
  int64_t dirty;      /* cached, and not yet on the disk */
  int64_t mapped;     /* in the page tables of this process */
  int64_t huge;       /* mapped in 2 MiB pages */
  const char* source; /* a literal: "cachestat", "mincore", "unknown" */
} onecopy_residency;

ONECOPY_API int onecopy_get_residency(const onecopy_file* file, const char* const* names, uint64_t count,
                                      onecopy_residency* residency);

/* For files that others may truncate. After onecopy_guard, for the whole process, a page that is lost under a view
   reads as zeros instead of ending the process by SIGBUS. Then onecopy_check, and each further call on that file,
   returns ONECOPY_DATA_LOST: bytes that were read before may have been such zeros. */
ONECOPY_API int onecopy_guard(void);
ONECOPY_API int onecopy_check(void);

/* Writes the file `path`, in any format, and returns 0. Any other number ends the build. */
typedef int (*onecopy_build)(const char* path, void* context);

typedef struct onecopy_build_options {
  size_t size;
  const char* folder; /* of the store, private to this user; NULL: that of the command `onecopy store` */
  const char* source; /* the file that it is built from; ONECOPY_FILE_CHANGED if it changes during the build */
  double timeout;     /* seconds to wait for another builder (ONECOPY_SYSTEM, ETIMEDOUT); 0: wait as long as it lives */
  const onecopy_open_options* open;
} onecopy_build_options;

/* Opens the file of a key in a store. If there is none, one process of the machine builds it and all others wait; if
   the builder dies, another one takes over. The key should name all that it depends on (size, time, version). */
ONECOPY_API int onecopy_get_or_build(const char* key, onecopy_build build, void* context,
                                     const onecopy_build_options* options, onecopy_file** file);

#ifdef __cplusplus
} /* NOLINTEND(modernize-*) */
#endif
#endif
