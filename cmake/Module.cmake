# A module is a folder, a static library, and a list of the modules it may use. The DEPENDS lists in src/CMakeLists.txt are
# the layer diagram: tools/check_layers.py holds every #include against them.
function(onecopy_module name)
  cmake_parse_arguments(MODULE "PRIVATE" "" "DEPENDS;SOURCES" ${ARGN})
  add_library(onecopy_${name} STATIC ${MODULE_SOURCES})
  add_library(onecopy::${name} ALIAS onecopy_${name})
  target_include_directories(
    onecopy_${name}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_features(onecopy_${name} PUBLIC cxx_std_20)
  target_link_libraries(onecopy_${name} PUBLIC $<BUILD_INTERFACE:onecopy_sanitizers>)
  target_link_libraries(onecopy_${name} PRIVATE $<BUILD_INTERFACE:onecopy_warnings>)
  set_target_properties(onecopy_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF EXPORT_NAME ${name})
  if(ONECOPY_POSIX_ONLY)
    target_compile_options(onecopy_${name} PRIVATE -U_GNU_SOURCE -D_XOPEN_SOURCE=700 -include ${PROJECT_SOURCE_DIR}/cmake/posix_only.hpp)
  endif()
  if(ONECOPY_PRECOMPILE)
    if(NOT name STREQUAL base)
      target_precompile_headers(onecopy_${name} REUSE_FROM onecopy_base)
    else()
      target_precompile_headers(onecopy_base PRIVATE ${PROJECT_SOURCE_DIR}/cmake/precompiled.hpp)
    endif()
  endif()
  foreach(dependency IN LISTS MODULE_DEPENDS)
    target_link_libraries(onecopy_${name} PUBLIC onecopy_${dependency})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY onecopy_modules ${name})
endfunction()
