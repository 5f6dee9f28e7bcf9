# ONECOPY_SANITIZE: a list for -fsanitize, e.g. "address,undefined"; empty for none. Everything links with it, because a
# program with one sanitised half reports what is not there.
add_library(onecopy_sanitizers INTERFACE)
if(ONECOPY_SANITIZE)
  target_compile_options(onecopy_sanitizers INTERFACE -fsanitize=${ONECOPY_SANITIZE} -fno-omit-frame-pointer
                                                      -fno-sanitize-recover=all)
  target_link_options(onecopy_sanitizers INTERFACE -fsanitize=${ONECOPY_SANITIZE})
endif()

add_library(onecopy_warnings INTERFACE)
target_compile_options(
  onecopy_warnings
  INTERFACE -Wall -Wextra
            # A designated initializer sets the members that it does not name to their defaults, but
            # -Wextra warns about them.
            -Wno-missing-field-initializers
            -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wold-style-cast -Wnon-virtual-dtor
            -Woverloaded-virtual $<$<BOOL:${ONECOPY_WERROR}>:-Werror>
            # Wrong about `"text" + std::to_string(n)` in GCC 12: https://gcc.gnu.org/bugzilla/show_bug.cgi?id=105651
            $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict -Wno-stringop-overflow -Wno-array-bounds>
            # __COUNTER__, of doctest: a warning of -Wpedantic in Clang 22.
            $<$<AND:$<CXX_COMPILER_ID:Clang>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,22>>:-Wno-c2y-extensions>)
if(NOT ONECOPY_SANITIZE) # sanitizers put more there
  target_compile_options(onecopy_warnings INTERFACE -Wframe-larger-than=32768) # a thread of musl has 128 KiB of stack
endif()
