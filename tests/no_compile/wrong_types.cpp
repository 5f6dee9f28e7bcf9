// What cannot be saved does not compile: with each of the names below defined, for the reason beside it.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "onecopy/structs/streams.hpp"
#include "onecopy/structs/structs.hpp"

namespace {

struct Base {};
struct Padded {
  int key = 0;
  char kind = 0;
};
enum Fixed : unsigned char { two };
[[maybe_unused]] int number = 0;

struct Fields {
  int size = 0;
  Fixed kind = two;
  onecopy::OwningSpan<char> flags;
#if defined(a_pointer)  // error: a pointer, a reference or a view of other memory
  int* wrong = nullptr;
#elif defined(a_look)        // error: a pointer, a reference or a view of other memory
  std::string_view wrong;
#elif defined(a_reference)   // error: an aggregate that cannot be taken apart
  int& wrong = number;
#elif defined(an_open_enum)  // error: an enum without a fixed underlying type
  enum Open { one };
  Open wrong = one;
#elif defined(padding)       // error: the element type has padding
  onecopy::OwningSpan<Padded> wrong;
#elif defined(a_map)         // error: a container of nodes, such as std::map.* use a sorted std::vector or OwningSpan
  std::map<int, int> wrong;
#elif defined(a_hash_map)    // error: a container of nodes, such as std::map.* search it with std::ranges::lower_bound
  std::unordered_map<std::string, int> wrong;
#elif defined(bools)         // error: a bool among mapped elements
  onecopy::OwningSpan<bool> wrong;
#endif
};
#if defined(with_a_base)  // error: an aggregate with a base class
struct Index : Base {
  int size = 0;
  float load = 0;
};
#else
using Index = Fields;
#endif

struct Named {
#if defined(another_schema)  // error: static.assert
  unsigned size = 0;
#else
  int size = 0;
#endif
};
static_assert(onecopy::schema_hash<Named>() == 0x3698efdb5a9de432U);

struct Value {
  std::string text;
#if !defined(no_visit)  // error: the type needs a member
  template <class Visitor>
  void visit(Visitor& visitor) {
    visitor.visit(text);
  }
#endif
};

#if defined(stream_of_bools)  // error: a sequence of bool
using Sequence = std::vector<bool>;
#elif defined(stream_of_pointers)  // error: a pointer cannot be saved
using Sequence = std::vector<int*>;
#elif defined(stream_of_a_map)     // error: for std::map, use a sorted std::vector
using Sequence = std::map<int, int>;
#else
using Sequence = std::vector<std::uint8_t>;
#endif

}  // namespace

int main() {
  onecopy::save("x", Index{});
  Value value;
  Sequence sequence;
  onecopy::streams::save(sequence, "x");
  return static_cast<int>(onecopy::streams::mmap(value, "x") + onecopy::streams::load(sequence, "x"));
}
