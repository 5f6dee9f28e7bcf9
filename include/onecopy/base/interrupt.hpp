// Interruption of long calls: the embedding program installs a function that checks for a pending interrupt.
#pragma once

namespace onecopy {

// Long calls call this function now and then (after some MiB or some milliseconds) in the calling thread. An exception
// that it throws ends the call. Null: no check.
using Poll = void (*)();
void set_poll(Poll poll) noexcept;

// Runs the check. When it throws, the call undoes its work as after any other exception.
void poll_interrupt();

}  // namespace onecopy
