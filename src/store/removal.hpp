// What list() tells and prune() removes, one by one.
#pragma once

#include <string_view>
#include <vector>

#include "onecopy/store/store.hpp"
#include "store/names.hpp"

namespace onecopy::store {

// What the description and the artefact of a key are, when nobody is building it.
Artefact settled(const Files& files);

// Everything in the folder, what is being built and what dead builders left included.
std::vector<Artefact> list(const Folder& folder);

// Removes what a list has shown, unless it is another thing by now. Empty: it is gone; else why it stays.
std::string_view remove(const Folder& folder, const Artefact& shown);

}  // namespace onecopy::store
