#include "formats/parsing.hpp"
#include "formats/torch/pickle_reader.hpp"
#include "pickle_of.hpp"
#include "precompiled.hpp"

namespace onecopy {
namespace {

using namespace tests::opcodes;
using pickle::Kind;
using pickle::Values;
using tests::little;

std::string error_of(std::string_view bytes) {
  return testing::refusal([&] { return pickle::read(bytes); });
}
std::string refused(const std::string& opcodes) { return error_of(tests::opcodes::pickle(opcodes)); }

// Values as Python writes them; objects as calls.
std::string shown(const Values& values, pickle::Id id) {
  const auto items = [&](std::string_view begin, std::string_view separators, std::string_view end) {
    std::string all(begin);
    std::size_t i = 0;
    for (const auto item : values.items(id)) {
      if (i != 0) all += separators[i % separators.size()];
      all += shown(values, item);
      ++i;
    }
    return all.append(end);
  };
  switch (values.kind(id)) {
    case Kind::none: return "None";
    case Kind::boolean: return id == Values::yes ? "True" : "False";
    case Kind::integer: return std::to_string(values.integer(id));
    case Kind::text: return "'" + std::string(values.text(id)) + "'";
    case Kind::inert: return "?";
    case Kind::tuple: return items("(", ",", ")");
    case Kind::list: return items("[", ",", "]");
    case Kind::dict: return items("{", ",:", "}");
    case Kind::global: return std::string(values.global(id).module) + "." + std::string(values.global(id).name);
    case Kind::persistent: return "<" + shown(values, values.key(id)) + ">";
    case Kind::object: break;
  }
  return shown(values, values.callable(id)) + shown(values, values.arguments(id)) +
         (values.items(id).empty() ? "" : items("{", ",:", "}"));
}

std::string read(const std::string& opcodes) {
  const auto bytes = tests::opcodes::pickle(opcodes);
  const auto found = pickle::read(bytes);
  return shown(found.values, found.root);
}

}  // namespace

TEST_CASE("numbers, texts and what stands for nothing are read from a pickle") {
  CHECK(read("N") == "None");
  CHECK(read("(\x88\x89t") == "(True,False)");
  CHECK(read("K\xFF") == "255");
  CHECK(read("M\x01\x80") == "32769");
  CHECK(read("J\xFE\xFF\xFF\xFF") == "-2");
  CHECK(read("\x8A" + little(0, 1)) == "0");
  CHECK(read("\x8A\x01\xFF") == "-1");
  CHECK(read("\x8A\x05" + little(0xFFFFFFFF, 5)) == "4294967295");
  CHECK(read("\x8A\x08" + little(1ULL << 63U, 8)) == "-9223372036854775808");
  CHECK(read("\x8A\x09" + little(1, 8) + little(1, 1)) == "?");
  CHECK(read("\x8B" + little(2, 4) + little(300, 2)) == "300");
  CHECK(read("G12345678") == "?");
  CHECK(read(text("h\u00e9")) == "'h\u00e9'");
  CHECK(read("U\x02py") == "'py'");
  CHECK(read("T" + little(2, 4) + "py") == "'py'");
  CHECK(read("\x8C\x01y") == "'y'");
  CHECK(read("\x8D" + little(1, 8) + "y") == "'y'");
  for (const auto& blob :
       {std::string("C\x01y"), "B" + little(1, 4) + "y", "\x8E" + little(1, 8) + "y", "\x96" + little(1, 8) + "y",
        std::string("\x8F"), std::string("\x8F(K\x01\x90"), std::string("(\x91")})
    CHECK(read(blob) == "?");
}

TEST_CASE("what holds others is read from a pickle, and so is what is remembered") {
  CHECK(read(")") == "()");
  CHECK(read("K\x01\x85") == "(1)");
  CHECK(read("K\x01K\x02\x86") == "(1,2)");
  CHECK(read("K\x01K\x02K\x03\x87") == "(1,2,3)");
  CHECK(read("](K\x01K\x02"
             "eK\x03"
             "a") == "[1,2,3]");
  CHECK(read("}(K\x01"
             "Nu"
             "K\x02"
             "Ns") == "{1:None,2:None}");
  CHECK(read("](K\x01q" + little(0, 1) + "h" + little(0, 1) + "2e") == "[1,1,1]");
  CHECK(read("]\x94r" + little(1, 4) + "(j" + little(1, 4) +
             "K\x02"
             "e0K\x07") == "7");
  CHECK(read("(K\x01(K\x02"
             "1t") == "(1)");
  CHECK(read("\x95" + little(2, 8) + "K\x01") == "1");
  CHECK(read(text("m") + text("n") + "\x93") == "m.n");
  CHECK(read(call("m", "n", ")")) == "m.n()");
  CHECK(read(global("m", "C") + ")\x81}b") == "m.C()");
  CHECK(read(global("m", "C") + ")}\x92") == "m.C()");
  CHECK(read(global("m", "D") + ")R(K\x01"
                                "Nu") == "m.D(){1:None}");
  CHECK(read(global("m", "L") + ")R(K\x01"
                                "e") == "m.L()");
  CHECK(read(text("key") + "Q") == "<'key'>");
  const auto itself = tests::opcodes::pickle("]q" + little(0, 1) + "h" + little(0, 1) + "a");
  const auto found = pickle::read(itself);
  CHECK(found.values.items(found.root)[0] == found.root);
}

TEST_CASE("every error in a pickle is reported with its byte position") {
  CHECK(error_of("") == "not_this_format at 0");
  CHECK(error_of("(dp0\n.") == "not_this_format at 0");
  CHECK(error_of("\x80\x01.") == "unsupported at 0");
  CHECK(error_of("\x80\x06.") == "unsupported at 0");
  CHECK(error_of("\x80\x02N") == "truncated at 3");
  CHECK(error_of("\x80\x02N..") == "malformed at 3");
  CHECK(refused("") == "malformed at 2");
  CHECK(refused("NN") == "malformed at 4");
  CHECK(refused("N(") == "malformed at 4");
  CHECK(refused("X" + little(0xFFFFFFFF, 4)) == "truncated at 2");
  CHECK(refused("\x8D" + little(UINT64_MAX, 8)) == "truncated at 2");
  CHECK(refused("\x8B" + little(0xFFFFFFFF, 4)) == "truncated at 2");
  CHECK(refused("Nr" + little(0xFFFFFFFF, 4)) == "out_of_bounds at 3");
  CHECK(refused("h" + little(0, 1)) == "out_of_bounds at 2");
  CHECK(refused("t") == "malformed at 2");
  CHECK(refused("K\x01\x86") == "malformed at 4");
  CHECK(refused("N(K\x01\x86") == "malformed at 6");
  CHECK(refused("N(a") == "malformed at 4");
  CHECK(refused("NNa") == "malformed at 4");
  CHECK(refused("NNNs") == "malformed at 5");
  CHECK(refused("}(Nu") == "malformed at 5");
  CHECK(refused("N(N\x90") == "malformed at 5");
  CHECK(refused("NNb") == "malformed at 4");
  CHECK(refused("NNR") == "malformed at 4");
  CHECK(refused("NN\x93") == "malformed at 4");
  CHECK(refused("cno end") == "malformed at 2");
  CHECK(refused("c" + std::string(501, 'm') + "\nn\n") == "malformed at 2");
  CHECK(refused("c\n\n") == "malformed at 2");
  CHECK(refused("cm\n\xFF\n") == "malformed at 2");
  CHECK(refused("\x95" + little(99, 8)) == "truncated at 2");
  CHECK(refused("I1\n") == "unsupported at 2");
  CHECK(refused("\x82") == "unsupported at 2");
  CHECK(refused("\r") == "unsupported at 2");
  CHECK(refused("\xFF") == "unsupported at 2");
}

TEST_CASE("a pickle whose values need many times its size is refused") {
  std::string unknown_lists;  // of [None], ... without the memos that Python writes
  for (int i = 0; i < 200'000; ++i) unknown_lists += "]Na";
  CHECK(refused('(' + unknown_lists + 't').starts_with("too_costly"));
  std::string small_lists;  // as Python writes [[1], [1], ...]: a list, its memo, an item
  for (int i = 0; i < 200'000; ++i) small_lists += "]\x94K\1a";
  CHECK(error_of(tests::opcodes::pickle('(' + small_lists + 't')) == "accepted");
}

}  // namespace onecopy
