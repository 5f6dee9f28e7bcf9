/* The C interface from C: test_c FILE FOLDER. FILE has an array "w" of I16 and checksums; FOLDER is new and empty. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "onecopy/onecopy.h"

/* Programs that are compiled know these numbers: a field may be added at the end, with a new number here. */
#define LAYOUT(type, field, at, all) _Static_assert(offsetof(type, field) == (at) && sizeof(type) == (all), #type)
LAYOUT(onecopy_error, path, 40, 48);
LAYOUT(onecopy_open_options, raw, 12, 16);
LAYOUT(onecopy_info, built, 60, 64);
LAYOUT(onecopy_entry, rank, 76, 80);
LAYOUT(onecopy_warm_options, in_order, 44, 48);
LAYOUT(onecopy_warm_report, reason, 80, 1104);
LAYOUT(onecopy_residency, source, 48, 56);
LAYOUT(onecopy_build_options, open, 32, 40);

static int failures;
#define IS(condition) ((condition) ? 0 : (failures++, printf("%d: %s: %s\n", __LINE__, #condition, error()->message)))
#define FAILS(call, expected) IS((call) == (expected) && error()->code == (expected) && *error()->message)
static const onecopy_error* error(void) { return onecopy_last_error(); }
static onecopy_file* file = NULL;
static onecopy_info info = {.size = sizeof info};
static onecopy_entry entry = {.size = sizeof entry};
static const onecopy_open_options raw = {.size = sizeof raw, .raw = 1};

static void arrays_are_found_by_number_and_by_name(const char* path) {
  onecopy_warm_report report = {.size = sizeof report};
  onecopy_residency residency = {.size = sizeof residency};
  const char* names[] = {"w"};
  onecopy_warm_options options = {.size = sizeof options, .names = names, .count = 1, .verify = 1};
  uint64_t bytes = 0;
  IS(onecopy_open(path, NULL, &file) == 0 && onecopy_get_info(file, &info) == 0 && info.entries == 2 && !info.built);
  IS(!strcmp(info.path, path) && !strcmp(info.format, "safetensors") && !strcmp(info.kind, "arrays") && !info.mode);
  IS(onecopy_find_entry(file, "w", &entry) == 0 && !strcmp(entry.dtype, "I16") && entry.item_bits == 16);
  IS(entry.rank == 1 && entry.shape[0] == 3 && !entry.strides && entry.bytes == 6 && entry.name_length == 1);
  IS((const char*)entry.data == (const char*)info.data + entry.offset && ((const int16_t*)entry.data)[2] == 2);
  IS(onecopy_get_entry(file, 1, &entry) == 0 && !strcmp(entry.name, "s") && entry.rank == 0 && entry.bytes == 4);
  IS(onecopy_verify(file, NULL, 0, &bytes) == 0 && bytes == 10);
  IS(onecopy_warm(file, &options, &report) == 0 && report.complete && report.verified == 10 && *report.reason);
  IS(onecopy_get_residency(file, names, 1, &residency) == 0 && residency.bytes > 0 && *residency.source);
  names[0] = "none";
  FAILS(onecopy_verify(file, names, 1, NULL), ONECOPY_NOT_FOUND);
  FAILS(onecopy_find_entry(file, "none", &entry), ONECOPY_NOT_FOUND);
  FAILS(onecopy_find_entry(file, "#0", &entry), ONECOPY_NOT_FOUND);  // a filler, which has no number either
  FAILS(onecopy_verify(file, names, (uint64_t)1 << 60, NULL), ONECOPY_ARGUMENT);
  FAILS(onecopy_get_entry(file, 2, &entry), ONECOPY_NOT_FOUND);
  IS(!strcmp(error()->path, path) && error()->offset == -1);
  file = (onecopy_close(file), NULL);
}

