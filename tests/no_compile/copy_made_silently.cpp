// error: conversion
#include <vector>

#include "onecopy/structs/owning_span.hpp"
int main() {
  std::vector<int> words{1};
#ifdef MUST_NOT_COMPILE
  const onecopy::OwningSpan<int> span = words;
#else
  const onecopy::OwningSpan<int> span(words);
#endif
  return span[0];
}
