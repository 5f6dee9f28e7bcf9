/* Opens a model, reads it into memory, and sums an array of F32: sum FILE NAME */
#include <stdio.h>
#include <string.h>

#include "onecopy/onecopy.h"

static int failed(void) { return fprintf(stderr, "%s\n", onecopy_last_error()->message), 1; }

int main(int argc, char** argv) {
  onecopy_file* file = NULL;
  onecopy_entry entry = {.size = sizeof entry};
  onecopy_warm_report report = {.size = sizeof report};
  if (argc != 3) return fprintf(stderr, "usage: sum FILE NAME\n"), 2;
  if (onecopy_open(argv[1], NULL, &file) != ONECOPY_OK) return failed();
  if (onecopy_warm(file, NULL, &report) != ONECOPY_OK) return failed();
  if (onecopy_find_entry(file, argv[2], &entry) != ONECOPY_OK) return failed();
  if (strcmp(entry.dtype, "F32") != 0) return fprintf(stderr, "%s has %s, not F32\n", entry.name, entry.dtype), 1;
  double sum = 0;
  for (size_t i = 0; i < entry.bytes / sizeof(float); ++i) sum += ((const float*)entry.data)[i];
  printf("%s: %llu bytes, sum %g\nwarm: %s\n", entry.name, (unsigned long long)entry.bytes, sum, report.reason);
  onecopy_close(file); /* entry.data is invalid from here on */
  return 0;
}