static void a_wrong_argument_is_an_error(const char* path) {
  onecopy_entry unset = {0};
  struct { onecopy_open_options known; uint64_t added; } newer = {{.size = sizeof newer}, 1};
  struct { onecopy_entry known; uint64_t added; } newer_entry = {{.size = sizeof newer_entry}, 1};
  struct { size_t size; const char* name; const char* untouched; } older = {offsetof(onecopy_entry, dtype), NULL, NULL};
  FAILS(onecopy_open(NULL, NULL, &file), ONECOPY_ARGUMENT);
  FAILS(onecopy_open(path, NULL, NULL), ONECOPY_ARGUMENT);
  FAILS(onecopy_get_info(NULL, &info), ONECOPY_ARGUMENT);
  FAILS(onecopy_open(path, &newer.known, &file), ONECOPY_ARGUMENT);
  newer.added = 0;
  IS(file == NULL && onecopy_open(path, &newer.known, &file) == 0);
  FAILS(onecopy_find_entry(file, "w", &unset), ONECOPY_ARGUMENT);
  FAILS(onecopy_find_entry(file, NULL, &entry), ONECOPY_ARGUMENT);
  IS(onecopy_find_entry(file, "w", (onecopy_entry*)&older) == 0 && !strcmp(older.name, "w") && !older.untouched);
  IS(onecopy_find_entry(file, "w", &newer_entry.known) == 0 && newer_entry.known.bytes == 6 && !newer_entry.added);
  onecopy_close(file);
  onecopy_close(NULL);
}

static void* code_of_this_thread(void* code) { return *(int32_t*)code = error()->code, NULL; }

static void a_bad_file_is_an_error_with_path_kind_and_offset(const char* path) {
  pthread_t thread;
  int32_t code = -1;
  FAILS(onecopy_open("missing", NULL, &file), ONECOPY_SYSTEM);
  IS(error()->number == ENOENT && !strcmp(error()->path, "missing") && error()->kind == 0);
  IS(pthread_create(&thread, NULL, code_of_this_thread, &code) == 0 && pthread_join(thread, NULL) == 0 && code == 0);
  static char all[1 << 16];
  FILE* copy = fopen(path, "rb");
  const size_t whole = fread(all, 1, sizeof all, copy);
  all[entry.offset] ^= 1;
  copy = freopen("copy", "wb", copy);
  fwrite(all, 1, whole, copy);
  fclose(copy);
  IS(onecopy_open("copy", NULL, &file) == 0);
  FAILS(onecopy_verify(file, NULL, 0, NULL), ONECOPY_CHECKSUM);
  IS(error()->kind == ONECOPY_INCONSISTENT && error()->offset == 4096 && !strcmp(error()->path, "copy"));
  onecopy_close(file);
  for (off_t cut = (off_t)whole - 1; cut > 0; cut -= cut < 500 ? 1 : 3) {
    FAILS(truncate("copy", cut) + onecopy_open("copy", NULL, &file), ONECOPY_FORMAT);
    IS(error()->kind == ONECOPY_OUT_OF_BOUNDS || error()->kind == ONECOPY_TRUNCATED);
  }
  FAILS(truncate("copy", 0) + onecopy_open("copy", NULL, &file), ONECOPY_SYSTEM);
}

static void a_type_that_is_not_viewed_has_its_own_name(void) {
  const char* header = "{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}";
  FILE* npy = fopen("big.npy", "wb");
  fprintf(npy, "\x93NUMPY%c%c%c%c%s1234", 1, 0, (char)strlen(header), 0, header);
  fclose(npy);
  IS(onecopy_open("big.npy", NULL, &file) == 0 && onecopy_get_entry(file, 0, &entry) == 0);
  IS(!strcmp(entry.dtype, ">f4") && entry.item_bits == 0 && entry.bytes == 4);
  onecopy_close(file);
}

