#include "onecopy/records/json_import.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "formats/wire/json.hpp"
#include "records/json/json_scanner.hpp"

namespace onecopy::records {
namespace {

using Kind = JsonValue::Kind;

// Arrays go into their columns item by item. The keys of an object must be known before its first value, because they
// decide on its column, and because the last value of a repeated key counts: an object is first read onto a tape.
class Importer {
 public:
  Importer(Bytes text, Column& rows, const JsonOptions& options)
      : options_(&options), rows_(&rows), scanner_(text, [this](std::uint64_t bytes) { tell(bytes); }) {}

  std::uint64_t run() {
    if (options_->lines)
      scanner_.lines([this] { add_row(*rows_); });
    else
      find(options_->path);
    scanner_.end();
    tell(scanner_.position());
    return count_;
  }

 private:
  struct Members {
    std::vector<std::string_view> keys;
    std::vector<std::size_t> values;      // positions on the tape
    std::vector<std::string_view> known;  // the distinct keys of the last object at this depth, in `names`
    std::string names;                    // copies: another process may change the text while keys are sorted
    std::vector<std::size_t> order;
  };

  void tell(std::uint64_t bytes) const {
    if (options_->progress) options_->progress(count_, bytes);
  }

  // --- the way to the rows ---

  void find(std::span<const std::string> path) {
    if (path.empty()) return add_rows();
    if (scanner_.next() != '{')
      scanner_.fail("expected an object with the member " + json::describe(path.front()), FormatError::not_this_format);
    bool found = false;
    std::string others;
    scanner_.object([&](const JsonValue& key) {
      const std::string_view name = scanner_.text_of(key);
      if (name != path.front()) {
        if (others.size() < 200) others += (others.empty() ? "" : ", ") + json::describe(name);
        return scanner_.skip();
      }
      if (std::exchange(found, true)) scanner_.fail("the member with the rows occurs twice", FormatError::inconsistent);
      scanner_.forget();
      find(path.subspan(1));
    });
    if (!found)
      scanner_.fail("the object has no member " + json::describe(path.front()) + "; it has " + others,
                    FormatError::not_this_format);
  }

  void add_rows() {
    const char first = scanner_.next();
    if (options_->pairs) {
      if (first != '{') scanner_.fail("expected an object, whose members are the rows", FormatError::not_this_format);
      return scanner_.object([this](const JsonValue& key) {
        FixedColumn& pair = rows_->fixed(2);
        pair.at(0).text(scanner_.text_of(key));
        scanner_.forget();
        add_row(pair.at(1));
        pair.end();
      });
    }
    if (first == '{')
      fail_with_members("expected an array of rows, found an object: give the path to one of its members");
    if (first != '[') scanner_.fail("expected an array, whose items are the rows", FormatError::not_this_format);
    scanner_.array([this] { add_row(*rows_); });
  }

  [[noreturn]] void fail_with_members(const std::string& what) {
    const auto object = scanner_;
    std::string names;
    scanner_.object([&](const JsonValue& key) {
      if (names.size() < 200) names += (names.empty() ? "" : ", ") + json::describe(scanner_.text_of(key));
      scanner_.skip();
    });
    object.fail(what + (names.empty() ? "" : ", " + names), FormatError::not_this_format);
  }

  void add_row(Column& column) {
    scanner_.start_depth();
    add(column);
    ++count_;
  }

  // --- from the text into columns, or onto the tape ---

  void add(Column& column) {
    const char first = scanner_.next();
    if (first == '[') {
      ListColumn& list = column.list();
      scanner_.array([&] { add(list.items()); });
      list.end();
    } else {
      tape_.clear();
      read();
      put_from_tape(0, column, 0);
      scanner_.forget();
    }
  }

  void read() {
    const std::size_t at = tape_.size();
    const char first = scanner_.next();
    if (first != '[' && first != '{') return tape_.push_back(scanner_.scalar());
    tape_.emplace_back().kind = first == '[' ? Kind::array : Kind::object;
    if (first == '[') {
      scanner_.array([this] { read(); });
    } else {
      scanner_.object([this](const JsonValue& key) {
        tape_.push_back(key);
        read();
      });
    }
    tape_[at].place = tape_.size();
  }

