// Single entries of a store: described for list(), removed for prune().
#pragma once

#include <string_view>
#include <vector>

#include "onecopy/store/store.hpp"
#include "store/names.hpp"

namespace onecopy::store {

// The state of a key's description and artefact while no process is building it.
Artefact settled(const Files& files);

// Everything in the folder, what is being built and what dead builders left included.
std::vector<Artefact> list(const Folder& folder);

// Removes an entry of a list, unless it has changed since. Empty: removed; else why it stays.
std::string_view remove(const Folder& folder, const Artefact& shown);

}  // namespace onecopy::store
