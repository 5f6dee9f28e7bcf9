#include "formats/parsing.hpp"
#include "onecopy/formats/torch_zip.hpp"
#include "pickle_of.hpp"
#include "precompiled.hpp"

namespace onecopy {
namespace {

using namespace testing;

using namespace tests::opcodes;
using tests::little;
using tests::zip_of;
using tests::ZipMember;
using Numbers = std::vector<std::uint64_t>;

constexpr std::string_view sixteen = "0123456789abcdef";

// A checkpoint of this value, with one storage of 16 bytes, "0", and an empty one, "1".
std::string checkpoint(const std::string& value, std::vector<ZipMember> more = {}) {
  std::vector<ZipMember> members{{.name = "x/data.pkl", .data = tests::opcodes::pickle(value)},
                                 {.name = "x/byteorder", .data = "little"},
                                 {.name = "x/data/0", .data = std::string(sixteen)},
                                 {.name = "x/data/1", .data = ""}};
  members.insert(members.end(), more.begin(), more.end());
  return zip_of(std::move(members));
}

constexpr auto error_of = error_in<torch_zip::parse>;

std::string names_in(const std::string& value) {
  const auto index = torch_zip::parse(bytes_of(checkpoint(value)));
  std::string all;
  for (const Entry& entry : index.entries()) all += std::string(all.empty() ? "" : " ") + std::string(entry.name);
  return all;
}

std::string left_out_of(const std::string& value) {
  const auto index = torch_zip::parse(bytes_of(checkpoint(value)));
  const auto found = index.metadata().find("left out");
  return found == index.metadata().end() ? "" : found->second;
}

std::string floats() { return storage("FloatStorage", "0", 4); }
std::string some_tensor() { return tensor(floats(), 0, {4}, {1}); }

// A dict of one tensor beside something else.
std::string beside(const std::string& other) { return dict({text("w"), some_tensor(), text("other"), other}); }

}  // namespace

TEST_CASE("the name of a tensor is the path to it") {
  const auto w = some_tensor();
  CHECK(names_in(w) == "array");
  CHECK(names_in(dict({text("model"), dict({text("0.weight"), w}), integer(3), w})) == "model.0.weight 3");
  CHECK(names_in("](" + w + dict({text("a"), w}) + tuple({w}) + "e") == "0 1.a 2.0");
  CHECK(names_in(dict({"N", w, text("list"), "](" + w + "e"})) == "[0] list.0");
  CHECK(names_in(call("collections", "OrderedDict", ")") + "(" + text("a") + w + "u" + dict({text("_metadata"), "N"}) +
                 "b") == "a");
  CHECK(names_in(call("collections", "defaultdict", global("__builtin__", "dict") + "\x85") + "(" + text("a") + w +
                 "u") == "a");
  CHECK(names_in(dict({text(""), dict({text("a"), w})})) == ".a");
  CHECK(error_of(checkpoint(dict({text("a.b"), w, text("a"), dict({text("b"), w})}))) == "inconsistent");
}

TEST_CASE("what a checkpoint has beside its tensors is named with the reason") {
  const auto w = some_tensor();
  CHECK(left_out_of(dict({text("w"), w, text("empty"), dict({})})).empty());
  CHECK(left_out_of(dict({text("w"), w, text("epoch"), integer(3), text("a"), dict({text("b"), "N"}), text("list"),
                          "](" + integer(1) + integer(2) + w + "e", text("o"), call("my", "Class", ")")})) ==
        R"({"my.Class": ["o"], "numbers, texts and other values": ["epoch", "a.b", "list"]})");
  std::string below = "}(";
  for (int i = 0; i < 40; ++i) below += text("k" + std::to_string(i)) + "N";
  const auto long_names = left_out_of(dict({text("w"), w, text(std::string(1000, 'a')), below + "u"}));
  CHECK(long_names.size() < 2500);  // of 40,000 bytes of names
  CHECK(long_names.ends_with(R"("..."]})"));
}

TEST_CASE("parameters, subclasses and newer types are tensors") {
  const auto parameter = call("torch._utils", "_rebuild_parameter", tuple({some_tensor(), "\x88", hooks()}));
  CHECK(names_in(dict({text("p"), parameter})) == "p");
  const auto stateful =
      call("torch._utils", "_rebuild_parameter_with_state", tuple({some_tensor(), "\x88", hooks(), "}"}));
  CHECK(names_in(dict({text("p"), stateful})) == "p");
  const auto arguments = tuple({floats(), integer(0), counts({4}), counts({1}), "\x89", hooks()});
  const auto of_type = [&](const std::string& type) {
    return call("torch._tensor", "_rebuild_from_type_v2",
                tuple({global("torch._utils", "_rebuild_tensor_v2"), type, arguments, "}"}));
  };
  CHECK(names_in(dict({text("p"), of_type(global("torch", "Tensor"))})) == "p");
  CHECK(names_in(dict({text("p"), of_type(global("my", "Image"))})) == "p");
  const auto third = [](std::string_view type) {
    return call("torch._utils", "_rebuild_tensor_v3",
                tuple({storage("UntypedStorage", "0", 16, "torch.storage"), integer(1), counts({7}), counts({1}),
                       "\x89", hooks(), global("torch", type)}));
  };
  const auto file =
      checkpoint(dict({text("u"), third("uint16"), text("c"), third("complex32"), text("new"), third("float3")}));
  CHECK(error_of(file) == "out_of_bounds");
  const auto good =
      checkpoint(dict({text("u"), third("uint16"), text("bits"), third("bits8"), text("new"), third("float3")}));
  const auto index = torch_zip::parse(bytes_of(good));
  CHECK(listed(good, index) == "u U16[7] = 23456789abcdef; bits bits8[7] = 1234567");
  CHECK(index.metadata().at("left out") == R"({"torch.float3": ["new"]})");
  const auto sized = call("torch", "Size", counts({4}) + "\x85");
  const auto first = call("torch._utils", "_rebuild_tensor", tuple({floats(), integer(0), sized, counts({1})}));
  CHECK(names_in(dict({text("w"), first})) == "w");
}

TEST_CASE("tied tensors share their bytes, and one object can have two names") {
  const auto file = checkpoint(
      dict({text("a"), some_tensor() + "q" + little(0, 1), text("b"), "h" + little(0, 1), text("c"), some_tensor()}));
  const auto data = std::string(sixteen);
  CHECK(listed(file, torch_zip::parse(bytes_of(file))) ==
        "a F32[4] = " + data + "; b F32[4] = " + data + "; c F32[4] = " + data);
}

TEST_CASE("what is no tensor is named, not read") {
  const auto left_out_beside = [](const std::string& other) { return left_out_of(beside(other)); };
  CHECK(left_out_beside(call("argparse", "Namespace", ")") + "}b") == R"({"argparse.Namespace": ["other"]})");
  CHECK(left_out_beside(call("posix", "system", text("false") + "\x85")) == R"({"posix.system": ["other"]})");
  CHECK(left_out_beside(call("torch", "device", text("cpu") + "\x85")) == R"({"torch.device": ["other"]})");
  CHECK(left_out_beside(floats()) == R"({"a storage without a tensor": ["other"]})");
  CHECK(left_out_beside(tensor(storage("QInt8Storage", "0", 16), 0, {16}, {1})) ==
        R"({"torch.QInt8Storage": ["other"]})");
  CHECK(left_out_beside(tensor(floats(), 0, {4}, {1}, dict({text("conj"), "\x88"}))) ==
        R"({"conjugated or negated": ["other"]})");
  CHECK(names_in(beside(tensor(floats(), 0, {4}, {1}, "}"))) == "w other");
  CHECK(left_out_beside(call("collections", "OrderedDict", "]\x85")) == R"({"collections.OrderedDict": ["other"]})");
  CHECK(error_of(checkpoint(call("__main__", "Net", ")"))) == "not_this_format");
  CHECK(names_in(dict({text("epoch"), integer(3)})).empty());
}

TEST_CASE("inconsistencies of a tensor are reported with its name") {
  const auto with = [](const std::string& value) { return error_of(checkpoint(dict({text("w"), value}))); };
  CHECK(with(tensor(storage("FloatStorage", "7", 4), 0, {4}, {1})) == "out_of_bounds");
  CHECK(with(tensor(storage("FloatStorage", "0", 5), 0, {4}, {1})) == "inconsistent");
  CHECK(with(tensor(storage("DoubleStorage", "0", 4), 0, {4}, {1})) == "inconsistent");
  CHECK(with(tensor(floats(), 0, {5}, {1})) == "out_of_bounds");
  CHECK(with(tensor(floats(), 4, {1}, {1})) == "out_of_bounds");
  CHECK(with(tensor(floats(), 0, {2, 2}, {3, 1})) == "out_of_bounds");
  CHECK(with(tensor(floats(), 0, {2}, {INT64_MAX})) == "out_of_bounds");
  CHECK(with(tensor(floats(), INT64_MAX, {2}, {INT64_MAX})) == "out_of_bounds");
  CHECK(with(tensor(floats(), 0, {1ULL << 62U, 2}, {0, 0})) == "out_of_bounds");
  CHECK(with(tensor(floats(), 0, {UINT64_MAX}, {0})) == "malformed");
  CHECK(with(tensor(floats(), UINT64_MAX, {1}, {0})) == "malformed");
  CHECK(with(tensor(floats(), 0, {4}, {1, 1})) == "inconsistent");
  CHECK(with(tensor(floats(), 0, Numbers(65, 1), Numbers(65, 1))) == "too_costly");
  CHECK(with(tensor("N", 0, {4}, {1})) == "malformed");
  CHECK(with(tensor("NQ", 0, {4}, {1})) == "malformed");
  CHECK(with(tensor(storage("FloatStorage", "\xFF", 4), 0, {4}, {1})) == "malformed");
  CHECK(with(call("torch._utils", "_rebuild_tensor_v2", tuple({floats()}))) == "malformed");
  const auto loose = call("torch._utils", "_rebuild_tensor", tuple({floats(), integer(0), "N", "N"}));
  CHECK(with(loose) == "malformed");
  CHECK(error_of(checkpoint(dict({text("\xFF"), some_tensor()}))) == "malformed");
}

TEST_CASE("what holds itself is gone through once, and depth and sharing have an end") {
  const auto itself = "}q" + little(0, 1) + "(" + text("me") + "h" + little(0, 1) + text("w") + some_tensor() + "u";
  CHECK(names_in(itself) == "w");
  std::string deep = some_tensor();
  for (std::size_t i = 0; i < torch_zip::deepest; ++i) deep = "]" + deep + "a";
  CHECK(error_of(checkpoint(deep)) == "accepted");
  CHECK(error_of(checkpoint("]" + deep + "a")) == "too_costly");
  // Each list holds the one before twice: 2^40 paths in some 400 bytes.
  std::string doubled = "]";
  for (int i = 0; i < 40; ++i)
    doubled = "](" + doubled + "q" + little(static_cast<std::uint64_t>(i), 1) + "h" +
              little(static_cast<std::uint64_t>(i), 1) + "e";
  CHECK(error_of(checkpoint(doubled)) == "too_costly");
  // One tensor under many names that begin with the same long key.
  std::string names = "}q" + little(0, 1) + "(" + text("0") + some_tensor() + "q" + little(1, 1);
  for (int i = 0; i < 100; ++i) names += integer(static_cast<std::uint64_t>(i) + 1) + "h" + little(1, 1);
  CHECK(error_of(checkpoint(dict({text(std::string(60'000, 'k')), names + "u"}))) == "too_costly");
}

TEST_CASE("what is no checkpoint for us is refused by name") {
  const auto root = tests::opcodes::pickle(some_tensor());
  const ZipMember data{.name = "x/data.pkl", .data = root};
  const ZipMember bytes{.name = "x/data/0", .data = std::string(sixteen)};
  CHECK(error_of(zip_of({data, bytes})) == "accepted");  // byteorder came later
  const auto old = std::string("\x80\x02\x8A\x0A\x6C\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19.\x80\x02");
  CHECK(torch_zip::is_torch_zip(bytes_of(old)));
  CHECK(error_of(old) == "unsupported");
  CHECK(error_of(zip_of({data, bytes, {.name = "x/constants.pkl"}})) == "not_this_format");
  CHECK(error_of(zip_of({data, bytes, {.name = "x/code/net.py"}})) == "not_this_format");
  CHECK(error_of(zip_of({data, bytes, {.name = "x/byteorder", .data = "big"}})) == "unsupported");
  CHECK(error_of(zip_of({data, bytes, {.name = "x/byteorder", .data = "?"}})) == "unsupported");
  CHECK(error_of(zip_of({bytes})) == "not_this_format");
  CHECK(error_of(zip_of({})) == "malformed");
  CHECK(error_of(zip_of({data, {.name = "y/data/0"}})) == "malformed");
  CHECK(error_of(zip_of({data, {.name = "x/data/0", .data = "packed", .method = 8, .size = 16}})) == "unsupported");
  CHECK(error_of(zip_of({{.name = "x/data.pkl", .data = root, .method = 8}, bytes})) == "unsupported");
  CHECK(torch_zip::is_torch_zip(bytes_of(zip_of({bytes, data}))));
  CHECK(!torch_zip::is_torch_zip(bytes_of(zip_of({bytes}))));
  CHECK(!torch_zip::is_torch_zip(bytes_of(zip_of({{.name = "data.pkl"}, {.name = "a/b/data.pkl"}}))));
  CHECK(!torch_zip::is_torch_zip({}));
}

TEST_CASE("a checkpoint cut or flipped anywhere is accepted or refused, never worse") {
  const auto good = checkpoint(dict({text("a"), some_tensor(), text("b"), tensor(floats(), 1, {1, 2}, {3, 2})}));
  check_damaged(good, [](Bytes file) { return ranges_of(torch_zip::parse(file)); });
}

}  // namespace onecopy
