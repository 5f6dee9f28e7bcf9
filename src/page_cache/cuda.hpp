// The NVIDIA driver (libcuda.so.1), which is loaded when it is first needed: nothing is linked with it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "onecopy/base/bytes.hpp"
#include "onecopy/files/mapping.hpp"

namespace onecopy {

// Pages that the driver has registered for this process, read-only. They stay in memory, and a device reads them by
// itself. They must stay mapped as long as this lives: the driver would go on to read the old pages at their addresses.
class CudaPages final : public PagesUser {
 public:
  // Each of `ranges` is whole pages, and no copy may reach from one into another. Throws OsError with `path`: ENODEV,
  // EOPNOTSUPP, EBUSY, ENOMEM or EIO.
  CudaPages(const std::vector<Bytes>& ranges, const std::string& path);
  ~CudaPages() override;  // waits until the device has completed its reads

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace onecopy
