// Wrong lifetimes do not compile: what lies in an object is not given by a temporary one, which would be gone before it
// is read, and what owns memory is not copied.
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "onecopy/arrays/array_file.hpp"
#include "onecopy/files/mapping.hpp"
#include "onecopy/formats/index.hpp"
#include "onecopy/scratch/scratch.hpp"
#include "onecopy/scratch/scratch_file.hpp"
#include "onecopy/store/store.hpp"
#include "onecopy/structs/structs.hpp"

namespace onecopy {
namespace {

struct Words {
  OwningSpan<int> words;
};

// VIEW is an expression, and so this is a macro.
#define GIVEN_BY_LVALUES_ALONE(NAME, VIEW, ...)                        \
  template <class T>                                                   \
  concept NAME = requires(T&& owner) { std::forward<T>(owner) VIEW; }; \
  static_assert(NAME<__VA_ARGS__&> && !NAME<__VA_ARGS__>)

GIVEN_BY_LVALUES_ALONE(array_bytes, .bytes("weights"), ArrayFile);
GIVEN_BY_LVALUES_ALONE(array_index, .index(), ArrayFile);
GIVEN_BY_LVALUES_ALONE(mapping_bytes, .bytes(), Mapping);
GIVEN_BY_LVALUES_ALONE(scratch_bytes, .bytes(), ScratchFile);
GIVEN_BY_LVALUES_ALONE(scratch_row, .row(0), Scratch<std::uint16_t>);
GIVEN_BY_LVALUES_ALONE(index_entries, .entries(), Index);
GIVEN_BY_LVALUES_ALONE(index_find, .find("name"), Index);
GIVEN_BY_LVALUES_ALONE(store_folder, .folder(), Store);
GIVEN_BY_LVALUES_ALONE(struct_field, ->words, StructFile<Words>);
GIVEN_BY_LVALUES_ALONE(struct_value, .operator*(), StructFile<Words>);
GIVEN_BY_LVALUES_ALONE(span, .span(), OwningSpan<int>);

static_assert(!std::copy_constructible<Index>);    // its names would look into the first one's text
static_assert(!std::copy_constructible<Mapping>);  // two owners of one address range
static_assert(std::move_constructible<Index> && std::move_constructible<Mapping>);

template <class T>
concept writable = requires(T bytes) { bytes[0] = std::byte{1}; };
static_assert(!writable<decltype(std::declval<Mapping&>().bytes())>);
static_assert(writable<decltype(std::declval<Mapping&>().private_bytes())>);
template <class T>
concept has_private_bytes = requires(T& mapping) { mapping.private_bytes(); };
static_assert(has_private_bytes<Mapping> && !has_private_bytes<const Mapping>);

}  // namespace
}  // namespace onecopy
