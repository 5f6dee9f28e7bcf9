// The opcodes of pickles, protocol 0 to 5, with their names in Python's pickletools.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace onecopy::pickle {

enum class Op : std::uint8_t {
  mark = '(',
  stop = '.',
  pop = '0',
  pop_mark = '1',
  dup = '2',
  binbytes = 'B',
  short_binbytes = 'C',
  binfloat = 'G',
  binint = 'J',
  binint1 = 'K',
  binint2 = 'M',
  none = 'N',
  binpersid = 'Q',
  reduce = 'R',
  binstring = 'T',
  short_binstring = 'U',
  binunicode = 'X',
  empty_list = ']',
  append = 'a',
  build = 'b',
  global = 'c',
  appends = 'e',
  binget = 'h',
  long_binget = 'j',
  binput = 'q',
  long_binput = 'r',
  setitem = 's',
  tuple = 't',
  setitems = 'u',
  empty_dict = '}',
  empty_tuple = ')',
  proto = 0x80,
  newobj = 0x81,
  tuple1 = 0x85,
  tuple2 = 0x86,
  tuple3 = 0x87,
  newtrue = 0x88,
  newfalse = 0x89,
  long1 = 0x8A,
  long4 = 0x8B,
  short_binunicode = 0x8C,
  binunicode8 = 0x8D,
  binbytes8 = 0x8E,
  empty_set = 0x8F,
  additems = 0x90,
  frozenset = 0x91,
  newobj_ex = 0x92,
  stack_global = 0x93,
  memoize = 0x94,
  frame = 0x95,
  bytearray8 = 0x96,
};

// The names of all other opcodes, which are recognised but not supported.
struct Unread {
  std::uint8_t code;
  std::string_view name;
};

inline constexpr std::array<Unread, 19> unread{{
    {'F', "FLOAT"},
    {'I', "INT"},
    {'L', "LONG"},
    {'P', "PERSID"},
    {'S', "STRING"},
    {'V', "UNICODE"},
    {'d', "DICT"},
    {'g', "GET"},
    {'i', "INST"},
    {'l', "LIST"},
    {'o', "OBJ"},
    {'p', "PUT"},
    {0x82, "EXT1"},
    {0x83, "EXT2"},
    {0x84, "EXT4"},
    {0x97, "NEXT_BUFFER"},
    {0x98, "READONLY_BUFFER"},
    {'\r', "a line's end"},  // a pickle that went through a text editor, or a transfer as text
    {'\n', "a line's end"},
}};

}  // namespace onecopy::pickle
