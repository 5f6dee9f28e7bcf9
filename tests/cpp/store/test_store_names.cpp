#include <doctest/doctest.h>

#include <string>

#include "onecopy/base/error.hpp"
#include "store/about.hpp"
#include "store/folder.hpp"
#include "store/names.hpp"

namespace onecopy::store {

TEST_CASE("the digest is FNV-1a of 128 bits, as its authors publish it") {
  CHECK(digest_of("") == "6c62272e07bb014262b821756295c58d");
  CHECK(digest_of("a") == "d228cb696f1a8caf78912b704e4a8964");
  CHECK(digest_of("foobar") == "343e1662793c64bf6f0d3597ba446f18");
}

TEST_CASE("names of the store are distinguished from all others") {
  const auto digest = digest_of("a");
  for (const std::string suffix : {".oc", ".about", ".claim"}) {
    CHECK(parts_of(digest + suffix).digest == digest);
    CHECK(parts_of(digest + suffix).suffix == suffix);
  }
  for (const auto& name : {std::string(), digest, digest + ".txt", digest + "0.oc", digest.substr(1) + ".oc",
                           "G" + digest.substr(1) + ".oc", digest + ".oc2"})
    CHECK(parts_of(name).digest.empty());
}

About some_about() {
  return {.key = "a key of\nthree\nlines \xe4 \0",
          .bytes = 12345678901234,
          .mtime_ns = -5,
          .created_ns = 1'700'000'000'000'000'000,
          .source = "/data/caf\xc3\xa9 42 \n",
          .source_identity = {.device = 0, .inode = 7, .size = UINT64_MAX, .mtime_ns = 3},
          .boot = "a boot"};
}

TEST_CASE("a description reads back as it was written, whatever the key and the source are") {
  CHECK(parse_about(to_text(some_about())) == some_about());
  CHECK(parse_about(to_text(About{})) == About{});
}

TEST_CASE("a description that was cut, or in which a byte is another one, is an error or another description") {
  const auto text = to_text(some_about());
  for (std::size_t length = 0; length < text.size(); ++length)
    CHECK_THROWS_AS((void)parse_about(std::string_view(text).substr(0, length)), FormatError);
  CHECK_THROWS_AS((void)parse_about(text + "x"), FormatError);
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (const char byte : {'\0', ' ', '\n', '0', '9', '-', '\xff'}) {
      auto changed = text;
      if (changed[at] == byte) continue;
      changed[at] = byte;
      bool passed_for_it = false;
      try {
        passed_for_it = parse_about(changed) == some_about();
      } catch (const FormatError&) {  // as it should be
      }
      CHECK_FALSE(passed_for_it);
    }
  }
}

}  // namespace onecopy::store
