#include "page_cache/cuda.hpp"

#include <dlfcn.h>

#include <utility>

#include "onecopy/base/error.hpp"
#include "os/os.hpp"

namespace onecopy {
namespace {

// What is used of cuda.h, whose numbers and names do not change.
using Context = struct CUctx_st*;
constexpr int read_only_host_register_supported = 113;  // CU_DEVICE_ATTRIBUTE_
constexpr unsigned portable_read_only =
    0x01U | 0x08U;                // CU_MEMHOSTREGISTER_: for all contexts; the device never writes
constexpr int out_of_memory = 2;  // CUDA_ERROR_
constexpr int already_registered = 712;
constexpr int not_supported = 801;

struct Driver {
  Driver() {
    library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* text = ::dlerror();  // NOLINT(concurrency-mt-unsafe): glibc and musl keep it for each thread
      why_not = text == nullptr ? "libcuda.so.1 cannot be loaded" : text;
      return;
    }
    find(init, "cuInit");
    find(error_text, "cuGetErrorString");
    find(current, "cuCtxGetCurrent");
    find(push, "cuCtxPushCurrent_v2");
    find(pop, "cuCtxPopCurrent_v2");
    find(device_here, "cuCtxGetDevice");
    find(synchronize, "cuCtxSynchronize");
    find(retain, "cuDevicePrimaryCtxRetain");
    find(release, "cuDevicePrimaryCtxRelease_v2");
    find(attribute, "cuDeviceGetAttribute");
    find(add, "cuMemHostRegister_v2");
    find(remove, "cuMemHostUnregister");
    if (!why_not.empty()) return;
    if (const int error = init(0); error != 0) why_not = text_of(error);
  }

  template <class Function>
  void find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(::dlsym(library, name));  // NOLINT(*-reinterpret-cast): what dlsym is for
    if (function == nullptr) why_not = std::string("libcuda.so.1 lacks the function ") + name;
  }

  std::string text_of(int error) const {
    const char* text = nullptr;
    (void)error_text(error, &text);
    return "CUDA error " + std::to_string(error) + (text == nullptr ? "" : std::string(", ") + text);
  }

  void* library = nullptr;
  std::string why_not;  // empty: it can be used
  int (*init)(unsigned) = nullptr;
  int (*error_text)(int, const char**) = nullptr;
  int (*current)(Context*) = nullptr;
  int (*push)(Context) = nullptr;
  int (*pop)(Context*) = nullptr;
  int (*device_here)(int*) = nullptr;
  int (*synchronize)() = nullptr;
  int (*retain)(Context*, int) = nullptr;
  int (*release)(int) = nullptr;
  int (*attribute)(int*, int, int) = nullptr;
  int (*add)(void*, std::size_t, unsigned) = nullptr;
  int (*remove)(void*) = nullptr;
};

const Driver& driver() {
  static const Driver loaded;
  return loaded;
}

}  // namespace

struct CudaPages::State {
  explicit State(std::string name) : path(std::move(name)), process(os::process_id()) {
    if (!cuda.why_not.empty()) fail(ENODEV, "pinned memory requires an NVIDIA GPU and its driver: " + cuda.why_not);
    // A process that uses another device than the first has a context before it opens files.
    (void)cuda.current(&context);
    if (context != nullptr) return;
    check(cuda.retain(&context, 0));
    retained = true;
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // A forked child has the mappings, but not the driver.
  ~State() {
    if (process != os::process_id()) return;
    (void)with_context([this] {
      if (!registered.empty()) (void)cuda.synchronize();
      for (std::byte* first : registered) (void)cuda.remove(first);
    });
    if (retained) (void)cuda.release(0);
  }

  // The thread may have another context, or none. Not 0: the driver's error, and `call` was not called.
  template <class Call>
  int with_context(const Call& call) const {
    if (const int error = cuda.push(context); error != 0) return error;
    struct Popped {
      const Driver& cuda;
      ~Popped() {
        Context ours = nullptr;
        (void)cuda.pop(&ours);
      }
    } const popped{cuda};
    call();
    return 0;
  }

  [[noreturn]] void fail(int code, const std::string& reason) const { throw OsError("register", path, code, reason); }

  void check(int error) const {
    if (error == 0) return;
    const int code = error == out_of_memory        ? ENOMEM
                     : error == already_registered ? EBUSY
                     : error == not_supported      ? EOPNOTSUPP
                                                   : EIO;
    fail(code, cuda.text_of(error));
  }

  void expect_read_only() const {
    int device = 0;
    int supported = 0;
    check(cuda.device_here(&device));
    (void)cuda.attribute(&supported, read_only_host_register_supported, device);
    if (supported == 0)
      fail(EOPNOTSUPP,
           "this GPU or its driver cannot register read-only memory, such as mapped pages of a file "
           "(hostRegisterReadOnlySupported is 0)");
  }

  void add(Bytes pages) {
    registered.reserve(registered.size() + 1);
    auto* first = const_cast<std::byte*>(pages.data());  // NOLINT(*-const-cast): registered as read-only
    check(cuda.add(first, pages.size(), portable_read_only));
    registered.push_back(first);
  }

  const Driver& cuda = driver();
  std::string path;
  std::uint64_t process;
  Context context = nullptr;
  bool retained = false;
  std::vector<std::byte*> registered;
};

CudaPages::CudaPages(const std::vector<Bytes>& ranges, const std::string& path)
    : state_(std::make_unique<State>(path)) {
  state_->check(state_->with_context([&] {
    state_->expect_read_only();
    for (const Bytes range : ranges) state_->add(range);
  }));
}

CudaPages::~CudaPages() = default;

}  // namespace onecopy
