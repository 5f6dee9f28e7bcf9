// Any bytes, read as a stream, as a pipe, as a mapping and into a block: refused by all with a FormatError, or accepted
// by all; then everything can be touched, is the same however it was read, and is saved as the bytes it came from.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <istream>
#include <memory>
#include <optional>
#include <sstream>
#include <streambuf>
#include <string>
#include <vector>

#include "onecopy/base/error.hpp"
#include "onecopy/structs/essentials.hpp"

namespace {

void expect(bool truth) {
  if (!truth) std::abort();
}

struct Sub {
  std::uint8_t shift = 0;  // moves what follows off its alignment
  essentials::owning_span<std::uint32_t> items;

  template <class Visitor>
  void visit(Visitor& visitor) {
    visitor.visit(shift), visitor.visit(items);
  }
  template <class Visitor>
  void visit(Visitor& visitor) const {
    visitor.visit(shift), visitor.visit(items);
  }
};

struct Value {
  bool flag = false;
  essentials::owning_span<std::uint64_t> words;
  essentials::owning_span<Sub> subs;
  std::vector<Value> children;
  std::vector<std::uint16_t, essentials::allocator<std::uint16_t>> halves;
  std::vector<std::string> names;
  std::optional<double> extra;

  template <class Visitor>
  void visit(Visitor& visitor) {
    visit_impl(visitor, *this);
  }
  template <class Visitor>
  void visit(Visitor& visitor) const {
    visit_impl(visitor, *this);
  }

 private:
  template <class Visitor, class T>
  static void visit_impl(Visitor& visitor, T&& t) {  // NOLINT(cppcoreguidelines-missing-std-forward)
    visitor.visit(t.flag), visitor.visit(t.words), visitor.visit(t.subs), visitor.visit(t.children);
    visitor.visit(t.halves), visitor.visit(t.names), visitor.visit(t.extra);
  }
};

// A stream of unknown length.
class Pipe : public std::streambuf {
 public:
  explicit Pipe(std::string& text) { setg(text.data(), text.data(), text.data() + text.size()); }
};

// What `value` is saved as: this reads every byte of it.
std::string saved(const Value& value) {
  std::ostringstream out;
  essentials::generic_saver saver(out);
  saver.visit(value);
  essentials::sizer tree;
  tree.visit(value);
  expect(tree.bytes() == out.str().size());
  return out.str();
}

// What `load` makes of the bytes, as it is saved again; nothing if it refuses them.
template <class Load>
std::optional<std::string> read(Load load) {
  Value value;
  try {
    load(value);
  } catch (const onecopy::FormatError&) {
    (void)saved(value);  // what was loaded before the error can be touched too
    return std::nullopt;
  }
  return saved(value);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  // A copy of exactly this size, so that the address sanitizer sees one byte too far.
  const auto memory = std::make_shared<std::vector<std::byte>>(size);
  if (size != 0) std::memcpy(memory->data(), data, size);

  const auto by_stream = read([&](Value& value) {
    std::istringstream in(text);
    essentials::generic_loader(in).visit(value);
  });
  const auto by_pipe = read([&](Value& value) {
    Pipe pipe(text);
    std::istream in(&pipe);
    essentials::generic_loader(in).visit(value);
  });
  const auto by_mapping =
      read([&](Value& value) { essentials::generic_loader(*memory, memory, "memory").visit(value); });
  const auto by_block = read([&](Value& value) {
    std::istringstream in(text);
    essentials::contiguous_memory_allocator().allocate(value, in);
  });
  expect(by_pipe == by_stream && by_block == by_stream && by_mapping == by_stream);
  if (by_stream) expect(text.starts_with(*by_stream));
  return 0;
}
