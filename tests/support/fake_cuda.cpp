// A stand-in for libcuda.so.1, as far as onecopy uses it: registered memory must be mapped, read-only, and given back
// before it is unmapped. It writes what it is asked for to the file FAKE_CUDA_LOG, a line each, and fails on request:
// FAKE_CUDA_FAIL="init 100" (a function and an error), FAKE_CUDA_READ_ONLY=0.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace {

std::mutex mutex;
std::map<char*, std::size_t> registered;
thread_local int pushed = 0;

void log(const char* format, ...) {
  const char* path = std::getenv("FAKE_CUDA_LOG");
  if (path == nullptr) return;
  std::FILE* file = std::fopen(path, "a");
  std::va_list arguments;
  va_start(arguments, format);
  std::vfprintf(file, format, arguments);
  va_end(arguments);
  std::fclose(file);
}

int error_for(const char* function) {
  const char* wanted = std::getenv("FAKE_CUDA_FAIL");
  const std::size_t length = std::strlen(function);
  return wanted != nullptr && std::strncmp(wanted, function, length) == 0 ? std::atoi(wanted + length) : 0;
}

bool is_mapped(char* at, std::size_t size) {
  const std::size_t page = sysconf(_SC_PAGESIZE);
  unsigned char here = 0;
  for (std::size_t i = 0; i < size; i += page)
    if (mincore(at + i, 1, &here) != 0) return false;
  return reinterpret_cast<std::uintptr_t>(at) % page == 0 && size % page == 0;
}

}  // namespace

extern "C" {
int cuInit(unsigned) { return error_for("init"); }
int cuGetErrorString(int error, const char** text) {
  *text = error == 100 ? "no CUDA-capable device is detected" : "an error of the stand-in";
  return 0;
}
int cuCtxGetCurrent(void** context) {
  *context = std::getenv("FAKE_CUDA_CONTEXT") != nullptr ? &registered : nullptr;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  log("retain %d\n", device);
  *context = &mutex;
  return error_for("retain");
}
int cuDevicePrimaryCtxRelease_v2(int device) {
  log("release %d\n", device);
  return 0;
}
int cuCtxPushCurrent_v2(void*) {
  ++pushed;
  return error_for("push");
}
int cuCtxPopCurrent_v2(void**) {
  --pushed;
  return 0;
}
int cuCtxGetDevice(int* device) {
  *device = 0;
  return pushed == 1 ? 0 : 201;
}
int cuCtxSynchronize() {
  log("synchronize\n");
  return pushed == 1 ? 0 : 201;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  const char* supported = std::getenv("FAKE_CUDA_READ_ONLY");
  *value = attribute == 113 && (supported == nullptr || *supported == '1') ? 1 : 0;
  return 0;
}
int cuMemHostRegister_v2(void* at, std::size_t size, unsigned flags) {
  const std::scoped_lock lock(mutex);
  if (const int error = error_for("register")) return error;
  if (pushed != 1 || flags != 9 || !is_mapped(static_cast<char*>(at), size)) return 1;
  for (const auto& [other, length] : registered)
    if (at < other + length && other < static_cast<char*>(at) + size) return 712;
  registered[static_cast<char*>(at)] = size;
  log("register %zu\n", size);
  return 0;
}
int cuMemHostUnregister(void* at) {
  const std::scoped_lock lock(mutex);
  const auto found = registered.find(static_cast<char*>(at));
  if (pushed != 1 || found == registered.end()) return 713;
  log("unregister %zu%s\n", found->second, is_mapped(found->first, found->second) ? "" : " not mapped");
  registered.erase(found);
  return 0;
}
}