static void a_file_that_is_truncated_while_it_is_mapped_is_an_error_and_no_signal(void) {
  const onecopy_warm_options two_pages = {.size = sizeof two_pages, .budget = 8192};
  onecopy_warm_report report = {.size = sizeof report};
  fclose(fopen("long", "wb"));
  IS(truncate("long", 1 << 20) == 0 && onecopy_open("long", &raw, &file) == 0);
  IS(onecopy_warm(file, &two_pages, &report) == 0 && report.bytes == 1 << 20 && report.filled <= 8192);
  IS(onecopy_get_info(file, &info) == 0 && info.bytes == 1 << 20 && !info.entries && !strcmp(info.format, "raw"));
  FAILS(onecopy_verify(file, NULL, 0, NULL), ONECOPY_ARGUMENT);
  IS(onecopy_guard() == 0 && onecopy_check() == 0 && truncate("long", 4096) == 0);
  FAILS(onecopy_warm(file, NULL, NULL), ONECOPY_DATA_LOST);
  IS(((const volatile char*)info.data)[1 << 19] == 0);
  FAILS(onecopy_check(), ONECOPY_DATA_LOST);
  IS(error()->offset == 4096 && !strcmp(error()->path, "long"));
  FAILS(onecopy_get_info(file, &info), ONECOPY_DATA_LOST);
  onecopy_close(file);
}

static int build(const char* path, void* status) {
  FILE* built = fopen(path, "wb");
  usleep(100000);
  fputs("built", built);
  return fclose(built) != 0 ? 1 : *(const int*)status;
}

static int change_source(const char* path, void* source) {
  FILE* more = fopen(source, "ab");
  fputs("more", more);
  return fclose(more) != 0 || fclose(fopen(path, "wb")) != 0;
}

/* As prune asks before it removes an artefact; -1: the system cannot tell. */
static int is_in_use(const char* path) {
  struct flock lock = {.l_type = F_WRLCK};
  const int fd = open(path, O_RDONLY);
  const int unknown = fcntl(fd, F_OFD_GETLK, &lock);
  close(fd);
  return unknown ? -1 : lock.l_type != F_UNLCK;
}

static void one_process_builds_and_the_others_map_what_it_built(void) {
  onecopy_build_options options = {.size = sizeof options, .folder = "store", .open = &raw};
  int status = 7, builders = 0;
  FAILS(onecopy_get_or_build("key", build, &status, &options, &file), ONECOPY_CALLBACK);
  IS(error()->number == 7 && strstr(error()->message, "'key'"));
  status = 0;
  for (int i = 0; i < 8; ++i)
    if (fork() == 0) {
      const int code = onecopy_get_or_build("key", build, &status, &options, &file);
      _exit(code || onecopy_get_info(file, &info) || memcmp(info.data, "built", 5) ? 100 : info.built);
    }
  for (int i = 0; i < 8; ++i) builders += wait(&status) > 0 ? WEXITSTATUS(status) : 100;
  IS(builders == 1);
  IS(onecopy_get_or_build("key", build, &status, &options, &file) == 0 && onecopy_get_info(file, &info) == 0);
  char* path = strdup(info.path);
  onecopy_close(file);
  IS(is_in_use(path) <= 0 && onecopy_open(path, &raw, &file) == 0);
  IS(is_in_use(path) != 0);
  onecopy_close(file);
  free(path);
  const onecopy_open_options copied = {.size = sizeof copied, .mode = ONECOPY_COPY, .raw = 1};
  options.open = &copied;
  IS(onecopy_get_or_build("key", build, &status, &options, &file) == 0);
  IS(onecopy_get_info(file, &info) == 0 && info.mode == ONECOPY_COPY && !info.built);
  onecopy_close(file);
  options.source = "long";
  FAILS(onecopy_get_or_build("of a source", change_source, "long", &options, &file), ONECOPY_FILE_CHANGED);
  options.folder = "/"; /* others may read it */
  FAILS(onecopy_get_or_build("key", build, &status, &options, &file), ONECOPY_SYSTEM);
}

int main(int argc, char** argv) {
  if (argc != 3 || chdir(argv[2]) != 0) return 2;
  IS(error()->code == ONECOPY_OK && error()->size == sizeof(onecopy_error) && *onecopy_version());
  arrays_are_found_by_number_and_by_name(argv[1]);
  a_wrong_argument_is_an_error(argv[1]);
  a_bad_file_is_an_error_with_path_kind_and_offset(argv[1]);
  a_type_that_is_not_viewed_has_its_own_name();
  a_file_that_is_truncated_while_it_is_mapped_is_an_error_and_no_signal();
  one_process_builds_and_the_others_map_what_it_built();
  return failures != 0;
}
