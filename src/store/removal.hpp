// What list() tells and prune() removes, one by one.
#pragma once

#include <string_view>

#include "onecopy/store/store.hpp"
#include "store/names.hpp"

namespace onecopy::store {

// What the description and the artefact of a key are, when nobody is building it.
Artefact settled(const Paths& paths);

// Removes what a list has shown, unless it is another thing by now. Empty: it is gone; else why it stays.
std::string_view remove(const Store& store, const Artefact& shown);

}  // namespace onecopy::store
