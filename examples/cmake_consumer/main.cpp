// Saves an index, opens it in place, and queries it: consumer FILE
#include <algorithm>
#include <iostream>

#include "onecopy/structs/structs.hpp"

struct Postings {
  onecopy::OwningSpan<std::uint32_t> documents;  // sorted
  double weight = 0;
};

struct Index {
  std::uint64_t documents = 0;
  Postings cat;
  Postings dog;
};

Index build() {
  Index index;
  std::vector<std::uint32_t> cat;
  std::vector<std::uint32_t> dog;
  for (std::uint32_t document = 0; document < 100'000; ++document) {
    if (document % 3 == 0) cat.push_back(document);
    if (document % 5 == 0) dog.push_back(document);
  }
  index.documents = 100'000;
  index.cat = {.documents = std::move(cat), .weight = 1.5};
  index.dog = {.documents = std::move(dog), .weight = 2.5};
  return index;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: consumer FILE\n";
    return 2;
  }
  try {
    const auto saved = onecopy::save(argv[1], build());
    const auto file = onecopy::open<Index>(argv[1]);
    std::vector<std::uint32_t> both;
    std::ranges::set_intersection(file->cat.documents, file->dog.documents, std::back_inserter(both));
    std::cout << "saved " << saved << " bytes; of " << file->documents << " documents " << both.size()
              << " have cat and dog, the last is " << both.back() << "\n";
    std::cout << to_string(file.report()) << "\n";
  } catch (const std::exception& error) {  // OsError, FormatError: what, where and why
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
