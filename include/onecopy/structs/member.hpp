// Paths spelled as members: <&Index::rank, &Rank::blocks> is "rank.blocks".
#pragma once

#include <memory>
#include <string>

#include "onecopy/structs/type_of.hpp"

namespace onecopy::structs {

// The name of a record's field, by its address. Throws std::out_of_range for a member that visit() does not list.
std::string path_of(const Type& record, const void* object, const void* field, const Type& type);

template <class Member>
struct MemberOf;
template <class Class, class Value>
struct MemberOf<Value Class::*> {
  using class_type = Class;
  using field_type = Value;
};

template <auto first, auto... rest>
struct LastMember {
  using class_type = typename MemberOf<decltype(first)>::class_type;
  using field_type = typename LastMember<rest...>::field_type;
};
template <auto last>
struct LastMember<last> : MemberOf<decltype(last)> {};

template <auto first, auto... rest>
const auto& follow(const typename MemberOf<decltype(first)>::class_type& object) {
  if constexpr (sizeof...(rest) == 0)
    return object.*first;
  else
    return follow<rest...>(object.*first);
}

// "rank.blocks" of <&Index::rank, &Rank::blocks>.
template <auto first, auto... rest>
std::string path_through(const typename MemberOf<decltype(first)>::class_type& object) {
  using Class = typename MemberOf<decltype(first)>::class_type;
  std::string path = path_of(type_of<Class>, &object, std::addressof(object.*first),
                             type_of<typename MemberOf<decltype(first)>::field_type>);
  if constexpr (sizeof...(rest) > 0) path += "." + path_through<rest...>(object.*first);
  return path;
}

}  // namespace onecopy::structs
