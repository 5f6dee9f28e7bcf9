#include "formats/torch/pickle_reader.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "formats/torch/pickle_opcodes.hpp"
#include "formats/wire/cursor.hpp"
#include "formats/wire/json.hpp"
#include "onecopy/base/bytes.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy::pickle {
namespace {

class Reader {
 public:
  explicit Reader(std::string_view bytes)
      : bytes_(bytes), cursor_("pickle", "it", std::as_bytes(std::span(bytes)), {0, bytes.size()}), values_(bytes) {}

  Pickle read() {
    if (bytes_.size() > largest)
      fail(concat("it has ", bytes_.size(), " bytes, more than the maximum of ", largest), FormatError::too_costly);
    if (bytes_.empty() || number(1) != static_cast<std::uint64_t>(Op::proto))
      fail("it does not begin with a protocol", FormatError::not_this_format);
    if (const auto protocol = number(1); protocol < 2 || protocol > 5)
      fail(concat("protocol ", protocol, " is not one of 2 to 5"), FormatError::unsupported);
    for (;;) {
      check_memory();
      begin_ = cursor_.position();
      // Any byte: a value without an enumerator matches no group, and `refuse` reports it.
      const auto op = static_cast<Op>(number(1));  // NOLINT(clang-analyzer-optin.core.EnumCastOutOfRange)
      if (op == Op::stop) return finish();
      if (!push_number(op) && !push_text(op) && !push_empty(op) && !remember(op) && !arrange(op) && !fill(op) &&
          !call(op))
        refuse(op);
    }
  }

 private:
  [[noreturn]] void fail(const std::string& what, FormatError::Kind kind = FormatError::malformed) const {
    throw FormatError(kind, concat("pickle: byte ", begin_, ": ", what), begin_);
  }

  // After every opcode, which adds no more than the stack has.
  void check_memory() const {
    constexpr std::uint64_t spare = std::uint64_t{1} << 16U;
    const std::uint64_t most = std::min(bytes_.size() * times + spare, most_memory);
    if (values_.memory() + (stack_.size() + memo_.size() + marks_.size()) * sizeof(Id) > most)
      fail(concat("its values need more than ", most, " bytes of memory"), FormatError::too_costly);
  }

  [[noreturn]] void refuse(Op op) const {
    const auto code = static_cast<std::uint8_t>(op);
    const auto* known = std::ranges::find(unread, code, &Unread::code);
    if (known != unread.end())
      fail(concat("the opcode ", known->name, " is not one that torch.save writes"), FormatError::unsupported);
    fail("there is no opcode " + std::to_string(code), FormatError::unsupported);
  }

  Pickle finish() {
    const Id root = pop();
    if (!stack_.empty() || !marks_.empty()) fail("there are unused values at the end");
    if (cursor_.left() != 0) fail(std::to_string(cursor_.left()) + " bytes follow the end");
    return {std::move(values_), root};
  }

  // --- bytes ---

  std::string_view take(std::uint64_t size) {
    if (size > cursor_.left())
      fail(concat("it is truncated: ", size, " bytes are needed, but ", cursor_.left(), " are left"),
           FormatError::truncated);
    return cursor_.text(size);
  }

  std::uint64_t number(unsigned size) { return little_endian(std::as_bytes(std::span(take(size)))); }

  // Two's complement of any length: the Id of an integer, or inert if it exceeds 64 bits.
  Id signed_in(std::string_view digits) {
    if (digits.size() > 8) return Values::inert;
    std::uint64_t value = little_endian(std::as_bytes(std::span(digits)));
    const bool is_negative = !digits.empty() && (static_cast<unsigned char>(digits.back()) & 0x80U) != 0;
    if (is_negative && digits.size() < 8) value |= ~std::uint64_t{0} << (8 * digits.size());
    return values_.add_integer(static_cast<std::int64_t>(value));
  }

  std::string_view line() {
    const auto end = bytes_.substr(cursor_.position(), longest_global + 1).find('\n');
    if (end == std::string_view::npos)
      fail(concat("a name is not terminated, or has more than ", longest_global, " bytes"));
    const auto taken = take(end);
    (void)take(1);
    return taken;
  }

