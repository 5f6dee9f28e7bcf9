#include "onecopy/formats/torch_zip.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "formats/entry_list.hpp"
#include "formats/left_out.hpp"
#include "formats/signatures.hpp"
#include "formats/torch/pickle_reader.hpp"
#include "formats/torch/torch_tensor.hpp"
#include "formats/wire/json.hpp"
#include "formats/wire/zip.hpp"
#include "formats/work_budget.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy::torch_zip {
namespace {

using json::describe;
using pickle::Global;
using pickle::Id;
using pickle::Kind;

constexpr std::string_view plain_values = "numbers, texts and other values";

// "<folder>/data.pkl", in one folder
bool is_root(std::string_view name) noexcept {
  const auto slash = name.find('/');
  return slash != std::string_view::npos && name.substr(slash) == "/data.pkl";
}

// Visits dicts, lists and tuples from the root, in their order. Since containers can be shared, a small pickle can have
// very many paths: their number and the bytes of all names are limited by the pickle's size.
class Walk {
 public:
  Walk(const pickle::Values& values, const TensorReader& tensors, LeftOut& left_out, std::uint64_t pickle_size)
      : values_(values),
        tensors_(tensors),
        left_out_(left_out),
        visits_(pickle_size,
                "torch: its dicts and lists share so much that there are more paths than the pickle has bytes"),
        left_out_bytes_left_(pickle_size),
        name_bytes_(pickle_size * 4 + 65536, "torch: the names of all tensors are much longer than the pickle") {}

  EntryList from(Id root) {
    visit(root);
    return std::move(entries_);
  }

 private:
  // False: a number, a text or another value without a use here.
  bool visit(Id id) {
    visits_.spend(1);
    switch (values_.kind(id)) {
      case Kind::dict: inside(id, [&] { visit_items(id); }); break;
      case Kind::list:
      case Kind::tuple: inside(id, [&] { visit_sequence(id); }); break;
      case Kind::object: visit_object(id); break;
      case Kind::persistent: leave_out("a storage without a tensor"); break;
      default: return false;
    }
    return true;
  }

  // Names are cut off where they would be longer than the pickle.
  void leave_out(std::string_view why) {
    const std::uint64_t length = path_.size() + 1;
    if (left_out_bytes_left_ != 0) left_out_.add(why, length <= left_out_bytes_left_ ? path_ : "...");
    left_out_bytes_left_ -= std::min(left_out_bytes_left_, length);
  }

  void visit_object(Id id) {
    const Id callable = values_.callable(id);
    const auto function = values_.kind(callable) == Kind::global ? values_.global(callable) : Global{};
    const bool is_ordered = function == Global{"collections", "OrderedDict"};
    const bool is_of_python_2 = is_ordered && !values_.items(values_.arguments(id)).empty();  // items as arguments
    if (function == Global{"collections", "defaultdict"} || (is_ordered && !is_of_python_2))
      return inside(id, [&] { visit_items(id); });
    name_bytes_.spend(path_.size());
    std::string why;
    if (auto found = tensors_.read(id, on_path_.empty() ? std::string(array_name) : path_, why))
      entries_.add(std::move(*found));
    else
      leave_out(why);
  }

  // A container that contains itself is visited once.
  template <class Visit>
  void inside(Id id, const Visit& visit_all) {
    if (std::ranges::find(on_path_, id) != on_path_.end()) return;
    if (on_path_.size() == deepest)
      reject(FormatError::too_costly, "torch: dicts and lists are nested deeper than " + std::to_string(deepest));
    on_path_.push_back(id);
    visit_all();
    on_path_.pop_back();
  }

  void visit_items(Id id) {
    const auto items = values_.items(id);
    const auto visit_item = [this](std::string_view key, Id item) {
      visit_at(key, item, [this] { leave_out(plain_values); });
    };
    for (std::size_t i = 0; i < items.size(); i += 2) {
      if (values_.kind(items[i]) == Kind::text)
        visit_item(text(items[i]), items[i + 1]);
      else if (values_.kind(items[i]) == Kind::integer)
        visit_item(std::to_string(values_.integer(items[i])), items[i + 1]);
      else
        visit_item('[' + std::to_string(i / 2) + ']', items[i + 1]);  // the position of an item whose key has no name
    }
  }

