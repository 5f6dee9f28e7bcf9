#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "back_end.hpp"

#ifdef ONECOPY_OS_linux
constexpr bool linked_with_linux = true;
#else
constexpr bool linked_with_linux = false;
#endif

const bool onecopy::testing::on_linux = linked_with_linux;