  // --- the stack: values below the last mark are inaccessible ---

  void push(Id id) { stack_.push_back(id); }
  std::size_t floor() const noexcept { return marks_.empty() ? 0 : marks_.back(); }

  Id top() const {
    if (stack_.size() == floor()) fail("a value is missing from the stack");
    return stack_.back();
  }

  Id pop() {
    const Id id = top();
    stack_.pop_back();
    return id;
  }

  // Takes the last mark and the values above it, which stay valid until the next push.
  std::span<const Id> pop_mark() {
    if (marks_.empty()) fail("a mark is missing from the stack");
    const std::size_t first = marks_.back();
    marks_.pop_back();
    above_mark_.assign(stack_.begin() + static_cast<std::ptrdiff_t>(first), stack_.end());
    stack_.resize(first);
    return above_mark_;
  }

  // --- opcodes, in groups; false: the opcode is in another group ---

  bool push_number(Op op) {
    switch (op) {
      case Op::none: push(Values::none); return true;
      case Op::newtrue: push(Values::yes); return true;
      case Op::newfalse: push(Values::no); return true;
      case Op::binint: push(signed_in(take(4))); return true;
      case Op::binint1: push(values_.add_integer(static_cast<std::int64_t>(number(1)))); return true;
      case Op::binint2: push(values_.add_integer(static_cast<std::int64_t>(number(2)))); return true;
      case Op::long1: push(signed_in(take(number(1)))); return true;
      case Op::long4: push(signed_in(take(number(4)))); return true;  // a negative size is larger than any pickle
      case Op::binfloat:
        (void)take(8);
        push(Values::inert);
        return true;
      default: return false;
    }
  }

  bool push_text(Op op) {
    const auto text = [this](unsigned width) { push(values_.add_text(take(number(width)))); };
    const auto blob = [this](unsigned width) {
      (void)take(number(width));
      push(Values::inert);
    };
    switch (op) {
      case Op::binunicode:
      case Op::binstring: text(4); return true;
      case Op::short_binunicode:
      case Op::short_binstring: text(1); return true;
      case Op::binunicode8: text(8); return true;
      case Op::binbytes: blob(4); return true;
      case Op::short_binbytes: blob(1); return true;
      case Op::binbytes8:
      case Op::bytearray8: blob(8); return true;
      default: return false;
    }
  }

  bool push_empty(Op op) {
    switch (op) {
      case Op::empty_tuple: push(values_.add_tuple({})); return true;
      case Op::empty_list: push(values_.add_list()); return true;
      case Op::empty_dict: push(values_.add_dict()); return true;
      case Op::empty_set: push(Values::inert); return true;
      default: return false;
    }
  }

  // Pickler and reader count alike: with an arbitrary memo index, four bytes could allocate gigabytes.
  void put(std::uint64_t place) {
    const Id id = top();
    if (place > memo_.size())
      fail(concat("memo ", place, " is stored before memo ", memo_.size()), FormatError::out_of_bounds);
    if (place == memo_.size())
      memo_.push_back(id);
    else
      memo_[place] = id;
  }

  void get(std::uint64_t place) {
    if (place >= memo_.size()) fail("there is no memo " + std::to_string(place), FormatError::out_of_bounds);
    push(memo_[place]);
  }

  bool remember(Op op) {
    switch (op) {
      case Op::binput: put(number(1)); return true;
      case Op::long_binput: put(number(4)); return true;
      case Op::memoize: put(memo_.size()); return true;
      case Op::binget: get(number(1)); return true;
      case Op::long_binget: get(number(4)); return true;
      default: return false;
    }
  }

  void tuple_of(std::size_t count) {
    if (stack_.size() - floor() < count) fail("a value is missing from the stack");
    const auto items = std::span(stack_).last(count);
    const Id tuple = values_.add_tuple(items);
    stack_.resize(stack_.size() - count);
    push(tuple);
  }