  void visit_sequence(Id id) {
    const auto items = values_.items(id);
    bool is_left_out = false;
    for (std::size_t i = 0; i < items.size(); ++i)
      if (!visit_at(std::to_string(i), items[i], [] {})) is_left_out = true;
    if (is_left_out) leave_out(plain_values);  // under one name, that of the list
  }

  template <class LeaveOut>
  bool visit_at(std::string_view key, Id id, const LeaveOut& leave_out_item) {
    const std::size_t before = path_.size();
    name_bytes_.spend(key.size());
    if (on_path_.size() > 1) path_ += '.';
    path_ += key;
    const bool is_found = visit(id);
    if (!is_found) leave_out_item();
    path_.resize(before);
    return is_found;
  }

  std::string_view text(Id key) const {
    const auto text = values_.text(key);
    if (!json::is_utf8(text)) reject(FormatError::malformed, "torch: a key in " + describe(path_) + " is not UTF-8");
    return text;
  }

  const pickle::Values& values_;
  const TensorReader& tensors_;
  LeftOut& left_out_;
  WorkBudget visits_;
  std::uint64_t left_out_bytes_left_;
  WorkBudget name_bytes_;
  std::vector<Id> on_path_;
  std::string path_;
  EntryList entries_;
};

void check_kind(const Archive& archive) {
  if (archive.find("constants.pkl") != nullptr || archive.has_folder("code/"))
    throw FormatError(
        FormatError::not_this_format,
        "torch: this is a TorchScript archive, code for torch.jit.load; save the module's state_dict() with "
        "torch.save",
        {}, "TorchScript archive");
  const zip::Member* order = archive.find("byteorder");
  if (order == nullptr) return;  // written before torch 2.1, in the unrecorded byte order of its machine
  if (order->method != zip::Method::stored)
    reject(FormatError::unsupported,
           "torch: its members are compressed, and cannot be mapped: load it, and save it again with "
           "torch.save, which writes them as they are");
  if (archive.text(*order) != "little")
    reject(FormatError::unsupported,
           archive.text(*order) == "big"
               ? "torch: its numbers are big-endian, and only little-endian ones can be mapped"
               : "torch: its byte order is neither little nor big");
}

const zip::Member& root_of(const Archive& archive) {
  const zip::Member* root = archive.find("data.pkl");
  if (root == nullptr)
    reject(FormatError::not_this_format, "torch: there is no data.pkl in the archive (is this a file of torch.save?)");
  if (root->method != zip::Method::stored)
    reject(FormatError::unsupported, "torch: data.pkl is compressed: torch.save writes it as it is");
  return *root;
}

pickle::Pickle read_pickle(const Archive& archive, const zip::Member& root) {
  try {
    return pickle::read(archive.text(root));
  } catch (const FormatError& error) {
    throw error.moved_by(root.data.offset);
  }
}

}  // namespace

bool is_torch_zip(Bytes file) { return signatures::legacy_torch.is_in(file) || zip::any_name(file, is_root); }

Index parse(Bytes file) {
  if (signatures::legacy_torch.is_in(file))
    reject(
        FormatError::unsupported,
        "torch: saved in the legacy format of torch.save, which cannot be mapped: load it and save it again in the zip "
        "format, the default since torch 1.6");
  const Archive archive(file);
  check_kind(archive);
  const zip::Member& root = root_of(archive);
  const auto pickle = read_pickle(archive, root);
  const TensorReader tensors(pickle.values, archive);
  LeftOut left_out;
  auto entries = Walk(pickle.values, tensors, left_out, root.data.length).from(pickle.root);
  const auto reasons = left_out.reasons_but(plain_values);
  if (entries.empty() && !reasons.empty())
    reject(FormatError::not_this_format,
           "torch: there is no tensor in its dicts and lists, only what unpickling would have to make: " + reasons +
               " (save a module's state_dict())");
  std::map<std::string, std::string, std::less<>> metadata{{"format", "pt"}};
  left_out.report(metadata);
  return std::move(entries).finish_at_first("torch", std::move(metadata), 0);
}

}  // namespace onecopy::torch_zip
