// A structure has to answer alike where it was built, where it was opened by mapping, and where it was copied.
#pragma once

#include <utility>

#include "onecopy/structs/structs.hpp"
#include "scratch_folder.hpp"

namespace onecopy::testing {

template <class T, class Check>
void in_every_mode(const T& built, Check&& check) {
  check(built);
  const ScratchFolder folder;
  const auto path = folder / "value.oc";
  save(path, built);
  for (const Mode mode : {Mode::map, Mode::copy}) {
    const auto file = onecopy::open<T>(path, {.mode = mode, .verify = true});
    check(*file);
  }
}

}  // namespace onecopy::testing