  bool arrange(Op op) {
    switch (op) {
      case Op::mark: marks_.push_back(static_cast<std::uint32_t>(stack_.size())); return true;
      case Op::pop: (void)pop(); return true;
      case Op::pop_mark: (void)pop_mark(); return true;
      case Op::dup: push(top()); return true;
      case Op::tuple: push(values_.add_tuple(pop_mark())); return true;
      case Op::tuple1: tuple_of(1); return true;
      case Op::tuple2: tuple_of(2); return true;
      case Op::tuple3: tuple_of(3); return true;
      case Op::frozenset:
        (void)pop_mark();
        push(Values::inert);
        return true;
      case Op::frame: frame(number(8)); return true;
      default: return false;
    }
  }

  // Frames are hints for reading ahead; all bytes are in memory already.
  void frame(std::uint64_t size) {
    if (size > cursor_.left()) fail(concat("a frame of ", size, " bytes is truncated"), FormatError::truncated);
  }

  void set_items(std::span<const Id> pairs) {
    const Id into = top();
    if (pairs.size() % 2 != 0) fail("a key has no value");
    const Kind kind = values_.kind(into);
    if (kind != Kind::dict && kind != Kind::object) fail("items are added to an object that is not a dict");
    values_.append(into, pairs);
  }

  // Objects of list subclasses stay inert: their items are ignored.
  void append(std::span<const Id> items) {
    const Id into = top();
    const Kind kind = values_.kind(into);
    if (kind != Kind::list && kind != Kind::object) fail("items are added to an object that is not a list");
    if (kind == Kind::list) values_.append(into, items);
  }

  bool fill(Op op) {
    switch (op) {
      case Op::append: {
        const Id item = pop();
        append({&item, 1});
        return true;
      }
      case Op::appends: append(pop_mark()); return true;
      case Op::setitem: {
        const Id value = pop();
        const std::array pair{pop(), value};
        set_items(pair);
        return true;
      }
      case Op::setitems: set_items(pop_mark()); return true;
      case Op::additems:
        (void)pop_mark();
        if (const Kind kind = values_.kind(top()); kind != Kind::inert && kind != Kind::object)
          fail("items are added to an object that is not a set");
        return true;
      default: return false;
    }
  }

  void name(std::string_view module, std::string_view name) {
    if (module.empty() || name.empty() || module.size() > longest_global || name.size() > longest_global)
      fail(concat("a name is empty, or has more than ", longest_global, " bytes"));
    if (!json::is_utf8(module) || !json::is_utf8(name)) fail("a name is not UTF-8");
    push(values_.add_global({module, name}));
  }

  void name_from_stack() {
    const Id name_id = pop();
    const Id module = pop();
    if (values_.kind(name_id) != Kind::text || values_.kind(module) != Kind::text) fail("a name is not text");
    name(values_.text(module), values_.text(name_id));
  }

  void make_object() {
    const Id arguments = pop();
    const Id callable = pop();
    if (values_.kind(arguments) != Kind::tuple) fail("the arguments of a call are not a tuple");
    push(values_.add_object(callable, arguments));
  }

  bool call(Op op) {
    switch (op) {
      case Op::global: {
        const auto module = line();
        name(module, line());
        return true;
      }
      case Op::stack_global: name_from_stack(); return true;
      case Op::reduce:
      case Op::newobj: make_object(); return true;
      case Op::newobj_ex:
        (void)pop();
        make_object();
        return true;   // keyword arguments
      case Op::build:  // the state is ignored
        (void)pop();
        if (const Kind kind = values_.kind(top()); kind != Kind::object && kind != Kind::inert)
          fail("a state is set on a value that is not an object");
        return true;
      case Op::binpersid: push(values_.add_persistent(pop())); return true;
      default: return false;
    }
  }

  std::string_view bytes_;
  Cursor cursor_;
  std::uint64_t begin_ = 0;  // of the opcode
  Values values_;
  std::vector<Id> stack_;
  std::vector<std::uint32_t> marks_;
  std::vector<Id> above_mark_;
  std::vector<Id> memo_;
};

}  // namespace

Pickle read(std::string_view bytes) { return Reader(bytes).read(); }

}  // namespace onecopy::pickle
