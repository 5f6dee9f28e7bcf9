/* An array of F64 of a file as an R vector: memory of the page cache, which all R processes share. See sum.R. */
#include <Rinternals.h>
#include <R_ext/Altrep.h>
#include <onecopy/onecopy.h>
#include <stdint.h>
#include <string.h>

static R_altrep_class_t mapped; /* data1: the file; data2: the address, and the length as its tag */
static R_xlen_t length_of(SEXP x) { return (R_xlen_t)Rf_asReal(R_ExternalPtrTag(R_altrep_data2(x))); }
static void* data_of(SEXP x, Rboolean writable) { return (void)writable, R_ExternalPtrAddr(R_altrep_data2(x)); }
static const void* data_or_null_of(SEXP x) { return R_ExternalPtrAddr(R_altrep_data2(x)); }
static void close_file(SEXP file) { onecopy_close(R_ExternalPtrAddr(file)); }

SEXP mapped_array(SEXP path, SEXP name) {
  onecopy_file* file = NULL;
  onecopy_entry entry = {.size = sizeof entry};
  if (onecopy_open(CHAR(Rf_asChar(path)), NULL, &file)) Rf_error("%s", onecopy_last_error()->message);
  SEXP owner = PROTECT(R_MakeExternalPtr(file, R_NilValue, R_NilValue));
  R_RegisterCFinalizerEx(owner, close_file, TRUE);
  if (onecopy_find_entry(file, CHAR(Rf_asChar(name)), &entry)) Rf_error("%s", onecopy_last_error()->message);
  if (strcmp(entry.dtype, "F64") != 0 || (uintptr_t)entry.data % 8 != 0) Rf_error("not F64, or not aligned");
  SEXP length = PROTECT(Rf_ScalarReal((double)(entry.bytes / 8)));
  SEXP address = PROTECT(R_MakeExternalPtr((void*)entry.data, length, R_NilValue));
  SEXP vector = PROTECT(R_new_altrep(mapped, owner, address));
  MARK_NOT_MUTABLE(vector); /* R copies it before it writes */
  UNPROTECT(4);
  return vector;
}

void R_init_onecopy_r(DllInfo* library) {
  mapped = R_make_altreal_class("mapped", "onecopy", library);
  R_set_altrep_Length_method(mapped, length_of);
  R_set_altvec_Dataptr_method(mapped, data_of);
  R_set_altvec_Dataptr_or_null_method(mapped, data_or_null_of);
}
