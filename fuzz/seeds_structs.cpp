// Writes the seeds of fuzz_structs into a folder: without checksums of the header, so that what fuzzing changes is
// read.
#include <iostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "onecopy/structs/structs.hpp"
#include "structs_index.hpp"

using fuzz::Index;
using fuzz::Node;
using fuzz::Sub;

int main(int count, char** arguments) {
  if (count != 2) {
    std::cerr << "usage: seeds_structs FOLDER\n";
    return 2;
  }
  const std::string folder = std::span(arguments, 2)[1];
  const onecopy::SaveOptions bare{.checksum = false, .metadata = {}};
  onecopy::save(folder + "/empty", Index{}, bare);
  Index index;
  index.words = std::vector<std::uint64_t>{1, 2, 3};
  std::vector<Sub> subs(3);
  subs[1].name = "one";
  subs[1].nodes = std::vector<Node>{{1, 2, 3}};
  subs[2].parent = 1;
  index.subs = std::move(subs);
  index.jagged = {{1}, {}, {2, 3}};
  index.extra = Sub{};
  index.extra->nodes = std::vector<Node>{{4, 5, 6}};
  index.pair[1] = std::vector<std::uint32_t>{9};
  onecopy::save(folder + "/full", index, bare);
  onecopy::save(folder + "/checked", index);
}
