// Unflushed artefacts: they are valid until the machine restarts, or until they are flushed.
#pragma once

#include <string>

#include "store/about.hpp"
#include "store/names.hpp"

namespace onecopy::store {

// The boot to record for unflushed files in this folder. Empty: files must be flushed, because the kernel does not
// identify boots, or other machines use the folder.
std::string boot_to_record(const Folder& folder);

bool counts_in_this_boot(const About& about);

// Flushes to the disk. Throws OsError.
void flush_artefact(const os::Fd& artefact, const File& file);

// Flushes an artefact that is old enough that the kernel has written it already, and records that it is valid
// permanently. False: its bytes are lost, and it was removed. A refusal (a read-only disk) is retried at the next use.
bool settle_if_old(const Files& files, const About& about, const os::Fd& artefact);

}  // namespace onecopy::store
