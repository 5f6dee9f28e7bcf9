// A way out of long calls: who embeds the library says how to look whether its user wants one to end.
#pragma once

namespace onecopy {

// Called now and then (after some MiB, or some milliseconds) by long calls, in the thread that made them; throws what
// is to come out of the call. Null: nobody looks.
using Poll = void (*)();
void set_poll(Poll poll) noexcept;

// Looks. What has been begun is taken back as after any other exception.
void poll_interrupt();

}  // namespace onecopy
