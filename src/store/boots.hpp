// Artefacts that nobody waited for the disk with: they count until the machine starts again, or until they are flushed.
#pragma once

#include <string>

#include "store/about.hpp"
#include "store/names.hpp"

namespace onecopy::store {

// The boot to be recorded for what lies unflushed in this folder. Empty: nothing may lie there unflushed, because the
// kernel does not tell one boot from another, or the folder is seen by machines with other ones.
std::string boot_to_record(const Folder& folder);

bool counts_in_this_boot(const About& about);

// Down to the disk. Throws OsError.
void flush_artefact(const os::Fd& artefact, const File& file);

// Flushes what was built long enough ago that the kernel has written it by itself, and says so in its description: it
// counts for good then. False: its bytes are lost, and it is gone. What is refused (a read-only disk) is tried again by
// the next one who asks.
bool settle_if_old(const Files& files, const About& about, const os::Fd& artefact);

}  // namespace onecopy::store