  // --- from the tape into columns ---

  void put(const JsonValue& scalar, Column& column) const {
    switch (scalar.kind) {
      case Kind::null: return column.null();
      case Kind::boolean: return column.boolean(scalar.integer != 0);
      case Kind::integer: return column.integer(scalar.integer);
      case Kind::real: return column.real(scalar.real);
      case Kind::bigint: return column.bigint(twos_complement_of(scanner_.text_of(scalar)));
      default: return column.text(scanner_.text_of(scalar));
    }
  }

  // Returns where the next value is.
  std::size_t put_from_tape(std::size_t at, Column& column, std::size_t depth) {
    const JsonValue& value = tape_[at];
    if (value.kind == Kind::object) return put_object(at, column, depth);
    ++at;
    if (value.kind != Kind::array) return put(value, column), at;
    ListColumn& list = column.list();
    for (Column& items = list.items(); at < value.place;) at = put_from_tape(at, items, depth);
    list.end();
    return at;
  }

  std::size_t put_object(std::size_t at, Column& column, std::size_t depth) {
    Members& members = members_[depth];
    take_members(at, members);
    if (column.fits_record(members.keys)) {
      RecordColumn& record = column.record();
      for (std::size_t i = 0; i < members.keys.size(); ++i)
        put_from_tape(members.values[i], record.field(members.keys[i]), depth + 1);
      record.end();
    } else {
      MapColumn& map = column.map();
      for (std::size_t i = 0; i < members.keys.size(); ++i) {
        map.keys().text(members.keys[i]);
        put_from_tape(members.values[i], map.values(), depth + 1);
      }
      map.end();
    }
    return tape_[at].place;
  }

  void take_members(std::size_t at, Members& members) const {
    members.keys.clear();
    members.values.clear();
    for (std::size_t i = at + 1; i < tape_[at].place;) {
      members.keys.push_back(scanner_.text_of(tape_[i]));
      members.values.push_back(++i);
      const bool nested = tape_[i].kind == Kind::array || tape_[i].kind == Kind::object;
      i = nested ? tape_[i].place : i + 1;
    }
    if (members.keys != members.known) {
      copy_keys(members);
      drop_repeated(members);
      members.known = members.keys;
    } else {
      members.keys = members.known;
    }
  }

  static void copy_keys(Members& members) {
    members.names.clear();
    for (const auto key : members.keys) members.names += key;
    std::size_t at = 0;
    for (auto& key : members.keys) {
      key = std::string_view(members.names).substr(at, key.size());
      at += key.size();
    }
  }

  // As in Python: the position of the first, the value of the last.
  static void drop_repeated(Members& members) {
    auto& keys = members.keys;
    auto& values = members.values;
    auto& order = members.order;
    order.resize(keys.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::sort(order, {}, [&all = keys](std::size_t i) { return std::pair(all[i], i); });
    constexpr std::size_t dropped = 0;  // on the tape, the object itself is at this position
    bool any = false;
    for (std::size_t i = 0; i < order.size();) {
      const std::size_t first = order[i];
      for (++i; i < order.size() && keys[order[i]] == keys[first]; ++i) {
        values[first] = std::exchange(values[order[i]], dropped);
        any = true;
      }
    }
    if (!any) return;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (values[i] == dropped) continue;
      keys[kept] = keys[i];
      values[kept++] = values[i];
    }
    keys.resize(kept);
    values.resize(kept);
  }

  const JsonOptions* options_;
  Column* rows_;
  std::uint64_t count_ = 0;
  JsonScanner scanner_;
  std::vector<JsonValue> tape_;
  std::array<Members, JsonScanner::deepest> members_;  // of the objects in each other
};

}  // namespace

std::uint64_t import_json(Bytes text, Column& rows, const JsonOptions& options) {
  return Importer(text, rows, options).run();
}

}  // namespace onecopy::records
