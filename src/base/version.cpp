#include "onecopy/base/version.hpp"

namespace onecopy {

std::string_view version() noexcept { return ONECOPY_VERSION; }

}  // namespace onecopy
